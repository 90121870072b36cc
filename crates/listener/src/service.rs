//! The traits of request handlers and of connection handshakes.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The shutdown phase of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Serving.
    Serving,
    /// Serving, but closing connections after a response.
    Draining,
    /// No longer accepting connections or requests.
    Closing,
}

/// Handles the requests of connections.
pub trait Service: Send + Sync + 'static {
    /// The properties of a connection.
    type Peer: Send + Sync + 'static;
    /// The body type of responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Handles one request.
    fn handle(
        self: Arc<Self>,
        peer: Arc<Self::Peer>,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = http::Response<Self::Body>> + Send;

    /// Called with the change in the number of connections.
    fn connected(&self, _change: i64) {}

    /// Called for each connection that was closed at the connection limit.
    fn refused(&self) {}
}

/// Performs handshakes on accepted sockets.
pub trait Handshake<P>: Send + Sync + 'static {
    /// The connection after the handshake.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Performs the handshake. It is cancelled after the [`Limits::handshake`](crate::Limits)
    /// timeout.
    fn handshake(
        &self,
        socket: TcpStream,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Connected<Self::Stream, P>>> + Send;
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct Connected<S, P> {
    /// The connection.
    pub stream: S,
    /// The properties of the connection, for the service.
    pub peer: P,
    /// True if HTTP/2 was negotiated.
    pub is_http2: bool,
}

/// Plain HTTP/1.1 without authentication.
#[derive(Debug)]
pub struct Plain;

impl Handshake<()> for Plain {
    type Stream = TcpStream;

    async fn handshake(
        &self,
        stream: TcpStream,
        _: SocketAddr,
    ) -> io::Result<Connected<TcpStream, ()>> {
        Ok(Connected {
            stream,
            peer: (),
            is_http2: false,
        })
    }
}

/// Performs a TLS handshake; `peer` is read from the session.
///
/// # Errors
///
/// The client does not use TLS, or its certificate is invalid.
pub async fn tls_handshake<P>(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    peer: impl FnOnce(&rustls::ServerConnection) -> P + Send,
) -> io::Result<Connected<TlsStream<TcpStream>, P>> {
    let stream = TlsAcceptor::from(config).accept(socket).await?;
    let session = stream.get_ref().1;
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let peer = peer(session);
    Ok(Connected {
        stream,
        peer,
        is_http2,
    })
}
