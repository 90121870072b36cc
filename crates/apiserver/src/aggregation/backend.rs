//! Connections to the server behind an APIService.
//!
//! An HTTP/2 connection is shared by many requests, an HTTP/1.1 connection is leased to one request at a time. Both are
//! pooled by their address, so that none is used for a Service that has moved.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use lockgate_admission::https::{self, split_authority};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ServiceReference;
use crate::http::body::Connection;

/// The timeout of connecting and of the TLS handshake, each.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of idle connections.
const IDLE: usize = 25;
/// The maximum number of requests on one shared connection; a further one opens another connection. Kubernetes servers
/// allow 250 streams, some of which are used by watches.
const STREAMS: usize = 100;
/// A shared connection is pinged after this idle time, and closed without a response.
///
/// UPSTREAM: apimachinery pkg/util/net/http.go (readIdleTimeout, pingTimeout)
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);
/// The flow-control window of a stream: lists are large, and backpressure of slow clients must still reach the server.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// The maximum number of shared connections.
const MAX_SHARED_CONNECTIONS: usize = 64;

/// The client certificate that authenticates this server's identity headers, in PEM.
#[derive(Clone, Default)]
pub(crate) struct ProxyIdentity {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

/// A failed backend request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error("dial tcp: lookup {host}: {source}")]
    Lookup {
        host: String,
        source: std::io::Error,
    },
    #[error("dial tcp {address}: connect: {problem}")]
    Dial { address: String, problem: String },
    #[error("dial tcp {0}: i/o timeout")]
    DialTimeout(String),
    #[error("{0}")]
    Tls(String),
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

/// The connections to one backend.
#[derive(Debug)]
pub(super) struct Backend {
    server_name: String,
    tls: Arc<rustls::ClientConfig>,
    /// The same without HTTP/2, which does not support upgrades.
    upgradable: Arc<rustls::ClientConfig>,
    pool: Mutex<ConnectionPool>,
}

#[derive(Debug, Default)]
struct ConnectionPool {
    shared: Vec<Shared>,
    idle: Vec<Exclusive>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    sender: http2::SendRequest<Full<Bytes>>,
    streams: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Exclusive {
    address: String,
    sender: http1::SendRequest<Full<Bytes>>,
}

/// A connection for one request, until its response is read completely.
#[derive(Debug)]
pub(crate) struct Lease {
    backend: Arc<Backend>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Shared {
        sender: http2::SendRequest<Full<Bytes>>,
        _stream: Stream,
    },
    Exclusive(Exclusive),
}

/// A request on a shared connection, counted until it ends.
#[derive(Debug)]
struct Stream(Arc<AtomicUsize>);

impl Stream {
    fn begin(shared: &Shared) -> Self {
        shared.streams.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&shared.streams))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connection for Lease {
    fn ended(self: Box<Self>) {
        self.release();
    }
}

impl Lease {
    /// Returns the connection to the pool.
    pub(crate) fn release(self) {
        if let Kind::Exclusive(exclusive) = self.kind {
            let mut pool = self.backend.pool();
            if pool.idle.len() < IDLE && !exclusive.sender.is_closed() {
                pool.idle.push(exclusive);
            }
        }
    }

    fn is_http2(&self) -> bool {
        matches!(self.kind, Kind::Shared { .. })
    }
}

impl Backend {
    pub(super) fn new(
        service: &ServiceReference,
        ca_bundle: &[u8],
        insecure: bool,
        identity: &ProxyIdentity,
    ) -> Result<Self, https::call::ClientError> {
        let pair = (
            identity.certificate_pem.as_bytes(),
            identity.key_pem.as_bytes(),
        );
        let identity = (!pair.0.is_empty()).then_some(pair);
        let tls = https::tls_client(ca_bundle, identity, insecure, true)?;
        let upgradable = https::tls_client(ca_bundle, identity, insecure, false)?;
        Ok(Self {
            server_name: format!("{}.{}.svc", service.name, service.namespace),
            tls: Arc::new(tls),
            upgradable: Arc::new(upgradable),
            pool: Mutex::default(),
        })
    }

    fn pool(&self) -> MutexGuard<'_, ConnectionPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. If a pooled connection was closed before the request was sent, it is retried on a new one.
    pub(super) async fn send(
        self: &Arc<Self>,
        address: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lease), BackendError> {
        let mut request = request;
        while let Some(mut lease) = self.take(address) {
            match try_send(&mut lease, request, address).await {
                Ok(response) => return Ok((response, lease)),
                Err((error, None)) => return Err(error.into()),
                Err((_, Some(unsent))) => request = unsent,
            }
        }
        let mut lease = self.open(address).await?;
        match try_send(&mut lease, request, address).await {
            Ok(response) => Ok((response, lease)),
            Err((error, _)) => Err(error.into()),
        }
    }

    /// Sends an upgrade request on a separate connection.
    pub(super) async fn send_upgrade(
        &self,
        address: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, BackendError> {
        let stream = self.connect(address, &self.upgradable).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The connection ends with the response, or becomes the tunnel.
            let _ = connection.with_upgrades().await;
        });
        Ok(sender.send_request(request).await?)
    }

