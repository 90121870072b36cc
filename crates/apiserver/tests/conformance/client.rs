//! The client of the server under test, and the reader of its audit log.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::node::{Map, Node};

/// The timeout of a response, longer than any timeout of the server.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The response of the server.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    /// The parsed JSON, otherwise the body as a string.
    pub(crate) body: Node,
}

/// The request.
#[derive(Debug)]
pub(crate) struct Question<'q> {
    pub(crate) method: &'q str,
    pub(crate) path: &'q str,
    /// A string is sent as it is, any other value as JSON.
    pub(crate) body: Option<&'q Node>,
    pub(crate) content_type: &'q str,
    /// Replace the client's default headers.
    pub(crate) headers: Vec<(String, Vec<String>)>,
}

/// A client with a token and one connection.
pub(crate) struct Client {
    address: SocketAddr,
    tls: TlsConnector,
    token: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, ca_pem: &str, token: &str) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(ca_pem.as_bytes()).expect("a certificate");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address,
            tls: TlsConnector::from(Arc::new(config)),
            token: token.to_owned(),
            connection: None,
        }
    }

    /// Returns a client with the same configuration on a separate connection.
    pub(crate) fn another(&self) -> Self {
        Self {
            address: self.address,
            tls: self.tls.clone(),
            token: self.token.clone(),
            connection: None,
        }
    }

    /// Sends a request with a JSON body or without a body.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Node>,
    ) -> Result<Reply, String> {
        self.request(&Question {
            method,
            path,
            body,
            content_type: "application/json",
            headers: Vec::new(),
        })
        .await
    }

    pub(crate) async fn request(&mut self, question: &Question<'_>) -> Result<Reply, String> {
        let failed = |error: &dyn std::fmt::Display| {
            let Question { method, path, .. } = question;
            format!("{method} {path}: no proper answer from the server: {error}")
        };
        let asked = tokio::time::timeout(TIMEOUT, self.exchange(question)).await;
        let (head, bytes) = asked
            .map_err(|late| failed(&late))?
            .map_err(|error| failed(&error))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let is_json = head
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.to_str().is_ok_and(|value| value.contains("json")));
        let body = if is_json {
            Node::parse_json(&text).map_err(|error| failed(&error))?
        } else {
            Node::Text(text)
        };
        Ok(Reply {
            code: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    }

    async fn exchange(
        &mut self,
        question: &Question<'_>,
    ) -> Result<(http::response::Parts, Bytes), String> {
        loop {
            let request = self.compose(question)?;
            let kept = match self.connection.take() {
                Some(mut connection) => connection.ready().await.is_ok().then_some(connection),
                None => None,
            };
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await.map_err(|error| error.to_string())?,
            };
            match connection.send_request(request).await {
                // The server closed an idle connection.
                Err(error) if reused && (error.is_canceled() || error.is_incomplete_message()) => {}
                Err(error) => return Err(error.to_string()),
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = body.collect().await.map_err(|error| error.to_string())?;
                    self.connection = Some(connection);
                    return Ok((head, body.to_bytes()));
                }
            }
        }
    }

    fn compose(&self, question: &Question<'_>) -> Result<Request<Full<Bytes>>, String> {
        let body = question.body.map(|body| match body {
            Node::Text(text) => text.clone(),
            body => body.to_json(),
        });
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, values: &[String]| {
            headers.remove(&name);
            for value in values {
                let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|e| e.to_string())?;
                headers.append(&name, value);
            }
            Ok::<_, String>(())
        };
        set(HOST, &[self.address.to_string()])?;
        set(ACCEPT, &[String::from("application/json")])?;
        set(USER_AGENT, &[String::from("lockgate-conformance")])?;
        set(AUTHORIZATION, &[format!("Bearer {}", self.token)])?;
        for (name, values) in &question.headers {
            let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
            set(name, values)?;
        }
        if body.is_some() {
            set(CONTENT_TYPE, &[question.content_type.to_owned()])?;
        }
        let method = Method::from_bytes(question.method.as_bytes());
        let mut request = Request::new(Full::from(body.unwrap_or_default()));
        *request.method_mut() = method.map_err(|error| error.to_string())?;
        *request.uri_mut() = uri(question.path)?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn connect(
        &self,
    ) -> Result<SendRequest<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = self.tls.connect(name, stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Percent-encodes characters that are not allowed in a path and query.
fn uri(path: &str) -> Result<Uri, String> {
    path.parse::<Uri>()
        .or_else(|_| {
            let mut encoded = String::new();
            for byte in path.bytes() {
                match byte {
                    b'<' | b'>' | b'"' | b'`' | b'^' | b'{' | b'}' | 0x80.. => {
                        encoded.push_str(&format!("%{byte:02X}"));
                    }
                    _ => encoded.push(char::from(byte)),
                }
            }
            encoded.parse()
        })
        .map_err(|error| error.to_string())
}

/// Follows an audit log of JSON lines.
#[derive(Debug)]
pub(crate) struct AuditLog {
    log: File,
    /// The bytes after the last complete line.
    rest: Vec<u8>,
    /// The annotations of completed requests, by audit ID.
    events: HashMap<String, Map>,
}

impl AuditLog {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            log: File::open(path)?,
            rest: Vec::new(),
            events: HashMap::new(),
        })
    }

    /// The annotations of a request; `None` if its event is not logged within the timeout.
    pub(crate) async fn annotations(&mut self, id: &str) -> Result<Option<Map>, String> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            self.read()?;
            let found = self.events.remove(id);
            if found.is_some() || Instant::now() > deadline {
                return Ok(found);
            }
            // Polls the file: an event may be written after the response.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn read(&mut self) -> Result<(), String> {
        self.log
            .read_to_end(&mut self.rest)
            .map_err(|error| error.to_string())?;
        let whole = self
            .rest
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            // Cheaper than parsing all the others.
            if !line.contains("ResponseComplete") {
                continue;
            }
            let event = Node::parse_json(line)?;
            if event.text("stage")? == "ResponseComplete" {
                let annotations = event.get("annotations").and_then(Node::as_map);
                let id = event.text("auditID")?.to_owned();
                self.events
                    .insert(id, annotations.cloned().unwrap_or_default());
            }
        }
        Ok(())
    }
}

#[test]
fn encodes_only_what_a_uri_cannot_hold() {
    assert_eq!(uri("/a%2Fb?c=d%20e").unwrap(), "/a%2Fb?c=d%20e");
    assert_eq!(uri("/a?b=<c>").unwrap(), "/a?b=%3Cc%3E");
    assert!(uri("no path").is_err());
}
