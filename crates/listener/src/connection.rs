//! The lifecycle of one connection.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::activity::{Activity, Busy, MonitoredStream, ResponseBody};
use crate::limits::Limits;
use crate::service::{Connected, Handshake, Phase, Service};
use crate::slots::Slot;

/// The time a connection accepted during shutdown has for its first request. UPSTREAM: Go net/http (closeIdleConns)
const SHUTDOWN_FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum buffered response bytes per stream for a client that does not read.
const SEND_BYTES: usize = 64 << 10;

/// A connection with its context.
pub(crate) struct Connection<S, H> {
    pub(crate) service: Arc<S>,
    pub(crate) handshake: Arc<H>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) slot: Slot,
    pub(crate) address: SocketAddr,
}

impl<S, H> Connection<S, H>
where
    S: Service,
    H: Handshake<S::Peer>,
{
    pub(crate) async fn run(self, socket: TcpStream) {
        // Responses are small: waiting to fill a packet only delays them.
        if socket.set_nodelay(true).is_err() {
            return;
        }
        let address = self.address;
        let handshaking = self.handshake.handshake(socket, address);
        let handshaken = tokio::select! {
            handshaken = tokio::time::timeout(self.limits.handshake, handshaking) => handshaken,
            () = self.slot.lost() => return,
        };
        let connected = match handshaken {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => {
                tracing::debug!(%address, %error, "handshake failed");
                return;
            }
            Err(_) => {
                tracing::debug!(%address, "handshake timed out");
                return;
            }
        };
        self.service.connected(1);
        let counted = Counted(&*self.service);
        self.serve(connected).await;
        drop(counted);
    }

    async fn serve(&self, connected: Connected<H::Stream, S::Peer>) {
        let Connected {
            stream,
            peer,
            is_http2,
        } = connected;
        let activity = Arc::new(Activity::new(&self.limits, is_http2, self.slot.idle()));
        let io = TokioIo::new(MonitoredStream::new(stream, Arc::clone(&activity)));
        let peer = Arc::new(peer);
        let (service, phase) = (Arc::clone(&self.service), self.phase.clone());
        let busy_with = Arc::clone(&activity);
        let answer = service_fn(move |request| {
            let busy = Busy::begin(&busy_with);
            let (service, peer) = (Arc::clone(&service), Arc::clone(&peer));
            let phase = phase.clone();
            async move {
                let mut response = service.handle(peer, request).await;
                // Clients that reuse connections to a stopping server are thus made to reconnect elsewhere.
                if !is_http2 && *phase.borrow() != Phase::Serving {
                    let close = http::HeaderValue::from_static("close");
                    response
                        .headers_mut()
                        .insert(http::header::CONNECTION, close);
                }
                Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, busy)))
            }
        });
        let header_bytes = self.limits.header_bytes;
        let ended = if is_http2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(self.limits.streams)
                .max_pending_accept_reset_streams(20)
                .max_local_error_reset_streams(64)
                .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
                .max_send_buf_size(SEND_BYTES)
                .serve_connection(io, answer);
            let close = http2::Connection::graceful_shutdown;
            self.watch(connection, close, &activity, is_http2).await
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                // The library's timeout also runs while idle: ours distinguishes the two states.
                .header_read_timeout(None)
                .max_header_size(header_bytes)
                .max_buf_size(header_bytes.max(SEND_BYTES))
                .serve_connection(io, answer)
                // An upgraded connection ends here, and is handled by the service.
                .with_upgrades();
            let close = http1::UpgradeableConnection::graceful_shutdown;
            self.watch(connection, close, &activity, is_http2).await
        };
        if let Err(error) = ended {
            tracing::debug!(address = %self.address, %error, "connection closed");
        }
    }

    /// Runs a connection until it ends, is idle for too long, loses its slot, or is closed.
    async fn watch<C>(
        &self,
        connection: C,
        close: fn(Pin<&mut C>),
        activity: &Activity,
        is_http2: bool,
    ) -> hyper::Result<()>
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let mut connection = pin!(connection);
        let mut phase = self.phase.clone();
        // HTTP/2 sends GOAWAY immediately; on HTTP/1 each response has `Connection: close`.
        let born = *phase.borrow_and_update();
        let is_over = move |now: Phase| match is_http2 {
            true => now != born || now == Phase::Closing,
            false => now == Phase::Closing,
        };
        let mut closing = false;
        let mut clock = tokio::time::interval(activity.tick());
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                () = self.slot.lost() => {
                    tracing::debug!(address = %self.address, "idle connection closed at the connection limit");
                    return Ok(());
                }
                _ = phase.wait_for(|phase| is_over(*phase)), if !closing => {
                    closing = true;
                    // A new connection has a pending request: it is served, and the response closes the connection.
                    if is_http2 || !activity.is_fresh() {
                        close(connection.as_mut());
                    } else {
                        activity.hurry(SHUTDOWN_FIRST_REQUEST_TIMEOUT);
                    }
                }
                _ = clock.tick() => {
                    if activity.is_over() {
                        tracing::debug!(address = %self.address, "idle connection closed");
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Decrements the connection count on drop.
struct Counted<'s, S: Service>(&'s S);

impl<S: Service> Drop for Counted<'_, S> {
    fn drop(&mut self) {
        self.0.connected(-1);
    }
}
