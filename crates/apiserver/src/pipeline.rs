//! The order of the stages, and nothing else.
//!
//! ```text
//!   1 http        path, method, query, deadline
//!   2 authn       the user                       a failure is audited too
//!     flow_control  a seat in the priority level of the request, or 429
//!   3 authz       is the request allowed         before the body is read, so that denied requests cost little
//!   4 decode      bytes, query and headers become a typed write
//!   5 mutate   ─┐
//!   6 validate  │ in the recipe of the verb; `write::run` has the order. For existing objects they run
//!   7 persist  ─┘ in the compare-and-swap loop, so that webhooks are called again after a conflict
//!   8 audit       the event is completed when the response is known
//!   9 respond
//! ```

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer};
use lockgate_api::admission::UserInfo;
use lockgate_api::registration::policy::PolicyKind;
use lockgate_listener::Service;
use lockgate_store::{ReadAt, Revision};
use tracing::Instrument as _;

use crate::access_reviews::Reviewer;
use crate::aggregation::{Aggregator, Forward, Remote, forward};
use crate::audit::{Audit, Event};
use crate::authn::Authenticator;
use crate::authn::impersonation::{Action, Impersonated, Impersonator, is_requested};
use crate::authn::service_account::Signer;
use crate::authz::rbac::MASTERS;
use crate::authz::{self, Authorized, RequestedObject};
use crate::config::AdmissionConsistency;
use crate::decode::body;
use crate::decode::write::{Encoded, Write};
use crate::error::{
    Failure, Outcome, bad_request, forbidden, internal, method_not_allowed, method_not_supported,
    no_such_resource, timeout, too_many_requests,
};
use crate::flow_control::{Classified, FlowControl, RequestDigest};
use crate::heavy::{self, Heavy};
use crate::http::body::{Body, Response};
use crate::http::in_flight::{InFlight, Permit, TREE};
use crate::http::limits;
use crate::http::listen::Peer;
use crate::http::negotiate::{self, Encoding, Offer};
use crate::http::query::{Query, unescape};
use crate::http::request_info::{RequestInfo, Target, Verb};
use crate::metrics::{Labels, Requests, Served};
use crate::non_resource::NonResource;
use crate::read::watch::Representation;
use crate::read::{components, get, list, watch};
use crate::registry::{Registry, Resource, Subresource};
use crate::request::Request;
use crate::respond::{self, Reply, Tables};
use crate::tasks::{RunToCompletion, Tasks};
use crate::write::{
    Writer, bind, connect, create, delete, evict, patch, scale, token_request, update,
};

/// The size of responses that is not accounted for: the number of requests is limited, too.
const UNRESERVED_RESPONSE_BYTES: usize = 64 << 10;
/// Paths of health checks.
const HEALTH: [&str; 3] = ["healthz", "livez", "readyz"];

/// The response header with the ID in the audit log.
const AUDIT_ID: &str = "audit-id";
/// The maximum length of a client's audit ID; longer ones are ignored.
const MAX_AUDIT_ID: usize = 128;

/// The header with the client's trace context, as in W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

/// The stages, and the parts they use.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) impersonator: Impersonator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) reviewer: Reviewer,
    pub(crate) signer: Arc<Signer>,
    pub(crate) non_resource: NonResource,
    pub(crate) audit: Arc<Audit>,
    pub(crate) requests: Arc<Requests>,
    /// Classifies requests into priority levels. `None` limits reads and writes instead.
    pub(crate) flow_control: Option<Arc<FlowControl>>,
    pub(crate) reads_in_flight: InFlight,
    pub(crate) writes_in_flight: InFlight,
    /// The memory for bodies and responses.
    pub(crate) memory: InFlight,
    /// The memory for large writes in progress.
    pub(crate) trees: InFlight,
    /// The threads of large writes.
    pub(crate) heavy: Heavy,
    pub(crate) tasks: Tasks,
    pub(crate) request_timeout: Duration,
    pub(crate) consistency: AdmissionConsistency,
}

impl Service for Pipeline {
    type Peer = Peer;
    type Body = Body;

