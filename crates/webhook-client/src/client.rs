//! One call: attempts, redirects, and reading the response.

use std::borrow::Cow;
use std::future::Future;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use lockgate_go::quote::quote;

use crate::call::{CallError, Client, HttpResponse, Phase, Post, Posted};
use crate::channel::{Address, Channel, Lease};
use crate::clock::Clock;
use crate::credentials::User;
use crate::settings::{MAX_RESPONSE_BYTES, PlainHttp, Redirects, Settings};
use crate::target::{Scheme, Target};
use crate::wire::USER_AGENT;
use crate::wording::{self, Failure};

/// The timeout of a call without a deadline.
///
/// UPSTREAM: k8s.io/apiserver pkg/util/webhook/authentication.go (setGlobalDefaults).
const MAX_CALL: Duration = Duration::from_secs(30);

/// The maximum number of retries a webhook can request.
///
/// UPSTREAM: k8s.io/client-go rest/request.go (maxRetries).
const MAX_RETRIES: usize = 10;

/// The maximum number of requests in a redirect chain.
///
/// UPSTREAM: Go net/http/client.go (defaultCheckRedirect).
const MAX_REDIRECTS: usize = 10;

/// A client of one webhook.
#[derive(Debug)]
pub(super) struct HttpsClient {
    target: Arc<Target>,
    /// The resolved address, if it is fixed.
    address: OnceLock<Arc<Address>>,
    /// The headers of every request.
    headers: HeaderMap,
    channel: Arc<Channel>,
    /// The same without the client certificate, for redirect targets.
    elsewhere: Arc<Channel>,
    user: Option<Arc<User>>,
    settings: Arc<Settings>,
}

/// The method and URL of a call, for error messages.
#[derive(Debug)]
struct CallTarget {
    method: Method,
    target: Arc<Target>,
    query: String,
}

impl CallTarget {
    /// Formats a failure as Go's `url.Error` does.
    fn frame(&self, problem: &str) -> String {
        let method = if self.method == Method::GET {
            "Get"
        } else {
            "Post"
        };
        let url = quote(&self.target.url(&self.query));
        format!("{method} {url}: {problem}")
    }
}

struct RawResponse {
    code: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl HttpsClient {
    pub(super) fn new(
        target: Target,
        (channel, elsewhere): (Arc<Channel>, Arc<Channel>),
        user: Option<Arc<User>>,
        settings: Arc<Settings>,
    ) -> Self {
        let fixed = [
            (header::ACCEPT, "application/json, */*"),
            (header::ACCEPT_ENCODING, "gzip"),
            (header::CONTENT_TYPE, "application/json"),
            (header::USER_AGENT, USER_AGENT),
        ];
        let fixed = fixed.map(|(name, value)| (name, HeaderValue::from_static(value)));
        Self {
            target: Arc::new(target),
            address: OnceLock::new(),
            headers: HeaderMap::from_iter(fixed),
            channel,
            elsewhere,
            user,
            settings,
        }
    }

    async fn call(&self, post: Post) -> Posted {
        let clock = Clock::start();
        let now = Instant::now();
        let left = post
            .deadline
            .map_or(MAX_CALL, |deadline| deadline.saturating_duration_since(now));
        let result = if left.is_zero() {
            Err(CallError {
                message: String::from("context deadline exceeded"),
                phase: Phase::Resolve,
                timed_out: true,
            })
        } else {
            self.call_within(left, &post.body, &clock).await
        };
        Posted {
            result,
            phases: clock.stop(),
        }
    }

    async fn call_within(
        &self,
        left: Duration,
        body: &Bytes,
        clock: &Clock,
    ) -> Result<HttpResponse, CallError> {
        let call_target = Mutex::new(Arc::new(CallTarget {
            method: Method::POST,
            target: Arc::clone(&self.target),
            query: format!("timeout={}", go_seconds(left)),
        }));
        let attempts = self.attempts(body, clock, &call_target);
        // INVARIANT: nothing in a call awaits outside of this timeout.
        let outcome = tokio::time::timeout(left.min(MAX_CALL), attempts).await;
        let call_target = call_target
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(Ok(answer)) => Ok(HttpResponse {
                code: answer.code,
                content_type: answer
                    .headers
                    .get(header::CONTENT_TYPE)
                    .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
                body: answer.body,
            }),
            Ok(Err(failure)) => Err(CallError {
                message: match failure.phase {
                    Phase::Read => failure.message,
                    _ => call_target.frame(&failure.message),
                },
                phase: failure.phase,
                timed_out: false,
            }),
            Err(_) => {
                clock.settle();
                let phase = clock.current();
                let problem = "context deadline exceeded";
                Err(CallError {
                    message: match phase {
                        Phase::Read => wording::unreadable(problem),
                        _ => call_target.frame(problem),
                    },
                    phase,
                    timed_out: true,
                })
            }
        }
    }

