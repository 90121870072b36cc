//! A client of the demo's own server: one connection, one request at a time.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use lockgate_apiserver::Running;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::commands::CommandError;

/// A response of the server.
pub(super) struct Response {
    pub(super) code: u16,
    pub(super) warnings: Vec<String>,
    pub(super) body: Value,
}

/// A connection.
pub(super) struct Client(SendRequest<Full<Bytes>>);

impl Client {
    /// Connects as cluster admin.
    pub(super) async fn connect(running: &Running) -> Result<Self, CommandError> {
        let failed = |error: &dyn std::fmt::Display| {
            CommandError::failed(format!("cannot reach the server: {error}"))
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(running.ca_pem().as_bytes()).flatten() {
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
        let (certificate, key) = running.admin();
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .flatten()
            .collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| failed(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| failed(&error))?;
        let socket = TcpStream::connect(running.address())
            .await
            .map_err(|error| failed(&error))?;
        let name = ServerName::from(running.address().ip());
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, socket)
            .await
            .map_err(|error| failed(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Sends a request and reads the response.
    pub(super) async fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Response, CommandError> {
        let failed = |error: &dyn std::fmt::Display| {
            CommandError::failed(format!("{method} {path}: {error}"))
        };
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, "localhost")
            .header(http::header::CONTENT_TYPE, content_type)
            .body(Full::from(body))
            .map_err(|error| failed(&error))?;
        // The connection may still be finishing the previous response.
        self.0.ready().await.map_err(|error| failed(&error))?;
        let answer = self
            .0
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?;
        let warnings = answer.headers().get_all(http::header::WARNING).iter();
        let warnings = warnings
            .filter_map(|value| value.to_str().ok().map(str::to_owned))
            .collect();
        let code = answer.status().as_u16();
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| failed(&error))?
            .to_bytes();
        Ok(Response {
            code,
            warnings,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }
}