    async fn handle(
        self: Arc<Self>,
        peer: Arc<Peer>,
        request: http::Request<Incoming>,
    ) -> Response {
        let started = Instant::now();
        let (mut head, incoming) = request.into_parts();
        let upgrade = head.extensions.remove::<OnUpgrade>();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let info = RequestInfo::read(&head.method, head.uri.path(), &query);
        // Only the path: queries and headers may contain secrets.
        let span = tracing::debug_span!(
            "request",
            method = head.method.as_str(),
            path = head.uri.path(),
            traceparent = head
                .headers
                .get(TRACEPARENT)
                .and_then(|it| it.to_str().ok()),
            code = tracing::field::Empty,
        );
        let received = Received {
            pipeline: Arc::clone(&self),
            peer,
            head,
            query,
            started,
        };
        // Boxed, since the future is large, and the connection and a task move it several times.
        if matches!(received.head.method, Method::GET | Method::HEAD) {
            let answer = received.handle(info, incoming, upgrade).instrument(span);
            return Box::pin(answer).await;
        }
        // A started write completes even if its client disconnects: stored changes are audited.
        let bytes = incoming.size_hint().exact();
        let is_heavy =
            bytes.is_none_or(|bytes| bytes > heavy::LARGE) || self.is_heavy(info.as_ref()).await;
        let answer = Box::pin(received.handle(info, incoming, upgrade).instrument(span));
        self.run_to_completion(is_heavy, answer).await
    }
}

impl Pipeline {
    /// Handles a request until it completes, even if its client disconnects or the server stops.
    async fn run_to_completion(
        &self,
        is_heavy: bool,
        answer: impl Future<Output = Response> + Unpin + Send + 'static,
    ) -> Response {
        let answer = self.tasks.track(answer);
        let answered = if is_heavy {
            let answered = self.heavy.spawn(answer).await;
            answered.map_err(|error| error.to_string())
        } else {
            let answered = RunToCompletion::new(answer).await;
            answered.map_err(|error| error.to_string())
        };
        answered.unwrap_or_else(|error| {
            tracing::error!(%error, "request ended without a response");
            let failure = internal("the request ended without a response");
            respond::failed(&failure, Encoding::Json { pretty: false })
        })
    }

    /// Returns true if a write with a small body may be expensive: it changes a large object or many objects, or the
    /// object is validated by user-defined patterns, expressions or policies.
    async fn is_heavy(&self, info: Option<&RequestInfo>) -> bool {
        let Some(RequestInfo::Resource(target)) = info else {
            return false;
        };
        let engine = &self.writer.admitter.engine;
        let has_policies = |kind| {
            let policies = engine.policies(kind).snapshot();
            policies.concerns(&target.group, &target.resource)
        };
        if has_policies(PolicyKind::Validating) || has_policies(PolicyKind::Mutating) {
            return true;
        }
        let snapshot = self.registry.snapshot();
        let found = snapshot.find(&target.group, &target.version, &target.resource);
        let Some(resource) = found else {
            return false;
        };
        if target.verb == Verb::DeleteCollection || resource.is_custom() {
            return true;
        }
        if target.name.is_empty() {
            return false;
        }
        let storage = &self.writer.storage;
        let key = storage.key(resource, &target.namespace, &target.name);
        // Any state suffices for the size: on etcd, the latest would require a round trip.
        let read = storage.store().get(&key, ReadAt::NotOlderThan(Revision(0)));
        let read = read.await;
        let size = read.map(|(entry, _)| entry.map_or(0, |entry| entry.value.len()));
        size.is_ok_and(|bytes| bytes as u64 > heavy::LARGE)
    }
}

/// A request as it was received.
struct Received {
    pipeline: Arc<Pipeline>,
    peer: Arc<Peer>,
    head: Parts,
    query: Query,
    started: Instant,
}

impl Received {
    /// Processes the request, from its head to its audit event.
    async fn handle(
        self,
        info: Option<RequestInfo>,
        mut incoming: Incoming,
        mut upgrade: Option<OnUpgrade>,
    ) -> Response {
        let Parts {
            method,
            uri,
            headers,
            ..
        } = &self.head;
        // UPSTREAM: apiserver pkg/endpoints/filters/audit_init.go accepts the client's audit ID.
        let given = headers.get(AUDIT_ID).and_then(|id| id.to_str().ok());
        let given = given.filter(|id| !id.is_empty() && id.len() <= MAX_AUDIT_ID);
        let id = given.map_or_else(|| RandomIds.uid(), str::to_owned);
        let mut event = self
            .pipeline
            .audit
            .begin(&id, method, uri, headers, &self.peer);
        let mut response = match info {
            None => respond::page_not_found(),
            Some(info) => {
                let connection = (&mut incoming, &mut upgrade);
                self.serve(info, connection, &mut event).await
            }
        };
        if *method == Method::HEAD {
            respond::drop_body(&mut response);
        }
        // A response before the end of the request body looks like a broken stream to some clients.
        if !incoming.is_end_stream() {
            body::drain(&mut incoming).await;
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(AUDIT_ID, id);
        }
        let code = response.status().as_u16();
        self.pipeline
            .requests
            .count(method, code, self.started.elapsed());
        tracing::Span::current().record("code", code);
        tracing::debug!(
            %method,
            path = uri.path(),
            code,
            elapsed = ?self.started.elapsed(),
            "request"
        );
        event.finish(code);
        response
    }

