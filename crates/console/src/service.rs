//! The pages, and their API.
//!
//! | Path | Response |
//! |---|---|
//! | `/`, `/app.js`, `/style.css` | the page, without authentication: it has no data |
//! | `GET /api/session` | the user, and the permission to see objects |
//! | `GET /api/requests?after=N` | rows of the list |
//! | `GET /api/stream?after=N` | rows as they arrive, one JSON object per line |
//! | `GET /api/requests/N` | one request |
//! | `GET /api/registered` | webhooks and policies |
//! | `POST /api/cel` | an expression on a request |
//! | `POST /api/capture` | requests as AdmissionReviews |
//! | `POST /api/clear` | removes all requests |

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use lockgate_listener::{
    Connected, Handshake, Incoming, Limits as ConnectionLimits, Phase, Service, tls_handshake,
};
use rustls::ServerConfig;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_rustls::server::TlsStream;

use crate::body::Body;
use crate::capture;
use crate::cluster::Cluster;
use crate::guard::{Refused, Rights, Token, check_origin};
use crate::playground::{self, ClusterState, EvaluationRequest};
use crate::record::without_objects;
use crate::recorder::{Kept, Recorder};
use crate::registered::{self, Registered};

/// The maximum size of a request body.
const MAX_BODY: usize = 1 << 20;
/// The maximum number of rows or reviews in a response.
const MAX_ROWS: usize = 10_000;
/// The number of rows sent at once.
const BATCH: usize = 256;
/// The interval of heartbeats in an idle stream, so that clients do not consider it dead.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The maximum number of connections; browsers open few.
const CONNECTIONS: usize = 256;
/// The time for requests in progress at shutdown.
const DRAIN: Duration = Duration::from_secs(1);

const PAGES: [(&str, &str, &str); 4] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    (
        "/app.js",
        "text/javascript; charset=utf-8",
        include_str!("page/app.js"),
    ),
    (
        "/style.css",
        "text/css; charset=utf-8",
        include_str!("page/style.css"),
    ),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// No external resources, only this server's scripts, no HTML from scripts, no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

type Response = http::Response<Body>;

/// The settings of a console.
pub struct Serving {
    /// The requests.
    pub recorder: Arc<Recorder>,
    /// The API server.
    pub cluster: Arc<dyn Cluster>,
    /// The token of the printed URL.
    pub token: Token,
    /// The TLS configuration; `None` for plain HTTP, which is for loopback addresses.
    pub tls: Option<Arc<ServerConfig>>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

/// Serves a console until `stop` is signalled.
pub async fn serve(listener: TcpListener, serving: Serving, stop: watch::Receiver<Phase>) {
    let Serving {
        recorder,
        cluster,
        token,
        tls,
    } = serving;
    let console = Arc::new(Console {
        kept: Arc::clone(recorder.kept()),
        cluster,
        token,
        is_secure: tls.is_some(),
        stop: stop.clone(),
        linting: Mutex::new(()),
    });
    let limits = ConnectionLimits {
        connections: CONNECTIONS,
        ..ConnectionLimits::default()
    };
    match tls {
        None => {
            let door = Arc::new(Open);
            lockgate_listener::serve(listener, console, door, limits, stop, DRAIN).await;
        }
        Some(config) => {
            let door = Arc::new(Locked(config));
            lockgate_listener::serve(listener, console, door, limits, stop, DRAIN).await;
        }
    }
}

/// Plain HTTP.
struct Open;

impl Handshake<SocketAddr> for Open {
    type Stream = TcpStream;

    async fn handshake(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<Connected<TcpStream, SocketAddr>> {
        Ok(Connected {
            stream,
            peer,
            is_http2: false,
        })
    }
}

/// HTTPS.
struct Locked(Arc<ServerConfig>);

impl Handshake<SocketAddr> for Locked {
    type Stream = TlsStream<TcpStream>;

    async fn handshake(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<Connected<Self::Stream, SocketAddr>> {
        tls_handshake(stream, Arc::clone(&self.0), |_| peer).await
    }
}

struct Console {
    kept: Arc<Kept>,
    cluster: Arc<dyn Cluster>,
    token: Token,
    is_secure: bool,
    stop: watch::Receiver<Phase>,
    /// Serialises lint runs.
    linting: Mutex<()>,
}

/// An error response.
struct Failure(StatusCode, String);

impl Failure {
    fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self(code, message.into())
    }
}

impl From<Box<lockgate_api::meta::status::Status>> for Failure {
    fn from(status: Box<lockgate_api::meta::status::Status>) -> Self {
        let code = u16::try_from(status.code).ok();
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        Self(
            code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            status.message.clone(),
        )
    }
}

/// Requests to capture.
#[derive(Debug, Deserialize)]
struct Wanted {
    requests: Vec<u64>,
}

impl Service for Console {
    type Peer = SocketAddr;
    type Body = Body;

