//! Handles the requests of the API server: client authentication, path, size, deadline; then the webhook.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use lockgate_listener::{Connected, Handshake, Service, tls_handshake};
use prometheus_client::metrics::gauge::Gauge;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::converted_objects;
use super::credentials::Credentials;
use super::deadline::deadline;
use super::decision;
use super::gate::{Gate, Shed};
use super::limits::Limits;
use super::metrics::{Metrics, PerWebhook};
use crate::webhooks::{Served, Webhooks};

/// The unit of memory accounting for bodies.
const CHUNK_BYTES: usize = 16 << 10;

/// The `Retry-After` of rejected reviews.
const RETRY_AFTER_SECONDS: &str = "1";

pub(super) type Response = http::Response<Full<Bytes>>;

/// The service at the HTTPS address.
pub(super) struct Reviews {
    webhooks: Webhooks,
    gates: Vec<Gate>,
    credentials: Arc<Credentials>,
    limits: Limits,
    metrics: Arc<Metrics>,
    /// The remaining memory budget of all reviews, in units.
    room: Arc<Semaphore>,
}

/// The caller, as far as TLS authenticates it.
#[derive(Debug, Default)]
pub(super) struct Caller {
    /// The names in its certificate, if names are checked.
    names: Vec<String>,
}

impl Reviews {
    pub(super) fn new(
        webhooks: Webhooks,
        credentials: Arc<Credentials>,
        limits: Limits,
        metrics: Arc<Metrics>,
    ) -> Self {
        let gates = metrics
            .by_webhook()
            .iter()
            .map(|webhook| Gate::new(limits.in_flight, limits.queued, webhook.queued.clone()));
        let pieces = (limits.buffered_bytes / CHUNK_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            gates: gates.collect(),
            webhooks,
            credentials,
            room: Arc::new(Semaphore::new(pieces)),
            limits,
            metrics,
        }
    }

    async fn review(&self, caller: &Caller, request: http::Request<Incoming>) -> Response {
        let start = Instant::now();
        // Unauthenticated clients learn nothing, not even which paths exist.
        let path = request.uri().path();
        if let Some(rejection) = self.reject_caller(caller, path, request.headers()) {
            return rejection;
        }
        let Some((place, webhook)) = self.webhooks.placed(path) else {
            return plain(StatusCode::NOT_FOUND, "no webhook at this path\n");
        };
        let (Some(gate), Some(webhook_metrics)) =
            (self.gates.get(place), self.metrics.by_webhook().get(place))
        else {
            return plain(StatusCode::NOT_FOUND, "no webhook at this path\n");
        };
        let _in_flight = InFlight::begin(&webhook_metrics.in_flight);
        let response = self
            .answer(webhook, gate, webhook_metrics, start, request)
            .await;
        let code = response.status().as_u16();
        self.metrics
            .answered(webhook_metrics, code, start.elapsed());
        response
    }

    fn reject_caller(&self, caller: &Caller, path: &str, headers: &HeaderMap) -> Option<Response> {
        let names = &self.credentials.auth().of(path).names;
        let has_name = caller.names.iter().any(|name| names.contains(name));
        if !names.is_empty() && !has_name {
            let text = "the certificate's name is not one that may call\n";
            return Some(plain(StatusCode::FORBIDDEN, text));
        }
        let auth = self.credentials.auth().of(path);
        let bearer = (!auth.token_files.is_empty()).then_some("Bearer");
        let basic = (!auth.user_files.is_empty()).then_some("Basic realm=\"webhooks\"");
        let is_asked = bearer.is_some() || basic.is_some();
        if !is_asked || self.credentials.tokens().of(path).is_authenticated(headers) {
            return None;
        }
        let text = match bearer {
            Some(_) => "a bearer token is needed\n",
            None => "a user and a password are needed\n",
        };
        let mut rejection = plain(StatusCode::UNAUTHORIZED, text);
        for scheme in bearer.into_iter().chain(basic) {
            let scheme = HeaderValue::from_static(scheme);
            rejection.headers_mut().append(WWW_AUTHENTICATE, scheme);
        }
        Some(rejection)
    }

