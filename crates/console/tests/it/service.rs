//! Responses, and access to them.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::support::{Console, DEADLINE};

const HOST: &str = "host: localhost:6480";

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_for_everybody_and_hold_nothing() {
    let console = Console::start().await;
    for path in ["/", "/app.js", "/style.css", "/icon.svg"] {
        let (code, head, body) = console.send(&format!("GET {path}"), &[HOST], "").await;
        assert_eq!(code, 200, "{path}");
        assert!(
            head.contains("content-security-policy: default-src 'none'; script-src 'self';"),
            "{head}"
        );
        assert!(
            head.contains("x-content-type-options: nosniff")
                && head.contains("cache-control: no-store"),
            "{head}"
        );
        assert!(!body.contains(console.token.text()));
        for outside in ["http://", "https://", "//cdn", "innerHTML", "style=\""] {
            let body = body.replace("http://www.w3.org/2000/svg", "");
            assert!(!body.contains(outside), "{path} has {outside}");
        }
    }
    let (code, ..) = console.send("POST /", &[HOST], "").await;
    assert_eq!(code, 405);
    let (code, ..) = console.send("GET /nothing", &[HOST], "").await;
    assert_eq!(code, 404);
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_may_are_answered() {
    let console = Console::start().await;
    let token = format!("authorization: Bearer {}", console.token.text());
    let cases: [(&[&str], u16); 7] = [
        (&[HOST, &token], 200),
        (&["host: evil.example", &token], 421),
        (&[HOST, &token, "origin: http://evil.example"], 403),
        (&[HOST, &token, "sec-fetch-site: cross-site"], 403),
        (&[HOST], 403),
        (&[HOST, "authorization: Bearer guess"], 401),
        (&[HOST, "authorization: Bearer viewer-token"], 200),
    ];
    for (headers, want) in cases {
        let (code, _, body) = console.send("GET /api/requests", headers, "").await;
        assert_eq!(code, want, "{headers:?}: {body}");
    }
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_for_those_who_may_do_everything() {
    let console = Console::start().await;
    console.create("configmaps", "a", config_map()).await;
    console.rows(1).await;
    let viewer = [HOST, "authorization: Bearer viewer-token"];
    let (code, _, body) = console.send("GET /api/session", &viewer, "").await;
    assert_eq!(
        (code, body.contains("\"seesObjects\":false")),
        (200, true),
        "{body}"
    );
    let (code, _, body) = console.send("GET /api/requests/1", &viewer, "").await;
    let detail: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &detail["objectsOmitted"]), (200, &json!(true)));
    assert!(
        !body.contains("\"k\":\"v\"") && !body.contains("changes") && !body.contains("blame"),
        "{body}"
    );
    assert!(body.contains("owner.example.com"), "{body}");
    for (path, body) in [
        ("/api/cel", r#"{"request":1,"expression":"object"}"#),
        ("/api/capture", r#"{"requests":[1]}"#),
    ] {
        let (code, ..) = console.send(&format!("POST {path}"), &viewer, body).await;
        assert_eq!(code, 403, "{path}");
        let token = format!("authorization: Bearer {}", console.token.text());
        let (code, ..) = console
            .send(&format!("POST {path}"), &[HOST, &token], body)
            .await;
        assert_eq!(code, 200, "{path}");
    }
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_told_with_its_changes_and_who_made_them() {
    let console = Console::start().await;
    console.create("configmaps", "a", config_map()).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}});
    console.create("pods", "b", pod).await;
    let rows = console.rows(2).await;
    assert_eq!(
        (&rows[0]["verdict"], &rows[0]["changed"], &rows[0]["names"]),
        (
            &json!("allowed"),
            &json!(true),
            &json!(["owner.example.com"])
        )
    );
    assert_eq!(
        (&rows[1]["verdict"], &rows[1]["by"]["name"]),
        (&json!("denied"), &json!("images.example.com"))
    );
    let message =
        "admission webhook \"images.example.com\" denied the request: image has no version";
    assert_eq!(rows[1]["message"], message);

    let detail = console.get("/api/requests/1").await;
    let author = json!({"type": "webhook", "name": "owner.example.com", "configuration": "owners", "round": 1});
    assert_eq!(
        detail["blame"],
        json!({"/metadata/labels": author, "/data/added": author})
    );
    assert_eq!(
        detail["finalObject"]["metadata"]["labels"],
        json!({"owner": "ann"})
    );
    assert_eq!(detail["object"]["metadata"].get("labels"), None);
    let hooks = |detail: &Value| -> Vec<Value> {
        let steps = detail["steps"].as_array().unwrap().iter();
        let runs = steps.flat_map(|step| step["runs"].as_array().unwrap());
        runs.flat_map(|run| run["hooks"].as_array().unwrap().clone())
            .collect()
    };
    let hook = &hooks(&detail)[0];
    assert_eq!(
        (&hook["result"], &hook["changes"][0]["path"]),
        (&json!("patched"), &json!("/data/added"))
    );
    let detail = console.get("/api/requests/2").await;
    let hook = &hooks(&detail)[0];
    assert_eq!(
        (&hook["result"], &hook["message"]),
        (&json!("denied"), &json!(message))
    );
    assert_eq!(hook["condition"]["verdict"], "matched");

    let registered = console.get("/api/registered").await;
    let row = &registered["rows"][0];
    assert_eq!(
        (
            &row["name"],
            &row["counts"]["calls"],
            &row["counts"]["denied"]
        ),
        (&json!("images.example.com"), &json!(1), &json!(1))
    );
    let findings = row["findings"].as_array().unwrap();
    assert!(
        findings.iter().any(|finding| finding["rule"] == "W007"),
        "{findings:?}"
    );
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_never_kept() {
    let console = Console::start().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "aHVudGVy"}});
    console.create("secrets", "s", secret).await;
    console.rows(1).await;
    let detail = console.get("/api/requests/1").await.to_string();
    assert!(
        detail.contains("password") && detail.contains("/data/added"),
        "{detail}"
    );
    let token = format!("authorization: Bearer {}", console.token.text());
    let (_, _, captured) = console
        .send("POST /api/capture", &[HOST, &token], r#"{"requests":[1]}"#)
        .await;
    let question = r#"{"request":1,"expression":"object.data.password"}"#;
    let (_, _, evaluated) = console
        .send("POST /api/cel", &[HOST, &token], question)
        .await;
    assert!(evaluated.contains("(redacted)"), "{evaluated}");
    for text in [detail, captured, evaluated] {
        // The value in the request, and the one that the webhook set.
        assert!(
            !text.contains("aHVudGVy") && !text.contains("cGF0Y2hlZA"),
            "{text}"
        );
    }
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_until_the_server_stops() {
    let console = Console::start().await;
    console.create("configmaps", "a", config_map()).await;
    let socket = TcpStream::connect(console.address).await.unwrap();
    let mut socket = BufReader::new(socket);
    let request = format!(
        "GET /api/stream?after=0 HTTP/1.1\r\n{HOST}\r\nauthorization: Bearer {}\r\n\r\n",
        console.token.text()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let row = async |socket: &mut BufReader<TcpStream>, number: u64| loop {
        let mut line = String::new();
        let read = tokio::time::timeout(DEADLINE, socket.read_line(&mut line)).await;
        assert_ne!(read.unwrap().unwrap(), 0, "the stream ends");
        if line.contains(&format!("\"n\":{number},")) {
            return;
        }
    };
    row(&mut socket, 1).await;
    console.create("configmaps", "b", config_map()).await;
    row(&mut socket, 2).await;
    console.stop().await;
    let mut rest = String::new();
    while tokio::time::timeout(DEADLINE, socket.read_line(&mut rest))
        .await
        .unwrap()
        .unwrap_or(0)
        > 0
    {}
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_questions_get_an_answer() {
    let console = Console::start().await;
    let token = format!("authorization: Bearer {}", console.token.text());
    let large = "x".repeat((1 << 20) + 1);
    let cases = [
        ("GET /api/requests/9", "", 404),
        ("GET /api/requests/x", "", 404),
        ("GET /api/nothing", "", 404),
        ("DELETE /api/requests", "", 405),
        ("GET /api/cel", "", 405),
        ("POST /api/cel", "{", 400),
        ("POST /api/cel", r#"{"request":9,"expression":"1"}"#, 404),
        ("POST /api/capture", &large, 413),
    ];
    for (line, body, want) in cases {
        let (code, _, answer) = console.send(line, &[HOST, &token], body).await;
        assert_eq!(code, want, "{line}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(
            answer["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty())
        );
    }
    console.stop().await;
}
