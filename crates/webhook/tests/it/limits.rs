//! Limits and timeouts.

use std::time::Duration;

use lockgate_webhook::server::{Limits, Server};
use lockgate_webhook::testing::{Served, serve_with};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{
    Client, Connection, TIMEOUT, gated, metric, post, review, send, until, webhooks,
};

async fn limited(limits: Limits) -> (Served, Client) {
    let served = serve_with(Server::new(webhooks()).limits(limits)).await;
    let client = Client::trusting(served.ca_bundle());
    (served, client)
}

/// Sends bytes, and reads until the server closes the connection.
async fn until_closed(served: &Served, client: &Client, bytes: &[u8]) -> String {
    let mut stream = client.stream(served.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer));
    // The connection may end without `close_notify`.
    let _ = reading.await.expect("the server closes");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_review_may_have_seven_mebibytes() {
    let (served, client) = limited(Limits::default()).await;
    let most = 7 << 20;
    let padded = |size: usize| {
        let mut body = review();
        body.push_str(&" ".repeat(size - body.len()));
        post("/validate", body)
    };
    let reply = client.send(served.address(), padded(most)).await.unwrap();
    assert_eq!(reply.code, 200);
    let reply = client.send(served.address(), padded(most + 1)).await;
    // The server may close the connection before the client has sent everything.
    if let Ok(reply) = reply {
        assert_eq!(reply.code, 413);
        assert_eq!(reply.body, "a review may have 7340032 bytes\n");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_body_of_unknown_size_is_measured_as_it_comes() {
    let (served, client) = limited(Limits::default().body_bytes(1000)).await;
    let head = "POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let chunk = format!("400\r\n{}\r\n", " ".repeat(1024));
    let answer = until_closed(
        &served,
        &client,
        format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}").as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // A body whose declared length is too large is not read.
    let answer = until_closed(
        &served,
        &client,
        format!("{head}content-length: 1001\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    served.stop().await;
}

#[tokio::test]
async fn all_reviews_together_have_a_limit() {
    let (served, client) = limited(Limits::default().buffered_bytes(64 << 10)).await;
    let body = format!("{}{}", review(), " ".repeat(100 << 10));
    let reply = client
        .send(served.address(), post("/validate", body))
        .await
        .unwrap();
    assert_eq!((reply.code, reply.header("retry-after")), (429, "1"));
    let reply = client.review(served.address(), "/validate").await.unwrap();
    assert_eq!(reply.code, 200);
    served.stop().await;
}

#[tokio::test]
async fn a_slow_body_is_cut() {
    let limits = Limits::default().request_timeout(Duration::from_millis(100));
    let (served, client) = limited(limits).await;
    let head = "POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{";
    let answer = until_closed(&served, &client, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    served.stop().await;
}

#[tokio::test]
async fn a_slow_head_and_an_idle_connection_are_cut() {
    let limits = Limits::default()
        .header_timeout(Duration::from_millis(50))
        .idle_timeout(Duration::from_millis(100));
    let (served, client) = limited(limits).await;
    // Nothing, a partial head, and a complete request without a following one.
    assert_eq!(until_closed(&served, &client, b"").await, "");
    assert_eq!(
        until_closed(&served, &client, b"POST /validate HTT").await,
        ""
    );
    let whole = format!(
        "POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
        review().len(),
        review()
    );
    let answer = until_closed(&served, &client, whole.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Sending single bytes does not extend the timeout.
    let mut stream = client.stream(served.address()).await.unwrap();
    let dripping = async {
        loop {
            if stream.write_all(b"P").await.is_err() || stream.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, dripping)
        .await
        .expect("the server closes");
    served.stop().await;
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_cut() {
    let limits = Limits::default().handshake_timeout(Duration::from_millis(50));
    let (served, client) = limited(limits).await;
    let mut socket = tokio::net::TcpStream::connect(served.address())
        .await
        .unwrap();
    socket.write_all(&[0x16, 3, 1]).await.unwrap();
    let mut rest = Vec::new();
    let reading = tokio::time::timeout(TIMEOUT, socket.read_to_end(&mut rest));
    let _ = reading.await.expect("the server closes");
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
async fn a_large_head_is_refused() {
    let (served, client) = limited(Limits::default()).await;
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
        "x".repeat(70 << 10)
    );
    let answer = until_closed(&served, &client, head.as_bytes()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let many = format!(
        "POST /validate HTTP/1.1\r\nhost: a\r\n{}\r\n",
        "a: b\r\n".repeat(500)
    );
    let answer = until_closed(&served, &client, many.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    served.stop().await;
}

#[tokio::test]
async fn further_connections_are_closed_at_once_while_all_are_busy() {
    let (webhooks, gate) = gated();
    let limits = Limits::default().connections(2);
    let served = serve_with(Server::new(webhooks).limits(limits)).await;
    let client = Client::trusting(served.ca_bundle());
    let in_flight = "controller_runtime_webhook_requests_in_flight{webhook=\"/gated\"}";
    let mut busy = Vec::new();
    for count in [1.0, 2.0] {
        let mut connection = client.connect(served.address()).await.unwrap();
        busy.push(tokio::spawn(async move {
            let answer = send(&mut connection, post("/gated", review())).await;
            (answer.unwrap().code, connection)
        }));
        until("it is asked", || async {
            metric(&served.metrics_text(), in_flight) == Some(count)
        })
        .await;
    }
    assert!(client.connect(served.address()).await.is_err());
    let refused = "admission_webhook_refused_connections_total";
    assert_eq!(metric(&served.metrics_text(), refused), Some(1.0));
    gate.open();
    let mut idle = Vec::new();
    for answer in busy {
        let (code, connection) = answer.await.unwrap();
        assert_eq!(code, 200);
        idle.push(connection);
    }
    // Idle connections are closed for new ones.
    until("there is room", || async {
        client.connect(served.address()).await.is_ok()
    })
    .await;
    let connections = "admission_webhook_connections";
    until("one is closed", || async {
        metric(&served.metrics_text(), connections) <= Some(2.0)
            && idle.iter().any(Connection::is_closed)
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn what_waits_too_long_is_shed() {
    let (webhooks, gate) = gated();
    let limits = Limits::default().in_flight(1).queued(1);
    let served = serve_with(Server::new(webhooks).limits(limits)).await;
    let client = Client::trusting(served.ca_bundle());
    let ask = |query: &'static str| {
        let (client, address) = (client.clone(), served.address());
        tokio::spawn(async move {
            let request = post(&format!("/gated{query}"), review());
            client.send(address, request).await.unwrap()
        })
    };
    let queued = "admission_webhook_queued{webhook=\"gated.example.com\"}";
    let in_flight = "controller_runtime_webhook_requests_in_flight{webhook=\"/gated\"}";
    let first = ask("");
    until("one is asked", || async {
        metric(&served.metrics_text(), in_flight) == Some(1.0)
    })
    .await;
    let second = ask("");
    until("one waits", || async {
        metric(&served.metrics_text(), queued) == Some(1.0)
    })
    .await;
    let third = ask("").await.unwrap();
    assert_eq!((third.code, third.header("retry-after")), (429, "1"));
    gate.open();
    assert_eq!(first.await.unwrap().code, 200);
    assert_eq!(second.await.unwrap().code, 200);
    let text = served.metrics_text();
    let shed = text.lines().find(|line| line.contains("decision=\"shed\""));
    assert!(shed.is_some_and(|line| line.ends_with(" 1")), "{text}");
    served.stop().await;
}
