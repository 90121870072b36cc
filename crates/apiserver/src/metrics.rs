//! Request metrics, in addition to those of admission, with the names, labels and buckets of kube-apiserver v1.36.
//!
//! As upstream, the series by resource count requests that reached a served resource, and requests rejected due to
//! overload. Unauthorized requests and unknown paths create no series. `lockgate_requests_total` counts every
//! response.
//!
//! UPSTREAM: apiserver pkg/endpoints/metrics/metrics.go

pub(crate) mod process;
pub(crate) mod slis;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, StatusCode};
use lockgate_admission::metrics::family::{Family, Histogram};

use crate::http::body::Meter;
use crate::http::query::Query;
use crate::http::request_info::{Target, Verb};

const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
const OBJECTIVE_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];
const BYTES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The window of the in-flight gauges' maximum.
const SPAN: Duration = Duration::from_secs(1);

/// Health checks are counted by their path.
const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

const APPLY: &[u8] = b"application/apply-patch+yaml";

/// The completed requests and the requests in progress.
#[derive(Debug)]
pub(crate) struct Requests {
    /// By method and code. Both sets are closed, which bounds the number of series.
    answered: Mutex<BTreeMap<(&'static str, u16), Series>>,
    families: Mutex<Families>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Series {
    count: u64,
    seconds: f64,
}

#[derive(Debug)]
struct Families {
    total: Family<u64>,
    seconds: Family<Histogram>,
    objective_seconds: Family<Histogram>,
    bytes: Family<Histogram>,
    long_running: Family<i64>,
    in_flight: Family<i64>,
    reading: Watermark,
    writing: Watermark,
}

/// The current value, and the maximum of the last seconds.
#[derive(Debug)]
struct Watermark {
    now: i64,
    most: i64,
    most_before: i64,
    since: Instant,
}

impl Watermark {
    fn new(now: Instant) -> Self {
        Self {
            now: 0,
            most: 0,
            most_before: 0,
            since: now,
        }
    }

    /// Drops values older than the previous window.
    fn roll(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed < SPAN {
            return;
        }
        self.most_before = if passed < 2 * SPAN {
            self.most
        } else {
            self.now
        };
        self.most = self.now;
        self.since = now;
    }

    fn add(&mut self, change: i64, now: Instant) {
        self.roll(now);
        self.now += change;
        self.most = self.most.max(self.now);
    }

    fn shown(&mut self, now: Instant) -> i64 {
        self.roll(now);
        self.most.max(self.most_before)
    }
}

/// The labels of a request. Each is from a closed set or the name of a served resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'l> {
    verb: &'static str,
    dry_run: &'static str,
    group: &'l str,
    version: &'l str,
    resource: &'l str,
    subresource: &'l str,
    scope: &'static str,
    component: &'static str,
}

impl<'l> Labels<'l> {
    /// The labels of a request for a resource, which must be served.
    pub(crate) fn of_resource(head: &Parts, query: &Query, target: &'l Target) -> Self {
        let scope = scope(target);
        let verb = if target.is_connection() {
            "CONNECT"
        } else {
            verb(head, query, scope)
        };
        Self {
            verb,
            dry_run: dry_run(query),
            group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: &target.subresource,
            scope,
            component: "apiserver",
        }
    }

    /// The labels of a non-resource request.
    pub(crate) fn of_path(head: &Parts, query: &Query) -> Self {
        Self {
            verb: verb(head, query, ""),
            dry_run: dry_run(query),
            group: "",
            version: "",
            resource: "",
            subresource: "",
            scope: "",
            component: "apiserver",
        }
    }

    /// The labels of a health check; `None` for other paths.
    ///
    /// UPSTREAM: apiserver pkg/server/healthz/healthz.go (no component)
    pub(crate) fn of_probe(head: &Parts, query: &Query, path: &str) -> Option<Self> {
        let path = PROBES.into_iter().find(|probe| *probe == path)?;
        Some(Self {
            subresource: path,
            component: "",
            ..Self::of_path(head, query)
        })
    }
}

/// UPSTREAM: cleanVerb, CanonicalVerb; deletions of collections and objects are not distinguished.
fn verb(head: &Parts, query: &Query, scope: &str) -> &'static str {
    match head.method {
        Method::GET if query.flag("watch") == Some(true) => "WATCH",
        Method::GET | Method::HEAD if matches!(scope, "cluster" | "namespace") => "LIST",
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => {
            let kind = head.headers.get(CONTENT_TYPE);
            if kind.is_some_and(|kind| kind.as_bytes() == APPLY) {
                "APPLY"
            } else {
                "PATCH"
            }
        }
        Method::DELETE => "DELETE",
        Method::CONNECT => "CONNECT",
        _ => "other",
    }
}

