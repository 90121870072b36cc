//! A client with access to the raw bytes: one request per connection.

use std::sync::Arc;

use lockgate_apiserver::{AuthorizationMode, Controllers, Settings, TestServer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A server without controllers, as the one of the recordings: deleting a namespace removes only the namespace.
pub(crate) async fn bare_server() -> TestServer {
    let settings = Settings {
        controllers: Controllers {
            namespace: true,
            ..Controllers::all(false)
        },
        // It was disabled in the recordings.
        disable_plugins: vec![String::from("ServiceAccount")],
        ..Settings::default()
    };
    TestServer::start_with(settings).await.unwrap()
}

/// A request.
pub(crate) struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Request {
    fn new(method: &'static str, path: &str, body: Vec<u8>) -> Self {
        Self {
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body,
        }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, Vec::new())
    }

    pub(crate) fn post(path: &str, body: Vec<u8>) -> Self {
        Self::new("POST", path, body)
    }

    pub(crate) fn put(path: &str, body: Vec<u8>) -> Self {
        Self::new("PUT", path, body)
    }

    pub(crate) fn delete(path: &str, body: Vec<u8>) -> Self {
        Self::new("DELETE", path, body)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn content_type(self, value: &str) -> Self {
        self.header("Content-Type", value)
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }
}

/// A server and a client of it.
pub(crate) struct Client {
    server: TestServer,
    connector: TlsConnector,
}

impl Client {
    pub(crate) async fn start() -> Self {
        let server = TestServer::start_with(Settings {
            authorization_mode: AuthorizationMode::AlwaysAllow,
            // Lists contain only objects that the client created.
            controllers: Controllers::all(false),
            disable_plugins: vec![String::from("ServiceAccount")],
            ..Settings::default()
        })
        .await
        .unwrap();
        let kubeconfig = std::fs::read_to_string(server.kubeconfig_path()).unwrap();
        let pem = |key: &str| {
            let mut lines = kubeconfig.lines();
            let data = lines.find_map(|line| line.trim().strip_prefix(key));
            lockgate_go::base64::decode(data.unwrap()).unwrap()
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem("certificate-authority-data: ")) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let chain = CertificateDer::pem_slice_iter(&pem("client-certificate-data: "))
            .map(Result::unwrap)
            .collect();
        let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data: ")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        Self {
            server,
            connector: TlsConnector::from(Arc::new(config)),
        }
    }

    pub(crate) async fn get(&self, path: &str, accept: &str) -> Answer {
        let request = Request::get(path);
        self.send(match accept {
            "" => request,
            accept => request.header("Accept", accept),
        })
        .await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Value {
        let answer = self
            .send(Request::post(path, body.to_string().into_bytes()))
            .await;
        assert_eq!(answer.code, 201, "{}", answer.text());
        answer.json()
    }

    /// Creates a CustomResourceDefinition, which is served when this returns.
    pub(crate) async fn define(&self, definition: &Value) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.post_json(path, definition).await;
    }

    pub(crate) async fn send(&self, request: Request) -> Answer {
        let socket = TcpStream::connect(self.server.address()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = self.connector.connect(name, socket).await.unwrap();
        let mut text = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n",
            request.method,
            request.path,
            request.body.len()
        );
        for (name, value) in &request.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.write_all(&request.body).await.unwrap();
        let mut bytes = Vec::new();
        // A server may close without a TLS `close_notify`.
        let _ = stream.read_to_end(&mut bytes).await;
        let end = bytes
            .windows(4)
            .position(|part| part == b"\r\n\r\n")
            .unwrap();
        let headers = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut answer = Answer {
            code: headers.split(' ').nth(1).unwrap().parse().unwrap(),
            headers,
            body: bytes[end + 4..].to_vec(),
        };
        if answer.header("transfer-encoding") == "chunked" {
            answer.body = joined(&answer.body);
        }
        answer
    }
}

/// Joins the chunks of a chunked body.
fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|part| part == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        let start = line + 2;
        body.extend(&rest[start..start + size]);
        rest = &rest[start + size + 2..];
    }
    body
}
