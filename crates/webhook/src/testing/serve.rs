//! A server for tests: in process, on a free port, with its own certificate.

use std::net::Ipv4Addr;
use std::ops::Deref;
use std::time::Duration;

use super::authority::Authority;
use crate::server::{Certificates, Running, Server};
use crate::webhooks::Webhooks;

/// A server for one test.
#[derive(Debug)]
pub struct Served {
    running: Running,
    authority: Authority,
}

/// Serves webhooks over TLS on a free loopback port.
///
/// # Panics
///
/// Panics if no port is available.
pub async fn serve(webhooks: Webhooks) -> Served {
    serve_with(Server::new(webhooks)).await
}

/// Serves with custom settings, except for the address, the certificate and the shutdown delay.
///
/// # Panics
///
/// Panics if no port is available.
pub async fn serve_with(server: Server) -> Served {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["localhost", "127.0.0.1"]);
    let running = server
        .listen((Ipv4Addr::LOCALHOST, 0))
        .certificates(Certificates::pem(certificate, key))
        .shutdown_delay(Duration::ZERO)
        .start()
        .await
        .expect("there is a free port");
    Served { running, authority }
}

impl Served {
    /// The URL of a webhook.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.running.address())
    }

    /// The `caBundle` for calling it, as PEM.
    #[must_use]
    pub fn ca_bundle(&self) -> &str {
        self.authority.pem()
    }

    /// The CA of its certificate, for issuing client certificates.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Drains requests, and stops.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

impl Deref for Served {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}
