//! A small client over real TLS with access to all of a response, and watches with a timeout.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockgate_apiserver::{Controllers, Running, Settings, TestServer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The timeout of any response.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Awaits a future with a timeout.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("it takes too long")
}

/// Settings of a server with few controllers: lists and watches contain only what a test created.
pub(crate) fn settings() -> Settings {
    Settings {
        controllers: Controllers {
            namespace: true,
            ..Controllers::all(false)
        },
        // Pods then need no ServiceAccount, which no controller creates.
        disable_plugins: vec![String::from("ServiceAccount")],
        ..Settings::default()
    }
}

pub(crate) async fn start() -> TestServer {
    start_with(settings()).await
}

pub(crate) async fn start_with(settings: Settings) -> TestServer {
    TestServer::start_with(settings).await.expect("a server")
}

/// A request body.
pub(crate) type Body = BoxBody<Bytes, Infallible>;

pub(crate) fn body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

/// The credentials of a client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) certificate: Option<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
}

/// The TLS configuration for a server and one protocol.
pub(crate) fn tls(server: &Running, credentials: &Credentials, protocol: &str) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(server.ca_pem().as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match &credentials.certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                CertificateDer::pem_slice_iter(certificate.as_bytes())
                    .collect::<Result<_, _>>()
                    .unwrap(),
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// A TLS connection before any request.
pub(crate) async fn connect(tls: &TlsConnector, address: SocketAddr) -> TlsStream<TcpStream> {
    let socket = within(TcpStream::connect(address)).await.unwrap();
    socket.set_nodelay(true).unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    within(tls.connect(name, socket)).await.unwrap()
}

/// A client with one HTTP/2 connection.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    sender: http2::SendRequest<Body>,
    headers: Vec<(String, String)>,
}

/// A response with its entire body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.code, self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// The warning texts.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter();
        values
            .map(|value| {
                let text = value.to_str().unwrap();
                let text = text.strip_prefix("299 - \"").unwrap_or(text);
                text.strip_suffix('"').unwrap_or(text).replace("\\\"", "\"")
            })
            .collect()
    }

    /// Returns the object, if the response has the expected code.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text());
        self.json()
    }

    /// Checks code, reason and message of an error response.
    #[track_caller]
    pub(crate) fn refused(self, code: u16, reason: &str, message: &str) -> Value {
        let status = self.json();
        let found = (
            self.code,
            status["reason"].as_str().unwrap_or_default(),
            status["message"].as_str().unwrap_or_default(),
        );
        assert_eq!(found, (code, reason, message));
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["status"], "Failure");
        assert_eq!(status["code"], code);
        status
    }
}

impl Client {
    /// A client with admin credentials.
    pub(crate) async fn admin(server: &Running) -> Self {
        let (certificate, key) = server.admin();
        Self::connect(
            server,
            Credentials {
                certificate: Some((certificate.to_owned(), key.to_owned())),
                headers: Vec::new(),
            },
        )
        .await
    }

    /// An anonymous client.
    pub(crate) async fn anonymous(server: &Running) -> Self {
        Self::connect(server, Credentials::default()).await
    }

    /// A client with a bearer token.
    pub(crate) async fn with_token(server: &Running, token: &str) -> Self {
        Self::connect(
            server,
            Credentials {
                certificate: None,
                headers: vec![(String::from("authorization"), format!("Bearer {token}"))],
            },
        )
        .await
    }

    pub(crate) async fn connect(server: &Running, credentials: Credentials) -> Self {
        let stream = connect(&tls(server, &credentials, "h2"), server.address()).await;
        // A small window, so that a client that does not read soon blocks the server.
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(65_535)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self {
            sender,
            headers: credentials.headers,
        }
    }

    /// The same client with a header on every request.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    /// The same client, impersonating a user.
    pub(crate) fn taken_for(&self, user: &str) -> Self {
        self.with("impersonate-user", user)
    }

    pub(crate) async fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> http::Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://server{path}"));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).unwrap();
        let mut sender = self.sender.clone();
        within(async {
            sender.ready().await.unwrap();
            sender.send_request(request).await
        })
        .await
        .unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        bytes: impl Into<Bytes>,
    ) -> Answer {
        let response = self.send(&method, path, headers, body(bytes)).await;
        read(response).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.request(Method::POST, path, &json, object.to_string())
            .await
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.request(Method::PUT, path, &json, object.to_string())
            .await
    }

    /// `kind` is `json`, `merge`, `strategic` or `apply`.
    pub(crate) async fn patch(&self, path: &str, kind: &str, patch: &Value) -> Answer {
        let media_type = match kind {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            _ => "application/apply-patch+yaml",
        };
        let headers = [("content-type", media_type)];
        self.request(Method::PATCH, path, &headers, patch.to_string())
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.request(Method::DELETE, path, &[], "").await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.request(Method::DELETE, path, &json, options.to_string())
            .await
    }

    /// Creates an object, which must succeed.
    #[track_caller]
    pub(crate) fn create(&self, path: &str, object: Value) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        let (client, path) = (self.clone(), path.to_owned());
        async move {
            let answer = client.post(&path, &object).await;
            assert_eq!(answer.code, 201, "{caller}: {}", answer.text());
            answer.json()
        }
    }

    /// Starts a watch. The path includes the query except `watch`.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}watch=true");
        let response = self.send(&Method::GET, &path, &[], body("")).await;
        Watch::new(response).await
    }

    /// Waits until an object satisfies a predicate.
    pub(crate) async fn wait_until(
        &self,
        collection: &str,
        name: &str,
        is_right: impl Fn(&Value) -> bool,
    ) -> Value {
        let list = format!("{collection}?fieldSelector=metadata.name%3D{name}");
        let mut watch = self.watch(&list).await;
        loop {
            let (kind, object) = watch.next().await;
            if kind != "DELETED" && is_right(&object) {
                return object;
            }
        }
    }

    /// Waits until an object is deleted.
    pub(crate) async fn wait_until_gone(&self, collection: &str, name: &str) {
        let list = format!("{collection}?fieldSelector=metadata.name%3D{name}");
        let mut watch = self.watch(&list).await;
        // The object may already be deleted; the list is newer than the start of the watch.
        if self.get(&list).await.expect(200)["items"] == json!([]) {
            return;
        }
        while watch.next().await.0 != "DELETED" {}
    }
}

