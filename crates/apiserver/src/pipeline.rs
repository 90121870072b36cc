//! The order of the stages, and nothing else.
//!
//! ```text
//!   1 http        path, method, query, deadline
//!   2 authn       who asks                       a failure is audited too
//!   3 authz       may they                       before the body is read: strangers cost nothing
//!   4 decode ─┐
//!   5 mutate  │   inside the recipe of the verb; for changes of what exists, 5 and 6 run inside
//!   6 validate│   the compare-and-swap loop of 7, so that a lost race asks webhooks again
//!   7 persist─┘
//!   8 audit       the event is closed when the answer is known
//!   9 respond
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use hyper::body::{Body as _, Incoming};
use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_api::access::{AccessObject, AccessRequest};
use lockgate_api::admission::UserInfo;

use crate::audit::Event;
use crate::authn::impersonation;
use crate::authz;
use crate::authz::rbac::MASTERS;
use crate::call::{Call, Notes};
use crate::decode::body;
use crate::error::{
    Failure, Outcome, bad_request, forbidden, method_not_allowed, no_such_resource, timeout,
};
use crate::http::body::Response;
use crate::http::in_flight::Permit;
use crate::http::limits;
use crate::http::listen::{Handler, Peer};
use crate::http::negotiate::{self, Encoding, Wanted};
use crate::http::query::Query;
use crate::http::request_info::{RequestInfo, Target, Verb};
use crate::read::{get, list, watch};
use crate::registry::Resource;
use crate::respond::{self, Reply, Tables};
use crate::server::Server;
use crate::write::{connect, create, delete, patch, strategy, subresource, update};
use crate::{access_reviews, controllers, non_resource};

/// Subresources whose requests last as long as their connection.
///
/// UPSTREAM: kubernetes pkg/controlplane/apiserver/config.go (BasicLongRunningRequestCheck)
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];
/// Paths of health checks.
const HEALTH: [&str; 3] = ["healthz", "livez", "readyz"];

/// The name of the header by which an answer is found in the audit log.
const AUDIT_ID: &str = "audit-id";

impl Handler for Server {
    async fn handle(
        self: Arc<Self>,
        peer: Arc<Peer>,
        request: http::Request<Incoming>,
    ) -> Response {
        let (head, incoming) = request.into_parts();
        // A write that has begun ends, whatever becomes of its client: what is stored is audited.
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let server = Arc::clone(&self);
            let bytes = incoming.size_hint().exact();
            let answering =
                self.run_to_end(
                    bytes,
                    async move { server.answer(&peer, head, incoming).await },
                );
            return answering.await;
        }
        self.answer(&peer, head, incoming).await
    }
}

impl Server {
    /// Answers a request, from its head to its audit event.
    async fn answer(
        self: Arc<Self>,
        peer: &Peer,
        head: http::request::Parts,
        mut incoming: Incoming,
    ) -> Response {
        let started = Instant::now();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let id = RandomIds.uid();
        let path = head.uri.path().to_owned();
        let mut event = self
            .audit
            .begin(&id, &head.method, &head.uri, &head.headers, peer);
        let mut response = match RequestInfo::read(&head.method, &path, &query) {
            None => respond::page_not_found(),
            Some(info) => {
                let received = Received {
                    server: &self,
                    peer,
                    method: &head.method,
                    headers: &head.headers,
                    query,
                    started,
                };
                received.serve(info, &mut incoming, &mut event).await
            }
        };
        // An answer that comes before the end of a body looks like a broken stream to some clients.
        if !incoming.is_end_stream() {
            body::drain(&mut incoming).await;
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(AUDIT_ID, id);
        }
        self.requests
            .count(&head.method, response.status().as_u16(), started.elapsed());
        // The path alone: queries and headers may hold secrets.
        tracing::debug!(
            method = %head.method,
            path = head.uri.path(),
            code = response.status().as_u16(),
            elapsed = ?started.elapsed(),
            "request"
        );
        event.finish(response.status().as_u16());
        response
    }
}

/// A request that came in.
struct Received<'e> {
    server: &'e Arc<Server>,
    peer: &'e Peer,
    method: &'e Method,
    headers: &'e HeaderMap,
    query: Query,
    started: Instant,
}

