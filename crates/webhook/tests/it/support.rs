//! Sample webhooks, and a TLS client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use lockgate_testkit::Gate;
use lockgate_webhook::testing::Review;
use lockgate_webhook::{
    Context, Denial, Fault, Mutator, Object, Operation, Registration, Response, Rule, Validator,
    Verdict, Webhooks, from_fn, mutating, validating,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The timeout of any operation in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const CONFIG_MAP: &str =
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}";

/// Adds a label and warns.
pub(crate) struct Owned;

impl Mutator<ConfigMap> for Owned {
    async fn mutate(&self, ctx: &Context, object: &mut ConfigMap) -> Verdict {
        let labels = object.metadata.labels.get_or_insert_default();
        labels
            .entry("owner".into())
            .or_insert_with(|| ctx.user().username.clone());
        Ok(())
    }
}

/// Denies objects with the key `deny`.
pub(crate) struct Strict;

impl Validator<ConfigMap> for Strict {
    async fn create(&self, ctx: &Context, object: &Object<ConfigMap>) -> Verdict {
        if let Some(text) = object.data.as_ref().and_then(|data| data.get("warn")) {
            ctx.warn(text.clone());
        }
        match object.data.as_ref().and_then(|data| data.get("deny")) {
            Some(why) => Err(Denial::forbidden(why.clone()).into()),
            None => Ok(()),
        }
    }
}

pub(crate) fn webhooks() -> Webhooks {
    let rule = |registration: Registration| {
        let operations = [Operation::Create, Operation::Update];
        registration.rule(Rule::resources(["configmaps"]).operations(operations))
    };
    let fault = from_fn(async |_: &Context| Err(Fault::new("the database is away")));
    let panic = from_fn(async |_: &Context| panic!("on purpose"));
    let forever = from_fn(async |_: &Context| std::future::pending().await);
    Webhooks::new()
        .with(
            rule(Registration::mutating("owner.example.com").path("/mutate")),
            mutating::<ConfigMap, _>(Owned),
        )
        .with(
            rule(Registration::validating("strict.example.com").path("/validate")),
            validating::<ConfigMap, _>(Strict),
        )
        .with(
            Registration::validating("fault.example.com").path("/fault"),
            fault,
        )
        .with(
            Registration::validating("panic.example.com").path("/panic"),
            panic,
        )
        .with(
            Registration::validating("forever.example.com").path("/forever"),
            forever,
        )
}

/// A webhook at `/gated` that allows once the gate is opened.
pub(crate) fn gated() -> (Webhooks, Arc<Gate>) {
    let gate = Arc::new(Gate::new());
    let waits = Arc::clone(&gate);
    let handler = from_fn(async move |_: &Context| {
        waits.passed().await;
        Ok(Response::allow())
    });
    let registration = Registration::validating("gated.example.com").path("/gated");
    (Webhooks::new().with(registration, handler), gate)
}

pub(crate) fn review() -> String {
    Review::create(CONFIG_MAP).to_json()
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

/// Its trusted CAs, and its certificate.
#[derive(Clone)]
pub(crate) struct Client {
    config: Arc<ClientConfig>,
}

pub(crate) type Connection = SendRequest<Full<Bytes>>;

impl Client {
    pub(crate) fn trusting(ca_pem: &str) -> Self {
        Self::with_identity(ca_pem, None)
    }

    pub(crate) fn with_identity(ca_pem: &str, identity: Option<(&str, &str)>) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
                let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.resumption = rustls::client::Resumption::disabled();
        Self {
            config: Arc::new(config),
        }
    }

    pub(crate) fn offering(&self, protocols: &[&str]) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        Self {
            config: Arc::new(config),
        }
    }

    pub(crate) async fn stream(
        &self,
        address: SocketAddr,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector
            .connect(ServerName::from(address.ip()), socket)
            .await
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> std::io::Result<Connection> {
        let stream = self.stream(address).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends a review on a separate connection.
    pub(crate) async fn review(&self, address: SocketAddr, path: &str) -> std::io::Result<Reply> {
        let mut connection = self.connect(address).await?;
        send(&mut connection, post(path, review())).await
    }

    /// Sends any request on a separate connection.
    pub(crate) async fn send(
        &self,
        address: SocketAddr,
        request: http::Request<Full<Bytes>>,
    ) -> std::io::Result<Reply> {
        let mut connection = self.connect(address).await?;
        send(&mut connection, request).await
    }
}

pub(crate) async fn send(
    connection: &mut Connection,
    request: http::Request<Full<Bytes>>,
) -> std::io::Result<Reply> {
    let exchange = async {
        connection.ready().await?;
        let response = connection.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok::<_, hyper::Error>(Reply {
            code: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    };
    let reply = tokio::time::timeout(TIMEOUT, exchange).await;
    reply
        .expect("an answer in time")
        .map_err(std::io::Error::other)
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> http::Request<Full<Bytes>> {
    http::Request::post(path)
        .header("host", "webhook")
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

/// Sends a GET request over plain HTTP.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    let socket = TcpStream::connect(address).await.unwrap();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(path)
        .header("host", "probe")
        .body(Full::new(Bytes::new()))
        .unwrap();
    send(&mut sender, request).await.unwrap()
}

/// Waits until a condition is true.
pub(crate) async fn until<F, R>(what: &str, mut is_true: F)
where
    F: FnMut() -> R,
    R: Future<Output = bool>,
{
    let waiting = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, waiting).await;
    waited.unwrap_or_else(|_| panic!("never: {what}"));
}

/// The value of a metric series.
pub(crate) fn metric(text: &str, series: &str) -> Option<f64> {
    let found = text.lines().find_map(|line| line.strip_prefix(series));
    found.and_then(|value| value.trim().parse().ok())
}
