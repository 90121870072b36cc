//! Log lines of a server, and the address in its kubeconfig.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use crate::served::{Client, DEADLINE, Home, Served, tls};

#[tokio::test]
async fn requests_are_logged_at_debug_level_without_secrets() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .args(["-v", "--log-format=json"])
        .env_remove("RUST_LOG");
    let mut served = Served::start(command);
    let port = served.port();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"password": "hunter2"},
    });
    let path = "/api/v1/namespaces/default/secrets";
    let created = client.send("POST", path, Some(&secret)).await.unwrap();
    assert_eq!(created.0, 201);
    drop(client);
    let log = served.stop();
    let line: Value = log
        .lines()
        // Other lines are the command's messages, not log lines.
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|line: &Value| line["message"] == "request" && line["path"] == path)
        .unwrap_or_else(|| panic!("no line for the request:\n{log}"));
    assert_eq!(
        (&line["method"], &line["code"]),
        (&json!("POST"), &json!(201))
    );
    // The bearer token, the data of the Secret and private keys.
    let token = std::fs::read_to_string(home.path().join("tokens.csv")).unwrap();
    let token = token.split(',').next().unwrap();
    for hidden in [token, "hunter2", "PRIVATE KEY"] {
        assert!(!log.contains(hidden), "{hidden} is logged:\n{log}");
    }
}

#[test]
fn a_filter_that_does_not_parse_is_a_usage_error() {
    let run = Command::new(env!("CARGO_BIN_EXE_lockgate"))
        .args(["serve", "--secure-port=0"])
        .env("RUST_LOG", "lockgate=loud")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("cannot parse RUST_LOG `lockgate=loud`"));
}

#[test]
fn a_server_on_all_addresses_writes_a_usable_kubeconfig() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .args(["--bind-address=0.0.0.0"]);
    let mut served = Served::start(command);
    let port = served.port();
    let kubeconfig = std::fs::read_to_string(home.path().join("kubeconfig")).unwrap();
    let server = format!("server: https://127.0.0.1:{port}\n");
    assert!(kubeconfig.contains(&server), "{kubeconfig}");
    served.stop();
}

/// Reads one request of the trace exporter, responds, and returns its body.
fn collected(listener: &TcpListener) -> Value {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(number) = line.to_lowercase().strip_prefix("content-length: ") {
            length = number.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    stream.write_all(answer.as_bytes()).unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn spans_of_requests_reach_a_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, messages) = std::sync::mpsc::channel();
    std::thread::spawn(move || while sender.send(collected(&listener)).is_ok() {});
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .args(["--otlp-endpoint", &endpoint])
        .env_remove("RUST_LOG");
    let mut served = Served::start(command);
    let port = served.port();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "absent"},
        "webhooks": [{
            "name": "absent.lockgate.test", "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
            "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    let registrations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let made = client
        .send("POST", registrations, Some(&configuration))
        .await;
    assert_eq!(made.unwrap().0, 201);
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    let path = "/api/v1/namespaces/default/secrets";
    let made = client.send("POST", path, Some(&secret)).await;
    assert_eq!(made.unwrap().0, 201);

    // From the webhook call up to the request, by parent span.
    let mut spans: Vec<Value> = Vec::new();
    let attribute = |span: &Value, key: &str| -> Value {
        let mut all = span["attributes"].as_array().unwrap().iter();
        let found = all.find(|attribute| attribute["key"] == key);
        found.map_or(Value::Null, |found| found["value"].clone())
    };
    let request = loop {
        let message: Value = messages.recv_timeout(DEADLINE).unwrap();
        let text = message.to_string();
        assert!(
            !text.contains("hunter2") && !text.contains("a-token"),
            "{text}"
        );
        let scopes = &message["resourceSpans"][0]["scopeSpans"][0];
        spans.extend(scopes["spans"].as_array().unwrap().clone());
        let found = spans.iter().find(|span| {
            span["name"] == "request" && attribute(span, "path")["stringValue"] == path
        });
        if let Some(found) = found {
            break found.clone();
        }
    };
    served.stop();
    assert_eq!(attribute(&request, "code"), json!({"intValue": "201"}));
    assert_eq!(
        (&request["kind"], &request["parentSpanId"]),
        (&json!(2), &json!(""))
    );
    let call = spans
        .iter()
        .find(|span| attribute(span, "webhook")["stringValue"] == "absent.lockgate.test")
        .unwrap();
    let mut above = vec![call["name"].as_str().unwrap()];
    let mut parent = call["parentSpanId"].clone();
    while let Some(span) = spans.iter().find(|span| span["spanId"] == parent) {
        assert_eq!(span["traceId"], request["traceId"]);
        above.push(span["name"].as_str().unwrap());
        parent = span["parentSpanId"].clone();
    }
    assert_eq!(above[1..], ["plugin", "admission", "request"]);
}

#[test]
fn a_collector_that_cannot_be_one_is_a_usage_error() {
    let run = Command::new(env!("CARGO_BIN_EXE_lockgate"))
        .args([
            "serve",
            "--secure-port=0",
            "--otlp-endpoint",
            "grpc://localhost:4317",
        ])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("does not start with http://"));
}
