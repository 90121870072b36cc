//! Two sample webhooks behind one HTTPS server.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use lockgate_go::base64;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::commands::CommandError;

/// The largest review that is read.
const MAX_REVIEW: usize = 7 << 20;

/// The webhooks, until this is dropped.
#[derive(Debug)]
pub(super) struct Webhooks {
    port: u16,
    certificate: String,
    serving: tokio::task::JoinHandle<()>,
}

impl Webhooks {
    /// Starts them on a free port of the loopback.
    pub(super) async fn start() -> Result<Self, CommandError> {
        let failed =
            |what: &str| CommandError::failed(format!("cannot start the sample webhooks: {what}"));
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .map_err(|error| failed(&error.to_string()))?;
        let port = listener
            .local_addr()
            .map_err(|error| failed(&error.to_string()))?
            .port();
        let key = KeyPair::generate().map_err(|error| failed(&error.to_string()))?;
        let params = CertificateParams::new([String::from("127.0.0.1"), String::from("localhost")]);
        let certificate = params
            .and_then(|params| params.self_signed(&key))
            .map_err(|error| failed(&error.to_string()))?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| failed(&error.to_string()))?;
        let serving = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config))));
        Ok(Self {
            port,
            certificate: certificate.pem(),
            serving,
        })
    }

    /// How a registration reaches one of them.
    pub(super) fn client_config(&self, path: &str) -> Value {
        json!({
            "url": format!("https://127.0.0.1:{}{path}", self.port),
            "caBundle": base64::encode(self.certificate.as_bytes()),
        })
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    while let Ok((socket, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(socket).await else {
                return;
            };
            let service = service_fn(answer);
            let connection = hyper::server::conn::http1::Builder::new();
            // A connection that breaks is the client's to notice.
            let _ = connection
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = Limited::new(request.into_body(), MAX_REVIEW)
        .collect()
        .await;
    let review: Value = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body.to_bytes()).ok())
        .unwrap_or_default();
    let mut response = match path.as_str() {
        "/owner" => add_owner(&review),
        "/images" => refuse_latest(&review),
        _ => {
            let mut gone = http::Response::new(Full::default());
            *gone.status_mut() = http::StatusCode::NOT_FOUND;
            return Ok(gone);
        }
    };
    response["uid"] = review.pointer("/request/uid").cloned().unwrap_or_default();
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(http::Response::new(Full::from(answer.to_string())))
}

/// Says who owns an object that does not say so itself.
fn add_owner(review: &Value) -> Value {
    let labels = review
        .pointer("/request/object/metadata/labels")
        .and_then(Value::as_object);
    if labels.is_some_and(|labels| labels.contains_key("owner")) {
        return json!({"allowed": true});
    }
    let user = review
        .pointer("/request/userInfo/username")
        .cloned()
        .unwrap_or_default();
    let patch = match labels {
        Some(_) => json!([{"op": "add", "path": "/metadata/labels/owner", "value": user}]),
        None => json!([{"op": "add", "path": "/metadata/labels", "value": {"owner": user}}]),
    };
    json!({
        "allowed": true,
        "patchType": "JSONPatch",
        "patch": base64::encode(patch.to_string().as_bytes()),
        "warnings": ["the label owner was missing and has been set"],
    })
}

/// Refuses pods whose images have no version.
fn refuse_latest(review: &Value) -> Value {
    let containers = review
        .pointer("/request/object/spec/containers")
        .and_then(Value::as_array);
    let images = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container.get("image")?.as_str());
    let latest: Vec<&str> = images
        .filter(|image| !image.contains(':') || image.ends_with(":latest"))
        .collect();
    if latest.is_empty() {
        return json!({"allowed": true, "auditAnnotations": {"images": "pinned"}});
    }
    json!({"allowed": false, "status": {"code": 403, "message": format!("image {} has no version", latest.join(", "))}})
}
