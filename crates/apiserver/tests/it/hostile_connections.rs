//! Idle connections, and clients that exhaust connections. The listener's own tests are in `crates/listener`; these
//! show that the server uses it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lockgate_apiserver::{ConnectionLimits, Settings, TestServer};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::support::*;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3600);

fn generous() -> ConnectionLimits {
    ConnectionLimits {
        handshake: LONG,
        head: LONG,
        idle: LONG,
        ..ConnectionLimits::default()
    }
}

async fn limited(connections: ConnectionLimits) -> TestServer {
    start_with(Settings {
        connections,
        ..settings()
    })
    .await
}

/// Reads until the server closes the connection, with or without a reset.
async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut rest = Vec::new();
    let _ = within(stream.read_to_end(&mut rest)).await;
    String::from_utf8_lossy(&rest).into_owned()
}

/// A connection from another loopback address.
async fn connect_from(server: &TestServer, last: u8, protocol: &str) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket.bind(from).unwrap();
    let socket = within(socket.connect(server.address())).await.unwrap();
    let connector = tls(server, &admin(server), protocol);
    let name = ServerName::IpAddress(server.address().ip().into());
    within(connector.connect(name, socket)).await.unwrap()
}

#[tokio::test]
async fn a_handshake_has_a_time() {
    let server = limited(ConnectionLimits {
        handshake: SHORT,
        ..generous()
    })
    .await;
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    socket.write_all(&[0x16, 3, 1]).await.unwrap();
    assert_eq!(until_closed(&mut socket).await, "");
    server.stop().await;
}

#[tokio::test]
async fn the_head_of_a_request_has_a_time() {
    let server = limited(ConnectionLimits {
        head: SHORT,
        ..generous()
    })
    .await;
    let nobody = Credentials::default();
    for bytes in ["", "G", "GET /version HTTP/1.1\r\nhos"] {
        let mut stream = connect(&tls(&server, &nobody, "http/1.1"), server.address()).await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(until_closed(&mut stream).await, "");
    }
    // Half of the preface of HTTP/2, and all of it without a request.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for bytes in [&b""[..], &preface[..9], preface] {
        let mut stream = connect(&tls(&server, &nobody, "h2"), server.address()).await;
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        until_closed(&mut stream).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_has_a_time_and_a_watch_is_not_idle() {
    let server = limited(ConnectionLimits {
        idle: SHORT,
        ..generous()
    })
    .await;
    let client = Client::admin(&server).await;
    let mut watch = client.watch(CONFIG_MAPS).await;
    let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
    // Two of them in sequence: longer than the watch would have if it counted as idle.
    for _ in 0..2 {
        let nobody = Credentials::default();
        let mut stream = connect(&tls(&server, &nobody, "http/1.1"), server.address()).await;
        stream.write_all(request).await.unwrap();
        stream.flush().await.unwrap();
        let answer = until_closed(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    client.create(CONFIG_MAPS, config_map("seen")).await;
    assert_eq!(watch.line().await, "ADDED seen");
    server.stop().await;
}

#[tokio::test]
async fn a_list_that_nobody_reads_is_given_up() {
    let server = limited(ConnectionLimits {
        idle: SHORT,
        ..generous()
    })
    .await;
    // Not over a connection, which could time out as idle.
    let manifests: Vec<String> = (0..24)
        .map(|number| {
            let mut object = config_map(&format!("large-{number}"));
            object["metadata"]["namespace"] = "default".into();
            object["data"] = json!({"text": "x".repeat(900_000)});
            object.to_string()
        })
        .collect();
    server.apply(&manifests.join("\n---\n")).await.unwrap();
    let mut stream = connect(&tls(&server, &admin(&server), "http/1.1"), server.address()).await;
    let request = format!("GET {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    // Other connections open and close in the meantime, each waiting for the idle timeout.
    let nobody = Credentials::default();
    for _ in 0..3 {
        let mut other = connect(&tls(&server, &nobody, "http/1.1"), server.address()).await;
        let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
        other.write_all(request).await.unwrap();
        other.flush().await.unwrap();
        until_closed(&mut other).await;
    }
    let answer = until_closed(&mut stream).await;
    assert!(answer.len() < 24 * 900_000, "{}", answer.len());
    server.stop().await;
}

#[tokio::test]
async fn whoever_holds_many_connections_shuts_nobody_out() {
    let server = limited(ConnectionLimits {
        connections: 8,
        ..generous()
    })
    .await;
    // Idle connections are closed in favour of any client.
    let nobody = Credentials::default();
    let connector = tls(&server, &nobody, "http/1.1");
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(connect(&connector, server.address()).await);
    }
    let client = Client::admin(&server).await;
    assert_eq!(client.get("/livez").await.code, 200);
    assert_eq!(until_closed(&mut idle[0]).await, "");
    // Busy connections are closed in favour of clients without one.
    let mut watches = vec![client.watch(CONFIG_MAPS).await];
    let mut clients = vec![client];
    for _ in 1..8 {
        let client = Client::admin(&server).await;
        watches.push(client.watch(CONFIG_MAPS).await);
        clients.push(client);
    }
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    assert_eq!(until_closed(&mut socket).await, "");
    let mut other = connect_from(&server, 2, "http/1.1").await;
    let request = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    other.write_all(request).await.unwrap();
    other.flush().await.unwrap();
    let answer = until_closed(&mut other).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop().await;
}
