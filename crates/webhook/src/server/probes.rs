//! Liveness, readiness and metrics over plain HTTP, without authentication.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use lockgate_listener::{Phase, Service};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsConnector;

use super::credentials::Credentials;
use super::metrics::Metrics;
use super::reviews::{plain, respond};
use super::{Check, CheckError, ProbePaths};

/// The timeout of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The cache time of a result.
const REPORT_TTL: Duration = Duration::from_secs(1);

/// A readiness check and its last result.
type Report = Vec<(String, Result<(), CheckError>)>;

/// The readiness checks.
pub(super) struct Health {
    address: SocketAddr,
    credentials: Arc<Credentials>,
    checks: Vec<(String, Check)>,
    phase: watch::Receiver<Phase>,
    last: Mutex<Option<(Instant, Arc<Report>)>>,
}

impl Health {
    pub(super) fn new(
        address: SocketAddr,
        credentials: Arc<Credentials>,
        checks: Vec<(String, Check)>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        Self {
            address,
            credentials,
            checks,
            phase,
            last: Mutex::new(None),
        }
    }

    /// Returns `true` if all checks pass.
    pub(super) async fn is_ready(&self) -> bool {
        self.run_checks()
            .await
            .iter()
            .all(|(_, result)| result.is_ok())
    }

    /// The results of the checks, at most a second old.
    async fn report(&self) -> Arc<Report> {
        // Concurrent probes share one result.
        let mut last = self.last.lock().await;
        if let Some((at, report)) = &*last
            && at.elapsed() < REPORT_TTL
            && self.is_shutting_down() == report.iter().any(|(name, _)| name == "shutdown")
        {
            return Arc::clone(report);
        }
        let report = Arc::new(self.run_checks().await);
        *last = Some((Instant::now(), Arc::clone(&report)));
        report
    }

    fn is_shutting_down(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }

    async fn run_checks(&self) -> Report {
        let mut report = Vec::new();
        if self.is_shutting_down() {
            let stopping = Err("the server is stopping".into());
            report.push((String::from("shutdown"), stopping));
        }
        let has_tls = self.credentials.has_tls();
        let certificate = self.credentials.check().map_err(Into::into);
        report.push((String::from("certificate"), certificate));
        let listener = async { dial(self.address, has_tls).await.map_err(Into::into) };
        report.push((String::from("listener"), within(listener).await));
        let others = self
            .checks
            .iter()
            .map(|(name, check)| async { (name.clone(), within(check()).await) });
        report.extend(join_all(others).await);
        report
    }
}

async fn within(check: impl Future<Output = Result<(), CheckError>>) -> Result<(), CheckError> {
    let result = tokio::time::timeout(CHECK_TIMEOUT, check).await;
    result.unwrap_or_else(|_| Err("timed out".into()))
}

/// A listener that cannot be connected to.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("cannot connect to the listener: {0}")]
    Connect(std::io::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error("no TLS handshake{}", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Handshake(Option<std::io::Error>),
}

/// Connects to the server itself, up to receiving its certificate.
async fn dial(address: SocketAddr, has_tls: bool) -> Result<(), DialError> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let socket = TcpStream::connect((ip, address.port())).await;
    let socket = socket.map_err(DialError::Connect)?;
    if !has_tls {
        return Ok(());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let seen = Arc::new(SeenCertificate {
        seen: AtomicBool::new(false),
        provider: Arc::clone(&provider),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&seen) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let handshaken = connector.connect(ServerName::from(ip), socket).await;
    // If the server requires client certificates, a failed handshake due to the missing certificate is fine.
    if seen.seen.load(Ordering::Acquire) {
        return Ok(());
    }
    Err(DialError::Handshake(handshaken.err()))
}

/// Accepts any certificate: it is the server's own, and no data is sent.
#[derive(Debug)]
struct SeenCertificate {
    seen: AtomicBool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SeenCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.seen.store(true, Ordering::Release);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// The service at a plain HTTP address.
pub(super) struct Probes {
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    /// The probe paths, if served here.
    pub(super) paths: Option<ProbePaths>,
    /// The metrics path, if served here.
    pub(super) metrics_path: Option<String>,
}

impl Service for Probes {
    type Peer = ();
    type Body = Full<Bytes>;

    async fn handle(
        self: Arc<Self>,
        _: Arc<()>,
        request: http::Request<Incoming>,
    ) -> http::Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET is answered here\n",
            );
        }
        let path = request.uri().path();
        if self.metrics_path.as_deref() == Some(path) {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            return respond(StatusCode::OK, kind, self.metrics.text());
        }
        let Some(paths) = &self.paths else {
            return plain(StatusCode::NOT_FOUND, "not found\n");
        };
        if path == paths.readiness || path == "/readyz" {
            let query = request.uri().query().unwrap_or_default();
            let verbose = query
                .split('&')
                .any(|pair| matches!(pair, "verbose" | "verbose=true" | "verbose=1"));
            return self.ready(verbose).await;
        }
        if path == paths.liveness || path == "/livez" || path == "/healthz" {
            // The process responds: a missing certificate is no reason to kill it.
            return plain(StatusCode::OK, "ok");
        }
        plain(StatusCode::NOT_FOUND, "not found\n")
    }
}

impl Probes {
    async fn ready(&self, verbose: bool) -> http::Response<Full<Bytes>> {
        let report = self.health.report().await;
        let is_ready = report.iter().all(|(_, result)| result.is_ok());
        if is_ready && !verbose {
            return plain(StatusCode::OK, "ok");
        }
        let mut text = String::new();
        for (name, result) in &*report {
            match result {
                Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
                Err(why) => text.push_str(&format!("[-]{name} failed: {why}\n")),
            }
        }
        if is_ready {
            text.push_str("readyz check passed\n");
            return plain(StatusCode::OK, text);
        }
        text.push_str("readyz check failed\n");
        plain(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}
