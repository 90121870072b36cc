//! The lifecycle of a server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lockgate_listener::{Phase, Plain, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::certificates::Source;
use super::credentials::Credentials;
use super::limits::Limits;
use super::metrics::Metrics;
use super::probes::{Health, Probes};
use super::reviews::{Loopback, Reviews, Secure};
use super::{ProbePaths, Server};
use crate::handler::BoxFuture;

/// The connection limit of probes, which are not authenticated.
const PROBE_CONNECTIONS: usize = 64;

/// The polling interval while waiting for readiness.
const READY_POLL: Duration = Duration::from_millis(20);

/// A startup error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Listening on an address failed.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The given certificate and key do not match.
    #[error("cannot use the certificate and its key: {0}")]
    Certificate(String),
    /// Plain HTTP is restricted to loopback addresses.
    #[error("plain_http requires a loopback address, not `{0}`")]
    PlainBeyondLoopback(SocketAddr),
    /// Client certificates require TLS.
    #[error("client_ca requires TLS, not plain_http")]
    AuthoritiesWithoutTls,
    /// Client names are set, but no client certificates are required.
    #[error("allow_name requires client_ca")]
    NamesWithoutAuthorities,
}

/// A running server. Dropping it stops it immediately; [`stop`](Self::stop) shuts it down gracefully.
pub struct Running {
    address: SocketAddr,
    probes: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    phase: watch::Sender<Phase>,
    shutdown_delay: Duration,
    reviews: Task,
    /// The tasks that read certificates and serve probes.
    others: JoinSet<()>,
}

