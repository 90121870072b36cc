//! Accepts connections, shakes hands, hands requests on, and lets go in the end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::limits::Limits;

/// How long a connection that was taken at the last moment has for its first request.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How far a server is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// Serves on, says it is not ready, and closes connections after an answer.
    Draining,
    /// Takes nothing new.
    Closing,
}

/// Answers the requests of connections.
pub(super) trait Service: Send + Sync + 'static {
    /// The properties of a connection.
    type Peer: Send + Sync + 'static;

    /// Answers one.
    fn answer(
        &self,
        peer: &Self::Peer,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = http::Response<Full<Bytes>>> + Send;

    /// Called with how many connections there are more or less.
    fn connected(&self, change: i64);

    /// Called for each connection beyond the limit.
    fn refused(&self);
}

/// Turns sockets into connections.
pub(super) trait Handshake<P>: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Shakes hands, or gives up.
    fn shake(
        &self,
        socket: TcpStream,
    ) -> impl Future<Output = Option<Connected<Self::Stream, P>>> + Send;
}

/// A connection on which requests may come.
pub(super) struct Connected<S, P> {
    pub(super) stream: S,
    pub(super) peer: P,
    pub(super) is_http2: bool,
}

/// Plain HTTP without authentication.
pub(super) struct Plain;

impl Handshake<()> for Plain {
    type Stream = TcpStream;

    async fn shake(&self, stream: TcpStream) -> Option<Connected<TcpStream, ()>> {
        Some(Connected {
            stream,
            peer: (),
            is_http2: false,
        })
    }
}

/// Shakes hands with TLS.
pub(super) async fn shake_tls(
    socket: TcpStream,
    config: Arc<rustls::ServerConfig>,
    within: Duration,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let accepting = TlsAcceptor::from(config).accept(socket);
    match tokio::time::timeout(within, accepting).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake timed out");
            None
        }
    }
}

/// Serves until the phase is [`Phase::Closing`], then waits for what is under way.
pub(super) async fn serve<S, H>(
    listener: TcpListener,
    service: Arc<S>,
    handshake: Arc<H>,
    limits: Limits,
    mut phase: watch::Receiver<Phase>,
    drain: Duration,
) where
    S: Service,
    H: Handshake<S::Peer>,
{
    let limits = Arc::new(limits);
    let places = Arc::new(Semaphore::new(
        limits.connections.clamp(1, Semaphore::MAX_PERMITS),
    ));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phase.wait_for(|phase| *phase == Phase::Closing) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: give connections time to end.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            // At once, rather than after a time: the API server's failure policy decides sooner.
            tracing::debug!(%address, "connection limit reached");
            service.refused();
            continue;
        };
        let connection = Connection {
            service: Arc::clone(&service),
            handshake: Arc::clone(&handshake),
            limits: Arc::clone(&limits),
            phase: phase.clone(),
            _place: place,
        };
        connections.spawn(connection.run(socket, address));
    }
    drop(listener);
    let ended = tokio::time::timeout(drain, async {
        while connections.join_next().await.is_some() {}
    });
    if ended.await.is_err() {
        tracing::warn!(
            left = connections.len(),
            "drain timeout reached, closing connections"
        );
    }
    connections.shutdown().await;
}

struct Connection<S, H> {
    service: Arc<S>,
    handshake: Arc<H>,
    limits: Arc<Limits>,
    phase: watch::Receiver<Phase>,
    _place: OwnedSemaphorePermit,
}

