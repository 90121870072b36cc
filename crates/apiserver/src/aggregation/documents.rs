//! The discovery and OpenAPI documents of an aggregated server, fetched and cached by the controller: no client waits
//! for them.
//!
//! UPSTREAM: kube-aggregator pkg/apiserver/handler_discovery.go, pkg/controllers/openapi,
//! pkg/controllers/openapiv3

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Map, Value, json};

use super::{Aggregator, Remote};

/// The timeout of a document.
///
/// UPSTREAM: kube-aggregator pkg/controllers/status/remote (five seconds)
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a document.
const MAX_BYTES: usize = 16 << 20;
/// The maximum nesting depth of documents.
const MAX_DEPTH: usize = 128;

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// The documents of one version of a group.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Its resources in the format of aggregated discovery; `None` before the first fetch.
    pub(crate) resources: Option<Vec<Value>>,
    /// True if the last fetch failed, so that the documents may be stale.
    pub(crate) is_stale: bool,
    /// The URL of its OpenAPI v3 document, relative to the server.
    pub(crate) openapi_v3: Option<String>,
    /// Its paths and definitions in OpenAPI v2.
    pub(crate) openapi_v2: Option<(Map<String, Value>, Map<String, Value>)>,
}

/// A failed document request. The texts are those of upstream's condition.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{0}")]
    Unusable(String),
    #[error("{0}")]
    Unresolved(String),
    #[error("failing or missing response from {url}: Get \"{url}\": {reason}")]
    Failed { url: String, reason: String },
    #[error("failing or missing response from {url}: bad status from {url}: {code}")]
    Status { url: String, code: u16 },
}

struct Fetched {
    headers: HeaderMap,
    body: Bytes,
}

impl Fetched {
    fn json(&self) -> Option<Value> {
        let is_shallow = depth(&self.body) <= MAX_DEPTH;
        is_shallow.then(|| serde_json::from_slice(&self.body).ok())?
    }
}

fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for &byte in text {
        match byte {
            _ if in_string && escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Fetches a server's discovery, which is also its availability check, and its optional documents. Previous documents
/// are kept if newer ones are unavailable.
pub(crate) async fn fetch(aggregator: &Aggregator, remote: &Remote) -> Result<(), FetchError> {
    let before = remote.documents();
    // This document is required.
    let listed = match get(
        aggregator,
        remote,
        &format!("/{}", remote.path()),
        "application/json",
    )
    .await
    {
        Ok(listed) => listed,
        Err(error) => {
            remote.set_documents(Documents {
                resources: before.resources.clone(),
                is_stale: true,
                openapi_v3: before.openapi_v3.clone(),
                openapi_v2: before.openapi_v2.clone(),
            });
            return Err(error);
        }
    };
    let mut resources = None;
    if let Ok(groups) = get(aggregator, remote, "/apis", AGGREGATED).await {
        let kind = groups.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.contains("as=APIGroupDiscoveryList") && kind.contains("v=v2") {
            resources = groups.json().and_then(|groups| of_version(&groups, remote));
        }
    }
    let resources = match resources {
        Some(resources) => Some(resources),
        None => listed.json().map(|list| from_list(&list, remote)),
    };
    let v3 = get(aggregator, remote, "/openapi/v3", "application/json").await;
    let openapi_v3 = v3.ok().and_then(|index| {
        let index = index.json()?;
        let url = &index["paths"][remote.path()]["serverRelativeURL"];
        Some(url.as_str()?.to_owned())
    });
    let v2 = get(aggregator, remote, "/openapi/v2", "application/json").await;
    let openapi_v2 = v2.ok().and_then(|document| {
        let mut document = document.json()?;
        let mut take = |member: &str| match document[member].take() {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        let (mut paths, definitions) = (take("paths"), take("definitions"));
        // Only the paths of its own group version are merged.
        let root = format!("/{}/", remote.path());
        paths.retain(|path, _| path.starts_with(&root));
        Some((paths, definitions))
    });
    remote.set_documents(Documents {
        resources,
        is_stale: false,
        openapi_v3,
        openapi_v2,
    });
    Ok(())
}

/// The resources of a version in an aggregated document.
fn of_version(groups: &Value, remote: &Remote) -> Option<Vec<Value>> {
    let items = groups["items"].as_array()?.iter();
    let group = items
        .filter(|group| group["metadata"]["name"] == *remote.group)
        .find_map(|group| group["versions"].as_array())?;
    let version = group
        .iter()
        .find(|version| version["version"] == *remote.version)?;
    Some(version["resources"].as_array().cloned().unwrap_or_default())
}

/// The same from the resource list of a server without aggregated discovery.
///
/// UPSTREAM: apiserver pkg/endpoints/installer.go (ConvertGroupVersionIntoToDiscovery)
fn from_list(list: &Value, remote: &Remote) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    let Some(listed) = list["resources"].as_array() else {
        return resources;
    };
    let kind_of = |resource: &Value| {
        let or = |member: &str, default: &str| match resource[member].as_str() {
            None | Some("") => default.to_owned(),
            Some(text) => text.to_owned(),
        };
        json!({
            "group": or("group", &remote.group),
            "version": or("version", &remote.version),
            "kind": resource["kind"],
        })
    };
    let (parts, whole): (Vec<_>, Vec<_>) = listed.iter().partition(|resource| {
        let name = resource["name"].as_str().unwrap_or_default();
        name.contains('/')
    });
    for resource in whole {
        let mut shown = json!({
            "resource": resource["name"],
            "responseKind": kind_of(resource),
            "scope": if resource["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": resource["singularName"],
            "verbs": resource["verbs"],
        });
        for member in ["shortNames", "categories"] {
            if resource[member].is_array() {
                shown[member] = resource[member].clone();
            }
        }
        resources.push(shown);
    }
    for part in parts {
        let name = part["name"].as_str().unwrap_or_default();
        let (of, name) = name.split_once('/').unwrap_or((name, ""));
        let Some(parent) = resources
            .iter_mut()
            .find(|parent| parent["resource"] == *of)
        else {
            continue;
        };
        let shown = json!({
            "subresource": name, "responseKind": kind_of(part), "verbs": part["verbs"],
        });
        match &mut parent["subresources"] {
            Value::Array(parts) => parts.push(shown),
            other => *other = json!([shown]),
        }
    }
    resources
}

/// Requests one document, as the aggregator itself.
async fn get(
    aggregator: &Aggregator,
    remote: &Remote,
    path: &str,
    accept: &'static str,
) -> Result<Fetched, FetchError> {
    let backend = match &remote.backend {
        Ok(backend) => backend,
        Err(error) => return Err(FetchError::Unusable(error.clone())),
    };
    let service = &remote.service;
    let resolver = &aggregator.resolver;
    let address = resolver
        .resolve(&service.namespace, &service.name, service.port)
        .map_err(|error| FetchError::Unresolved(error.to_string()))?;
    let url = format!("https://{address}{path}");
    let failed = |reason: String| FetchError::Failed {
        url: url.clone(),
        reason,
    };
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = path
        .parse()
        .map_err(|_| failed(String::from("invalid request path")))?;
    let headers: [(HeaderName, &'static str); 3] = [
        (ACCEPT, accept),
        (
            HeaderName::from_static("x-remote-user"),
            "system:kube-aggregator",
        ),
        (HeaderName::from_static("x-remote-group"), "system:masters"),
    ];
    for (name, value) in headers {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    let getting = async {
        let sent = backend.send(&address, request).await;
        let (response, lease) = sent.map_err(|error| failed(error.to_string()))?;
        let code = response.status().as_u16();
        if !response.status().is_success() {
            let url = url.clone();
            return Err(FetchError::Status { url, code });
        }
        let (head, mut incoming) = response.into_parts();
        let mut body = BytesMut::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| failed(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                if body.len() + data.len() > MAX_BYTES {
                    return Err(failed(format!(
                        "the document is larger than {MAX_BYTES} bytes"
                    )));
                }
                body.extend_from_slice(&data);
            }
        }
        lease.release();
        Ok(Fetched {
            headers: head.headers,
            body: body.freeze(),
        })
    };
    match tokio::time::timeout(FETCH_TIMEOUT, getting).await {
        Ok(fetched) => fetched,
        Err(_) => Err(failed(String::from(
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        ))),
    }
}
