//! Test support: the program, Helm, kubectl and a server.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The startup timeout on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The real Helm: from `LOCKGATE_HELM`, from the PATH, or installed by `tools/need.sh`.
pub(crate) fn helm() -> Command {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if let Some(named) = std::env::var_os("LOCKGATE_HELM") {
            return named.into();
        }
        if Command::new("helm").arg("version").output().is_ok() {
            return PathBuf::from("helm");
        }
        let installed = Command::new(root().join("tools/need.sh"))
            .arg("clients")
            .current_dir(root())
            .output();
        let installed = installed.unwrap();
        assert!(
            installed.status.success(),
            "{}",
            String::from_utf8_lossy(&installed.stderr)
        );
        PathBuf::from(String::from_utf8_lossy(&installed.stdout).trim()).join("bin/helm")
    });
    Command::new(found)
}

/// Runs a program until it exits.
pub(crate) fn run(command: &mut Command) -> (bool, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.success(), text)
}

/// Renders a chart.
pub(crate) fn render(chart: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = helm();
    command
        .args(["template", chart, "--namespace", "shaper-system"])
        .args(arguments);
    let output = command
        .arg(root().join("charts").join(chart))
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The documents of rendered YAML.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents = lockgate_api::document::yaml::parse_all(text).unwrap();
    let values = documents
        .iter()
        .map(|document| serde_json::from_str(&document.root().to_json()).unwrap());
    values.filter(|value: &Value| !value.is_null()).collect()
}

/// The document of a kind and name.
pub(crate) fn find<'d>(documents: &'d [Value], kind: &str, name: &str) -> &'d Value {
    let is_it = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
    documents
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The running program. It is terminated on drop.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// The addresses for reviews, probes and metrics.
    pub(crate) webhooks: SocketAddr,
    pub(crate) probes: SocketAddr,
    pub(crate) metrics: SocketAddr,
    log: mpsc::Receiver<Value>,
    pub(crate) folder: TempDir,
}

impl Program {
    /// A command that runs the program with a configuration.
    pub(crate) fn command(config: Option<&Path>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shaper-webhooks"));
        command
            .env_remove("SHAPER_WEBHOOK_CONFIG_PATH")
            // An unreachable proxy, which must not be used.
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .stdin(Stdio::null());
        if let Some(path) = config {
            command.env("SHAPER_WEBHOOK_CONFIG_PATH", path);
        }
        command
    }

    /// Starts it with a configuration, on free ports of loopback, with certificates in `folder`.
    pub(crate) fn start(mut config: Value, folder: TempDir) -> Self {
        config["webhookServer"]["host"] = "127.0.0.1".into();
        config["webhookServer"]["port"] = 0.into();
        config["webhookServer"]["certDir"] = folder.path().to_str().into();
        config["probesServer"]["port"] = 0.into();
        config["metricsServer"]["port"] = 0.into();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, config.to_string()).unwrap();
        let mut child = Self::command(Some(&path))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| Value::from(line));
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let serving = loop {
            let line = log.recv_timeout(TIMEOUT).expect("a program that serves");
            if line["message"] == "serving" {
                break line;
            }
        };
        let address = |name: &str| {
            serving[name]
                .as_str()
                .unwrap()
                .replace("0.0.0.0", "127.0.0.1")
                .parse()
                .unwrap()
        };
        Self {
            child,
            webhooks: address("webhooks"),
            probes: address("probes"),
            metrics: address("metrics"),
            log,
            folder,
        }
    }

    /// Waits for a line of the log.
    pub(crate) fn logs(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.log.recv_timeout(TIMEOUT).expect("such a line");
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Waits until the readiness probe succeeds.
    pub(crate) async fn until_ready(&self) {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let (code, body) = get(self.probes, "/readyz").await;
            if code == 200 {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{code}: {body}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Terminates it, and returns the exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a GET request over plain HTTP.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    let request = hyper::Request::get(path)
        .header("host", "localhost")
        .body(Full::default())
        .unwrap();
    exchange(stream, request).await
}

/// Sends a POST request over HTTPS, trusting one CA for a server name.
pub(crate) async fn post(
    address: SocketAddr,
    authority: &str,
    name: &str,
    path: &str,
    body: &Value,
) -> (u16, String) {
    post_as(None, address, authority, name, path, body).await
}

/// The same with a bearer token.
pub(crate) async fn post_as(
    token: Option<&str>,
    address: SocketAddr,
    authority: &str,
    name: &str,
    path: &str,
    body: &Value,
) -> (u16, String) {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let mut request = hyper::Request::post(path)
        .header("host", "webhook")
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Full::from(body.to_string())).unwrap();
    exchange(stream, request).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: hyper::Request<Full<bytes::Bytes>>,
) -> (u16, String) {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}