    async fn answer(
        &self,
        webhook: Served<'_>,
        gate: &Gate,
        webhook_metrics: &PerWebhook,
        start: Instant,
        request: http::Request<Incoming>,
    ) -> Response {
        if let Some(rejection) = reject_non_review(&request) {
            return rejection;
        }
        let deadline = deadline(start, self.limits.request_timeout, request.uri().query());
        let reading = self.read(request.into_body());
        let (body, _room) = match tokio::time::timeout_at(deadline.into(), reading).await {
            Ok(Ok(read)) => read,
            Ok(Err(unread)) => return self.unread(webhook_metrics, unread),
            Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
        };
        webhook_metrics.request_bytes.observe(body.len() as f64);
        let _slot = match gate.enter(deadline).await {
            Ok(slot) => slot,
            Err(Shed::Full) => {
                return self.shed(webhook_metrics, "too many reviews in the queue\n");
            }
            Err(Shed::TooLate) => {
                return self.shed(
                    webhook_metrics,
                    "the review waited until its time was over\n",
                );
            }
        };
        let began = Instant::now();
        let (code, body) = match webhook {
            Served::Admission(webhook) => {
                let answered = webhook.answer(body, Some(deadline)).await;
                decision::record(
                    &self.metrics,
                    webhook_metrics,
                    webhook,
                    &answered,
                    began.elapsed(),
                );
                (answered.code, answered.body)
            }
            Served::Conversion(conversions) => {
                let converted = conversions.answer(body, Some(deadline)).await;
                converted_objects::record(&self.metrics, conversions, &converted, began.elapsed());
                (converted.code, converted.body)
            }
        };
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = match code {
            StatusCode::OK => "application/json",
            _ => "text/plain; charset=utf-8",
        };
        respond(code, kind, body)
    }

    /// Reads a body within the size limit and the memory budget.
    async fn read(
        &self,
        mut body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), BodyError> {
        let hint = body.size_hint().exact().unwrap_or_default();
        if hint > self.limits.body_bytes as u64 {
            return Err(BodyError::TooLarge(self.limits.body_bytes));
        }
        let mut room: Option<OwnedSemaphorePermit> = None;
        let mut granted = 0;
        let mut read = Read::Nothing;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let size = read.len() + data.len();
            if size > self.limits.body_bytes {
                return Err(BodyError::TooLarge(self.limits.body_bytes));
            }
            if size > granted {
                let pieces = (size - granted).div_ceil(CHUNK_BYTES);
                let asked = u32::try_from(pieces).unwrap_or(u32::MAX);
                let more = Arc::clone(&self.room).try_acquire_many_owned(asked);
                let more = more.map_err(|_| BodyError::NoRoom)?;
                granted += pieces * CHUNK_BYTES;
                match &mut room {
                    None => room = Some(more),
                    Some(room) => room.merge(more),
                }
            }
            read.push(data, hint);
        }
        Ok((read.into_bytes(), room))
    }

    fn unread(&self, webhook_metrics: &PerWebhook, unread: BodyError) -> Response {
        match unread {
            BodyError::TooLarge(most) => {
                let text = format!("a review may have {most} bytes\n");
                plain(StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            BodyError::Broken(why) => {
                let text = format!("cannot read the body: {why}\n");
                plain(StatusCode::BAD_REQUEST, text)
            }
            BodyError::NoRoom => self.shed(webhook_metrics, "too many reviews are being read\n"),
        }
    }

    fn shed(&self, webhook_metrics: &PerWebhook, text: &'static str) -> Response {
        let code = StatusCode::TOO_MANY_REQUESTS;
        self.metrics
            .decided(webhook_metrics, None, "shed", code.as_u16());
        let mut response = plain(code, text);
        let seconds = HeaderValue::from_static(RETRY_AFTER_SECONDS);
        response.headers_mut().insert(RETRY_AFTER, seconds);
        response
    }
}

impl Service for Reviews {
    type Peer = Caller;
    type Body = Full<Bytes>;

    async fn handle(
        self: Arc<Self>,
        caller: Arc<Caller>,
        request: http::Request<Incoming>,
    ) -> Response {
        self.review(&caller, request).await
    }

    fn connected(&self, change: i64) {
        self.metrics.connections.inc_by(change);
    }

    fn refused(&self) {
        self.metrics.refused_connections.inc();
    }
}

/// Completes the TLS handshake with the current certificate.
pub(super) struct Secure(pub(super) Arc<Credentials>);

impl Handshake<Caller> for Secure {
    type Stream = TlsStream<TcpStream>;

    async fn handshake(
        &self,
        socket: TcpStream,
        _: SocketAddr,
    ) -> io::Result<Connected<Self::Stream, Caller>> {
        let tls = self.0.tls();
        let tls = tls.ok_or_else(|| io::Error::other("no certificate loaded yet"))?;
        let auth = self.0.auth();
        tls_handshake(socket, Arc::clone(&tls.config), |session| {
            if auth.client_ca.is_none() || !auth.checks_names() {
                return Caller::default();
            }
            let certificate = session.peer_certificates().and_then(<[_]>::first);
            Caller {
                names: certificate.map(names_of).unwrap_or_default(),
            }
        })
        .await
    }
}

/// Plain HTTP on a loopback address, where no one can eavesdrop.
pub(super) struct Loopback;

impl Handshake<Caller> for Loopback {
    type Stream = TcpStream;

    async fn handshake(
        &self,
        stream: TcpStream,
        _: SocketAddr,
    ) -> io::Result<Connected<TcpStream, Caller>> {
        Ok(Connected {
            stream,
            peer: Caller::default(),
            is_http2: false,
        })
    }
}

/// The names in a certificate.
fn names_of(der: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let common_names = certificate.subject().iter_common_name();
    let common_names = common_names.filter_map(|name| Some(name.as_str().ok()?.to_owned()));
    let mut names: Vec<String> = common_names.collect();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        let alternatives = alternatives.value.general_names.iter();
        names.extend(alternatives.filter_map(|name| match name {
            GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
                Some((*text).to_owned())
            }
            _ => None,
        }));
    }
    names
}

