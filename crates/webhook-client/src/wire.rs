//! Connections: dialing and the TLS handshake.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::call::Phase;
use crate::clock::Clock;
use crate::tap::{Ends, Tap};
use crate::target::split_authority;
use crate::wording::{self, Failure};

/// The connect timeout.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The TLS handshake timeout.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The user agent.
///
/// UPSTREAM: k8s.io/apiserver pkg/util/webhook/authentication.go (setGlobalDefaults).
pub(super) const USER_AGENT: &str = "kube-apiserver-admission";

/// Connects to `host:port`, trying the addresses of a name in turn.
pub(super) async fn dial(
    authority: &str,
    loopback_only: bool,
    clock: &Clock,
) -> Result<TcpStream, Failure> {
    clock.enter(Phase::Resolve);
    let (host, port) = split_authority(authority);
    let port = port.unwrap_or(443);
    let addresses: Vec<SocketAddr> = match tokio::net::lookup_host((host, port)).await {
        Ok(addresses) => addresses
            .filter(|address| !loopback_only || address.ip().is_loopback())
            .collect(),
        Err(error) => return Err(wording::lookup(host, &error)),
    };
    clock.enter(Phase::Connect);
    let mut first = None;
    for address in addresses {
        let problem = match timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Reviews are written in one call; buffering is unnecessary.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => wording::dial(address, &error),
            Err(_) => wording::dial_timeout(address),
        };
        first.get_or_insert(problem);
    }
    Err(first.unwrap_or_else(|| wording::no_address(host)))
}

/// Completes the TLS handshake.
pub(super) async fn tls_handshake(
    stream: TcpStream,
    config: Arc<rustls::ClientConfig>,
    server_name: &str,
    clock: &Clock,
) -> Result<TlsStream<Tap<TcpStream>>, Failure> {
    clock.enter(Phase::Tls);
    let ends = Ends::of(&stream);
    let tap = Tap::keeping_first(stream);
    let notes = tap.notes();
    let name = ServerName::try_from(server_name.to_owned()).map_err(|_| {
        Failure::new(
            Phase::Tls,
            format!("tls: invalid server name {server_name}"),
        )
    })?;
    match timeout(
        HANDSHAKE_TIMEOUT,
        TlsConnector::from(config).connect(name, tap),
    )
    .await
    {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(_)) if notes.head().starts_with(b"HTTP/") => Err(Failure::new(
            Phase::Tls,
            "http: server gave HTTP response to HTTPS client",
        )),
        Ok(Err(error)) => Err(Failure::new(Phase::Tls, wording::io(&error, &ends, "EOF"))),
        Err(_) => Err(Failure::new(Phase::Tls, "net/http: TLS handshake timeout")),
    }
}

/// A connection, with or without TLS.
pub(super) enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<Tap<TcpStream>>>),
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
