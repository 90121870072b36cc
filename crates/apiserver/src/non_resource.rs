//! Non-resource paths: discovery, version, health, metrics.

mod documents;
mod openid;
mod zpages;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use lockgate_admission::engine::Engine;
use lockgate_admission::metrics::family::Family;
use lockgate_api::registration::policy::PolicyKind;
use lockgate_go::quote::quote;
use lockgate_store::{List, SnapshotBytes};
use serde_json::{Value, json};

use crate::aggregation::{self, Aggregator};
use crate::error::{method_not_allowed, no_such_resource, read_failed};
use crate::flow_control::FlowControl;
use crate::http::body::{Body, Chunks, Response};
use crate::http::negotiate::Negotiated;
use crate::http::query::Query;
use crate::metrics::slis::HealthChecks;
use crate::metrics::{Requests, process};
use crate::persist::Storage;
use crate::registry::{Registry, Snapshot, discovery};
use crate::respond::{document, failed, page_not_found, plain_text, with_type};
use crate::tasks::Tasks;
use crate::version;

pub(crate) use documents::Maker;
pub(crate) use openid::Discovery;
pub(crate) use zpages::Started;

/// The media type of the Prometheus text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The storage check, with upstream's name.
const STORAGE: &str = "etcd";

/// The check that fails when the server is about to stop.
const SHUTDOWN: &str = "shutdown";

/// Health checks by name, with the paths that include each. The storage checks fail with the storage. The others
/// concern startup steps, or components that do not exist here: they pass on every listening server.
///
/// UPSTREAM: apiserver pkg/server/healthz, kubernetes pkg/controlplane, kube-aggregator pkg/apiserver
const CHECKS: [(&str, &[&str]); 29] = [
    ("ping", &EVERYWHERE),
    ("log", &EVERYWHERE),
    ("loopback-serving-certificate", &["healthz", "livez"]),
    (STORAGE, &EVERYWHERE),
    ("etcd-readiness", &["readyz"]),
    ("informer-sync", &["readyz"]),
    (
        "poststarthook/start-apiserver-admission-initializer",
        &EVERYWHERE,
    ),
    (
        "poststarthook/generic-apiserver-start-informers",
        &EVERYWHERE,
    ),
    (
        "poststarthook/priority-and-fairness-config-consumer",
        &EVERYWHERE,
    ),
    ("poststarthook/start-apiextensions-informers", &EVERYWHERE),
    ("poststarthook/start-apiextensions-controllers", &EVERYWHERE),
    ("poststarthook/crd-informer-synced", &EVERYWHERE),
    (
        "poststarthook/start-system-namespaces-controller",
        &EVERYWHERE,
    ),
    (
        "poststarthook/start-cluster-authentication-info-controller",
        &EVERYWHERE,
    ),
    ("poststarthook/storage-readiness", &EVERYWHERE),
    (
        "poststarthook/start-service-ip-repair-controllers",
        &EVERYWHERE,
    ),
    ("poststarthook/rbac/bootstrap-roles", &EVERYWHERE),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        &EVERYWHERE,
    ),
    (
        "poststarthook/priority-and-fairness-config-producer",
        &EVERYWHERE,
    ),
    ("poststarthook/bootstrap-controller", &EVERYWHERE),
    ("poststarthook/start-kube-aggregator-informers", &EVERYWHERE),
    (
        "poststarthook/apiservice-status-local-available-controller",
        &EVERYWHERE,
    ),
    (
        "poststarthook/apiservice-status-remote-available-controller",
        &EVERYWHERE,
    ),
    (
        "poststarthook/apiservice-registration-controller",
        &EVERYWHERE,
    ),
    ("poststarthook/kube-apiserver-autoregistration", &EVERYWHERE),
    ("autoregister-completion", &EVERYWHERE),
    ("poststarthook/apiservice-openapi-controller", &EVERYWHERE),
    ("poststarthook/apiservice-openapiv3-controller", &EVERYWHERE),
    (SHUTDOWN, &["readyz"]),
];
const EVERYWHERE: [&str; 3] = ["healthz", "livez", "readyz"];
/// The checks that fail with the storage.
const OF_STORAGE: [&str; 3] = [STORAGE, "etcd-readiness", "poststarthook/storage-readiness"];

