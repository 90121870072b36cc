//! Serves webhooks: HTTPS with certificate reload, probes, metrics.
//!
//! ```text
//!   connection ──► TLS ──► client auth ──► limits ──► Webhook::answer ──► metrics, one log line
//!                   ▲                       │
//!      watched folder                    429 if the queue is full
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//! use lockgate_webhook::Webhooks;
//! use lockgate_webhook::server::{Certificates, ProbePaths, Server};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let running = Server::new(Webhooks::new())
//!     .listen(([0, 0, 0, 0], 9443))
//!     .certificates(Certificates::folder("/tmp/k8s-webhook-server/serving-certs"))
//!     .probes(([0, 0, 0, 0], 8081), ProbePaths::default())
//!     .metrics(([0, 0, 0, 0], 8080), "/metrics")
//!     .shutdown_delay(Duration::from_secs(10))
//!     .start()
//!     .await?;
//! running.until_terminated().await?;
//! # Ok(())
//! # }
//! ```

// The configuration.
mod certificates;
mod client_auth;
mod limits;

// Credentials and client authentication.
mod credentials;
mod tokens;

// Connections and reviews.
mod converted_objects;
mod deadline;
mod decision;
mod gate;
mod reviews;

// Metrics, logs and probes.
mod metrics;
mod probes;

mod start;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use prometheus_client;
use prometheus_client::registry::Registry;

pub use certificates::Certificates;
use certificates::Source;
pub use client_auth::ClientAuth;
pub use limits::Limits;
pub use start::{Running, StartError};

use crate::webhooks::Webhooks;

/// The time until endpoints drop a terminating Pod, with a margin.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(10);

/// The drain timeout for requests in progress, as in controller-runtime.
const DRAIN: Duration = Duration::from_secs(60);

/// The probe paths. `/livez`, `/readyz` and `/healthz` are always served in addition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbePaths {
    /// The path of the liveness probe.
    pub liveness: String,
    /// The path of the readiness probe.
    pub readiness: String,
}

impl Default for ProbePaths {
    fn default() -> Self {
        Self {
            liveness: String::from("/healthz"),
            readiness: String::from("/readyz"),
        }
    }
}

/// The error of a readiness check.
pub(crate) type CheckError = Box<dyn std::error::Error + Send + Sync>;

/// A readiness check.
pub(crate) type Check =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), CheckError>> + Send>> + Send + Sync>;

/// A server that has not been started.
pub struct Server {
    webhooks: Webhooks,
    listen: SocketAddr,
    certificates: Certificates,
    client_auth: ClientAuth,
    limits: Limits,
    http2: bool,
    probes: Option<(SocketAddr, ProbePaths)>,
    metrics: Option<(SocketAddr, String)>,
    checks: Vec<(String, Check)>,
    shutdown_delay: Duration,
    drain: Duration,
    registry: Registry,
}

impl Server {
    /// Serves these webhooks on port 9443 of all addresses, with the certificate in
    /// `/tmp/k8s-webhook-server/serving-certs`, as controller-runtime does.
    #[must_use]
    pub fn new(webhooks: Webhooks) -> Self {
        Self {
            webhooks,
            listen: SocketAddr::from(([0, 0, 0, 0], 9443)),
            certificates: Certificates::folder("/tmp/k8s-webhook-server/serving-certs"),
            client_auth: ClientAuth::new(),
            limits: Limits::default(),
            http2: false,
            probes: None,
            metrics: None,
            checks: Vec::new(),
            shutdown_delay: SHUTDOWN_DELAY,
            drain: DRAIN,
            registry: Registry::default(),
        }
    }

    /// Sets the listen address for reviews; port 0 selects a free one.
    #[must_use]
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.listen = address.into();
        self
    }

    /// Sets the source of the certificate.
    #[must_use]
    pub fn certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = certificates;
        self
    }

    /// Serves plain HTTP, for an API server on the same host that allows it
    /// (`--allow-http-webhooks=localhost`). The address must be a loopback address.
    #[must_use]
    pub fn plain_http(mut self) -> Self {
        self.certificates = Certificates {
            source: Source::None,
        };
        self
    }

    /// Sets the client authentication; without it, all clients may call.
    #[must_use]
    pub fn client_auth(mut self, auth: ClientAuth) -> Self {
        self.client_auth = auth;
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Enables HTTP/2. It is disabled by default: the API server gains little from it, and it is more exposed to abuse.
    #[must_use]
    pub fn http2(mut self, offered: bool) -> Self {
        self.http2 = offered;
        self
    }

    /// Serves probes at a plain HTTP address, without authentication.
    #[must_use]
    pub fn probes(mut self, address: impl Into<SocketAddr>, paths: ProbePaths) -> Self {
        self.probes = Some((address.into(), paths));
        self
    }

    /// Serves metrics at a plain HTTP address, which may be the address of the probes.
    #[must_use]
    pub fn metrics(mut self, address: impl Into<SocketAddr>, path: impl Into<String>) -> Self {
        self.metrics = Some((address.into(), path.into()));
        self
    }

    /// Adds a readiness check, such as a synced cache or a reachable API. It runs for readiness probes, at most once a
    /// second, with a timeout of five seconds; its error may be a `String`.
    #[must_use]
    pub fn ready_check<F, R, E>(mut self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let check: Check = Arc::new(move || {
            let checked = check();
            Box::pin(async move { checked.await.map_err(Into::into) })
        });
        self.checks.push((name.into(), check));
        self
    }

    /// Sets the time to keep serving after a stop signal, while readiness fails. The default is 10 seconds.
    #[must_use]
    pub fn shutdown_delay(mut self, delay: Duration) -> Self {
        self.shutdown_delay = delay;
        self
    }

    /// Sets the drain timeout for requests in progress. The default is one minute.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain = timeout;
        self
    }

    /// Adds the application's metrics to those of the server.
    #[must_use]
    pub fn register(mut self, add: impl FnOnce(&mut Registry)) -> Self {
        add(&mut self.registry);
        self
    }

    /// Starts listening. A certificate is not required yet.
    ///
    /// # Errors
    ///
    /// Fails if an address cannot be bound, a fixed certificate and key do not match, or client names are set without
    /// client certificates.
    pub async fn start(self) -> Result<Running, StartError> {
        start::start(self).await
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("listen", &self.listen)
            .field("certificates", &self.certificates)
            .field("client_auth", &self.client_auth)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
