//! Hostile requests.

use std::time::Duration;

use lockgate_webhook::server::{Limits, Server};
use lockgate_webhook::testing::{Review, serve, serve_with};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Client, TIMEOUT, metric, post, until, webhooks};

fn envelope(request: &str) -> String {
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{request}}}"#
    )
}

#[tokio::test]
async fn hostile_reviews_are_answered_or_refused() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep_object = |levels: usize| {
        envelope(&format!(
            r#"{{"uid":"u","operation":"CREATE","object":{{"a":{}}}}}"#,
            deep(levels)
        ))
    };
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        (
            "deep object",
            deep_object(100_000).into(),
            200,
            "nests more than 500 levels",
        ),
        (
            "deep unknown member",
            format!(r#"{{"x":{}}}"#, deep(100_000)).into(),
            400,
            "got kind",
        ),
        (
            "deep everything",
            deep(1_000_000).into(),
            400,
            "not an AdmissionReview",
        ),
        (
            "deep known member",
            envelope(&format!(r#"{{"uid":"u","kind":{}}}"#, deep(10_000))).into(),
            200,
            "\"uid\":\"u\"",
        ),
        (
            "open only",
            "[".repeat(1_000_000).into(),
            400,
            "not an AdmissionReview",
        ),
        (
            "invalid UTF-8",
            b"{\"kind\":\"\xff\xfe\"}".to_vec(),
            400,
            "not UTF-8",
        ),
        (
            "invalid UTF-8 in the object",
            {
                let mut body =
                    envelope(r#"{"uid":"u","operation":"CREATE","object":{"a":"?"}}"#).into_bytes();
                let place = body.iter().position(|byte| *byte == b'?').unwrap();
                body[place] = 0xff;
                body
            },
            400,
            "not UTF-8",
        ),
        (
            "duplicate uid",
            envelope(r#"{"uid":"u","uid":"v","operation":"CREATE"}"#).into(),
            400,
            "duplicate field",
        ),
        (
            "duplicate object",
            envelope(r#"{"uid":"u","operation":"CREATE","object":{},"object":{"a":1}}"#).into(),
            200,
            "duplicate field",
        ),
        (
            "unknown operation",
            envelope(r#"{"uid":"u","operation":"EXPLODE","object":{}}"#).into(),
            200,
            "`EXPLODE` is not known",
        ),
        (
            "no object",
            envelope(r#"{"uid":"u","operation":"CREATE"}"#).into(),
            200,
            "a review of CREATE comes with object",
        ),
        (
            "wrong object",
            envelope(r#"{"uid":"u","operation":"CREATE","object":[1]}"#).into(),
            200,
            "cannot decode object",
        ),
        (
            "number out of range",
            envelope(
                r#"{"uid":"u","operation":"CREATE","object":{"metadata":{"generation":1e400}}}"#,
            )
            .into(),
            200,
            "cannot decode object",
        ),
        (
            "lone surrogate",
            envelope(r#"{"uid":"u","operation":"CREATE","object":{"data":{"a":"\ud800"}}}"#).into(),
            200,
            "cannot decode object",
        ),
        (
            "control character in the uid",
            envelope(r#"{"uid":"a\u0000\r\nx: y","operation":"CREATE","object":{}}"#).into(),
            200,
            "\"allowed\":true",
        ),
        ("empty", Vec::new(), 400, "not an AdmissionReview"),
        ("zeros", vec![0; 100_000], 400, "not an AdmissionReview"),
    ];
    for (name, body, code, text) in cases {
        let reply = client
            .send(served.address(), post("/validate", body))
            .await
            .unwrap();
        assert_eq!(
            reply.code,
            code,
            "{name}: {}",
            &reply.body[..reply.body.len().min(300)]
        );
        assert!(
            reply.body.contains(text),
            "{name}: {}",
            &reply.body[..reply.body.len().min(300)]
        );
        if code == 200 {
            assert!(serde_json::from_str::<Value>(&reply.body).is_ok(), "{name}");
        }
    }
    // Large in every dimension that has no limit of its own.
    let wide: String = (0..50_000)
        .map(|number| format!("\"k{number}\":\"v\","))
        .collect();
    let body = envelope(&format!(
        r#"{{"uid":"u","operation":"CREATE","object":{{"data":{{{wide}"z":"z"}}}}}}"#
    ));
    let reply = client
        .send(served.address(), post("/mutate", body))
        .await
        .unwrap();
    assert_eq!(reply.code, 200);
    served.stop().await;
}

#[tokio::test]
async fn garbage_at_the_tls_port_ends_its_connection_only() {
    let limits = Limits::default().handshake_timeout(Duration::from_millis(500));
    let served = serve_with(Server::new(webhooks()).limits(limits)).await;
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\xff\xff",
        b"\x00",
        b"\x80\x80\x01\x03\x01",
        &[0xff; 20_000],
    ] {
        let mut socket = TcpStream::connect(served.address()).await.unwrap();
        let _ = socket.write_all(bytes).await;
        let mut rest = Vec::new();
        let reading = tokio::time::timeout(TIMEOUT, socket.read_to_end(&mut rest));
        let _ = reading.await.expect("the server closes");
    }
    let client = Client::trusting(served.ca_bundle());
    assert_eq!(
        client
            .review(served.address(), "/validate")
            .await
            .unwrap()
            .code,
        200
    );
    served.stop().await;
}

#[tokio::test]
async fn garbage_inside_tls_ends_its_connection_only() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    for bytes in [
        &b"\x00\x01\x02\r\n\r\n"[..],
        b"POST /validate HTTP/9.9\r\n\r\n",
        b"POST /validate HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /validate HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = client.stream(served.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let reading = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest));
        let _ = reading.await.expect("the server closes");
        let text = String::from_utf8_lossy(&rest);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    assert_eq!(
        client
            .review(served.address(), "/validate")
            .await
            .unwrap()
            .code,
        200
    );
    served.stop().await;
}

#[tokio::test]
async fn connections_that_come_and_go_leave_nothing() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    for round in 0..300 {
        let socket = TcpStream::connect(served.address()).await.unwrap();
        match round % 3 {
            0 => drop(socket),
            1 => {
                let stream = client.stream(served.address()).await.unwrap();
                drop((socket, stream));
            }
            _ => {
                let mut stream = client.stream(served.address()).await.unwrap();
                let head = b"POST /forever HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
                stream.write_all(head).await.unwrap();
                drop((socket, stream));
            }
        }
    }
    let open = "admission_webhook_connections";
    until("they are gone", || async {
        metric(&served.metrics_text(), open) == Some(0.0)
    })
    .await;
    let in_flight = "controller_runtime_webhook_requests_in_flight{webhook=\"/forever\"}";
    assert_eq!(metric(&served.metrics_text(), in_flight), Some(0.0));
    assert_eq!(
        client
            .review(served.address(), "/validate")
            .await
            .unwrap()
            .code,
        200
    );
    served.stop().await;
}

#[tokio::test]
async fn callers_cannot_fill_the_metrics() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    let mut connection = client.connect(served.address()).await.unwrap();
    for number in 0..600 {
        let review = Review::create("{apiVersion: v1, kind: A}")
            .resource("g", "v", &format!("r{number}"))
            .to_json();
        crate::support::send(&mut connection, post("/validate", review))
            .await
            .unwrap();
    }
    let text = served.metrics_text();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("admission_webhook_decisions_total"));
    assert!(lines.count() < 300);
    served.stop().await;
}