/// UPSTREAM: CleanScope
fn scope(target: &Target) -> &'static str {
    if !target.name.is_empty() || target.verb == Verb::Create {
        "resource"
    } else if !target.namespace.is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}

/// UPSTREAM: cleanDryRun
fn dry_run(query: &Query) -> &'static str {
    let mut values = query.all("dryRun").peekable();
    if values.peek().is_none() {
        ""
    } else if values.all(|value| value == "All") {
        "All"
    } else {
        "invalid"
    }
}

/// The facts of a served request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) code: StatusCode,
    pub(crate) started: Instant,
    /// The time it spent in a queue and in webhooks, which is excluded from the SLI.
    pub(crate) waited: Duration,
}

/// A request in flight, until dropped.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    requests: Arc<Requests>,
    writes: bool,
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.requests.families().add_in_flight(self.writes, -1);
    }
}

/// A streamed response. It is observed when it is complete, or its client disconnects.
#[derive(Debug)]
pub(crate) struct Sending {
    requests: Arc<Requests>,
    target: Target,
    verb: &'static str,
    dry_run: &'static str,
    served: Served,
    bytes: u64,
}

impl Sending {
    fn labels(&self) -> Labels<'_> {
        Labels {
            verb: self.verb,
            dry_run: self.dry_run,
            group: &self.target.group,
            version: &self.target.version,
            resource: &self.target.resource,
            subresource: &self.target.subresource,
            scope: scope(&self.target),
            component: "apiserver",
        }
    }
}

impl Meter for Sending {
    fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let labels = self.labels();
        let mut families = self.requests.families();
        families.observe(labels, self.served, self.bytes);
        families.add_long_running(labels, -1);
    }
}

impl Requests {
    /// Creates it with all counts at zero.
    pub(crate) fn new() -> Self {
        Self {
            answered: Mutex::default(),
            families: Mutex::new(Families::new(Instant::now())),
        }
    }

    fn families(&self) -> MutexGuard<'_, Families> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a completed request of any kind.
    pub(crate) fn count(&self, method: &Method, code: u16, took: Duration) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let mut all = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let series = all.entry((method, code)).or_default();
        series.count += 1;
        series.seconds += took.as_secs_f64();
    }

    /// Records the start of a request that is not long-running.
    pub(crate) fn enter(self: &Arc<Self>, method: &Method) -> InFlightRequest {
        let writes = !matches!(*method, Method::GET | Method::HEAD);
        self.families().add_in_flight(writes, 1);
        InFlightRequest {
            requests: Arc::clone(self),
            writes,
        }
    }

    /// Counts a request that was rejected due to overload.
    pub(crate) fn reject(&self, labels: Labels<'_>) {
        let code = StatusCode::TOO_MANY_REQUESTS;
        self.families().count(labels, code);
    }

    /// Observes a request with a complete response.
    pub(crate) fn observe(&self, labels: Labels<'_>, served: Served, bytes: u64) {
        self.families().observe(labels, served, bytes);
    }

    /// Observes a request with a streamed response, once it is sent.
    pub(crate) fn sending(
        self: &Arc<Self>,
        target: &Target,
        labels: Labels<'_>,
        served: Served,
    ) -> Sending {
        self.families().add_long_running(labels, 1);
        Sending {
            requests: Arc::clone(self),
            target: target.clone(),
            verb: labels.verb,
            dry_run: labels.dry_run,
            served,
            bytes: 0,
        }
    }

    /// The metrics in the Prometheus text format.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        self.families().render(&mut text, Instant::now());
        let all = self
            .answered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        text.push_str(
            "# HELP lockgate_requests_total Completed requests by method and code.\n# TYPE lockgate_requests_total counter\n",
        );
        for ((method, code), series) in &all {
            let _ = writeln!(
                text,
                "lockgate_requests_total{{method=\"{method}\",code=\"{code}\"}} {}",
                series.count
            );
        }
        text.push_str("# HELP lockgate_request_seconds_total Time from request to response in seconds, summed.\n# TYPE lockgate_request_seconds_total counter\n");
        for ((method, code), series) in &all {
            let _ = writeln!(
                text,
                "lockgate_request_seconds_total{{method=\"{method}\",code=\"{code}\"}} {}",
                series.seconds
            );
        }
        text
    }
}

