//! Reviews over TLS.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockgate_webhook::Webhooks;
use lockgate_webhook::server::{Limits, Server};
use lockgate_webhook::testing::{Review, serve, serve_with};
use serde_json::Value;

use crate::support::{CONFIG_MAP, Client, gated, metric, post, review, send, until, webhooks};

#[tokio::test]
async fn answers_reviews_over_tls() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    let reply = client.review(served.address(), "/mutate").await.unwrap();
    assert_eq!(
        (reply.code, reply.header("content-type")),
        (200, "application/json")
    );
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(body["response"]["allowed"], true);
    assert_eq!(body["response"]["patchType"], "JSONPatch");

    let beta = Review::create(CONFIG_MAP).v1beta1().to_json();
    let reply = client
        .send(served.address(), post("/validate", beta))
        .await
        .unwrap();
    assert!(
        reply.body.contains("admission.k8s.io/v1beta1"),
        "{}",
        reply.body
    );
    // Many requests on one connection.
    let mut connection = client.connect(served.address()).await.unwrap();
    for _ in 0..3 {
        let reply = send(&mut connection, post("/validate?timeout=10s", review()))
            .await
            .unwrap();
        assert_eq!((reply.code, reply.header("connection")), (200, ""));
    }
    served.stop().await;
}

#[tokio::test]
async fn an_alias_leads_to_the_same_webhook() {
    let handler = lockgate_webhook::from_fn(async |_: &lockgate_webhook::Context| {
        Ok(lockgate_webhook::Response::allow())
    });
    let registration = lockgate_webhook::Registration::validating("a.b.c")
        .path("/one")
        .alias("/two");
    let served = serve(Webhooks::new().with(registration, handler)).await;
    let client = Client::trusting(served.ca_bundle());
    for path in ["/one", "/two"] {
        assert_eq!(
            client.review(served.address(), path).await.unwrap().code,
            200
        );
    }
    let count = "controller_runtime_webhook_requests_total{webhook=\"/one\",code=\"200\"}";
    assert_eq!(metric(&served.metrics_text(), count), Some(2.0));
    served.stop().await;
}

#[tokio::test]
async fn only_posted_json_at_a_path_that_exists_is_a_review() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    let send = |request| client.send(served.address(), request);
    let reply = send(post("/nowhere", review())).await.unwrap();
    assert_eq!(
        (reply.code, &*reply.body),
        (404, "no webhook at this path\n")
    );
    let mut get = post("/validate", "");
    *get.method_mut() = http::Method::GET;
    let reply = send(get).await.unwrap();
    assert_eq!((reply.code, reply.header("allow")), (405, "POST"));
    for (kind, code) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON ;q=1", 200),
        ("application/jsonx", 415),
        ("text/plain", 415),
        ("", 415),
    ] {
        let mut request = post("/validate", review());
        request
            .headers_mut()
            .insert("content-type", kind.parse().unwrap());
        assert_eq!(send(request).await.unwrap().code, code, "{kind}");
    }
    let mut request = post("/validate", review());
    request.headers_mut().remove("content-type");
    assert_eq!(send(request).await.unwrap().code, 415);
    let mut request = post("/validate", review());
    request
        .headers_mut()
        .insert("content-encoding", "gzip".parse().unwrap());
    assert_eq!(send(request).await.unwrap().code, 415);
    served.stop().await;
}

#[tokio::test]
async fn a_webhook_that_fails_takes_nothing_with_it() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    let mut connection = client.connect(served.address()).await.unwrap();
    for path in ["/panic", "/fault", "/panic"] {
        let reply = send(&mut connection, post(path, review())).await.unwrap();
        assert_eq!(reply.code, 500);
        assert!(!reply.body.contains("on purpose"), "{}", reply.body);
    }
    let reply = send(&mut connection, post("/validate", review()))
        .await
        .unwrap();
    assert_eq!(reply.code, 200);
    let text = served.metrics_text();
    assert_eq!(
        metric(&text, "controller_runtime_webhook_panics_total"),
        Some(2.0)
    );
    served.stop().await;
}

#[tokio::test]
async fn the_api_servers_patience_is_the_deadline() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    let request = post("/forever?timeout=300ms", review());
    let reply = client.send(served.address(), request).await.unwrap();
    assert_eq!(reply.code, 500);
    served.stop().await;
    // The server's own timeout applies when it is shorter.
    let limits = Limits::default().request_timeout(Duration::from_millis(200));
    let served = serve_with(Server::new(webhooks()).limits(limits)).await;
    let client = Client::trusting(served.ca_bundle());
    let request = post("/forever?timeout=30s", review());
    assert_eq!(
        client.send(served.address(), request).await.unwrap().code,
        500
    );
    served.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_is_not_worked_for() {
    let (webhooks, _gate) = gated();
    let served = serve(webhooks).await;
    let client = Client::trusting(served.ca_bundle());
    let in_flight = "controller_runtime_webhook_requests_in_flight{webhook=\"/gated\"}";
    let asking = tokio::spawn({
        let (client, address) = (client.clone(), served.address());
        async move {
            let mut connection = client.connect(address).await.unwrap();
            let _ = send(&mut connection, post("/gated", review())).await;
        }
    });
    until("it is answered", || async {
        metric(&served.metrics_text(), in_flight) == Some(1.0)
    })
    .await;
    asking.abort();
    until("it is dropped", || async {
        metric(&served.metrics_text(), in_flight) == Some(0.0)
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn http2_is_offered_only_when_asked_for() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle()).offering(&["h2", "http/1.1"]);
    let stream = client.stream(served.address()).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let only_h2 = client.offering(&["h2"]);
    assert!(only_h2.stream(served.address()).await.is_err());
    served.stop().await;

    let served = serve_with(Server::new(webhooks()).http2(true)).await;
    let client = Client::trusting(served.ca_bundle()).offering(&["h2"]);
    let stream = client.stream(served.address()).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let running = tokio::spawn(connection);
    let url = served.url("/validate");
    let request = || {
        http::Request::post(&url)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(review())))
            .unwrap()
    };
    for _ in 0..2 {
        let response = sender.send_request(request()).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
    }
    // The server closes the connection gracefully.
    served.stop().await;
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_old_protocol_is_refused() {
    let served = serve(webhooks()).await;
    // A ClientHello of TLS 1.1, up to its version.
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(served.address())
        .await
        .unwrap();
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([0; 32]);
    hello.extend([0, 0, 2, 0x00, 0x2f, 1, 0]);
    socket.write_all(&hello).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    // An alert, and the end of the connection.
    assert_eq!(answer.first(), Some(&0x15), "{answer:?}");
    served.stop().await;
}
