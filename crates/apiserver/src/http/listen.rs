//! Accepts connections, shakes hands, and hands every request to the pipeline.
//!
//! Whoever is connected must say something: the head of a request within a time, and another request
//! before the connection is idle for too long. There are so many connections, and when there are no
//! more, the peer that has most of them loses its oldest idle one: nobody is shut out by another.

mod activity;
mod places;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
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
pub(crate) use activity::Busy;
use activity::{Activity, Watched};
use places::{Place, Places};

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
    let places = Arc::new(Places::new(limits::connections()));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((socket, address)) => {
                let Some(place) = places.take(address.ip()) else {
                    tracing::debug!(%address, "too many connections");
                    continue;
                };
                let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
                let watcher = graceful.watcher();
                connections.spawn(async move {
                    connection(socket, address, acceptor, handler, watcher, place).await;
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
        tracing::debug!("drain timeout reached, requests in flight dropped");
    }
    connections.shutdown().await;
}

async fn connection<H: Handler>(
    socket: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    handler: Arc<H>,
    watcher: hyper_util::server::graceful::Watcher,
    place: Place,
) {
    // Answers are small: waiting to fill a packet only delays them.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let handshake = tokio::time::timeout(limits::HANDSHAKE, acceptor.accept(socket));
    let accepted = tokio::select! {
        accepted = handshake => accepted,
        () = place.lost() => return,
    };
    let stream = match accepted {
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
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let peer = Arc::new(Peer {
        address,
        certificate,
    });
    let activity = Arc::new(Activity::new(is_http2, place.idle()));
    let busy_with = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let busy = Busy::begin(&busy_with);
        let (handler, peer) = (Arc::clone(&handler), Arc::clone(&peer));
        async move {
            let mut response = handler.handle(peer, request).await;
            response.body_mut().keep(busy);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Its clock also runs while nothing is asked: ours tells the two apart.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_pending_accept_reset_streams(Some(20))
        .max_local_error_reset_streams(Some(64))
        .max_header_list_size(limits::HEADER_BYTES)
        .max_concurrent_streams(limits::STREAMS);
    let stream = Watched::new(stream, Arc::clone(&activity));
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    let mut connection = pin!(watcher.watch(connection));
    let mut clock = tokio::time::interval(activity::TICK);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%address, %error, "connection ended");
                }
                return;
            }
            () = place.lost() => {
                tracing::debug!(%address, "idle connection closed in favour of another peer");
                return;
            }
            _ = clock.tick() => {
                if activity.is_over() {
                    tracing::debug!(%address, "connection idle for too long");
                    return;
                }
            }
        }
    }
}
