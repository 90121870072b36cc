//! Paths outside the resources: discovery, version, health, metrics.

mod documents;

use std::sync::Arc;

use http::{HeaderMap, Method};
use lockgate_admission::engine::Engine;
use serde_json::{Value, json};

use crate::error::method_not_allowed;
use crate::http::body::Response;
use crate::http::negotiate::Wanted;
use crate::http::query::Query;
use crate::metrics::Requests;
use crate::persist::Storage;
use crate::registry::{Registry, discovery};
use crate::respond::{document, failed, page_not_found, plain_text, with_type};
use crate::version;

/// Health checks that can be asked for one by one.
const CHECKS: [&str; 3] = ["ping", "log", STORAGE];
/// The check of the storage, by the name that probes know.
const STORAGE: &str = "etcd";

/// The enabled plugins by step, controllers and feature gates, each with its title.
pub(crate) type Parts = [(&'static str, Vec<&'static str>); 4];

/// Serves paths outside the resources.
#[derive(Debug)]
pub(crate) struct NonResource {
    pub(crate) registry: Arc<Registry>,
    pub(crate) storage: Storage,
    pub(crate) engine: Engine,
    pub(crate) requests: Arc<Requests>,
    /// The address the server listens on.
    pub(crate) address: String,
    pub(crate) parts: Parts,
}

impl NonResource {
    /// Serves one path, given as its segments.
    pub(crate) fn serve(
        &self,
        method: &Method,
        segments: &[String],
        headers: &HeaderMap,
        query: &Query,
    ) -> Response {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return failed(&method_not_allowed(), Wanted::PLAIN.encoding);
        }
        let snapshot = self.registry.snapshot();
        let pretty = query.flag("pretty").unwrap_or_default();
        let found = |value: Option<Value>| {
            value.map_or_else(page_not_found, |value| document(&value, pretty))
        };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            [] => document(&json!({"paths": self.paths()}), pretty),
            ["api"] => documents::aggregated(&snapshot, true, headers)
                .unwrap_or_else(|| document(&discovery::versions(&self.address), pretty)),
            ["apis"] => documents::aggregated(&snapshot, false, headers)
                .unwrap_or_else(|| document(&discovery::group_list(&snapshot), pretty)),
            ["api", version] => found(discovery::resource_list(&snapshot, "", version)),
            ["apis", group] => found(discovery::group(&snapshot, group)),
            ["apis", group, version] => found(discovery::resource_list(&snapshot, group, version)),
            ["openapi", "v2"] => documents::openapi_v2(&snapshot, headers),
            ["openapi", "v3"] => documents::openapi_index(&snapshot, headers),
            ["openapi", "v3", path @ ..] => {
                documents::openapi_document(&snapshot, &path.join("/"), headers, query)
            }
            ["configz"] => document(&self.configz(), pretty),
            ["version"] => document(&version::document(), true),
            ["healthz" | "livez" | "readyz"] => self.health(segments[0], query),
            ["healthz" | "livez" | "readyz", check] if CHECKS.contains(check) => {
                match self.storage.store().failure() {
                    Some(failure) if *check == STORAGE => {
                        plain_text(500, format!("internal server error: {failure}\n"))
                    }
                    _ => plain_text(200, "ok"),
                }
            }
            ["metrics"] => with_type(
                200,
                self.metrics(),
                "text/plain; version=0.0.4; charset=utf-8",
            ),
            _ => page_not_found(),
        }
    }

    /// The enabled parts, for programs.
    fn configz(&self) -> Value {
        let [mutating, validating, controllers, gates] = &self.parts;
        json!({"lockgate": {
            "mutatingPlugins": mutating.1,
            "validatingPlugins": validating.1,
            "controllers": controllers.1,
            "featureGates": gates.1,
        }})
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
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(String::from)
        .to_vec();
        for resource in snapshot
            .resources()
            .iter()
            .filter(|resource| !resource.group().is_empty())
        {
            let group = format!("/apis/{}", resource.group());
            paths.push(format!("{group}/{}", resource.version));
            paths.push(group);
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// UPSTREAM: apiserver pkg/server/healthz/healthz.go
    fn health(&self, name: &str, query: &Query) -> Response {
        let failed = self.storage.store().failure().is_some();
        if !failed && query.first("verbose").is_none() {
            return plain_text(200, "ok");
        }
        let mut text: String = CHECKS
            .iter()
            .map(|&check| {
                if failed && check == STORAGE {
                    // Anybody may ask; the check itself says why to those who may know.
                    format!("[-]{check} failed: reason withheld\n")
                } else {
                    format!("[+]{check} ok\n")
                }
            })
            .collect();
        let (code, verdict) = if failed {
            (500, "failed")
        } else {
            (200, "passed")
        };
        text.push_str(&format!("{name} check {verdict}\n"));
        plain_text(code, text)
    }

    fn metrics(&self) -> String {
        let mut text = self.engine.metrics().render(std::time::Instant::now());
        text.push_str(&self.requests.render());
        text
    }
}
