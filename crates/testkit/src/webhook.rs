//! The scripted webhook server.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::answer::{Act, Body, Ending, ScriptedResponse};
use crate::certs::{Authority, Identity};

/// A request that reached the server.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The version of HTTP.
    pub version: Version,
    /// The number of the connection, from 1.
    pub connection: usize,
    /// The requested server name (SNI), if any.
    pub server_name: Option<String>,
}

impl Recorded {
    /// The first header called `name`.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    }
}

/// An HTTPS webhook with scripted responses on a free loopback port.
///
/// Without a script it allows everything.
#[derive(Debug)]
pub struct WebhookServer {
    address: SocketAddr,
    ca_pem: String,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    accepting: Option<tokio::task::JoinHandle<()>>,
}

/// Settings of a [`WebhookServer`].
#[derive(Debug, Default)]
pub struct Builder {
    identity: Option<(Identity, String)>,
    client_ca_pem: Option<String>,
    http1_only: bool,
    stall: Option<Stall>,
    responder: Option<Responder>,
}

/// Selects the response to a request.
#[derive(Clone)]
struct Responder(Arc<dyn Fn(&Recorded) -> ScriptedResponse + Send + Sync>);

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Responder")
    }
}

/// The phase at which a server stops responding.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stall {
    Handshake,
    Reading,
}

impl Builder {
    /// Serves with this certificate; [`WebhookServer::ca_pem`] returns `ca_pem`.
    #[must_use]
    pub fn identity(mut self, identity: Identity, ca_pem: &str) -> Self {
        self.identity = Some((identity, ca_pem.to_owned()));
        self
    }

    /// Requires client certificates of this CA.
    #[must_use]
    pub fn client_ca(mut self, ca_pem: &str) -> Self {
        self.client_ca_pem = Some(ca_pem.to_owned());
        self
    }

    /// Does not offer HTTP/2.
    #[must_use]
    pub fn http1_only(mut self) -> Self {
        self.http1_only = true;
        self
    }

    /// Accepts connections but never completes the TLS handshake.
    #[must_use]
    pub fn stall_handshakes(mut self) -> Self {
        self.stall = Some(Stall::Handshake);
        self
    }

    /// Completes the TLS handshake but reads nothing.
    #[must_use]
    pub fn stall_reading(mut self) -> Self {
        self.stall = Some(Stall::Reading);
        self
    }

    /// Responds to each request with the result of `respond`, instead of scripts.
    #[must_use]
    pub fn respond(
        mut self,
        respond: impl Fn(&Recorded) -> ScriptedResponse + Send + Sync + 'static,
    ) -> Self {
        self.responder = Some(Responder(Arc::new(respond)));
        self
    }

    /// Starts the server.
    ///
    /// # Panics
    ///
    /// Panics if no port is available.
    pub async fn start(self) -> WebhookServer {
        let (identity, ca_pem) = self.identity.unwrap_or_else(|| {
            let authority = Authority::new("lockgate testkit");
            let identity = authority.issue(&["localhost", "127.0.0.1", "::1", "*.default.svc"]);
            (identity, authority.pem().to_owned())
        });
        let protocols: &[&str] = if self.http1_only {
            &["http/1.1"]
        } else {
            &["h2", "http/1.1"]
        };
        let tls = identity.server_config(self.client_ca_pem.as_deref(), protocols);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            responder: self.responder,
            ..Shared::default()
        });
        let (stop, stopped) = watch::channel(false);
        let acceptor = TlsAcceptor::from(tls);
        let accepting = accept(listener, acceptor, self.stall, Arc::clone(&shared), stopped);
        let accepting = tokio::spawn(accepting);
        WebhookServer {
            address,
            ca_pem,
            shared,
            stop,
            accepting: Some(accepting),
        }
    }
}

impl WebhookServer {
    /// Starts a server for `localhost`, the loopback addresses and `*.default.svc`, with HTTP/1.1
    /// and HTTP/2.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Configures a server with other settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL with its address.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// The CA of its certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Scripts the responses to requests for `path`, in order; the last one is repeated.
    pub fn script(&self, path: &str, answers: impl IntoIterator<Item = ScriptedResponse>) {
        let answers = answers.into_iter().collect();
        self.shared.lock().scripts.insert(path.to_owned(), answers);
    }