    async fn serve(
        &self,
        info: RequestInfo,
        connection: (&mut Incoming, &mut Option<OnUpgrade>),
        event: &mut Event,
    ) -> Response {
        let encoding = negotiate::of_failure(&self.head.headers, &self.query);
        if let RequestInfo::Resource(target) | RequestInfo::Unrouted(target) = &info {
            event.target(target, &target.asked_name(&self.query));
        }
        if !info.is_long_running()
            && let Err(failure) = request_timeout(&self.query, self.pipeline.request_timeout)
        {
            return self.fail(&failure, encoding, event);
        }
        if self.pipeline.consistency == AdmissionConsistency::Linearizable
            && !matches!(self.head.method, Method::GET | Method::HEAD)
            && let Err(failure) = self.pipeline.writer.storage.effects_applied().await
        {
            return self.fail(&failure, encoding, event);
        }
        let user = match self.identify(&info, event).await {
            Ok(user) => user,
            Err(failure) => return self.reject(&failure, encoding, event),
        };
        let arrived = Instant::now();
        let entered = match &self.pipeline.flow_control {
            Some(control) => self.enter_level(control, &user, &info).await,
            None => self.enter(&user, &info).map(|permit| (None, permit)),
        };
        let (classified, permit) = match entered {
            Ok(entered) => entered,
            Err(refused) => {
                self.observe_rejected(&info);
                return *refused;
            }
        };
        let queued = arrived.elapsed();
        let requests = &self.pipeline.requests;
        let in_flight = (!info.is_long_running()).then(|| requests.enter(&self.head.method));
        // A watch counts as started once its response head is sent.
        let is_watch = matches!(&info, RequestInfo::Resource(target) if target.verb == Verb::Watch);
        let mut response = self
            .route(info, user, connection, encoding, event, queued)
            .await;
        if let Some(in_flight) = in_flight {
            response.body_mut().keep(in_flight);
        }
        if let Some(classified) = classified {
            classified.add_headers(response.headers_mut());
        }
        if let (Some(permit), false) = (permit, is_watch) {
            response.body_mut().hold(permit);
        }
        response
    }

    /// A seat in the priority level of the request. Long-running connections need none.
    ///
    /// UPSTREAM: apiserver pkg/server/filters/priority-and-fairness.go
    async fn enter_level(
        &self,
        control: &FlowControl,
        user: &UserInfo,
        info: &RequestInfo,
    ) -> Result<(Option<Classified>, Option<Permit>), Box<Response>> {
        let lower;
        let asked = match info {
            RequestInfo::Resource(target) | RequestInfo::Unrouted(target) => {
                if info.is_long_running() && target.verb != Verb::Watch {
                    return Ok((None, None));
                }
                RequestDigest::Resource(target)
            }
            RequestInfo::NonResource { path, .. } => {
                let verb = match self.head.method {
                    Method::GET => "get",
                    _ => {
                        lower = self.head.method.as_str().to_ascii_lowercase();
                        &lower
                    }
                };
                RequestDigest::Path { verb, path }
            }
        };
        let Some(classified) = control.classify(user, &asked) else {
            return Ok((None, None));
        };
        match control.enter(&classified, user, &asked).await {
            Ok(seat) => Ok((Some(classified), seat.map(Permit::holding))),
            Err(refused) => {
                let mut response = respond::too_many_requests(refused.retry_after_seconds);
                classified.add_headers(response.headers_mut());
                Err(Box::new(response))
            }
        }
    }

