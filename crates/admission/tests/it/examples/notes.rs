//! The notes server, with real webhook calls.

#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../../examples/aggregated.rs"]
mod aggregated;

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_testkit::{ScriptedResponse, WebhookServer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

const NOTES: &str = "/apis/notes.example.com/v1/namespaces/home/notes";

fn manifest(server: &WebhookServer) -> String {
    let ca = BASE64_STANDARD.encode(server.ca_pem());
    let configuration = |kind: &str, path: &str, operations: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: {kind}WebhookConfiguration
metadata: {{name: notes}}
webhooks:
- name: {path}.example.com
  clientConfig: {{url: '{}', caBundle: {ca}}}
  rules:
  - {{operations: [{operations}], apiGroups: [notes.example.com], apiVersions: [v1], resources: [notes]}}
  sideEffects: None
  admissionReviewVersions: [v1]
",
            server.url(&format!("/{path}"))
        )
    };
    [
        configuration("Mutating", "sign", "CREATE, UPDATE"),
        configuration("Validating", "check", "'*'"),
    ]
    .join("---\n")
}

/// The code, the `Warning` header if any, and the body.
async fn ask(at: SocketAddr, method: Method, path: &str, body: &Value) -> (u16, String, Value) {
    let stream = TcpStream::connect(at).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "notes")
        .header("x-remote-user", "ann")
        .header("x-remote-group", "family")
        .body(Full::new(Bytes::from(body.to_string())));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let warning = response.headers().get("warning");
    let warning = warning.map(|value| value.to_str().unwrap().to_owned());
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap();
    (code, warning.unwrap_or_default(), body)
}

#[tokio::test]
async fn writes_of_notes_pass_the_chain() {
    let hooks = WebhookServer::start().await;
    let sign = json!([{"op": "add", "path": "/signed", "value": "yes"}]);
    hooks.script("/sign", [ScriptedResponse::patch(&sign)]);
    let careful = json!({"allowed": true, "warnings": ["write legibly"]});
    hooks.script(
        "/check",
        [
            ScriptedResponse::respond(careful),
            ScriptedResponse::deny("too late"),
            ScriptedResponse::allow(),
        ],
    );
    let engine = Engine::new(Host::new(Arc::new(HttpsCaller::new(Settings::default()))));
    aggregated::register(&engine, &manifest(&hooks)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let serving = tokio::spawn(aggregated::serve(listener, engine));

    let none = Value::Null;
    let note = json!({"metadata": {"generateName": "list-"}, "text": "buy milk"});
    let (code, warning, made) = ask(at, Method::POST, NOTES, &note).await;
    assert_eq!((code, warning.as_str()), (201, "299 - \"write legibly\""));
    assert_eq!(
        (&made["signed"], &made["text"]),
        (&json!("yes"), &json!("buy milk"))
    );
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("list-") && name.len() > 5, "{name}");
    let path = format!("{NOTES}/{name}");

    // The second response of the validating webhook denies: the note is unchanged.
    let changed = json!({"metadata": {"name": name}, "text": "buy tea"});
    let (code, _, status) = ask(at, Method::PUT, &path, &changed).await;
    let message = "admission webhook \"check.example.com\" denied the request: too late";
    assert_eq!((code, status["message"].as_str()), (403, Some(message)));
    assert_eq!(
        ask(at, Method::GET, &path, &none).await.2["text"],
        "buy milk"
    );

    // A dry run is admitted and not stored.
    let dry = format!("{path}?dryRun=All");
    assert_eq!(
        ask(at, Method::PUT, &dry, &changed).await.2["text"],
        "buy tea"
    );
    assert_eq!(
        ask(at, Method::GET, &path, &none).await.2["text"],
        "buy milk"
    );
    assert_eq!(ask(at, Method::PUT, &path, &changed).await.0, 200);
    assert_eq!(
        ask(at, Method::GET, &path, &none).await.2["text"],
        "buy tea"
    );

    // The reviews that the webhooks received.
    let reviews: Vec<(String, Value)> = hooks
        .requests()
        .iter()
        .map(|seen| {
            (
                seen.path.clone(),
                serde_json::from_slice(&seen.body).unwrap(),
            )
        })
        .collect();
    let told: Vec<(&str, &Value)> = reviews
        .iter()
        .map(|(path, review)| (path.as_str(), &review["request"]))
        .collect();
    assert_eq!(told.len(), 8);
    let (path_of_first, first) = told[0];
    assert_eq!(
        (path_of_first, &first["operation"]),
        ("/sign", &json!("CREATE"))
    );
    assert_eq!(first["name"], Value::Null, "there is none yet");
    assert_eq!(
        first["userInfo"],
        json!({"username": "ann", "groups": ["family"]})
    );
    let (path_of_second, second) = told[1];
    assert_eq!((path_of_second, &second["name"]), ("/check", &json!(name)));
    assert_eq!(second["object"]["signed"], "yes");
    assert_eq!(told[4].1["dryRun"], true);

    assert_eq!(ask(at, Method::DELETE, &path, &none).await.0, 200);
    assert_eq!(ask(at, Method::GET, &path, &none).await.0, 404);
    let list = ask(at, Method::GET, NOTES, &none).await.2;
    assert_eq!(list["items"], json!([]));
    // An unreachable webhook rejects writes, as the default failurePolicy is Fail.
    hooks.stop().await;
    let (code, _, status) = ask(at, Method::POST, NOTES, &note).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (500, Some("InternalError"))
    );
    for (method, path, body, code) in [
        (Method::GET, "/apis/notes.example.com/v1", &none, 404),
        (Method::POST, path.as_str(), &note, 405),
        (Method::POST, NOTES, &json!([]), 400),
        (Method::DELETE, path.as_str(), &none, 404),
    ] {
        assert_eq!(ask(at, method, path, body).await.0, code, "{path}");
    }
    serving.abort();
}
