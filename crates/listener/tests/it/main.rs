//! Slow, idle and excessive connections.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body, Frame};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockgate_listener::{Connected, Handshake, Incoming, Limits, Phase, Plain, Service, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};

/// The timeout of all waits; only reached by a bug.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);
/// A short timeout.
const SHORT: Duration = Duration::from_millis(50);

/// Responds to `/large` with more than any buffer, to `/gated` when the gate is open, and to other
/// paths immediately.
#[derive(Debug)]
struct Desk {
    gate: Semaphore,
    waiting: AtomicUsize,
    connections: AtomicI64,
    refused: AtomicUsize,
}

#[derive(Debug)]
struct Pieces(usize);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1 << 16])))))
    }
}

impl Service for Desk {
    type Peer = ();
    type Body = Pieces;

    async fn handle(
        self: Arc<Self>,
        _: Arc<()>,
        request: http::Request<Incoming>,
    ) -> http::Response<Pieces> {
        let pieces = match request.uri().path() {
            "/large" => 4096,
            "/gated" => {
                self.waiting.fetch_add(1, Ordering::AcqRel);
                self.gate.acquire().await.unwrap().forget();
                1
            }
            _ => 1,
        };
        http::Response::new(Pieces(pieces))
    }

    fn connected(&self, change: i64) {
        self.connections.fetch_add(change, Ordering::AcqRel);
    }

    fn refused(&self) {
        self.refused.fetch_add(1, Ordering::AcqRel);
    }
}

/// HTTP/2 without TLS (prior knowledge).
struct Http2;

impl Handshake<()> for Http2 {
    type Stream = TcpStream;

    async fn handshake(
        &self,
        stream: TcpStream,
        _: SocketAddr,
    ) -> io::Result<Connected<TcpStream, ()>> {
        Ok(Connected {
            stream,
            peer: (),
            is_http2: true,
        })
    }
}

/// A handshake that never completes.
struct Endless;

impl Handshake<()> for Endless {
    type Stream = TcpStream;

    async fn handshake(
        &self,
        _socket: TcpStream,
        _: SocketAddr,
    ) -> io::Result<Connected<TcpStream, ()>> {
        std::future::pending().await
    }
}

struct Served {
    desk: Arc<Desk>,
    address: SocketAddr,
    phase: watch::Sender<Phase>,
    serving: tokio::task::JoinHandle<()>,
}

/// Limits that no test reaches.
fn generous() -> Limits {
    Limits {
        connections: 100,
        handshake: LONG,
        head: LONG,
        idle: LONG,
        ..Limits::default()
    }
}

async fn served(limits: Limits, handshake: impl Handshake<()>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let desk = Arc::new(Desk {
        gate: Semaphore::new(0),
        waiting: AtomicUsize::new(0),
        connections: AtomicI64::new(0),
        refused: AtomicUsize::new(0),
    });
    let (phase, watched) = watch::channel(Phase::Serving);
    let service = Arc::clone(&desk);
    let serving = serve(
        listener,
        service,
        Arc::new(handshake),
        limits,
        watched,
        LONG,
    );
    Served {
        desk,
        address,
        phase,
        serving: tokio::spawn(serving),
    }
}

