//! A client of the main API server.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lockgate_api::document::{Value, yaml};
use lockgate_go::base64;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// An error of a request to the main server.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The maximum size of a complete response.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// The timeout of a complete response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The main API server: its address and the credentials for it.
pub struct Server {
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
    token: Option<String>,
}

impl std::fmt::Debug for Server {
    /// Hides the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Creates a client from URL, CA certificates and token.
    ///
    /// # Errors
    ///
    /// Fails if the URL or the CA certificates are invalid.
    pub fn new(url: &str, ca_pem: &[u8], token: Option<String>) -> Result<Self, Failure> {
        Self::with_certificate(url, ca_pem, token, None)
    }

    fn with_certificate(
        url: &str,
        ca_pem: &[u8],
        token: Option<String>,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, Failure> {
        let url: Uri = url.parse()?;
        if url.scheme_str() != Some("https") {
            return Err("the server must be given as https://…".into());
        }
        let host = url.host().ok_or("the server has no host")?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(ca_pem) {
            roots.add(authority?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let tls = match certificate {
            None => tls.with_no_client_auth(),
            Some((chain, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
                tls.with_client_auth_cert(chain?, PrivateKeyDer::from_pem_slice(&key)?)?
            }
        };
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port_u16().unwrap_or(443),
            tls: Arc::new(tls),
            token,
        })
    }

    /// Creates a client from the current context of a kubeconfig file.
    ///
    /// # Errors
    ///
    /// Fails if the file is not a kubeconfig, or refers to missing entries.
    pub fn from_kubeconfig(file: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(file)?;
        let document = yaml::parse(&text).map_err(|error| error.to_string())?;
        let root = document.root();
        let context = root.get("current-context").ok_or("no current context")?;
        let context = entry(root, "contexts", context)?.get("context");
        let context = context.ok_or("an empty context")?;
        let named = |member: &str| {
            context
                .get(member)
                .ok_or_else(|| format!("no {member} in the context"))
        };
        let cluster = entry(root, "clusters", named("cluster")?)?;
        let cluster = cluster.get("cluster").ok_or("an empty cluster")?;
        let user = entry(root, "users", named("user")?)?;
        let user = user.get("user").ok_or("an empty user")?;

        let beside = |path: &str| file.parent().unwrap_or_else(|| Path::new("")).join(path);
        let text_of = |of: Value<'_>, member: &str| Some(of.get(member)?.as_str()?.to_owned());
        let bytes_of = |of: Value<'_>, member: &str| -> Result<Option<Vec<u8>>, Failure> {
            if let Some(data) = text_of(of, &format!("{member}-data")) {
                return Ok(Some(
                    base64::decode(&data).map_err(|_| "invalid base64 data")?,
                ));
            }
            let path = text_of(of, member);
            Ok(path.map(|path| fs::read(beside(&path))).transpose()?)
        };
        let url = text_of(cluster, "server").ok_or("no server in the cluster")?;
        let authority = bytes_of(cluster, "certificate-authority")?.unwrap_or_default();
        let token = match text_of(user, "tokenFile") {
            Some(path) => Some(fs::read_to_string(beside(&path))?.trim().to_owned()),
            None => text_of(user, "token"),
        };
        let chain = bytes_of(user, "client-certificate")?;
        let certificate = chain.zip(bytes_of(user, "client-key")?);
        Self::with_certificate(&url, &authority, token, certificate)
    }

    /// Sends a request on a separate connection, which is closed after the response.
    ///
    /// # Errors
    ///
    /// Fails if the server is unreachable.
    pub async fn get(&self, path: &str) -> Result<Response<Incoming>, Failure> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Gets or posts an object, and reads the entire response.
    ///
    /// # Errors
    ///
    /// Fails if the server is unreachable, does not respond in time, or does not return an object.
    pub async fn exchange(
        &self,
        path: &str,
        object: Option<&serde_json::Value>,
    ) -> Result<(u16, serde_json::Value), Failure> {
        let exchange = async {
            let (method, body) = match object {
                None => (Method::GET, Bytes::new()),
                Some(object) => (Method::POST, Bytes::from(object.to_string())),
            };
            let response = self.send(method, path, body).await?;
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
            let body = body.collect().await?.to_bytes();
            Ok((code, serde_json::from_slice(&body)?))
        };
        tokio::time::timeout(RESPONSE_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err("the API server does not answer".into()))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(name, stream)
            .await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "lockgate-follow");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(sender.send_request(request.body(Full::new(body))?).await?)
    }
}

/// The entry of this name in a list of a kubeconfig.
fn entry<'d>(root: Value<'d>, list: &str, name: Value<'_>) -> Result<Value<'d>, Failure> {
    let mut entries = root.get(list).into_iter().flat_map(|list| list.items());
    let has_name = |entry: &Value<'d>| {
        let found = entry.get("name").and_then(|name| name.as_str());
        found.is_some() && found == name.as_str()
    };
    let found = entries.find(has_name);
    found.ok_or_else(|| format!("no `{}` in {list}", name.as_str().unwrap_or_default()).into())
}
