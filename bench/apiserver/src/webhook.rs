//! Webhooks that allow everything and change nothing, over TLS with HTTP/1.1, as most webhooks are.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// One server for all webhooks.
#[derive(Debug)]
pub struct Webhooks {
    port: u16,
    certificate: String,
    calls: Arc<AtomicU64>,
}

impl Webhooks {
    pub async fn start() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed([String::from("127.0.0.1")])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::from(key))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let calls = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&calls);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, acceptor.clone(), Arc::clone(&counter)));
            }
        });
        Ok(Self {
            port,
            certificate: made.cert.pem(),
            calls,
        })
    }

    /// The number of webhook calls.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A configuration that calls this many webhooks for new ConfigMaps.
    pub fn configuration(&self, kind: &str, name: &str, webhooks: usize) -> Value {
        let webhooks = (0..webhooks).map(|index| {
            json!({
                "name": format!("hook-{index}.bench.example.com"),
                "clientConfig": {
                    "url": format!("https://127.0.0.1:{}/{name}/{index}", self.port),
                    "caBundle": base64(self.certificate.as_bytes()),
                },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["configmaps"],
                }],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 10,
            })
        });
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks.collect::<Vec<_>>(),
        })
    }
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, calls: Arc<AtomicU64>) {
    // Responses are small: Nagle's algorithm would only delay them.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let Ok(stream) = acceptor.accept(socket).await else {
        return;
    };
    let service = service_fn(move |request| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(allow(request).await) }
    });
    // A stopped server resets its connections; that is not an error here.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[derive(Deserialize)]
struct Review<'r> {
    #[serde(borrow)]
    request: ReviewRequest<'r>,
}

#[derive(Deserialize)]
struct ReviewRequest<'r> {
    uid: &'r str,
}

async fn allow(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let review = serde_json::from_slice::<Review<'_>>(&body);
    let uid = review.map_or("", |review| review.request.uid);
    let answer = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true}}}}"#
    );
    let mut response = Response::new(Full::new(answer.into()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |index: usize| chunk.get(index).map_or(0, |&byte| u32::from(byte));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            if place <= chunk.len() {
                let letter = bits >> (18 - 6 * place) & 63;
                text.push(char::from(LETTERS[letter as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}