    fn take(self: &Arc<Self>, address: &str) -> Option<Lease> {
        let lease = |kind| Lease {
            backend: Arc::clone(self),
            kind,
        };
        let mut pool = self.pool();
        pool.shared.retain(|shared| !shared.sender.is_closed());
        let shared = pool.shared.iter().find(|shared| {
            shared.address == address && shared.streams.load(Ordering::Acquire) < STREAMS
        });
        if let Some(shared) = shared {
            return Some(lease(Kind::Shared {
                sender: shared.sender.clone(),
                _stream: Stream::begin(shared),
            }));
        }
        pool.idle.retain(|idle| !idle.sender.is_closed());
        let place = pool.idle.iter().rposition(|idle| idle.address == address)?;
        Some(lease(Kind::Exclusive(pool.idle.swap_remove(place))))
    }

    async fn open(self: &Arc<Self>, address: &str) -> Result<Lease, BackendError> {
        let stream = self.connect(address, &self.tls).await?;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        let address = address.to_owned();
        let kind = if speaks_http2 {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(PING)
                .keep_alive_timeout(PONG)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .handshake(io)
                .await?;
            tokio::spawn(async move {
                let _ = connection.await;
            });
            let shared = Shared {
                address,
                sender,
                streams: Arc::default(),
            };
            let stream = Stream::begin(&shared);
            let sender = shared.sender.clone();
            let mut pool = self.pool();
            if pool.shared.len() < MAX_SHARED_CONNECTIONS {
                pool.shared.push(shared);
            }
            Kind::Shared {
                sender,
                _stream: stream,
            }
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(async move {
                let _ = connection.await;
            });
            Kind::Exclusive(Exclusive { address, sender })
        };
        Ok(Lease {
            backend: Arc::clone(self),
            kind,
        })
    }

    async fn connect(
        &self,
        authority: &str,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<TlsStream<TcpStream>, BackendError> {
        let socket = dial(authority).await?;
        let name = ServerName::try_from(self.server_name.clone()).map_err(|_| {
            BackendError::Tls(format!("tls: invalid server name {}", self.server_name))
        })?;
        let handshaking = TlsConnector::from(Arc::clone(tls)).connect(name, socket);
        match timeout(DIAL_TIMEOUT, handshaking).await {
            Ok(handshaken) => handshaken.map_err(|error| {
                let refusal = https::tls_refusal(&error);
                BackendError::Tls(refusal.unwrap_or_else(|| error.to_string()))
            }),
            Err(_) => Err(BackendError::Tls(String::from(
                "net/http: TLS handshake timeout",
            ))),
        }
    }
}

async fn dial(authority: &str) -> Result<TcpStream, BackendError> {
    let (host, port) = split_authority(authority);
    let found = tokio::net::lookup_host((host, port.unwrap_or(443))).await;
    let addresses: Vec<SocketAddr> = match found {
        Ok(addresses) => addresses.collect(),
        Err(source) => {
            let host = host.to_owned();
            return Err(BackendError::Lookup { host, source });
        }
    };
    let mut failed = BackendError::DialTimeout(authority.to_owned());
    for address in addresses {
        match timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Ok(Err(source)) => {
                // The system's error message, without Rust's error number.
                let problem = source.to_string();
                let problem = problem.split(" (os error").next().unwrap_or_default();
                failed = BackendError::Dial {
                    address: address.to_string(),
                    problem: problem.to_ascii_lowercase(),
                };
            }
            Err(_) => failed = BackendError::DialTimeout(address.to_string()),
        }
    }
    Err(failed)
}

/// Sends a request; returns it if it was not sent.
async fn try_send(
    lease: &mut Lease,
    mut request: Request<Full<Bytes>>,
    address: &str,
) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Full<Bytes>>>)> {
    if lease.is_http2() {
        // In HTTP/2 the host is in the URI.
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        if let Ok(uri) = format!("https://{address}{path}").parse() {
            *request.uri_mut() = uri;
        }
        request.headers_mut().remove(http::header::HOST);
    } else if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = path.into();
        if let Ok(host) = http::HeaderValue::from_str(address) {
            request.headers_mut().insert(http::header::HOST, host);
        }
    }
    let sent = match &mut lease.kind {
        Kind::Shared { sender, .. } => {
            if let Err(error) = sender.ready().await {
                return Err((error, Some(request)));
            }
            sender.try_send_request(request).await
        }
        Kind::Exclusive(exclusive) => {
            if let Err(error) = exclusive.sender.ready().await {
                return Err((error, Some(request)));
            }
            exclusive.sender.try_send_request(request).await
        }
    };
    sent.map_err(|mut failed| {
        let unsent = failed.take_message();
        (failed.into_error(), unsent)
    })
}

impl std::fmt::Debug for ProxyIdentity {
    /// Hides the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyIdentity").finish_non_exhaustive()
    }
}