    /// A seat for the request. Long-running requests, health checks and members of system:masters need none.
    fn enter(&self, user: &UserInfo, info: &RequestInfo) -> Result<Option<Permit>, Box<Response>> {
        let is_master = || {
            let groups = user.groups.as_deref().unwrap_or_default();
            groups.iter().any(|group| group == MASTERS)
        };
        let is_probe = match info {
            RequestInfo::Resource(_) | RequestInfo::Unrouted(_) => false,
            RequestInfo::NonResource { segments, .. } => segments
                .first()
                .is_some_and(|first| HEALTH.contains(&first.as_str())),
        };
        if info.is_long_running() || is_probe || is_master() {
            return Ok(None);
        }
        let in_flight = match self.head.method {
            Method::GET | Method::HEAD => &self.pipeline.reads_in_flight,
            _ => &self.pipeline.writes_in_flight,
        };
        let permit = in_flight.enter(&user.username);
        permit
            .map(Some)
            .ok_or_else(|| Box::new(respond::too_many_requests(1)))
    }

    async fn route(
        &self,
        info: RequestInfo,
        user: UserInfo,
        (incoming, upgrade): (&mut Incoming, &mut Option<OnUpgrade>),
        encoding: Encoding,
        event: &mut Event,
        queued: Duration,
    ) -> Response {
        let (target, is_routed) = match info {
            RequestInfo::NonResource { path, segments } => {
                if let Err(failure) = self.authorize_path(&user, &path, event) {
                    return self.reject(&failure, encoding, event);
                }
                if let Some(remote) = self.remote_document(&segments) {
                    let connection = (incoming, upgrade);
                    let forward = self.forward(&remote, &user, connection, false, encoding, event);
                    return Box::pin(forward).await;
                }
                let served = self.pipeline.non_resource.serve(
                    &self.head.method,
                    &segments,
                    &self.head.headers,
                    &self.query,
                );
                let response = served.await;
                self.observe_probe(&path, &response, queued);
                return response;
            }
            RequestInfo::Resource(target) => (target, true),
            RequestInfo::Unrouted(target) => (target, false),
        };
        let authorized = match self.authorize(target, user, event) {
            Ok(authorized) => authorized,
            Err(failure) => return self.reject(&failure, encoding, event),
        };
        let target = authorized.target();
        let aggregator = &self.pipeline.aggregator;
        if let Some(remote) = aggregator.find(&target.group, &target.version) {
            // Only the aggregated server knows which of its requests are long-running; all others have a deadline.
            let lasts = target.verb == Verb::Watch || is_long_running(target);
            let connection = (incoming, upgrade);
            let user = authorized.user();
            let forward = self.forward(&remote, user, connection, lasts, encoding, event);
            return Box::pin(forward).await;
        }
        if !is_routed && self.head.uri.path().starts_with("//") {
            return respond::page_not_found();
        }
        if !is_routed {
            return self.fail(&no_such_resource(), encoding, event);
        }
        let snapshot = self.pipeline.registry.snapshot();
        let found = snapshot.find(&target.group, &target.version, &target.resource);
        let Some(resource) = found.cloned() else {
            // UPSTREAM: a built-in group handles every path below it.
            if is_built_in(&target.group) {
                return self.fail(&no_such_resource(), encoding, event);
            }
            return respond::page_not_found();
        };
        let mut request = Request::new(authorized, resource);
        let mut response = match self.limited(&mut request, incoming, event).await {
            Ok(response) => response,
            Err(failure) => self.fail(&failure, encoding, event),
        };
        let waited = queued + request.notes.webhook_latency();
        self.observe(&request, &mut response, waited);
        let notes = request.notes.into_recorded();
        respond::add_warnings(&mut response, &notes);
        event.notes(&notes);
        response
    }

    /// Counts and measures a resource request, now or when its response is sent.
    fn observe(&self, request: &Request, response: &mut Response, waited: Duration) {
        let target = request.target();
        if !serves(&request.resource, target) {
            return;
        }
        let labels = Labels::of_resource(&self.head, &self.query, target);
        let served = Served {
            code: response.status(),
            started: self.started,
            waited,
        };
        let requests = &self.pipeline.requests;
        match response.body().size_hint().exact() {
            Some(bytes) => requests.observe(labels, served, bytes),
            None => {
                let sending = requests.sending(target, labels, served);
                response.body_mut().measure(sending);
            }
        }
    }

    fn observe_probe(&self, path: &str, response: &Response, waited: Duration) {
        let Some(labels) = Labels::of_probe(&self.head, &self.query, path) else {
            return;
        };
        let served = Served {
            code: response.status(),
            started: self.started,
            waited,
        };
        let bytes = response.body().size_hint().exact();
        let requests = &self.pipeline.requests;
        requests.observe(labels, served, bytes.unwrap_or_default());
    }

