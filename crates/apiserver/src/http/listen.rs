//! Accepts connections, shakes hands, and hands every request to the pipeline.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::body::Response;
use super::limits;

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The certificate, which was verified.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

/// Answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one.
    fn handle(
        self: Arc<Self>,
        peer: Arc<Peer>,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = Response> + Send;
}

/// Serves until told to stop; then waits a moment for what is under way.
pub(crate) async fn serve<H: Handler>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handler: Arc<H>,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = Arc::new(GracefulShutdown::new());
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((socket, address)) => {
                let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
                let watcher = graceful.watcher();
                connections.spawn(async move {
                    connection(socket, address, acceptor, handler, watcher).await;
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: give connections time to end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    if let Some(graceful) = Arc::into_inner(graceful)
        && tokio::time::timeout(drain, graceful.shutdown())
            .await
            .is_err()
    {
        tracing::debug!("some requests were still under way");
    }
    connections.shutdown().await;
}

async fn connection<H: Handler>(
    socket: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    handler: Arc<H>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Answers are small: waiting to fill a packet only delays them.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let stream = match tokio::time::timeout(limits::HANDSHAKE, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(%address, "TLS handshake took too long");
            return;
        }
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates
        .and_then(<[_]>::first)
        .map(|first| first.clone().into_owned());
    let peer = Arc::new(Peer {
        address,
        certificate,
    });
    let service = service_fn(move |request| {
        let (handler, peer) = (Arc::clone(&handler), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(handler.handle(peer, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::STREAMS);
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%address, %error, "connection ended");
    }
}
