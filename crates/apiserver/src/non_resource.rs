//! Paths outside the resources: discovery, version, health, metrics.

mod documents;

use std::sync::Arc;

use http::{HeaderMap, Method};
use serde_json::json;

use crate::http::body::Response;
use crate::http::query::Query;
use crate::registry::discovery;
use crate::respond::{document, failed, page_not_found, plain_text, with_type};
use crate::server::Server;
use crate::version;

/// Checks that can be asked for one by one.
const CHECKS: [&str; 3] = ["ping", "log", STORAGE];
/// The check of the storage, by the name that probes know.
const STORAGE: &str = "etcd";

/// Serves a path outside the resources.
pub(crate) fn serve(
    server: &Arc<Server>,
    method: &Method,
    segments: &[String],
    headers: &HeaderMap,
    query: &Query,
) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return failed(
            &crate::error::method_not_allowed(),
            crate::http::negotiate::Wanted::PLAIN.encoding,
        );
    }
    let snapshot = server.registry.snapshot();
    let pretty = query.flag("pretty").unwrap_or_default();
    let found = |value: Option<serde_json::Value>| {
        value.map_or_else(page_not_found, |value| document(&value, pretty))
    };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        [] => document(&json!({"paths": paths(server)}), pretty),
        ["api"] => documents::aggregated(&snapshot, true, headers)
            .unwrap_or_else(|| document(&discovery::versions(&server.address()), pretty)),
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
        ["configz"] => document(&configz(server), pretty),
        ["version"] => document(&version::document(), true),
        ["healthz" | "livez" | "readyz"] => health(server, segments[0], query),
        ["healthz" | "livez" | "readyz", check] if CHECKS.contains(check) => {
            match server.store.failure() {
                Some(failure) if *check == STORAGE => {
                    plain_text(500, format!("internal server error: {failure}\n"))
                }
                _ => plain_text(200, "ok"),
            }
        }
        ["metrics"] => with_type(
            200,
            metrics(server),
            "text/plain; version=0.0.4; charset=utf-8",
        ),
        _ => page_not_found(),
    }
}

/// What is on, for programs.
fn configz(server: &Server) -> serde_json::Value {
    let [mutating, validating, controllers, gates] = server.parts().map(|(_, names)| names);
    json!({"lockgate": {
        "mutatingPlugins": mutating,
        "validatingPlugins": validating,
        "controllers": controllers,
        "featureGates": gates,
    }})
}

fn paths(server: &Server) -> Vec<String> {
    let snapshot = server.registry.snapshot();
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
fn health(server: &Server, name: &str, query: &Query) -> Response {
    let failed = server.store.failure().is_some();
    if !failed && query.first("verbose").is_none() {
        return plain_text(200, "ok");
    }
    let mut text: String = CHECKS
        .iter()
        .map(|&check| {
            if failed && check == STORAGE {
                // Anybody may ask; who may know why is told by the check itself.
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

fn metrics(server: &Server) -> String {
    let mut text = server.engine.metrics().render(std::time::Instant::now());
    text.push_str(&server.requests.render());
    text
}
