//! A client with one persistent TLS connection.

use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The admin token of both sides.
pub const TOKEN: &str = "bench-admin-token";

/// One connection to a server on this machine.
#[derive(Debug)]
pub struct Client {
    port: u16,
    sender: SendRequest<Full<Bytes>>,
    authority: HeaderValue,
    authorization: HeaderValue,
}

impl Client {
    pub async fn connect(port: u16) -> Result<Self> {
        Ok(Self {
            port,
            sender: dial(port).await?,
            authority: HeaderValue::from_str(&format!("127.0.0.1:{port}"))?,
            authorization: HeaderValue::from_str(&format!("Bearer {TOKEN}"))?,
        })
    }

    /// Sends a request and reads the entire response.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        self.send_with(method, path, body, &[]).await
    }

    /// Sends a request with additional headers and reads the entire response.
    pub async fn send_with(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        headers: &[(HeaderName, &'static str)],
    ) -> Result<(StatusCode, Bytes)> {
        let mut request = self.request(method, path, body)?;
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        // Servers close idle connections: kube-apiserver after 90 seconds.
        if self.sender.is_closed() {
            self.sender = dial(self.port).await?;
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.authority.clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(USER_AGENT, "bench")
            .header(CONTENT_TYPE, "application/json");
        Ok(request.body(Full::new(body))?)
    }

    /// Sends a request that must succeed.
    pub async fn expect(&mut self, method: Method, path: &str, body: &Value) -> Result<()> {
        let (status, answer) = self.send(method, path, body.to_string().into()).await?;
        if !status.is_success() {
            bail!("{path}: {status} {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    /// Creates an object from its bytes.
    pub async fn create(&mut self, path: &str, body: Bytes) -> Result<()> {
        let (status, answer) = self.send(Method::POST, path, body).await?;
        if status != StatusCode::CREATED {
            bail!("{status} {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }
}

/// Opens a connection.
async fn dial(port: u16) -> Result<SendRequest<Full<Bytes>>> {
    let stream = handshake(TcpStream::connect(("127.0.0.1", port)).await?).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Completes the TLS handshake, with any server certificate.
pub async fn handshake(socket: TcpStream) -> Result<TlsStream<TcpStream>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        Arc::new(config)
    });
    socket.set_nodelay(true)?;
    let connector = TlsConnector::from(Arc::clone(config));
    let name = ServerName::try_from("127.0.0.1")?;
    Ok(connector.connect(name, socket).await?)
}

/// Events, one line each.
#[derive(Debug)]
pub struct Events {
    body: hyper::body::Incoming,
    /// The number of received events that were not returned yet.
    lines: usize,
    /// Keeps the connection open while events are read.
    _client: Client,
}

impl Client {
    /// Starts a watch.
    pub async fn watch(mut self, path: &str) -> Result<Events> {
        let request = self.request(Method::GET, path, Bytes::new())?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        if !response.status().is_success() {
            bail!("{path}: {}", response.status());
        }
        Ok(Events {
            body: response.into_body(),
            lines: 0,
            _client: self,
        })
    }
}

impl Events {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<()> {
        while self.lines == 0 {
            let frame = self.body.frame().await.context("the watch ended")??;
            if let Some(data) = frame.data_ref() {
                self.lines += data.iter().filter(|&&byte| byte == b'\n').count();
            }
        }
        self.lines -= 1;
        Ok(())
    }
}

/// Returns true if a newly started server is ready.
pub async fn is_ready(port: u16) -> bool {
    let answer = async {
        let mut client = Client::connect(port).await.context("connect")?;
        client.send(Method::GET, "/readyz", Bytes::new()).await
    };
    matches!(answer.await, Ok((StatusCode::OK, _)))
}

/// Accepts every server certificate: each side generates its own, and only time is measured here.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