    /// Counts a rejected request, without its path, which may be arbitrary.
    fn observe_rejected(&self, info: &RequestInfo) {
        let snapshot = self.pipeline.registry.snapshot();
        let is_served = |target: &Target| {
            let found = snapshot.find(&target.group, &target.version, &target.resource);
            found.is_some_and(|resource| serves(resource, target))
        };
        let labels = match info {
            RequestInfo::Resource(target) if is_served(target) => {
                Labels::of_resource(&self.head, &self.query, target)
            }
            _ => Labels::of_path(&self.head, &self.query),
        };
        self.pipeline.requests.reject(labels);
    }

    /// The server of a discovery or OpenAPI document of one version of a group, if it is not this one.
    fn remote_document(&self, segments: &[String]) -> Option<Arc<Remote>> {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["apis", group, version] | ["openapi", "v3", "apis", group, version] => {
                self.pipeline.aggregator.find(group, version)
            }
            _ => None,
        }
    }

    /// Proxies a request to an aggregated server, after the usual authorization.
    async fn forward(
        &self,
        remote: &Arc<Remote>,
        user: &UserInfo,
        (incoming, upgrade): (&mut Incoming, &mut Option<OnUpgrade>),
        lasts: bool,
        encoding: Encoding,
        event: &mut Event,
    ) -> Response {
        // The availability stays as observed.
        let mut remote = Arc::clone(remote);
        if !remote.is_available {
            // If that fails, the server is unavailable either way.
            let _ = self.pipeline.writer.storage.effects_applied().await;
            let aggregator = &self.pipeline.aggregator;
            remote = aggregator
                .find(&remote.group, &remote.version)
                .unwrap_or(remote);
        }
        // The authorized path is the forwarded one: an ambiguous path is rejected.
        let has_dots = |segment: &str| matches!(segment, "." | "..");
        let path = unescape(self.head.uri.path(), false);
        if path.is_none_or(|path| path.starts_with("//") || path.split('/').any(has_dots)) {
            return respond::page_not_found();
        }
        let read = body::read(incoming, &self.pipeline.memory, &user.username).await;
        let (body, memory_permit) = match read {
            Ok(read) => read,
            Err(failure) => return self.fail(&failure, encoding, event),
        };
        let allowed = request_timeout(&self.query, self.pipeline.request_timeout);
        let allowed = allowed.unwrap_or(self.pipeline.request_timeout);
        let request = Forward {
            method: &self.head.method,
            uri: &self.head.uri,
            headers: &self.head.headers,
            user,
            peer: self.peer.address,
            body,
            upgrade: upgrade.take(),
            deadline: (!lasts).then(|| self.started + allowed),
        };
        let response = forward(&self.pipeline.aggregator, &remote, request).await;
        drop(memory_permit);
        response
    }

    fn fail(&self, failure: &Failure, encoding: Encoding, event: &mut Event) -> Response {
        event.respond_status(failure);
        respond::failed(failure, encoding)
    }

    /// The response to a rejected request.
    fn reject(&self, failure: &Failure, encoding: Encoding, event: &mut Event) -> Response {
        event.respond_status(failure);
        respond::refused(failure, encoding)
    }

    /// Stages 2 and, for impersonation, 3.
    async fn identify(&self, info: &RequestInfo, event: &mut Event) -> Outcome<UserInfo> {
        let pipeline = &self.pipeline;
        let headers = &self.head.headers;
        let user = pipeline
            .authenticator
            .authenticate(&self.peer, headers)
            .await?;
        event.user(&user);
        event.receive();
        if !is_requested(headers) {
            return Ok(user);
        }
        // The request is authorized again for the impersonated user.
        let (name, lower);
        let action = match info {
            RequestInfo::NonResource { path, .. } => {
                lower = self.head.method.as_str().to_ascii_lowercase();
                Action {
                    verb: &lower,
                    object: AccessObject::Path(path),
                }
            }
            RequestInfo::Resource(target) | RequestInfo::Unrouted(target) => {
                name = target.asked_name(&self.query);
                let (field_selector, label_selector) = target.selectors(&self.query);
                Action {
                    verb: target.verb.name(),
                    object: AccessObject::Resource {
                        group: &target.group,
                        resource: &target.resource,
                        subresource: &target.subresource,
                        namespace: &target.namespace,
                        name: &name,
                        field_selector,
                        label_selector,
                    },
                }
            }
        };
        let authorizer = pipeline.authorizer.as_ref();
        let impersonated = pipeline
            .impersonator
            .impersonate(&user, headers, authorizer, &action)?;
        let Some(Impersonated { user, constraint }) = impersonated else {
            return Ok(user);
        };
        event.impersonated(&user, constraint.as_deref());
        Ok(user)
    }

    fn authorize_path(&self, user: &UserInfo, path: &str, event: &mut Event) -> Outcome<()> {
        let asking = authz::user(user);
        let verb = self.head.method.as_str().to_ascii_lowercase();
        let request = AccessRequest {
            user: &asking,
            verb: &verb,
            object: AccessObject::Path(path),
        };
        let decision = self.pipeline.authorizer.authorize(&request);
        event.decided(decision.allowed);
        if decision.allowed {
            return Ok(());
        }
        let why = authz::denied(&user.username, &request, &decision.reason);
        Err(forbidden("", "", "", &why))
    }

    /// Stage 3. The authorized target is the one that is executed and audited.
    fn authorize(&self, target: Target, user: UserInfo, event: &mut Event) -> Outcome<Authorized> {
        let name = target.asked_name(&self.query);
        let (field_selector, label_selector) = target.selectors(&self.query);
        let asked = RequestedObject {
            name: &name,
            field_selector,
            label_selector,
        };
        let authorizer = self.pipeline.authorizer.as_ref();
        let authorized = Authorized::authorize(authorizer, target, user, asked);
        event.decided(authorized.is_ok());
        authorized
    }

    /// Executes within the request's timeout.
    async fn limited(
        &self,
        request: &mut Request,
        incoming: &mut Incoming,
        event: &mut Event,
    ) -> Outcome<Response> {
        if request.resource.is_custom() {
            request.warn_of_deprecation();
        }
        let verb = request.target().verb;
        let part = request.resource.subresource(request.subresource());
        if verb == Verb::Watch || part.is_some_and(connect::is_connection) {
            return self.dispatch(request, incoming, event).await;
        }
        let allowed = request_timeout(&self.query, self.pipeline.request_timeout)?;
        // deletecollection has no timeout: each deletion has its own calls.
        if verb != Verb::DeleteCollection {
            let within = if verb.writes() {
                allowed.min(limits::WRITE)
            } else {
                allowed
            };
            request.deadline = Some(self.started + within);
        }
        let end = self.started + allowed;
        tokio::time::timeout_at(end.into(), self.dispatch(request, incoming, event))
            .await
            .unwrap_or_else(|_| Err(timeout()))
    }

    async fn dispatch(
        &self,
        request: &Request,
        incoming: &mut Incoming,
        event: &mut Event,
    ) -> Outcome<Response> {
        let resource = &request.resource;
        if resource.is_custom() {
            let target = request.target();
            if is_out_of_scope(target, resource) {
                return Ok(respond::page_not_found());
            }
            check_custom(target, resource)?;
        } else {
            check_scope(request.target(), resource)?;
            // UPSTREAM: the routes of built-in resources are registered by method, those of custom ones are not.
            if self.head.method == Method::HEAD {
                return Err(method_not_allowed());
            }
        }
        let verb = request.target().verb;
        let (part, verbs) = if request.subresource().is_empty() {
            (None, &resource.names.verbs)
        } else {
            let Some(part) = resource.subresource(request.subresource()) else {
                return Err(match resource.is_custom() {
                    true => resource.not_found(request.name()),
                    false => no_such_resource(),
                });
            };
            (Some(part), &part.verbs)
        };
        let connects = part.is_some_and(connect::is_connection);
        if !connects && !verbs.iter().any(|known| known == verb.name()) {
            return Err(method_not_allowed());
        }
        if !resource.is_custom() && !connects {
            let is_list = matches!(verb, Verb::List | Verb::Watch) && part.is_none();
            if verb == Verb::Patch {
                negotiate::patch_type(&self.head.headers, false)?;
            }
            negotiate::check_route(&self.head.headers, is_list)?;
        }
        if !resource.is_custom() {
            // UPSTREAM: apiserver pkg/endpoints/installer.go: warnings are added by the route handlers.
            request.warn_of_deprecation();
        }
        let offer = Offer {
            accepted: resource.shape.accepted(),
            tables: verbs.iter().any(|verb| verb != "create")
                && !part.is_some_and(|part| has_no_table(resource, part)),
        };
        let wanted = negotiate::negotiate(&self.head.headers, &self.query, offer)?;
        if let Some(part) = part.filter(|_| connects) {
            let reply = Box::pin(self.connect(request, part)).await?;
            return reply.into_response(wanted);
        }
        // Read errors are reported before format errors.
        let tables = Tables::wanted(wanted, &self.query);
        let tables = match verb {
            Verb::Get | Verb::List => tables,
            _ => Ok(tables?),
        };
        let Pipeline { writer, tasks, .. } = self.pipeline.as_ref();
        let storage = &writer.storage;
        if verb == Verb::Watch && part.is_none() {
            let tables = tables?;
            let shown = (Representation { wanted, tables }, &self.pipeline.memory);
            let watch = watch::watch(storage, tasks, request, &self.query, shown);
            return Box::pin(watch).await;
        }
        // The memory reservation of the request, and the size of the processed data.
        let (mut memory_permit, mut size) = (None, 0);
        let reply = match (verb, part) {
            (Verb::Get, None) if components::is_component(resource) => {
                Box::pin(components::get(storage, request)).await?
            }
            (Verb::List, None) if components::is_component(resource) => {
                Box::pin(components::list(storage, request, &self.query)).await?
            }
            (Verb::Get, None) => get::get(storage, request, &self.query).await?,
            (Verb::Get, Some(part)) => {
                Box::pin(get::get_part(storage, request, part, &self.query)).await?
            }
            (Verb::List | Verb::Watch, _) => {
                let found = Box::pin(list::find(storage, request, &self.query, false)).await?;
                let is_streamed = wanted.is_compact() && resource.is_shown_as_stored();
                if !is_streamed {
                    memory_permit = self.reserve_memory(request, found.bytes())?;
                }
                size = found.bytes();
                Box::pin(list::list(storage, request, found)).await?
            }
            (Verb::Unknown | Verb::Proxy, _) => return Err(method_not_allowed()),
            (_, part) => {
                let user = request.user().username.as_str();
                let (body, permit) = body::read(incoming, &self.pipeline.memory, user).await?;
                memory_permit = permit;
                event.request_body(&body);
                let _trees = match memory_permit {
                    Some(_) => Some(body::reserve_trees(&body, &self.pipeline.trees, user).await?),
                    None => None,
                };
                let write = self.decode(request, part, &body)?;
                self.execute(request, write).await?
            }
        };
        let mut response = heavy::run(size, || {
            event.respond(&reply);
            let reply = match tables? {
                Some(tables) => reply.into_table(resource, tables)?,
                None => reply,
            };
            reply.into_response(wanted)
        })?;
        if memory_permit.is_none() && verb == Verb::Get {
            memory_permit = self.reserve_memory(request, response.body().kept_bytes() / TREE)?;
        }
        if let Some(memory_permit) = memory_permit {
            response.body_mut().hold_permit(memory_permit);
        }
        Ok(response)
    }

    /// Reserves memory for objects of this size. Small ones need none.
    fn reserve_memory(&self, request: &Request, bytes: usize) -> Outcome<Option<Permit>> {
        if bytes * TREE <= UNRESERVED_RESPONSE_BYTES {
            return Ok(None);
        }
        let user = request.user().username.as_str();
        let taken = self.pipeline.memory.take(user, bytes * TREE);
        taken.map(Some).ok_or_else(too_many_requests)
    }

    /// Stage 4.
    fn decode(
        &self,
        request: &Request,
        part: Option<&Subresource>,
        body: &Bytes,
    ) -> Outcome<Write> {
        let encoded = Encoded {
            headers: &self.head.headers,
            query: &self.query,
            body,
        };
        match part {
            None => encoded.write(request),
            Some(part) => encoded.part_write(request, part),
        }
    }

    /// Stages 5 to 7. All but the most common are boxed, since a future is as large as its largest part, and a
    /// request's future is moved several times.
    async fn execute(&self, request: &Request, write: Write) -> Outcome<Reply> {
        let Pipeline {
            writer,
            reviewer,
            signer,
            ..
        } = self.pipeline.as_ref();
        match write {
            Write::Create(body) => create::create(writer, request, body).await,
            Write::Update(body) => Box::pin(update::update(writer, request, body)).await,
            Write::Patch(body) => Box::pin(patch::patch(writer, request, body)).await,
            Write::Delete(options) => Box::pin(delete::delete(writer, request, options)).await,
            Write::DeleteCollection(options) => {
                let query = &self.query;
                Box::pin(delete::delete_collection(writer, request, &options, query)).await
            }
            Write::Scale(body) => Box::pin(scale::set(writer, request, body)).await,
            Write::Evict(body) => Box::pin(evict::evict(writer, request, body)).await,
            Write::Bind(body) => Box::pin(bind::bind(writer, request, body)).await,
            Write::RequestToken(body) => {
                Box::pin(token_request::create(writer, signer, request, body)).await
            }
            Write::Review(body) => Box::pin(reviewer.review(writer, request, body)).await,
        }
    }

    /// Stages 4 to 7 of a connect request, which has no body.
    async fn connect(&self, request: &Request, part: &Subresource) -> Outcome<Reply> {
        let options = connect::decode(part, &self.query, &request.target().rest)?;
        connect::connect(&self.pipeline.writer, request, part, options).await
    }
}