impl Families {
    fn new(now: Instant) -> Self {
        let labels = &[
            "component",
            "group",
            "resource",
            "scope",
            "subresource",
            "verb",
            "version",
        ];
        Self {
            total: Family::new(
                "apiserver_request_total",
                "[STABLE] Requests, by verb, dry run, resource, scope, component and code.",
                &[
                    "code",
                    "component",
                    "dry_run",
                    "group",
                    "resource",
                    "scope",
                    "subresource",
                    "verb",
                    "version",
                ],
            ),
            seconds: Family::new(
                "apiserver_request_duration_seconds",
                "[STABLE] Time from request to response in seconds, by verb, dry run, resource, scope and \
                 component.",
                &[
                    "component",
                    "dry_run",
                    "group",
                    "resource",
                    "scope",
                    "subresource",
                    "verb",
                    "version",
                ],
            ),
            objective_seconds: Family::new(
                "apiserver_request_sli_duration_seconds",
                "[ALPHA] Time from request to response in seconds without that of webhooks and of queues, by \
                 verb, resource, scope and component.",
                labels,
            ),
            bytes: Family::new(
                "apiserver_response_sizes",
                "[STABLE] Sizes of the responses to reads in bytes, by verb, resource, scope and component.",
                labels,
            ),
            long_running: Family::new(
                "apiserver_longrunning_requests",
                "[STABLE] Open watches, by resource, scope and component.",
                labels,
            ),
            in_flight: Family::new(
                "apiserver_current_inflight_requests",
                "[STABLE] Maximum number of requests in flight within the last second, by kind.",
                &["request_kind"],
            ),
            reading: Watermark::new(now),
            writing: Watermark::new(now),
        }
    }

    fn add_in_flight(&mut self, writes: bool, change: i64) {
        let watermark = if writes {
            &mut self.writing
        } else {
            &mut self.reading
        };
        watermark.add(change, Instant::now());
    }

    fn add_long_running(&mut self, labels: Labels<'_>, change: i64) {
        if labels.verb == "WATCH" {
            self.long_running.add(&without_dry_run(labels), change);
        }
    }

    fn count(&mut self, labels: Labels<'_>, code: StatusCode) {
        self.total.count(&[
            code.as_str(),
            labels.component,
            labels.dry_run,
            labels.group,
            labels.resource,
            labels.scope,
            labels.subresource,
            labels.verb,
            labels.version,
        ]);
    }

    fn observe(&mut self, labels: Labels<'_>, served: Served, bytes: u64) {
        self.count(labels, served.code);
        let took = served.started.elapsed();
        let by_dry_run = [
            labels.component,
            labels.dry_run,
            labels.group,
            labels.resource,
            labels.scope,
            labels.subresource,
            labels.verb,
            labels.version,
        ];
        let seconds = took.as_secs_f64();
        self.seconds.observe(&by_dry_run, seconds, SECONDS);
        let values = without_dry_run(labels);
        if labels.dry_run.is_empty() {
            let seconds = took.saturating_sub(served.waited).as_secs_f64();
            self.objective_seconds
                .observe(&values, seconds, OBJECTIVE_SECONDS);
        }
        if matches!(labels.verb, "GET" | "LIST" | "WATCH") {
            #[expect(
                clippy::cast_precision_loss,
                reason = "sizes of responses are far below 2^53"
            )]
            self.bytes.observe(&values, bytes as f64, BYTES);
        }
    }

    fn render(&mut self, out: &mut String, now: Instant) {
        self.total.render(out);
        self.seconds.render(out);
        self.objective_seconds.render(out);
        self.bytes.render(out);
        self.long_running.render(out);
        let kinds = [
            ("mutating", self.writing.shown(now)),
            ("readOnly", self.reading.shown(now)),
        ];
        for (kind, most) in kinds {
            if let Some(shown) = self.in_flight.series(&[kind], || 0) {
                *shown = most;
            }
        }
        self.in_flight.render(out);
    }
}