impl Received<'_> {
    async fn serve(
        self,
        info: RequestInfo,
        incoming: &mut Incoming,
        event: &mut Event,
    ) -> Response {
        let pretty = negotiate::wanted(self.headers, &self.query, &negotiate::ACCEPTED)
            .map_or(Wanted::PLAIN.encoding, |wanted| wanted.encoding);
        if let RequestInfo::Resource(target) | RequestInfo::Unrouted(target) = &info {
            event.target(target, &target.asked_name(&self.query));
        }
        let user = match self.identify(event).await {
            Ok(user) => user,
            Err(failure) => return self.fail(&failure, pretty, event),
        };
        let permit = match self.enter(&user, &info) {
            Ok(permit) => permit,
            Err(()) => return respond::too_many_requests(),
        };
        let mut response = self.route(info, user, incoming, pretty, event).await;
        if let Some(permit) = permit {
            response.body_mut().hold(permit);
        }
        response
    }

    /// A place among the requests in flight. Those that go on, health checks and masters need none.
    fn enter(&self, user: &UserInfo, info: &RequestInfo) -> Result<Option<Permit>, ()> {
        let is_master = || {
            let groups = user.groups.as_deref().unwrap_or_default();
            groups.iter().any(|group| group == MASTERS)
        };
        let is_exempt = match info {
            RequestInfo::Resource(target) | RequestInfo::Unrouted(target) => {
                target.verb == Verb::Watch || LONG_RUNNING.contains(&target.subresource.as_str())
            }
            RequestInfo::NonResource { segments, .. } => segments
                .first()
                .is_some_and(|first| HEALTH.contains(&first.as_str())),
        };
        if is_exempt || is_master() {
            return Ok(None);
        }
        let in_flight = match *self.method {
            Method::GET | Method::HEAD => &self.server.reads_in_flight,
            _ => &self.server.writes_in_flight,
        };
        in_flight.enter(&user.username).map(Some).ok_or(())
    }

    async fn route(
        self,
        info: RequestInfo,
        user: UserInfo,
        incoming: &mut Incoming,
        pretty: Encoding,
        event: &mut Event,
    ) -> Response {
        match info {
            RequestInfo::NonResource { path, segments } => {
                match self.authorize_path(&user, &path, event) {
                    Ok(()) => non_resource::serve(
                        self.server,
                        self.method,
                        &segments,
                        self.headers,
                        &self.query,
                    ),
                    Err(failure) => self.fail(&failure, pretty, event),
                }
            }
            RequestInfo::Resource(target) => {
                self.serve_resource(target, true, user, incoming, pretty, event)
                    .await
            }
            RequestInfo::Unrouted(target) => {
                self.serve_resource(target, false, user, incoming, pretty, event)
                    .await
            }
        }
    }

    fn fail(&self, failure: &Failure, encoding: Encoding, event: &mut Event) -> Response {
        event.respond_status(failure);
        respond::failed(failure, encoding)
    }

    /// Stages 2 and, for impersonation, 3.
    async fn identify(&self, event: &mut Event) -> Outcome<UserInfo> {
        let user = self
            .server
            .authenticator
            .authenticate(self.peer, self.headers)
            .await?;
        event.user(&user);
        event.receive();
        let other =
            impersonation::impersonate(&user, self.headers, self.server.authorizer.as_ref())?;
        if let Some(other) = &other {
            event.impersonated(other);
        }
        Ok(other.unwrap_or(user))
    }

    fn authorize_path(&self, user: &UserInfo, path: &str, event: &mut Event) -> Outcome<()> {
        let asks = authz::user(user);
        let verb = self.method.as_str().to_ascii_lowercase();
        let request = AccessRequest {
            user: &asks,
            verb: &verb,
            object: AccessObject::Path(path),
        };
        let allowed = self.server.authorizer.authorize(&request).allowed;
        event.decided(allowed);
        if allowed {
            return Ok(());
        }
        Err(forbidden(
            "",
            "",
            "",
            &authz::denied(&user.username, &request),
        ))
    }

    async fn serve_resource(
        self,
        target: Target,
        is_routed: bool,
        user: UserInfo,
        incoming: &mut Incoming,
        encoding: Encoding,
        event: &mut Event,
    ) -> Response {
        let snapshot = self.server.registry.snapshot();
        let mut call = Call {
            query: self.query.clone(),
            headers: self.headers.clone(),
            user,
            body: Bytes::new(),
            deadline: None,
            notes: Notes::default(),
            target,
        };
        let authorized = self.server.authorize(&call, call.target.verb.name());
        event.decided(authorized.is_ok());
        if let Err(failure) = authorized {
            return self.fail(&failure, encoding, event);
        }
        if !is_routed {
            return self.fail(&no_such_resource(), encoding, event);
        }
        let Target {
            group,
            version,
            resource,
            ..
        } = &call.target;
        let Some(resource) = snapshot.find(group, version, resource).cloned() else {
            return respond::page_not_found();
        };
        match self.limited(&mut call, &resource, incoming, event).await {
            Ok(mut response) => {
                respond::add_notes(&mut response, &call.notes);
                event.notes(&call.notes);
                response
            }
            Err(failure) => {
                let mut response = self.fail(&failure, encoding, event);
                respond::add_notes(&mut response, &call.notes);
                event.notes(&call.notes);
                response
            }
        }
    }

    /// Within the time a request has.
    async fn limited(
        &self,
        call: &mut Call,
        resource: &Arc<Resource>,
        incoming: &mut Incoming,
        event: &mut Event,
    ) -> Outcome<Response> {
        if let Some(warning) = &resource.warning {
            call.notes.warn(warning);
        }
        let is_connection = resource
            .subresource(&call.target.subresource)
            .is_some_and(connect::is_connection);
        if call.target.verb == Verb::Watch || is_connection {
            return self.dispatch(call, resource, incoming, event).await;
        }
        let allowed = allowed_time(&self.query, self.server.settings.request_timeout)?;
        let allowed = if call.target.verb.writes() {
            allowed.min(limits::WRITE)
        } else {
            allowed
        };
        let deadline = self.started + allowed;
        // Deleting a collection takes as long as it takes: each deletion has its own calls.
        call.deadline = (call.target.verb != Verb::DeleteCollection).then_some(deadline);
        let whole = self.started + allowed_time(&self.query, self.server.settings.request_timeout)?;
        match tokio::time::timeout_at(whole.into(), self.dispatch(call, resource, incoming, event))
            .await
        {
            Ok(response) => response,
            Err(_) => Err(timeout()),
        }
    }

    async fn dispatch(
        &self,
        call: &mut Call,
        resource: &Arc<Resource>,
        incoming: &mut Incoming,
        event: &mut Event,
    ) -> Outcome<Response> {
        let wanted = negotiate::wanted(&call.headers, &call.query, resource.shape.accepted())?;
        let tables = Tables::wanted(wanted, &call.query)?;
        let verb = call.target.verb;
        check_scope(&call.target, resource)?;
        let server = self.server;
        if !call.target.subresource.is_empty() {
            let Some(part) = resource.subresource(&call.target.subresource) else {
                return Ok(respond::page_not_found());
            };
            if connect::is_connection(part) {
                return Ok(connect::connect(server, call, resource, part)
                    .await?
                    .into_response(wanted));
            }
            if !part.verbs.iter().any(|known| known == verb.name()) {
                return Err(method_not_allowed());
            }
            call.body = self.read_body(incoming, verb, event).await?;
            let reply = subresource::serve(server, call, resource, part).await?;
            return Ok(finish(reply, wanted, tables, resource, event));
        }
        if !resource
            .names
            .verbs
            .iter()
            .any(|known| known == verb.name())
        {
            return Err(method_not_allowed());
        }
        if verb == Verb::Watch {
            return watch::watch(server, call, resource, tables).await;
        }
        call.body = self.read_body(incoming, verb, event).await?;
        let reply = match verb {
            Verb::Get => get::get(server, call, resource).await?,
            Verb::List | Verb::Watch => list::list(server, call, resource).await?,
            Verb::Create if access_reviews::is_review(resource) => {
                access_reviews::create(server, call, resource).await?
            }
            Verb::Create if resource.is("", "bindings") => {
                subresource::bind_by_name(server, call, resource).await?
            }
            Verb::Create => create::create(server, call, resource).await?,
            Verb::Update => update::update(server, call, resource).await?,
            Verb::Patch => patch::patch(server, call, resource).await?,
            Verb::Delete => delete::delete(server, call, resource).await?,
            Verb::DeleteCollection => delete::delete_collection(server, call, resource).await?,
            Verb::Unknown | Verb::Proxy => return Err(method_not_allowed()),
        };
        if verb.writes() && strategy::is_definition(resource) {
            controllers::settle_definition(server, reply.name()).await;
        }
        Ok(finish(reply, wanted, tables, resource, event))
    }

    async fn read_body(
        &self,
        incoming: &mut Incoming,
        verb: Verb,
        event: &mut Event,
    ) -> Outcome<Bytes> {
        if !verb.writes() {
            return Ok(Bytes::new());
        }
        let bytes = body::read(incoming).await?;
        event.request_body(&bytes);
        Ok(bytes)
    }
}