/// The enabled plugins by step, controllers and feature gates, each with its title.
pub(crate) type Parts = [(&'static str, Vec<&'static str>); 4];

/// Paths for which upstream registers GET routes only: those of built-in APIs. All others are separate handlers, which
/// accept HEAD too.
fn allows_head(snapshot: &Snapshot, segments: &[&str]) -> bool {
    match segments {
        ["version" | "api"] | ["api", _] => false,
        [".well-known", "openid-configuration", ..] | ["openid", "v1", "jwks", ..] => false,
        ["apis", group, _] => {
            let mut resources = snapshot.resources().iter();
            !resources.any(|resource| resource.group() == *group && !resource.is_custom())
        }
        _ => true,
    }
}

/// The current number of objects of each resource; -1 if they cannot be counted.
///
/// UPSTREAM: apiserver pkg/storage/etcd3/metrics/metrics.go; the first of them is deprecated, but most
/// dashboards use it.
async fn stored_objects(storage: &Storage, snapshot: &Snapshot, out: &mut String) {
    let mut deprecated = Family::<i64>::new(
        "apiserver_storage_objects",
        "Number of stored objects, by resource. Deprecated: use apiserver_resource_objects.",
        &["resource"],
    );
    let mut objects = Family::<i64>::new(
        "apiserver_resource_objects",
        "Number of stored objects, by group and resource.",
        &["group", "resource"],
    );
    // Reviews and similar resources are never stored.
    let stored = |verbs: &[String]| verbs.iter().any(|verb| verb == "list");
    let resources = snapshot.storage_versions();
    for resource in resources.filter(|it| stored(&it.names.verbs)) {
        let prefix = storage.prefix(resource, "");
        // The count copies one entry only.
        let list = List {
            limit: Some(1),
            ..List::all(&prefix)
        };
        let count = match storage.store().list(list).await {
            Ok(page) => i64::try_from(page.entries.len() + page.remaining).unwrap_or(i64::MAX),
            Err(_) => -1,
        };
        let (group, plural) = (resource.group(), resource.plural());
        let qualified = match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        deprecated.add(&[&qualified], count);
        objects.add(&[group, plural], count);
    }
    deprecated.render(out);
    objects.render(out);
}

/// A snapshot, read while it is sent.
fn snapshot_of(snapshot: lockgate_store::Snapshot) -> Response {
    let mut response = with_type(200, Bytes::new(), "application/octet-stream");
    *response.body_mut() = Body::chunks(Sent(snapshot.bytes()));
    response
}

#[derive(Debug)]
struct Sent(SnapshotBytes);

impl Chunks for Sent {
    fn next(&mut self, size: usize) -> Option<Bytes> {
        self.0.next_piece(size)
    }
}

/// Serves non-resource paths.
#[derive(Debug)]
pub(crate) struct NonResource {
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) storage: Storage,
    pub(crate) engine: Engine,
    pub(crate) requests: Arc<Requests>,
    /// `None` if priority and fairness is disabled.
    pub(crate) flow_control: Option<Arc<FlowControl>>,
    /// The listen address.
    pub(crate) address: String,
    pub(crate) parts: Parts,
    pub(crate) maker: Maker,
    /// `None` if tokens cannot be verified through their issuer's URL.
    pub(crate) discovery: Option<Discovery>,
    pub(crate) health_checks: HealthChecks,
    pub(crate) started: Started,
    /// The flags of the program, if provided.
    pub(crate) flags: Option<BTreeMap<String, String>>,
    pub(crate) tasks: Tasks,
}