/// Reads a response with its entire body.
pub(crate) async fn read(response: http::Response<Incoming>) -> Answer {
    let (head, incoming) = response.into_parts();
    let bytes = within(incoming.collect()).await.unwrap().to_bytes();
    Answer {
        code: head.status.as_u16(),
        headers: head.headers,
        bytes,
    }
}

/// Sends one request on a separate connection with HTTP/1.1.
pub(crate) async fn http1_request(
    server: &Running,
    credentials: &Credentials,
    request: Request<Body>,
) -> Answer {
    let stream = connect(&tls(server, credentials, "http/1.1"), server.address()).await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = within(sender.send_request(request)).await.unwrap();
    read(response).await
}

/// The admin credentials.
pub(crate) fn admin(server: &Running) -> Credentials {
    let (certificate, key) = server.admin();
    Credentials {
        certificate: Some((certificate.to_owned(), key.to_owned())),
        headers: Vec::new(),
    }
}

/// The events of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    incoming: Incoming,
    buffer: Vec<u8>,
}

impl Watch {
    async fn new(response: http::Response<Incoming>) -> Self {
        let code = response.status().as_u16();
        if code != 200 {
            let answer = read(response).await;
            panic!("{code}: {}", answer.text());
        }
        Self {
            incoming: response.into_body(),
            buffer: Vec::new(),
        }
    }

    /// The next event as type and object; `None` at the regular end of the stream.
    pub(crate) async fn next_or_end(&mut self) -> Option<(String, Value)> {
        within(self.whenever()).await
    }

    /// The same without a timeout.
    pub(crate) async fn whenever(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).unwrap();
                let kind = event["type"].as_str().unwrap().to_owned();
                return Some((kind, event["object"].take()));
            }
            match self.incoming.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.unwrap().into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => {
                    assert_eq!(self.buffer, b"", "a part of an event");
                    return None;
                }
            }
        }
    }

    pub(crate) async fn next(&mut self) -> (String, Value) {
        self.next_or_end().await.expect("another event")
    }

    /// The next event as `TYPE name`.
    pub(crate) async fn line(&mut self) -> String {
        let (kind, object) = self.next().await;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{kind} {name}").trim_end().to_owned()
    }

    /// All events until the end of the stream.
    pub(crate) async fn rest(mut self) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        while let Some(event) = self.next_or_end().await {
            events.push(event);
        }
        events
    }
}

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
pub(crate) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub(crate) fn labelled(name: &str, key: &str, value: &str) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({key: value});
    object
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

/// A CustomResourceDefinition of `widgets.example.com` with these versions.
pub(crate) fn definition(versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wg"]},
            "versions": versions,
        },
    })
}

/// A CustomResourceDefinition version that preserves unknown fields.
pub(crate) fn open_version(name: &str, storage: bool) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    })
}

/// A configuration with one webhook for ConfigMaps.
pub(crate) fn hook(kind: &str, name: &str, url: &str, ca_pem: &str) -> Value {
    use base64::Engine as _;
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "clientConfig": {
                "url": url,
                "caBundle": base64::prelude::BASE64_STANDARD.encode(ca_pem),
            },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }],
        }],
    })
}

/// The AdmissionReview of a webhook request.
pub(crate) trait Review {
    fn json(&self) -> Value;
}

impl Review for lockgate_testkit::Recorded {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The resourceVersion of an object.
pub(crate) fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// The names of the items of a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

/// Pseudo-random numbers from a seed.
#[derive(Debug)]
pub(crate) struct Dice(AtomicU64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        let step = |mut state: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            Some(state ^ (state << 17))
        };
        let state = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step)
            .unwrap();
        (state >> 11) % bound
    }

    /// Yields to other tasks, sometimes for longer.
    pub(crate) async fn dawdle(&self) {
        let turns = match self.below(8) {
            0 => self.below(400),
            1..4 => self.below(40),
            _ => 0,
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }
}