    /// Posts until the webhook no longer requests a retry.
    async fn attempts(
        &self,
        body: &Bytes,
        clock: &Clock,
        call_target: &Mutex<Arc<CallTarget>>,
    ) -> Result<RawResponse, Failure> {
        let first = Arc::clone(&lock(call_target));
        let mut retries = 0;
        loop {
            *lock(call_target) = Arc::clone(&first);
            let answer = self.follow(body, clock, call_target).await?;
            match retry_after(&answer) {
                Some(pause) if retries < MAX_RETRIES => {
                    retries += 1;
                    clock.enter(Phase::Wait);
                    tokio::time::sleep(pause).await;
                }
                _ => return Ok(answer),
            }
        }
    }

    /// Posts, and follows redirects if allowed.
    async fn follow(
        &self,
        body: &Bytes,
        clock: &Clock,
        call_target: &Mutex<Arc<CallTarget>>,
    ) -> Result<RawResponse, Failure> {
        let mut requests = 1;
        loop {
            let here = Arc::clone(&lock(call_target));
            let answer = self.exchange(&here, body, clock).await?;
            let location = answer.headers.get(header::LOCATION);
            let Some(location) = location.filter(|_| self.follows(answer.code)) else {
                return Ok(answer);
            };
            let location = String::from_utf8_lossy(location.as_bytes());
            let (target, query) = here.target.redirected(&location).map_err(|problem| {
                let problem = format!("failed to parse Location header \"{location}\": {problem}");
                Failure::new(Phase::Wait, problem)
            })?;
            let method = if matches!(answer.code, 307 | 308) {
                here.method.clone()
            } else {
                Method::GET
            };
            *lock(call_target) = Arc::new(CallTarget {
                method,
                target: Arc::new(target),
                query,
            });
            if requests == MAX_REDIRECTS {
                return Err(Failure::new(Phase::Wait, "stopped after 10 redirects"));
            }
            requests += 1;
        }
    }

    fn follows(&self, code: u16) -> bool {
        self.settings.redirects == Redirects::Follow && matches!(code, 301 | 302 | 303 | 307 | 308)
    }

    /// Sends one request and reads the entire response.
    async fn exchange(
        &self,
        call_target: &CallTarget,
        body: &Bytes,
        clock: &Clock,
    ) -> Result<RawResponse, Failure> {
        clock.enter(Phase::Resolve);
        let address = self.address(&call_target.target)?;
        let mut headers = Cow::Borrowed(&self.headers);
        // Credentials are for the webhook, not for redirect targets.
        let is_webhook = call_target.target.is_same_host(&self.target);
        if let Some(user) = self.user.as_ref().filter(|_| is_webhook) {
            user.show(headers.to_mut())
                .await
                .map_err(|problem| Failure::new(Phase::Resolve, problem.to_string()))?;
        }
        let body = if call_target.method == Method::GET {
            headers.to_mut().remove(header::CONTENT_TYPE);
            Bytes::new()
        } else {
            body.clone()
        };
        let make = |http2: bool| request(call_target, &headers, &body, http2);
        let channel = match is_webhook {
            true => &self.channel,
            false => &self.elsewhere,
        };
        let (response, lease) = channel.send(&address, make, clock).await?;
        read(response, lease, clock).await
    }

    /// Resolves a target. Services are resolved for every call, other targets once.
    fn address(&self, target: &Arc<Target>) -> Result<Arc<Address>, Failure> {
        let stays = target.service.is_none() && Arc::ptr_eq(target, &self.target);
        if let Some(address) = self.address.get().filter(|_| stays) {
            return Ok(Arc::clone(address));
        }
        let address = Arc::new(self.find(target)?);
        if stays {
            return Ok(Arc::clone(self.address.get_or_init(|| address)));
        }
        Ok(address)
    }

    fn find(&self, target: &Target) -> Result<Address, Failure> {
        if let Some(problem) = target.problem() {
            return Err(Failure::new(Phase::Resolve, problem));
        }
        let (host, port) = (target.host(), target.port());
        let loopback_only = self.is_plain(target)?;
        let proxy = self.settings.proxies.find(target.scheme, host, port);
        let dial = match &target.service {
            // A proxy resolves the service itself.
            Some(service) if proxy.is_none() => self
                .settings
                .resolver
                .resolve(&service.namespace, &service.name, service.port)
                .map_err(|problem| Failure::new(Phase::Resolve, problem.to_string()))?,
            _ if host.contains(':') => format!("[{host}]:{port}"),
            _ => format!("{host}:{port}"),
        };
        let user_name = self
            .user
            .as_ref()
            .and_then(|user| user.tls_server_name.as_deref());
        Ok(Address {
            scheme: target.scheme,
            dial,
            server_name: user_name.unwrap_or(host).to_owned(),
            proxy: proxy.cloned(),
            loopback_only,
        })
    }