/// The response to a request that is not formally a review.
fn reject_non_review(request: &http::Request<Incoming>) -> Option<Response> {
    if request.method() != Method::POST {
        let mut rejection = plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "reviews are sent with POST\n",
        );
        let post = HeaderValue::from_static("POST");
        rejection.headers_mut().insert(ALLOW, post);
        return Some(rejection);
    }
    let headers = request.headers();
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    let kind = kind.trim_ascii();
    if !kind.eq_ignore_ascii_case(b"application/json") {
        let text = "the content type of a review is application/json\n";
        return Some(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let encoded = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    if encoded.is_some_and(|how| !how.eq_ignore_ascii_case(b"identity")) {
        let text = "a review is not compressed\n";
        return Some(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    None
}

/// The reason that a body was not read.
enum BodyError {
    TooLarge(usize),
    NoRoom,
    Broken(String),
}

/// A partially read body. Most arrive in a single chunk, which is not copied.
enum Read {
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

impl Read {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    /// Appends data; `hint` is the announced size, limited to the maximum.
    fn push(&mut self, data: Bytes, hint: u64) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Self::One(data),
            Self::One(first) => {
                // Announced but unsent bytes are not allocated.
                let hint = usize::try_from(hint).unwrap_or_default().min(1 << 20);
                let mut all = BytesMut::with_capacity(hint.max(first.len() + data.len()));
                all.extend_from_slice(&first);
                all.extend_from_slice(&data);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(&data);
                Self::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

/// Counts a review in progress, even if its connection ends before.
struct InFlight<'g>(&'g Gauge);

impl<'g> InFlight<'g> {
    fn begin(gauge: &'g Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A plain-text response.
pub(super) fn plain(code: StatusCode, text: impl Into<Bytes>) -> Response {
    respond(code, "text/plain; charset=utf-8", text)
}

pub(super) fn respond(
    code: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response {
    let mut response = http::Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