fn finish(
    reply: Reply,
    wanted: Wanted,
    tables: Option<Tables>,
    resource: &Resource,
    event: &mut Event,
) -> Response {
    event.respond(&reply);
    match tables {
        Some(tables) => reply.into_table(resource, tables),
        None => reply,
    }
    .into_response(wanted)
}

/// What is asked must be asked where it is: in a namespace or in none.
fn check_scope(target: &Target, resource: &Resource) -> Outcome<()> {
    let namespaced = resource.names.namespaced;
    let is_namespace = resource.is("", "namespaces") && target.namespace == target.name;
    if !namespaced && !target.namespace.is_empty() && !is_namespace {
        return Err(no_such_resource());
    }
    // Only the path of a proxy goes on.
    if !target.rest.is_empty() && target.subresource != "proxy" {
        return Err(no_such_resource());
    }
    // An object is made in its collection and changed where it is.
    let needs_name = matches!(target.verb, Verb::Update | Verb::Patch);
    let is_made = target.verb == Verb::Create && target.subresource.is_empty();
    if needs_name && target.name.is_empty() || is_made && !target.name.is_empty() {
        return Err(method_not_allowed());
    }
    if namespaced && target.namespace.is_empty() && !matches!(target.verb, Verb::List | Verb::Watch)
    {
        return Err(method_not_allowed());
    }
    Ok(())
}

/// The time a request may take: what the client asks for, and no more than the server gives.
fn allowed_time(query: &Query, most: Duration) -> Outcome<Duration> {
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