    /// All requests so far, in the order in which they were completely read.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.clone()
    }

    /// Waits until this many requests were received.
    pub async fn wait_for_requests(&self, count: usize) {
        let mut seen = self.shared.seen.subscribe();
        // The sender outlives this call.
        let _ = seen.wait_for(|seen| *seen >= count).await;
    }

    /// Waits until this many connections are open.
    pub async fn wait_for_open_connections(&self, count: usize) {
        let mut open = self.shared.open.subscribe();
        let _ = open.wait_for(|open| *open == count).await;
    }

    /// The number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock().accepted
    }

    /// The number of bytes of [`ScriptedResponse::huge`] bodies sent so far.
    #[must_use]
    pub fn streamed_bytes(&self) -> u64 {
        self.shared.streamed.load(Ordering::Relaxed)
    }

    /// Closes all connections and waits until they are closed.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.await;
        }
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

#[derive(Debug)]
struct Shared {
    responder: Option<Responder>,
    state: Mutex<State>,
    seen: watch::Sender<usize>,
    open: watch::Sender<usize>,
    streamed: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    scripts: HashMap<String, VecDeque<ScriptedResponse>>,
    requests: Vec<Recorded>,
    accepted: usize,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            responder: None,
            state: Mutex::default(),
            seen: watch::Sender::new(0),
            open: watch::Sender::new(0),
            streamed: Arc::default(),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_answer(&self, request: &Recorded) -> ScriptedResponse {
        if let Some(Responder(respond)) = &self.responder {
            return respond(request);
        }
        let mut state = self.lock();
        let Some(answers) = state.scripts.get_mut(&request.path) else {
            return ScriptedResponse::allow();
        };
        if answers.len() > 1 {
            return answers.pop_front().unwrap_or_else(ScriptedResponse::allow);
        }
        answers
            .front()
            .cloned()
            .unwrap_or_else(ScriptedResponse::allow)
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    stall: Option<Stall>,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
        };
        let _ = stream.set_nodelay(true);
        let connection = {
            let mut state = shared.lock();
            state.accepted += 1;
            state.accepted
        };
        let shared = Arc::clone(&shared);
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            shared.open.send_modify(|open| *open += 1);
            serve(stream, acceptor, stall, &shared, connection).await;
            shared.open.send_modify(|open| *open -= 1);
        });
    }
    connections.shutdown().await;
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    stall: Option<Stall>,
    shared: &Arc<Shared>,
    connection: usize,
) {
    if stall == Some(Stall::Handshake) {
        hold_silently(&stream).await;
        return;
    }
    // A client may reject the certificate, which is checked on its side.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    if stall == Some(Stall::Reading) {
        // Until the server stops: without reading, the end of the connection is not noticed.
        std::future::pending::<()>().await;
    }
    let (_, session) = stream.get_ref();
    let server_name = session.server_name().map(str::to_owned);
    let http2 = session.alpn_protocol() == Some(b"h2");
    let (raw, mut raws) = mpsc::unbounded_channel();
    let service = service_fn(move |request| {
        let shared = Arc::clone(shared);
        let raw = raw.clone();
        let server_name = server_name.clone();
        async move { answer(request, &shared, connection, server_name, &raw).await }
    });
    if http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
        return;
    }
    let mut http1 =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let raw = tokio::select! {
        _ = Pin::new(&mut http1) => return,
        raw = raws.recv() => raw,
    };
    if let Some((bytes, ending)) = raw {
        write_raw(http1.into_parts().io.into_inner(), &bytes, ending).await;
    }
}

