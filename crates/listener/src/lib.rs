//! Accepts connections, performs handshakes and dispatches requests.
//!
//! ```text
//!   socket ──► a slot ──► handshake ──► HTTP/1.1 or HTTP/2 ──► Service::handle
//!                │           │               │
//!           connection    timeout       timeouts for the request head, the
//!              limit                    next request and reading responses
//! ```
//!
//! Connections have timeouts for the request head, for the next request and for reading a response. Their number is
//! limited. At the limit, the peer with the most connections loses its oldest idle one, so that one peer cannot exclude
//! others.
//!
//! Independent of requests and responses, which the [`Service`] handles.
//!
//! ```no_run
//! use std::convert::Infallible;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use lockgate_listener::{Incoming, Limits, Phase, Plain, Service, serve};
//! # use std::pin::Pin;
//! # use std::task::{Context, Poll};
//! # struct Text(Option<bytes::Bytes>);
//! # impl hyper::body::Body for Text {
//! #     type Data = bytes::Bytes;
//! #     type Error = Infallible;
//! #     fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>)
//! #         -> Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Infallible>>> {
//! #         Poll::Ready(self.0.take().map(|bytes| Ok(hyper::body::Frame::data(bytes))))
//! #     }
//! # }
//!
//! struct Hello;
//!
//! impl Service for Hello {
//!     type Peer = ();
//!     type Body = Text;
//!
//!     async fn handle(self: Arc<Self>, _: Arc<()>, _: http::Request<Incoming>) -> http::Response<Text> {
//!         http::Response::new(Text(Some("hello\n".into())))
//!     }
//! }
//!
//! # async fn run() -> std::io::Result<()> {
//! let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let (phase, watched) = tokio::sync::watch::channel(Phase::Serving);
//! let serving = serve(socket, Arc::new(Hello), Arc::new(Plain), Limits::default(), watched, Duration::from_secs(5));
//! # drop(phase);
//! serving.await;
//! # Ok(())
//! # }
//! ```

mod limits;

mod activity;
mod service;
mod slots;

mod connection;

use std::sync::Arc;
use std::time::Duration;

pub use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use limits::Limits;
pub use service::{Connected, Handshake, Phase, Plain, Service, tls_handshake};

use connection::Connection;
use slots::Slots;

/// The delay after a failed accept: usually the process is out of file descriptors, and other connections need time to
/// end.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves until the phase is [`Phase::Closing`], or its sender is dropped; then waits for requests in progress, no
/// longer than `drain`.
pub async fn serve<S, H>(
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
    let slots = Slots::new(limits.connections);
    let limits = Arc::new(limits);
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
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let Some(slot) = slots.reserve(address.ip()) else {
            // Closed immediately, so that the client can react sooner.
            tracing::debug!(%address, "connection limit reached");
            service.refused();
            continue;
        };
        let connection = Connection {
            service: Arc::clone(&service),
            handshake: Arc::clone(&handshake),
            limits: Arc::clone(&limits),
            phase: phase.clone(),
            slot,
            address,
        };
        connections.spawn(connection.run(socket));
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