    /// Returns `true` if a target is called over plain HTTP, and therefore on loopback only.
    fn is_plain(&self, target: &Target) -> Result<bool, Failure> {
        // An HTTPS webhook may redirect to HTTP, as upstream; one on loopback may only redirect to loopback.
        if target.scheme != Scheme::Http || self.target.scheme != Scheme::Http {
            return Ok(false);
        }
        match self.settings.plain_http {
            PlainHttp::Anywhere => Ok(false),
            PlainHttp::Loopback if target.is_loopback_url() => Ok(true),
            PlainHttp::Loopback | PlainHttp::Refuse => {
                let problem = "http: plain HTTP is allowed to loopback hosts only, and only by \
                               --allow-http-webhooks";
                Err(Failure::new(Phase::Resolve, problem))
            }
        }
    }
}

impl Client for HttpsClient {
    fn post(&self, post: Post) -> Pin<Box<dyn Future<Output = Posted> + Send + '_>> {
        Box::pin(self.call(post))
    }
}

fn lock(call_target: &Mutex<Arc<CallTarget>>) -> MutexGuard<'_, Arc<CallTarget>> {
    call_target.lock().unwrap_or_else(PoisonError::into_inner)
}

fn request(
    call_target: &CallTarget,
    headers: &HeaderMap,
    body: &Bytes,
    http2: bool,
) -> Request<Full<Bytes>> {
    let target = &call_target.target;
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = call_target.method.clone();
    *request.headers_mut() = headers.clone();
    let uri = if http2 {
        target.url(&call_target.query)
    } else if call_target.query.is_empty() {
        target.path.clone()
    } else {
        format!("{}?{}", target.path, call_target.query)
    };
    // Paths are escaped and hosts were parsed, so both are valid here.
    if let Ok(uri) = Uri::try_from(uri) {
        *request.uri_mut() = uri;
    }
    if !http2 && let Ok(host) = HeaderValue::from_str(&target.authority) {
        request.headers_mut().insert(header::HOST, host);
    }
    request
}

/// Reads the entire response and returns the connection to the pool.
async fn read(
    response: Response<Incoming>,
    lease: Lease,
    clock: &Clock,
) -> Result<RawResponse, Failure> {
    clock.enter(Phase::Read);
    let (head, mut incoming) = response.into_parts();
    // Most responses arrive in a single chunk, which is not copied.
    let (mut first, mut pieces) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| {
            Failure::new(Phase::Read, wording::body(&error, &lease.link().ends))
        })?;
        if let Ok(data) = frame.into_data() {
            if first.len() + pieces.len() + data.len() > MAX_RESPONSE_BYTES {
                return Err(too_large());
            }
            if first.is_empty() && pieces.is_empty() {
                first = data;
            } else {
                pieces.extend_from_slice(&std::mem::take(&mut first));
                pieces.extend_from_slice(&data);
            }
        }
    }
    let body = if pieces.is_empty() {
        first
    } else {
        pieces.freeze()
    };
    lease.release();
    let zipped = head
        .headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"gzip"));
    let body = if zipped && !body.is_empty() {
        unzip(&body)?
    } else {
        body
    };
    Ok(RawResponse {
        code: head.status.as_u16(),
        headers: head.headers,
        body,
    })
}

fn unzip(zipped: &[u8]) -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    let limit = MAX_RESPONSE_BYTES as u64 + 1;
    let read = MultiGzDecoder::new(zipped)
        .take(limit)
        .read_to_end(&mut body);
    if let Err(error) = read {
        let problem = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "unexpected EOF",
            std::io::ErrorKind::InvalidInput if error.to_string().contains("header") => {
                "gzip: invalid header"
            }
            _ => "gzip: invalid data",
        };
        return Err(Failure::new(Phase::Read, wording::unreadable(problem)));
    }
    if body.len() > MAX_RESPONSE_BYTES {
        return Err(too_large());
    }
    Ok(body.into())
}

fn too_large() -> Failure {
    let problem = format!("response body is larger than {MAX_RESPONSE_BYTES} bytes");
    Failure::new(Phase::Read, wording::unreadable(&problem))
}

/// The delay in `Retry-After`, if any.
///
/// UPSTREAM: k8s.io/client-go rest/with_retry.go (checkWait).
fn retry_after(answer: &RawResponse) -> Option<Duration> {
    if answer.code != 429 && answer.code < 500 {
        return None;
    }
    let value = answer.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: i64 = value.parse().ok()?;
    Some(Duration::from_secs(
        u64::try_from(seconds).unwrap_or_default(),
    ))
}

/// Rounds up to whole seconds in Go's duration format.
fn go_seconds(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}h{minutes}m{rest}s")
    } else if minutes > 0 {
        format!("{minutes}m{rest}s")
    } else {
        format!("{rest}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_timeouts_up() {
        for (millis, want) in [
            (1, "1s"),
            (1000, "1s"),
            (1300, "2s"),
            (30_000, "30s"),
            (90_000, "1m30s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_seconds(Duration::from_millis(millis)), want);
        }
    }
}