impl NonResource {
    /// Serves a path, given as its segments.
    pub(crate) async fn serve(
        &self,
        method: &Method,
        segments: &[String],
        headers: &HeaderMap,
        query: &Query,
    ) -> Response {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return failed(&method_not_allowed(), Negotiated::PLAIN.encoding);
        }
        let snapshot = self.registry.snapshot();
        let strings: Vec<&str> = segments.iter().map(String::as_str).collect();
        if *method == Method::HEAD && !allows_head(&snapshot, &strings) {
            return failed(&method_not_allowed(), Negotiated::PLAIN.encoding);
        }
        let pretty = query.flag("pretty").unwrap_or_default();
        let found = |value: Option<Value>| {
            value.map_or_else(page_not_found, |value| document(&value, pretty))
        };
        let listed = |value: Option<Value>, group: &str| match value {
            // UPSTREAM: a built-in group handles every path below it.
            None if lockgate_kinds::resource::resources().any(|known| known.group == group) => {
                failed(&no_such_resource(), Negotiated::PLAIN.encoding)
            }
            value => found(value),
        };
        // The documents of aggregated servers are merged into this server's. Usually there are none.
        let remotes = self.aggregator.remotes();
        if !remotes.is_empty() {
            let is_custom = |group: &str| {
                let mut resources = snapshot.resources().iter();
                resources.any(|resource| resource.group() == group && resource.is_custom())
            };
            match strings.as_slice() {
                ["apis"] => {
                    if documents::wants_aggregated(headers) {
                        let own = discovery::aggregate(&snapshot, false);
                        let all = aggregation::v2_list(own, &remotes, &is_custom);
                        return documents::aggregated_document(&all, headers);
                    }
                    let own = discovery::group_list(&snapshot);
                    let all = aggregation::group_list(own, &remotes, &is_custom);
                    return document(&all, pretty);
                }
                ["apis", group] => {
                    let own = discovery::group(&snapshot, group);
                    return found(aggregation::group(own, &remotes, group));
                }
                ["openapi", "v3"] => {
                    let own = serde_json::from_slice(&snapshot.openapi_index().text);
                    let own: Value = own.unwrap_or_default();
                    let all = aggregation::openapi_v3_index(own, &remotes);
                    return documents::openapi_tree(&all, headers);
                }
                ["openapi", "v2"] => {
                    return self.maker.openapi_v2(&snapshot, &remotes, headers).await;
                }
                _ => {}
            }
        }
        let discovery = self.discovery.as_ref();
        if let Some(response) = discovery.and_then(|it| it.serve(&strings, headers)) {
            return response;
        }
        match strings.as_slice() {
            [] => document(&json!({"paths": self.paths()}), pretty),
            ["api"] => documents::aggregated(&snapshot, true, headers)
                .unwrap_or_else(|| document(&discovery::versions(&self.address), pretty)),
            ["apis"] => documents::aggregated(&snapshot, false, headers)
                .unwrap_or_else(|| document(&discovery::group_list(&snapshot), pretty)),
            ["api", version] => listed(discovery::resource_list(&snapshot, "", version), ""),
            ["apis", group] => found(discovery::group(&snapshot, group)),
            ["apis", group, version] => {
                listed(discovery::resource_list(&snapshot, group, version), group)
            }
            ["openapi", "v2"] => {
                let answer = || documents::openapi_v2(&snapshot, headers);
                self.maker.make(answer).await
            }
            ["openapi", "v3"] => documents::openapi_index(&snapshot, headers),
            ["openapi", "v3", path @ ..] => {
                let path = path.join("/");
                let answer = || documents::openapi_document(&snapshot, &path, headers, query);
                self.maker.make(answer).await
            }
            ["configz"] => document(&self.configz(), pretty),
            ["version"] => document(&version::document(self.registry.version()), true),
            [name @ ("healthz" | "livez" | "readyz")] => self.health(name, query),
            [name @ ("healthz" | "livez" | "readyz"), check @ ..] => {
                let check = check.join("/");
                let mut checks = CHECKS.iter();
                if !checks.any(|(known, of)| *known == check && of.contains(name)) {
                    return page_not_found();
                }
                if check == SHUTDOWN && self.tasks.is_draining() {
                    return plain_text(500, "internal server error: process is shutting down\n");
                }
                match self.storage.store().failure() {
                    Some(failure) if OF_STORAGE.contains(&check.as_str()) => {
                        plain_text(500, format!("internal server error: {failure}\n"))
                    }
                    _ => plain_text(200, "ok"),
                }
            }
            ["metrics"] => with_type(200, self.metrics(&snapshot).await, METRICS),
            ["metrics", "slis"] => with_type(200, self.health_checks.render(), METRICS),
            ["statusz"] if self.has_zpages() => {
                let version = self.registry.version();
                zpages::statusz(&self.started, version, &self.paths(), headers, query)
            }
            ["flagz"] if self.has_zpages() => match &self.flags {
                Some(flags) => zpages::flagz(flags, headers, query),
                None => page_not_found(),
            },
            ["lockgate", "snapshot"] => match self.storage.store().snapshot().await {
                Ok(snapshot) => snapshot_of(snapshot),
                Err(error) => failed(&read_failed(error, 0), Negotiated::PLAIN.encoding),
            },
            _ => page_not_found(),
        }
    }

    fn has_zpages(&self) -> bool {
        self.registry.version() >= zpages::SINCE
    }

    /// The enabled parts in machine-readable form.
    fn configz(&self) -> Value {
        let [mutating, validating, controllers, gates] = &self.parts;
        json!({"lockgate": {
            "mutatingPlugins": mutating.1,
            "validatingPlugins": validating.1,
            "controllers": controllers.1,
            "featureGates": gates.1,
            "mutatingPolicies": self.policies(PolicyKind::Mutating),
            "validatingPolicies": self.policies(PolicyKind::Validating),
        }})
    }

    /// The names of the effective policies: those with bindings.
    pub(crate) fn policies(&self, kind: PolicyKind) -> Vec<String> {
        let snapshot = self.engine.policies(kind).snapshot();
        let names = snapshot
            .policies()
            .iter()
            .map(|bound| bound.policy.name().to_owned());
        names.collect()
    }

    fn paths(&self) -> Vec<String> {
        let snapshot = self.registry.snapshot();
        let mut paths: Vec<String> = [
            "/api",
            "/api/v1",
            "/apis",
            "/configz",
            "/healthz",
            "/livez",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(String::from)
        .to_vec();
        if self.has_zpages() {
            paths.push(String::from("/statusz"));
            paths.extend(self.flags.is_some().then(|| String::from("/flagz")));
        }
        if self.discovery.is_some() {
            paths.extend([openid::CONFIGURATION, openid::KEYS].map(String::from));
        }
        for (check, of) in CHECKS {
            paths.extend(of.iter().map(|name| format!("/{name}/{check}")));
        }
        for resource in snapshot
            .resources()
            .iter()
            .filter(|resource| !resource.group().is_empty())
        {
            let group = format!("/apis/{}", resource.group());
            paths.push(format!("{group}/{}", resource.version));
            paths.push(group);
        }
        for remote in self.aggregator.remotes().iter() {
            paths.push(format!("/apis/{}", remote.group));
            paths.push(format!("/{}", remote.path()));
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// UPSTREAM: apiserver pkg/server/healthz/healthz.go
    fn health(&self, name: &str, query: &Query) -> Response {
        let is_down = self.storage.store().failure().is_some();
        let mut excluded: Vec<&str> = query.all("exclude").collect();
        let mut failed = false;
        let mut text = String::new();
        for (check, _) in CHECKS.iter().filter(|(_, of)| of.contains(&name)) {
            let line = if excluded.contains(check) {
                excluded.retain(|other| other != check);
                format!("[+]{check} excluded: ok\n")
            } else if is_down && OF_STORAGE.contains(check)
                || *check == SHUTDOWN && self.tasks.is_draining()
            {
                failed = true;
                self.health_checks.observe(check, name, false);
                // All users may run the check; only authorized users see its reason.
                format!("[-]{check} failed: reason withheld\n")
            } else {
                self.health_checks.observe(check, name, true);
                format!("[+]{check} ok\n")
            };
            text.push_str(&line);
        }
        if !failed && query.first("verbose").is_none() {
            return plain_text(200, "ok");
        }
        if !excluded.is_empty() {
            let names: Vec<String> = excluded.iter().map(|name| quote(name)).collect();
            text.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                names.join(", ")
            ));
        }
        let (code, verdict) = if failed {
            (500, "failed")
        } else {
            (200, "passed")
        };
        text.push_str(&format!("{name} check {verdict}\n"));
        plain_text(code, text)
    }

    async fn metrics(&self, snapshot: &Snapshot) -> String {
        let mut text = self.engine.metrics().render(std::time::Instant::now());
        text.push_str(&self.requests.render());
        stored_objects(&self.storage, snapshot, &mut text).await;
        process::render(&mut text, self.registry.version());
        if let Some(flow_control) = &self.flow_control {
            text.push_str(&flow_control.render());
        }
        text
    }
}