impl Served {
    /// Waits until a condition of the service is true.
    async fn until(&self, what: &str, is_true: impl Fn(&Desk) -> bool) {
        let waiting = async {
            while !is_true(&self.desk) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(TIMEOUT, waiting).await;
        waited.unwrap_or_else(|_| panic!("never: {what}"));
    }

    async fn until_connections(&self, count: i64) {
        self.until(&format!("{count} connections"), |desk| {
            desk.connections.load(Ordering::Acquire) == count
        })
        .await;
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Connects from another loopback address.
    async fn connect_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
        socket.bind(from).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn http2(&self) -> http2::SendRequest<Empty<Bytes>> {
        let io = TokioIo::new(self.connect().await);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // A client that never reads: the response does not fit into the window.
        builder.initial_stream_window_size(1);
        let (sender, connection) = builder.handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn stop(self) {
        self.phase.send_replace(Phase::Closing);
        within(self.serving).await.unwrap();
    }
}

async fn within<F: Future>(future: F) -> F::Output {
    let waited = tokio::time::timeout(TIMEOUT, future).await;
    waited.expect("in time")
}

/// Sends these bytes and reads until the server closes the connection.
async fn until_closed(mut stream: TcpStream, bytes: &[u8]) -> String {
    stream.write_all(bytes).await.unwrap();
    let mut rest = Vec::new();
    // A reset also closes the connection.
    let _ = within(stream.read_to_end(&mut rest)).await;
    String::from_utf8_lossy(&rest).into_owned()
}

fn get(path: &str) -> http::Request<Empty<Bytes>> {
    http::Request::get(path)
        .header("host", "desk")
        .body(Empty::new())
        .unwrap()
}

const GATED: &[u8] = b"GET /gated HTTP/1.1\r\nhost: desk\r\n\r\n";

#[tokio::test]
async fn a_handshake_has_a_time() {
    let limits = Limits {
        handshake: SHORT,
        ..generous()
    };
    let served = served(limits, Endless).await;
    assert_eq!(until_closed(served.connect().await, b"anything").await, "");
    served.stop().await;
}

#[tokio::test]
async fn the_first_head_has_a_time() {
    let limits = Limits {
        head: SHORT,
        ..generous()
    };
    let one = served(limits.clone(), Plain).await;
    for bytes in [&b""[..], b"G", b"GET / HTTP/1.1\r\nhost: d"] {
        assert_eq!(until_closed(one.connect().await, bytes).await, "");
    }
    // Sending byte by byte does not extend the timeout.
    let mut stream = one.connect().await;
    let dripping = async {
        while stream.write_all(b"G").await.is_ok() && stream.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(dripping).await;
    one.stop().await;

    let two = served(limits, Http2).await;
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // Nothing, half of the preface, all of it, and half of a headers frame.
    let headers = [&settings[..], b"\0\0\x20\x01\x04\0\0\0\x01half"].concat();
    for bytes in [&b""[..], &settings[..10], &settings[..], &headers] {
        until_closed(two.connect().await, bytes).await;
    }
    two.until_connections(0).await;
    two.stop().await;
}

#[tokio::test]
async fn an_idle_connection_has_a_time() {
    let limits = Limits {
        idle: SHORT,
        ..generous()
    };
    let one = served(limits.clone(), Plain).await;
    let request = b"GET / HTTP/1.1\r\nhost: desk\r\n\r\n";
    let answer = until_closed(one.connect().await, request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    one.stop().await;

    let two = served(limits, Http2).await;
    let mut sender = two.http2().await;
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
    two.until_connections(0).await;
    two.stop().await;
}

#[tokio::test]
async fn an_answer_is_read_or_given_up() {
    let limits = Limits {
        idle: SHORT,
        ..generous()
    };
    let one = served(limits.clone(), Plain).await;
    let mut stream = one.connect().await;
    let request = b"GET /large HTTP/1.1\r\nhost: desk\r\n\r\n";
    stream.write_all(request).await.unwrap();
    one.until_connections(1).await;
    one.until_connections(0).await;
    // A client that reads receives the whole response.
    let (mut sender, connection) = http1::handshake(TokioIo::new(one.connect().await))
        .await
        .unwrap();
    tokio::spawn(connection);
    let response = within(sender.send_request(get("/large"))).await.unwrap();
    let body = within(response.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes().len(), 4096 << 16);
    one.stop().await;

    let two = served(limits, Http2).await;
    let mut sender = two.http2().await;
    let unread = within(sender.send_request(get("/large"))).await.unwrap();
    two.until_connections(0).await;
    assert!(within(unread.into_body().collect()).await.is_err());
    two.stop().await;
}

#[tokio::test]
async fn an_answer_may_take_longer_than_clients_may() {
    let limits = Limits {
        idle: SHORT,
        head: SHORT,
        ..generous()
    };
    for is_http2 in [false, true] {
        let served = match is_http2 {
            false => served(limits.clone(), Plain).await,
            true => served(limits.clone(), Http2).await,
        };
        let asked = async {
            if is_http2 {
                let mut sender = served.http2().await;
                sender.send_request(get("/gated")).await.unwrap().status()
            } else {
                let io = TokioIo::new(served.connect().await);
                let (mut sender, connection) = http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                sender.send_request(get("/gated")).await.unwrap().status()
            }
        };
        let others = async {
            served
                .until("asked", |desk| desk.waiting.load(Ordering::Acquire) == 1)
                .await;
            // Twice as long as the timeout of idle connections.
            until_closed(served.connect().await, b"").await;
            until_closed(served.connect().await, b"").await;
            served.desk.gate.add_permits(1);
        };
        let (status, ()) = within(async { tokio::join!(asked, others) }).await;
        assert_eq!(status, 200);
        served.stop().await;
    }
}

#[tokio::test]
async fn idle_connections_make_room_and_busy_ones_stay() {
    let limits = Limits {
        connections: 4,
        ..generous()
    };
    let served = served(limits, Plain).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(served.connect().await);
    }
    served.until_connections(4).await;
    // A new connection of the same peer replaces the oldest.
    let mut busy = Vec::new();
    for count in 1..=4 {
        let mut stream = served.connect().await;
        stream.write_all(GATED).await.unwrap();
        served
            .until("asked", |desk| {
                desk.waiting.load(Ordering::Acquire) == count
            })
            .await;
        busy.push(stream);
    }
    for stream in idle {
        assert_eq!(until_closed(stream, b"").await, "");
    }
    served.until_connections(4).await;
    // All are busy: another connection of the same peer is rejected immediately, one of another peer
    // is not.
    assert_eq!(until_closed(served.connect().await, b"").await, "");
    assert_eq!(served.desk.refused.load(Ordering::Acquire), 1);
    let request = b"GET / HTTP/1.1\r\nhost: desk\r\nconnection: close\r\n\r\n";
    let answer = until_closed(served.connect_from(2).await, request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(served.desk.refused.load(Ordering::Acquire), 1);
    served.desk.gate.add_permits(4);
    served.stop().await;
}

#[tokio::test]
async fn a_head_has_a_size() {
    let limits = Limits {
        header_bytes: 16 << 10,
        ..generous()
    };
    let one = served(limits.clone(), Plain).await;
    let long = "x".repeat(17 << 10);
    let head = format!("GET / HTTP/1.1\r\nhost: desk\r\nx: {long}\r\n\r\n");
    let answer = until_closed(one.connect().await, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    one.stop().await;

    let two = served(limits, Http2).await;
    let mut request = get("/");
    request
        .headers_mut()
        .insert("x", http::HeaderValue::try_from(long).unwrap());
    let answer = within(two.http2().await.send_request(request)).await;
    assert!(answer.is_err() || answer.unwrap().status() == 431);
    two.stop().await;
}

#[tokio::test]
async fn whoever_came_at_the_last_moment_is_heard() {
    let served = served(generous(), Plain).await;
    let mut late = served.connect().await;
    let idle = served.connect().await;
    served.until_connections(2).await;
    let address = served.address;
    served.phase.send_replace(Phase::Closing);
    let request = b"GET / HTTP/1.1\r\nhost: desk\r\n\r\n";
    late.write_all(request).await.unwrap();
    let answer = until_closed(late, b"").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    drop(idle);
    within(served.serving).await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
