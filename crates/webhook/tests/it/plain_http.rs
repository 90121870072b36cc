//! Plain HTTP on loopback.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use lockgate_webhook::server::{ClientAuth, ProbePaths, Server, StartError};
use tokio::net::TcpStream;

use crate::support::{get, post, review, send, webhooks};

#[tokio::test]
async fn serves_reviews_without_a_certificate_on_loopback() {
    let running = Server::new(webhooks())
        .listen((Ipv4Addr::LOCALHOST, 0))
        .plain_http()
        .probes((Ipv4Addr::LOCALHOST, 0), ProbePaths::default())
        .shutdown_delay(Duration::ZERO)
        .start()
        .await
        .unwrap();
    assert!(running.is_ready().await);
    let probes = running.probes_address().unwrap();
    assert_eq!(get(probes, "/readyz").await.code, 200);
    let socket = TcpStream::connect(running.address()).await.unwrap();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let reply = send(&mut sender, post("/validate", review()))
        .await
        .unwrap();
    assert_eq!(reply.code, 200);
    assert!(reply.body.contains("\"allowed\":true"), "{}", reply.body);
    running.stop().await;
}

#[tokio::test]
async fn does_not_start_where_others_could_listen_in() {
    for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"] {
        let address: std::net::SocketAddr = address.parse().unwrap();
        let refused = Server::new(webhooks()).listen(address).plain_http().start();
        let error = refused.await.unwrap_err();
        assert!(
            matches!(error, StartError::PlainBeyondLoopback(_)),
            "{error}"
        );
        assert!(error.to_string().contains("requires a loopback address"));
    }
    let auth = ClientAuth::new().client_ca("/nowhere/ca.crt");
    let refused = Server::new(webhooks())
        .listen((Ipv6Addr::LOCALHOST, 0))
        .plain_http()
        .client_auth(auth)
        .start();
    let error = refused.await.unwrap_err();
    assert!(
        matches!(error, StartError::AuthoritiesWithoutTls),
        "{error}"
    );
}