    async fn handle(
        self: Arc<Self>,
        peer: Arc<SocketAddr>,
        request: http::Request<Incoming>,
    ) -> Response {
        let (head, body) = request.into_parts();
        let answer = match self.respond(*peer, &head, body).await {
            Ok(response) => response,
            Err(Failure(code, message)) => {
                let mut response = json_response(&json!({ "message": message }));
                *response.status_mut() = code;
                response
            }
        };
        harden(answer)
    }
}

impl Console {
    async fn respond(
        &self,
        peer: SocketAddr,
        head: &Parts,
        body: Incoming,
    ) -> Result<Response, Failure> {
        check_origin(head, self.is_secure).map_err(|refused| match refused {
            Refused::Host => Failure::new(
                StatusCode::MISDIRECTED_REQUEST,
                "open the console by address or as localhost",
            ),
            Refused::Origin => Failure::new(StatusCode::FORBIDDEN, "a page of another origin asks"),
        })?;
        let path = head.uri.path();
        if let Some((_, content_type, text)) = PAGES.iter().find(|(known, ..)| *known == path) {
            if !matches!(head.method, Method::GET | Method::HEAD) {
                return Err(not_allowed());
            }
            return Ok(response(
                content_type,
                Body::Whole(Bytes::from_static(text.as_bytes())),
            ));
        }
        if !path.starts_with("/api/") {
            return Err(not_found());
        }
        let user = match self.token.user(&head.headers) {
            Some(user) => user,
            None => self.cluster.authenticate(peer, &head.headers).await?,
        };
        let authorizer = self.cluster.authorizer();
        let rights = Rights::new(&user, authorizer.as_ref());
        if !rights.may_use(&head.method, path) {
            let why = format!("user `{}` may not use the console", user.username);
            return Err(Failure::new(StatusCode::FORBIDDEN, why));
        }
        let sees_objects = rights.may_see_objects();
        let segments: Vec<&str> = path.split('/').skip(2).collect();
        match (&head.method, segments.as_slice()) {
            (&Method::GET, ["session"]) => Ok(self.session(&user.username, sees_objects)),
            (&Method::GET, ["requests"]) => Ok(self.rows(after(head))),
            (&Method::GET, ["stream"]) => Ok(self.stream(after(head))),
            (&Method::GET, ["requests", number]) => self.request(number, sees_objects),
            (&Method::GET, ["registered"]) => self.registered().await,
            (&Method::POST, ["clear"]) => {
                self.kept.clear();
                Ok(json_response(&json!({})))
            }
            (&Method::POST, ["cel" | "capture"]) if !sees_objects => {
                let why = format!(
                    "user `{}` may not see objects: it needs every right",
                    user.username
                );
                Err(Failure::new(StatusCode::FORBIDDEN, why))
            }
            (&Method::POST, ["cel"]) => self.evaluate(&read(body).await?).await,
            (&Method::POST, ["capture"]) => self.capture(&read(body).await?),
            (
                _,
                [
                    "session" | "requests" | "stream" | "registered" | "clear" | "cel" | "capture",
                    ..,
                ],
            ) => Err(not_allowed()),
            _ => Err(not_found()),
        }
    }

    fn session(&self, user: &str, sees_objects: bool) -> Response {
        let limits = self.kept.limits();
        json_response(&json!({
            "user": user,
            "seesObjects": sees_objects,
            "version": env!("CARGO_PKG_VERSION"),
            "limits": {"requests": limits.requests, "bytes": limits.bytes},
        }))
    }

    fn rows(&self, after: u64) -> Response {
        let records = self.kept.after(after, MAX_ROWS);
        let mut text = format!(
            "{{\"oldest\":{},\"lost\":{},\"requests\":[",
            self.kept.oldest(),
            self.kept.lost()
        );
        for (at, (_, record)) in records.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&record.summary);
        }
        text.push_str("]}");
        response("application/json", Body::Whole(text.into()))
    }

