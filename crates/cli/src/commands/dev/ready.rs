//! Waits for the webhook, and verifies that it is the process listening on the port.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::authority::Authority;
use super::io_error;
use crate::commands::CommandError;
use crate::output::Printer;

/// The interval between connection attempts to the webhook's port.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The time for one handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The time before a progress message: `cargo run` builds first.
const PROGRESS_DELAY: Duration = Duration::from_secs(2);

/// The state of the webhook's port.
#[derive(Debug, PartialEq, Eq)]
enum Listener {
    Nobody,
    /// The listener serves the webhook's certificate.
    Webhook,
    /// The listener does not serve it, for this reason.
    Stranger(String),
}

/// Identifies the webhook by its certificate.
pub(super) struct Probe {
    port: u16,
    connector: TlsConnector,
}

impl Probe {
    pub(super) fn new(port: u16, authority: &Authority) -> Result<Self, CommandError> {
        let failed = |error: &dyn std::fmt::Display| io_error("verify the webhook", error);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.pem().as_bytes()) {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            port,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Returns true if the port accepts connections.
    pub(super) async fn is_open(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).await.is_ok()
    }

    async fn connect(&self) -> Listener {
        let Ok(socket) = TcpStream::connect(("127.0.0.1", self.port)).await else {
            return Listener::Nobody;
        };
        let Ok(name) = ServerName::try_from("localhost") else {
            return Listener::Nobody;
        };
        let handshaking = self.connector.connect(name, socket);
        match tokio::time::timeout(HANDSHAKE, handshaking).await {
            Ok(Ok(_)) => Listener::Webhook,
            Ok(Err(error)) => Listener::Stranger(reason(&error)),
            Err(_) => Listener::Stranger(String::from("no response")),
        }
    }

    /// Waits until the webhook listens, and returns how long it took.
    pub(super) async fn until_ready(
        &self,
        command: &[String],
        timeout: Duration,
    ) -> Result<Duration, CommandError> {
        let (start, port) = (Instant::now(), self.port);
        let mut stranger = None;
        let mut is_said = false;
        loop {
            match self.connect().await {
                Listener::Webhook => return Ok(start.elapsed()),
                Listener::Nobody => {}
                Listener::Stranger(why) => {
                    if stranger.as_ref() != Some(&why) {
                        Printer::note(&format!(
                            "port {port} is open, but not with the certificate of WEBHOOK_CERT_DIR: {why}"
                        ));
                    }
                    stranger = Some(why);
                }
            }
            if start.elapsed() > timeout {
                return Err(timeout_error(port, timeout, stranger));
            }
            if !is_said && start.elapsed() > PROGRESS_DELAY {
                let command = command.join(" ");
                Printer::note(&format!(
                    "waiting for `{command}` to build and to open port {port}, at most {timeout:?}"
                ));
                is_said = true;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn timeout_error(port: u16, timeout: Duration, stranger: Option<String>) -> CommandError {
    match stranger {
        None => CommandError::failed(format!(
            "webhook did not open port {port} within {timeout:?}"
        ))
        .with_help("the webhook gets its port in WEBHOOK_PORT; --timeout allows for longer builds"),
        Some(why) => CommandError::failed(format!(
            "port {port} is not served with the certificate of WEBHOOK_CERT_DIR: {why}"
        ))
        .with_help("serve tls.crt and tls.key of WEBHOOK_CERT_DIR, or set another --webhook-port"),
    }
}

/// A short reason for a failed handshake.
fn reason(error: &io::Error) -> String {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => String::from("another certificate"),
        Some(rustls::Error::InvalidMessage(_)) => String::from("no TLS"),
        Some(other) => other.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => String::from("no TLS"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[tokio::test]
    async fn tells_the_webhook_from_strangers() {
        let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
        for (authority, want) in [
            (&ours, Listener::Webhook),
            (
                &theirs,
                Listener::Stranger(String::from("another certificate")),
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            authority.issue(&[]).unwrap().write(folder.path()).unwrap();
            let (listener, port) = listener().await;
            let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
            let chain = CertificateDer::pem_slice_iter(&read("tls.crt")).collect::<Result<_, _>>();
            let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(&read("tls.key")).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain.unwrap(), key)
                .unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
            let serving = tokio::spawn(async move {
                let (socket, _) = listener.accept().await.unwrap();
                acceptor.accept(socket).await.map(|_| ())
            });
            let probe = Probe::new(port, &ours).unwrap();
            assert_eq!(probe.connect().await, want);
            let _ = serving.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_is_a_stranger() {
        let (listener, port) = listener().await;
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        });
        let probe = Probe::new(port, &Authority::new().unwrap()).unwrap();
        assert_eq!(
            probe.connect().await,
            Listener::Stranger(String::from("no TLS"))
        );
        serving.await.unwrap();
        assert_eq!(probe.connect().await, Listener::Nobody);
    }
}