/// Returns true if the resource has the requested subresource, if any.
fn serves(resource: &Resource, target: &Target) -> bool {
    target.subresource.is_empty() || resource.subresource(&target.subresource).is_some()
}

/// Returns true if the request is long-running.
fn is_long_running(target: &Target) -> bool {
    RequestInfo::Resource(target.clone()).is_long_running()
}

/// Checks that the path has a namespace and a name where the resource and the verb need them.
fn check_scope(target: &Target, resource: &Resource) -> Outcome<()> {
    // Create-only resources have one route.
    let is_only_made = resource.names.verbs.iter().all(|verb| verb == "create");
    let is_named = !target.name.is_empty() && target.subresource.is_empty();
    let is_across = resource.names.namespaced && target.namespace.is_empty();
    if is_only_made && (is_named || is_across) {
        return Err(no_such_resource());
    }
    let namespaced = resource.names.namespaced;
    let is_namespace = resource.is("", "namespaces") && target.namespace == target.name;
    if !namespaced && !target.namespace.is_empty() && !is_namespace {
        return Err(no_such_resource());
    }
    // Only a proxy path continues.
    if !target.rest.is_empty() && target.subresource != "proxy" {
        return Err(no_such_resource());
    }
    // Objects are created in their collection and updated at their own path.
    let needs_name = matches!(target.verb, Verb::Update | Verb::Patch);
    let is_made = target.verb == Verb::Create && target.subresource.is_empty();
    if needs_name && target.name.is_empty() || is_made && !target.name.is_empty() {
        return Err(method_not_allowed());
    }
    if namespaced && target.namespace.is_empty() && !matches!(target.verb, Verb::List | Verb::Watch)
    {
        // Across all namespaces only the collection is served.
        return Err(match target.name.is_empty() {
            true => method_not_allowed(),
            false => no_such_resource(),
        });
    }
    Ok(())
}