/// Sends nothing until the peer closes the connection.
async fn hold_silently(stream: &TcpStream) {
    let mut ignored = [0; 1024];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut ignored) {
            Ok(0) => return,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

async fn write_raw(mut stream: TlsStream<TcpStream>, bytes: &[u8], ending: Ending) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    match ending {
        Ending::Close => {
            let _ = stream.shutdown().await;
        }
        Ending::Cut => {
            let _ = stream.get_mut().0.shutdown().await;
        }
        Ending::Reset => {
            let _ = stream.get_ref().0.set_zero_linger();
        }
        Ending::Hold => {
            let mut ignored = [0; 1024];
            while stream.read(&mut ignored).await.is_ok_and(|count| count > 0) {}
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
    connection: usize,
    server_name: Option<String>,
    raw: &mpsc::UnboundedSender<(Bytes, Ending)>,
) -> Result<Response<Play>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let recorded = Recorded {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.as_str().to_owned(), value)
            })
            .collect(),
        body: body.clone(),
        version: head.version,
        connection,
        server_name,
    };
    let answer = shared.next_answer(&recorded);
    shared.lock().requests.push(recorded);
    shared.seen.send_modify(|seen| *seen += 1);
    if let Some(gate) = answer.gate {
        gate.passed().await;
    }
    if let Some(delay) = answer.delay {
        tokio::time::sleep(delay).await;
    }
    let (code, headers, play) = match answer.act {
        Act::Raw(bytes, ending) => {
            // The connection is detached; this future is dropped with its HTTP side.
            let _ = raw.send((bytes, ending));
            std::future::pending().await
        }
        Act::Http {
            code,
            headers,
            body: script,
        } => (code, headers, Play::new(script, &body, &shared.streamed)),
    };
    let mut response = Response::new(play);
    if let Ok(code) = http::StatusCode::from_u16(code) {
        *response.status_mut() = code;
    }
    if matches!(response.body(), Play::Zipped(_)) {
        let gzip = http::HeaderValue::from_static("gzip");
        response
            .headers_mut()
            .insert(http::header::CONTENT_ENCODING, gzip);
    }
    for (name, value) in headers {
        let name = http::HeaderName::try_from(name).expect("a header name");
        let value = http::HeaderValue::try_from(value).expect("a header value");
        response.headers_mut().append(name, value);
    }
    Ok(response)
}

/// A streamed body.
enum Play {
    Bytes(Option<Bytes>),
    Zipped(Option<Bytes>),
    /// The remaining bytes, and their counter.
    Zeros(u64, Arc<AtomicU64>),
    Drip(Interval),
}

impl Play {
    fn new(body: Body, request: &[u8], streamed: &Arc<AtomicU64>) -> Self {
        match body {
            Body::Bytes(bytes) => Self::Bytes(Some(bytes)),
            Body::Zipped(bytes) => Self::Zipped(Some(bytes)),
            Body::Review(make) => {
                let review = serde_json::from_slice(request).unwrap_or_default();
                Self::Bytes(Some(make(&review).to_string().into()))
            }
            Body::Zeros(count) => Self::Zeros(count, Arc::clone(streamed)),
            Body::Drip(pause) => Self::Drip(interval(pause)),
        }
    }
}

fn interval(pause: Duration) -> Interval {
    let mut interval = tokio::time::interval(pause);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

impl HttpBody for Play {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const ZEROS: &[u8] = &[0; 64 * 1024];
        let bytes = match self.get_mut() {
            Self::Bytes(bytes) | Self::Zipped(bytes) => bytes.take(),
            Self::Zeros(left, streamed) => {
                let count =
                    usize::try_from(*left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
                *left -= count as u64;
                streamed.fetch_add(count as u64, Ordering::Relaxed);
                (count > 0).then(|| Bytes::from_static(&ZEROS[..count]))
            }
            Self::Drip(interval) => {
                std::task::ready!(interval.poll_tick(context));
                Some(Bytes::from_static(b" "))
            }
        };
        Poll::Ready(
            bytes
                .filter(|bytes| !bytes.is_empty())
                .map(|bytes| Ok(Frame::data(bytes))),
        )
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Bytes(bytes) | Self::Zipped(bytes) => {
                hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::Zeros(left, _) => hyper::body::SizeHint::with_exact(*left),
            Self::Drip(_) => hyper::body::SizeHint::default(),
        }
    }
}