impl Running {
    /// The address for reviews.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for probes.
    #[must_use]
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// The address for metrics.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// The metrics in the text format.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.metrics.text()
    }

    /// Returns `true` if it has a certificate, accepts connections, and its checks pass.
    pub async fn is_ready(&self) -> bool {
        self.health.is_ready().await
    }

    /// Waits until the server is ready, possibly forever.
    pub async fn until_ready(&self) {
        while !self.is_ready().await {
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// Stops: fails readiness, keeps serving for the delay, then drains requests in progress.
    pub async fn stop(self) {
        let delay = self.shutdown_delay;
        self.stop_after(delay).await;
    }

    async fn stop_after(mut self, delay: Duration) {
        tracing::info!("stopping");
        self.phase.send_replace(Phase::Draining);
        tokio::time::sleep(delay).await;
        self.phase.send_replace(Phase::Closing);
        self.reviews.ended().await;
        self.others.shutdown().await;
        tracing::info!("stopped");
    }

    /// Waits for SIGTERM or SIGINT, and [stops](Self::stop). SIGINT, the interrupt key of a terminal, skips the delay,
    /// which is for load balancers. A second signal stops it immediately. Signal handlers are installed by the call,
    /// before the future is polled.
    ///
    /// # Errors
    ///
    /// Fails if signal handlers cannot be installed.
    pub fn until_terminated(self) -> impl Future<Output = io::Result<()>> + Send {
        let signals = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        );
        async move {
            let (mut terminate, mut interrupt) = (signals.0?, signals.1?);
            let delay = tokio::select! {
                _ = terminate.recv() => self.shutdown_delay,
                _ = interrupt.recv() => Duration::ZERO,
            };
            tokio::select! {
                () = self.stop_after(delay) => {}
                _ = terminate.recv() => tracing::warn!("forced shutdown"),
                _ = interrupt.recv() => tracing::warn!("forced shutdown"),
            }
            Ok(())
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("address", &self.address)
            .field("probes", &self.probes)
            .field("metrics", &self.metrics_address)
            .finish_non_exhaustive()
    }
}

/// A task that is aborted on drop.
struct Task(JoinHandle<()>);

impl Task {
    async fn ended(&mut self) {
        if let Err(error) = (&mut self.0).await {
            tracing::error!(%error, "server exited with an error");
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) async fn start(server: Server) -> Result<Running, StartError> {
    // Fail closed: otherwise the names would not be checked.
    if server.client_auth.checks_names() && server.client_auth.client_ca.is_none() {
        return Err(StartError::NamesWithoutAuthorities);
    }
    let is_plain = matches!(server.certificates.source, Source::None);
    if is_plain && !server.listen.ip().is_loopback() {
        return Err(StartError::PlainBeyondLoopback(server.listen));
    }
    if is_plain && server.client_auth.client_ca.is_some() {
        return Err(StartError::AuthoritiesWithoutTls);
    }
    let (listener, address) = bind(server.listen).await?;
    let metrics = Arc::new(Metrics::new(&server.webhooks, server.registry));
    let is_fixed = matches!(server.certificates.source, Source::Pem { .. });
    let credentials = Arc::new(Credentials::new(
        server.certificates,
        server.client_auth,
        server.http2,
        Arc::clone(&metrics),
    ));
    Arc::clone(&credentials).read_blocking().await;
    if is_fixed && !credentials.has_pair() {
        return Err(StartError::Certificate(credentials.problems().join("; ")));
    }

    let (phase, watched) = watch::channel(Phase::Serving);
    let health = Arc::new(Health::new(
        address,
        Arc::clone(&credentials),
        server.checks,
        watched.clone(),
    ));
    let mut others = JoinSet::new();
    let plain = plain_services(server.probes, server.metrics, &health, &metrics);
    let (mut probes, mut metrics_address) = (None, None);
    for (wanted, service) in plain {
        let (listener, bound) = bind(wanted).await?;
        if service.paths.is_some() {
            probes = Some(bound);
        }
        if service.metrics_path.is_some() {
            metrics_address = Some(bound);
        }
        let limits = Limits::default().connections(PROBE_CONNECTIONS).listener();
        // Probes are served until the end, since they report the shutdown.
        let (alive, phase) = watch::channel(Phase::Serving);
        others.spawn(async move {
            let _alive = alive;
            serve(
                listener,
                Arc::new(service),
                Arc::new(Plain),
                limits,
                phase,
                Duration::ZERO,
            )
            .await;
        });
    }
    others.spawn(Arc::clone(&credentials).watch_files());

    let reviews = Arc::new(Reviews::new(
        server.webhooks,
        Arc::clone(&credentials),
        server.limits.clone(),
        Arc::clone(&metrics),
    ));
    let (limits, drain) = (server.limits.listener(), server.drain);
    let serving: BoxFuture<'static, ()> = if is_plain {
        let plain = Arc::new(Loopback);
        Box::pin(serve(listener, reviews, plain, limits, watched, drain))
    } else {
        let secure = Arc::new(Secure(credentials));
        Box::pin(serve(listener, reviews, secure, limits, watched, drain))
    };
    tracing::info!(%address, "listening");
    Ok(Running {
        address,
        probes,
        metrics_address,
        metrics,
        health,
        phase,
        shutdown_delay: server.shutdown_delay,
        reviews: Task(tokio::spawn(serving)),
        others,
    })
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// The plain HTTP addresses and their services: one service when probes and metrics share an address.
fn plain_services(
    probes: Option<(SocketAddr, ProbePaths)>,
    shown: Option<(SocketAddr, String)>,
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
) -> Vec<(SocketAddr, Probes)> {
    let service = |paths, metrics_path| Probes {
        health: Arc::clone(health),
        metrics: Arc::clone(metrics),
        paths,
        metrics_path,
    };
    match (probes, shown) {
        (Some((at, paths)), Some((also, path))) if at == also => {
            vec![(at, service(Some(paths), Some(path)))]
        }
        (probes, shown) => {
            let probes = probes.map(|(at, paths)| (at, service(Some(paths), None)));
            let shown = shown.map(|(at, path)| (at, service(None, Some(path))));
            probes.into_iter().chain(shown).collect()
        }
    }
}