impl<S, H> Connection<S, H>
where
    S: Service,
    H: Handshake<S::Peer>,
{
    async fn run(self, socket: TcpStream, address: SocketAddr) {
        // Answers are small: waiting to fill a packet only delays them.
        if socket.set_nodelay(true).is_err() {
            return;
        }
        let Some(connected) = self.handshake.shake(socket).await else {
            return;
        };
        self.service.connected(1);
        let counted = Counted(&*self.service);
        self.serve(connected, address).await;
        drop(counted);
    }

    async fn serve(&self, connected: Connected<H::Stream, S::Peer>, address: SocketAddr) {
        let Connected {
            stream,
            peer,
            is_http2,
        } = connected;
        let activity = Arc::new(Activity::new(&self.limits, is_http2));
        let io = TokioIo::new(Watched {
            stream,
            activity: Arc::clone(&activity),
        });
        let peer = Arc::new(peer);
        let (service, phase) = (Arc::clone(&self.service), self.phase.clone());
        let busy_with = Arc::clone(&activity);
        let answer = service_fn(move |request| {
            let busy = Busy::begin(&busy_with);
            let (service, peer) = (Arc::clone(&service), Arc::clone(&peer));
            let phase = phase.clone();
            async move {
                let mut response = service.answer(&peer, request).await;
                // Whoever keeps connections to a server that goes away finds another one this way.
                if !is_http2 && *phase.borrow() != Phase::Serving {
                    let close = http::HeaderValue::from_static("close");
                    response
                        .headers_mut()
                        .insert(http::header::CONNECTION, close);
                }
                drop(busy);
                Ok::<_, Infallible>(response)
            }
        });
        let ended = if is_http2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(self.limits.streams)
                .max_pending_accept_reset_streams(20)
                .max_local_error_reset_streams(64)
                .max_header_list_size(u32::try_from(self.limits.header_bytes).unwrap_or(u32::MAX))
                .serve_connection(io, answer);
            self.watch(
                connection,
                http2::Connection::graceful_shutdown,
                &activity,
                2,
            )
            .await
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                // Its clock also runs while nothing is asked: ours tells the two apart.
                .header_read_timeout(None)
                .max_header_size(self.limits.header_bytes)
                .max_buf_size(self.limits.header_bytes.max(64 << 10))
                .serve_connection(io, answer);
            self.watch(
                connection,
                http1::Connection::graceful_shutdown,
                &activity,
                1,
            )
            .await
        };
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "connection closed");
        }
    }

    /// Runs a connection until it ends, is idle for too long, or is to be closed.
    async fn watch<C>(
        &self,
        connection: C,
        close: fn(Pin<&mut C>),
        activity: &Activity,
        version: u8,
    ) -> hyper::Result<()>
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let mut connection = pin!(connection);
        let mut phase = self.phase.clone();
        // HTTP/2 has a word for going away, which is said as soon as that is known; on HTTP/1 each
        // answer says it.
        let born = *phase.borrow_and_update();
        let is_over = move |now: Phase| match version {
            2 => now != born || now == Phase::Closing,
            _ => now == Phase::Closing,
        };
        let mut closing = false;
        let mut clock = tokio::time::interval(activity.tick);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                _ = phase.wait_for(|phase| is_over(*phase)), if !closing => {
                    closing = true;
                    // Whoever has just come in has a question: it is heard, and its answer closes.
                    if version == 2 || !activity.is_fresh() {
                        close(connection.as_mut());
                    } else {
                        activity.wait(LAST_WORDS.min(activity.head));
                    }
                }
                _ = clock.tick() => {
                    if activity.is_over() {
                        tracing::debug!("idle connection closed");
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Counts a connection for as long as it is there, however it ends.
struct Counted<'s, S: Service>(&'s S);

impl<S: Service> Drop for Counted<'_, S> {
    fn drop(&mut self) {
        self.0.connected(-1);
    }
}

/// The phase of a connection: idle, reading a head, or answering.
struct Activity {
    born: Instant,
    idle: Duration,
    head: Duration,
    /// How often it is looked at.
    tick: Duration,
    /// On HTTP/2 bytes come that are no request.
    has_heads: bool,
    /// `true` if nothing was asked yet.
    fresh: AtomicBool,
    answering: AtomicUsize,
    in_head: AtomicBool,
    /// In milliseconds since it was born.
    until: AtomicU64,
}

impl Activity {
    fn new(limits: &Limits, is_http2: bool) -> Self {
        let shortest = limits.idle_timeout.min(limits.header_timeout) / 4;
        let activity = Self {
            born: Instant::now(),
            idle: limits.idle_timeout,
            head: limits.header_timeout,
            tick: shortest.clamp(Duration::from_millis(5), Duration::from_secs(1)),
            has_heads: !is_http2,
            fresh: AtomicBool::new(true),
            answering: AtomicUsize::new(0),
            in_head: AtomicBool::new(false),
            until: AtomicU64::new(0),
        };
        // Whoever shakes hands has something to say.
        activity.wait(activity.head);
        activity
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let until = self.elapsed().saturating_add(time);
        self.until.store(until, Ordering::Release);
    }

    fn bytes_came(&self) {
        let is_idle = self.answering.load(Ordering::Acquire) == 0;
        if self.has_heads && is_idle && !self.in_head.swap(true, Ordering::AcqRel) {
            self.wait(self.head);
        }
    }

    fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        // An answer has a deadline of its own.
        let is_idle = self.answering.load(Ordering::Acquire) == 0;
        is_idle && self.elapsed() > self.until.load(Ordering::Acquire)
    }
}

/// A request that is being answered, until it is or its connection ends.
struct Busy(Arc<Activity>);

impl Busy {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.answering.fetch_add(1, Ordering::AcqRel);
        activity.fresh.store(false, Ordering::Release);
        activity.in_head.store(false, Ordering::Release);
        Self(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.wait(self.0.idle);
        self.0.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Notices when something comes.
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_came();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