/// Returns true if a subresource has no table.
///
/// UPSTREAM: their storage does not implement ConvertToTable.
fn has_no_table(resource: &Resource, part: &Subresource) -> bool {
    match part.name.as_str() {
        "approval" | "ephemeralcontainers" | "finalize" | "resize" => true,
        "status" => [
            ("apiregistration.k8s.io", "apiservices"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("resource.k8s.io", "resourceclaims"),
        ]
        .iter()
        .any(|(group, plural)| resource.is(group, plural)),
        _ => false,
    }
}

/// Returns true for a built-in group.
fn is_built_in(group: &str) -> bool {
    lockgate_kinds::resource::resources().any(|resource| resource.group == group)
}

/// Returns true if a path is outside the scope of a custom resource, and therefore not found.
fn is_out_of_scope(target: &Target, resource: &Resource) -> bool {
    match (resource.names.namespaced, target.namespace.is_empty()) {
        (false, false) => true,
        (true, true) => !matches!(target.verb, Verb::List | Verb::Watch),
        _ => false,
    }
}

/// UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go
fn check_custom(target: &Target, resource: &Resource) -> Outcome<()> {
    if !target.rest.is_empty() {
        return Err(resource.not_found(&target.name));
    }
    if matches!(target.verb, Verb::Unknown | Verb::Proxy) {
        return Err(method_not_supported(
            resource.group(),
            resource.plural(),
            "",
        ));
    }
    if matches!(target.verb, Verb::Update | Verb::Patch) && target.name.is_empty() {
        return Err(bad_request("name must be provided"));
    }
    Ok(())
}

/// The timeout of a request: the client's, limited by the server's.
fn request_timeout(query: &Query, most: Duration) -> Outcome<Duration> {
    let text = query.text("timeout");
    if text.is_empty() {
        return Ok(most);
    }
    match lockgate_go::time::Duration::parse(text) {
        Ok(span) => Ok(match span.to_std() {
            Some(asked) if !asked.is_zero() => asked.min(most),
            _ => most,
        }),
        Err(error) => Err(bad_request(format!(
            "invalid timeout specified in the request URL - {error}"
        ))),
    }
}
