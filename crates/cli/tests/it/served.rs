//! `lockgate serve` as a process, and a client for it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The timeout of any operation.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-token";

/// The folder of a server: its data, tokens and kubeconfig.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = format!("{TOKEN},admin,1,\"system:masters\"\n");
        std::fs::write(folder.path().join("tokens.csv"), tokens).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The arguments of a server with this folder, on any port.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let file = |name: &str| self.path().join(name).display().to_string();
        vec![
            String::from("serve"),
            String::from("--secure-port=0"),
            format!("--data-dir={}", file("data")),
            format!("--token-auth-file={}", file("tokens.csv")),
            format!("--kubeconfig-out={}", file("kubeconfig")),
        ]
    }

    /// Starts a server without waiting for readiness.
    pub(crate) fn start(&self) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
        command.args(self.arguments());
        Served::start(command)
    }

    /// Starts a server and waits until it is ready.
    pub(crate) fn start_ready(&self) -> (Served, u16) {
        let mut served = self.start();
        let port = served.port();
        (served, port)
    }
}

/// A server process, killed on drop.
pub(crate) struct Served {
    child: Child,
    lines: Receiver<String>,
}

impl Served {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The port in its log, once it is ready.
    pub(crate) fn port(&mut self) -> u16 {
        match self.port_within(DEADLINE) {
            Ok(port) => port,
            Err(error) => panic!("the server is not ready: {error}\n{}", self.error_output()),
        }
    }

    pub(crate) fn port_within(&mut self, time: Duration) -> Result<u16, RecvTimeoutError> {
        let line = self.lines.recv_timeout(time)?;
        let address = line
            .strip_prefix("Listening on https://127.0.0.1:")
            .unwrap();
        let (port, _) = address.split_once(' ').unwrap();
        Ok(port.parse().unwrap())
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => line,
            Err(error) => panic!("nothing is printed: {error}\n{}", self.error_output()),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the exit.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Its standard error after the exit.
    pub(crate) fn error_output(&mut self) -> String {
        self.kill();
        let stderr: ChildStderr = self.child.stderr.take().unwrap();
        std::io::read_to_string(stderr).unwrap()
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        // The process may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGINT, and waits for the exit.
    pub(crate) fn interrupt(mut self) {
        signal("INT", self.pid());
        let ended = self.lines.recv_timeout(DEADLINE);
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
        assert_eq!(self.exit_code(), Some(0));
    }

    /// Sends a termination signal, waits for the exit, and returns standard error.
    pub(crate) fn stop(mut self) -> String {
        signal("TERM", self.pid());
        let stderr: ChildStderr = self.child.stderr.take().unwrap();
        let written = std::io::read_to_string(stderr).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{written}");
        written
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn signal(name: &str, pid: u32) {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// Trusts the CA of a server.
pub(crate) fn tls(data: &Path) -> TlsConnector {
    trusting(&std::fs::read(data.join("certs/ca.crt")).unwrap())
}

/// Trusts a CA certificate.
pub(crate) fn trusting(pem: &[u8]) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// A connection with admin credentials.
pub(crate) struct Client(SendRequest<Full<Bytes>>);

/// The connection was lost without a response.
#[derive(Debug)]
pub(crate) struct Gone;

impl Client {
    pub(crate) async fn connect(tls: &TlsConnector, port: u16) -> Result<Self, Gone> {
        Self::connect_as(tls, port, "localhost").await
    }

    /// The same, with another server name.
    pub(crate) async fn connect_as(
        tls: &TlsConnector,
        port: u16,
        name: &'static str,
    ) -> Result<Self, Gone> {
        let connecting = async {
            let socket = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
            socket.set_nodelay(true).ok()?;
            let name = ServerName::try_from(name).ok()?;
            let stream = tls.connect(name, socket).await.ok()?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            Some(Self(sender))
        };
        let connected = tokio::time::timeout(DEADLINE, connecting).await;
        connected.expect("connecting takes too long").ok_or(Gone)
    }

    /// Waits until the next request can be sent. False if the server has closed the connection, as it may between requests.
    pub(crate) async fn is_open(&mut self) -> bool {
        self.0.ready().await.is_ok()
    }

    /// Opens a watch.
    pub(crate) async fn watch(mut self, path: &str) -> Result<Events, Gone> {
        let request = http::Request::get(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Full::default())
            .unwrap();
        self.0.ready().await.map_err(|_| Gone)?;
        let response = self.0.send_request(request).await.map_err(|_| Gone)?;
        Ok(Events {
            body: response.into_body(),
            read: Vec::new(),
        })
    }

    /// Sends a request, and returns the response code and object.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), Gone> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("content-type", "application/json")
            .body(Full::from(body.map_or_else(String::new, Value::to_string)))
            .unwrap();
        let sending = async {
            self.0.ready().await.ok()?;
            let response = self.0.send_request(request).await.ok()?;
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.ok()?.to_bytes();
            let text = || Value::from(String::from_utf8_lossy(&bytes));
            let object = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
            Some((code, object))
        };
        let started = Instant::now();
        match tokio::time::timeout(DEADLINE, sending).await {
            Ok(answer) => answer.ok_or(Gone),
            Err(_) => panic!("{method} {path}: no answer after {:?}", started.elapsed()),
        }
    }
}

/// The events of a watch.
pub(crate) struct Events {
    body: Incoming,
    read: Vec<u8>,
}

impl Events {
    /// The next event; `None` at the end of the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.extend_from_slice(frame.data_ref()?);
        }
    }
}