    fn stream(&self, mut after: u64) -> Response {
        let (sender, receiver) = mpsc::channel(4);
        let kept = Arc::clone(&self.kept);
        let mut stop = self.stop.clone();
        let mut newest = kept.newest();
        tokio::spawn(async move {
            loop {
                newest.borrow_and_update();
                loop {
                    let records = kept.after(after, BATCH);
                    let Some((last, _)) = records.last() else {
                        break;
                    };
                    after = *last;
                    let mut text = String::new();
                    for (_, record) in &records {
                        text.push_str(&record.summary);
                        text.push('\n');
                    }
                    if sender.send(text.into()).await.is_err() {
                        return;
                    }
                }
                let is_news = tokio::select! {
                    changed = newest.changed() => if changed.is_ok() { true } else { return },
                    _ = stop.wait_for(|phase| *phase >= Phase::Draining) => return,
                    () = sender.closed() => return,
                    () = tokio::time::sleep(HEARTBEAT) => false,
                };
                let beat = json!({"oldest": kept.oldest(), "lost": kept.lost()});
                if !is_news && sender.send(format!("{beat}\n").into()).await.is_err() {
                    return;
                }
            }
        });
        response("application/x-ndjson", Body::Pieces(receiver))
    }

    fn request(&self, number: &str, sees_objects: bool) -> Result<Response, Failure> {
        let record = number.parse().ok().and_then(|number| self.kept.get(number));
        let record = record.ok_or_else(forgotten)?;
        if sees_objects {
            let text = Bytes::from(record.detail.clone());
            return Ok(response("application/json", Body::Whole(text)));
        }
        let detail = serde_json::from_str(&record.detail).unwrap_or_default();
        Ok(json_response(&without_objects(detail)))
    }

    async fn registered(&self) -> Result<Response, Failure> {
        let _one = self.linting.lock().await;
        let registered = Registered::read(self.cluster.as_ref()).await?;
        let kept = Arc::clone(&self.kept);
        let made = tokio::task::spawn_blocking(move || registered.to_value(&kept).to_string());
        let text = made
            .await
            .map_err(|_| failed("cannot lint the registered webhooks"))?;
        Ok(response("application/json", Body::Whole(text.into())))
    }

    async fn evaluate(&self, body: &[u8]) -> Result<Response, Failure> {
        let eval_request: EvaluationRequest = parse(body)?;
        let record = self.kept.get(eval_request.request).ok_or_else(forgotten)?;
        let detail: Value = serde_json::from_str(&record.detail).unwrap_or_default();
        let cluster = self.cluster.as_ref();
        let policy = match eval_request.policy.as_str() {
            "" => None,
            name => registered::policy(cluster, name).await?,
        };
        let namespace = match detail["request"]["namespace"].as_str() {
            Some(name) if eval_request.as_policy && !name.is_empty() => {
                registered::namespace(cluster, name).await?
            }
            _ => None,
        };
        let cluster_state = ClusterState {
            authorizer: cluster.authorizer(),
            namespace,
            policy,
        };
        let answer = tokio::task::spawn_blocking(move || {
            playground::evaluate_request(&eval_request, &detail, &cluster_state)
        });
        let answer = answer
            .await
            .map_err(|_| failed("cannot evaluate the expression"))?;
        Ok(json_response(&answer))
    }

    fn capture(&self, body: &[u8]) -> Result<Response, Failure> {
        let Wanted { requests } = parse(body)?;
        // Deduplicated: the number of records is bounded, and so is the response.
        let requests: BTreeSet<u64> = requests.into_iter().take(MAX_ROWS).collect();
        let records = requests.iter().filter_map(|number| self.kept.get(*number));
        let mut text = String::new();
        for review in records.filter_map(|record| capture::review(&record)) {
            text.push_str(&review.to_string());
            text.push('\n');
        }
        Ok(response("application/x-ndjson", Body::Whole(text.into())))
    }
}

fn forgotten() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "the request is not kept any more")
}

fn not_found() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "page not found")
}

fn not_allowed() -> Failure {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "the method is not allowed here",
    )
}

fn failed(message: &str) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// The number in `?after=`.
fn after(head: &Parts) -> u64 {
    let query = head.uri.query().unwrap_or_default();
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("after="));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

async fn read(body: Incoming) -> Result<Bytes, Failure> {
    let whole = Limited::new(body, MAX_BODY).collect().await;
    let whole =
        whole.map_err(|_| Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"))?;
    Ok(whole.to_bytes())
}

fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            format!("cannot read the body: {error}"),
        )
    })
}

fn json_response(value: &Value) -> Response {
    response("application/json", Body::Whole(value.to_string().into()))
}

fn response(content_type: &'static str, body: Body) -> Response {
    let mut response = http::Response::new(body);
    let content_type = http::HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

/// Sets the security headers of every response.
fn harden(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let value = http::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}