fn without_dry_run(labels: Labels<'_>) -> [&str; 7] {
    [
        labels.component,
        labels.group,
        labels.resource,
        labels.scope,
        labels.subresource,
        labels.verb,
        labels.version,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request_info::RequestInfo;

    fn head(method: Method, kind: &str) -> Parts {
        let request = http::Request::builder()
            .method(method)
            .header(CONTENT_TYPE, kind);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn verbs_and_scopes_are_upstreams() {
        let apply = "application/apply-patch+yaml";
        for (method, path, query, kind, want) in [
            (Method::GET, "/api/v1/pods", "", "", "LIST cluster "),
            (
                Method::HEAD,
                "/api/v1/namespaces/a/pods",
                "",
                "",
                "LIST namespace ",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods",
                "watch=1",
                "",
                "WATCH namespace ",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods/b",
                "",
                "",
                "GET resource ",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods/b/log",
                "",
                "",
                "CONNECT resource ",
            ),
            (
                Method::POST,
                "/api/v1/namespaces/a/pods",
                "dryRun=All",
                "",
                "POST resource All",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/a/pods/b",
                "dryRun=Some",
                "",
                "PUT resource invalid",
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/pods/b",
                "",
                apply,
                "APPLY resource ",
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/pods/b",
                "",
                "application/json-patch+json",
                "PATCH resource ",
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/a/pods",
                "",
                "",
                "DELETE namespace ",
            ),
            (
                Method::TRACE,
                "/api/v1/namespaces/a/pods",
                "",
                "",
                "other namespace ",
            ),
        ] {
            let query = Query::parse(query);
            let info = RequestInfo::read(&method, path, &query);
            let Some(RequestInfo::Resource(target)) = info else {
                panic!("{path}");
            };
            let head = head(method, kind);
            let labels = Labels::of_resource(&head, &query, &target);
            let found = format!("{} {} {}", labels.verb, labels.scope, labels.dry_run);
            assert_eq!(found, want, "{} {path}", head.method);
        }
    }

    #[test]
    fn the_objective_leaves_out_webhooks_and_queues() {
        let requests = Requests::new();
        let head = head(Method::POST, "");
        let served = Served {
            code: StatusCode::CREATED,
            started: Instant::now().checked_sub(Duration::from_secs(7)).unwrap(),
            waited: Duration::from_secs(6),
        };
        let labels = Labels::of_path(&head, &Query::default());
        requests.observe(labels, served, 10);
        let dry_run = Query::parse("dryRun=All");
        requests.observe(Labels::of_path(&head, &dry_run), served, 10);
        let text = requests.render();
        let bucket = |name: &str, bound: &str| {
            let line = text.lines().find(|line| {
                line.starts_with(&format!("{name}_bucket{{"))
                    && !line.contains("All")
                    && line.contains(&format!("le=\"{bound}\""))
            });
            line.and_then(|line| line.rsplit(' ').next())
                .unwrap_or("none")
        };
        let (all, objective) = (
            "apiserver_request_duration_seconds",
            "apiserver_request_sli_duration_seconds",
        );
        assert_eq!(bucket(all, "6"), "0");
        assert_eq!(bucket(objective, "5"), "1");
        assert_eq!(bucket(objective, "0.025"), "none");
        assert_eq!(text.matches("sli_duration_seconds_count").count(), 1);
        assert!(!text.contains("apiserver_response_sizes"));
    }

    #[test]
    fn the_most_in_flight_is_remembered_for_a_while() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        watermark.add(1, start);
        watermark.add(1, start);
        watermark.add(-1, start);
        assert_eq!(watermark.shown(start), 2);
        assert_eq!(watermark.shown(start + SPAN), 2);
        assert_eq!(watermark.shown(start + 2 * SPAN), 1);
        watermark.add(-1, start + 2 * SPAN);
        assert_eq!(watermark.shown(start + 9 * SPAN), 0);
    }
}
