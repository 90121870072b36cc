//! Discovery and OpenAPI documents as responses, with ETags for client caches.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, StatusCode};
use lockgate_go::json;
use lockgate_kinds::openapi::v2;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::aggregation::{self, Documents, Remote};
use crate::heavy;
use crate::http::body::{Body, Response};
use crate::http::query::Query;
use crate::registry::Snapshot;
use crate::registry::document::Document;
use crate::registry::openapi::document_url;
use crate::respond::{page_not_found, plain_text, with_type};

/// The media type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The clauses of all `Accept` headers.
fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let texts = headers.get_all(ACCEPT).into_iter();
    texts
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
}

/// Returns true if the client's cached document is current.
fn is_known(document: &Document, headers: &HeaderMap) -> bool {
    let etag = etag(document);
    let known = headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    known.is_some_and(|known| known.split(',').any(|tag| tag.trim() == etag))
}

fn etag(document: &Document) -> String {
    format!("\"{}\"", document.hash)
}

/// `/api` or `/apis` in the aggregated format, if requested.
pub(super) fn aggregated(snapshot: &Snapshot, core: bool, headers: &HeaderMap) -> Option<Response> {
    if !wants_aggregated(headers) {
        return None;
    }
    Some(cached(snapshot.aggregated_discovery(core), headers))
}

/// A document in the aggregated format.
pub(super) fn aggregated_document(tree: &Value, headers: &HeaderMap) -> Response {
    cached(&Document::new(json::to_string(tree)), headers)
}

/// Returns true if the client requests the aggregated format.
pub(super) fn wants_aggregated(headers: &HeaderMap) -> bool {
    // Only v2: clients limited to v2beta1 are better served by the unaggregated format.
    accepted(headers).any(|clause| {
        let has = |part: &str| clause.split(';').any(|found| found.trim() == part);
        has("application/json")
            && has("g=apidiscovery.k8s.io")
            && has("v=v2")
            && has("as=APIGroupDiscoveryList")
    })
}

fn cached(document: &Document, headers: &HeaderMap) -> Response {
    let builder = http::Response::builder()
        .header(VARY, "Accept")
        .header(ETAG, etag(document));
    let response = if is_known(document, headers) {
        builder
            .status(StatusCode::NOT_MODIFIED)
            .body(Body::whole(Bytes::new()))
    } else {
        builder
            .header(CONTENT_TYPE, AGGREGATED)
            .body(Body::whole(document.text.clone()))
    };
    response.unwrap_or_else(|_| page_not_found())
}

/// The index of OpenAPI v3.
pub(super) fn openapi_index(snapshot: &Snapshot, headers: &HeaderMap) -> Response {
    openapi(snapshot.openapi_index(), headers, "no-cache, private")
}

/// The OpenAPI v3 document of a group version. With the current hash it may be cached forever; another hash is
/// redirected to the current one.
pub(super) fn openapi_document(
    snapshot: &Snapshot,
    path: &str,
    headers: &HeaderMap,
    query: &Query,
) -> Response {
    let Some(hash) = snapshot.openapi_hash(path) else {
        return page_not_found();
    };
    let wanted = query.text("hash");
    if !wanted.is_empty() && wanted != hash {
        return http::Response::builder()
            .status(StatusCode::MOVED_PERMANENTLY)
            .header(LOCATION, document_url(path, hash))
            .body(Body::whole(Bytes::new()))
            .unwrap_or_else(|_| page_not_found());
    }
    let caching = if wanted.is_empty() {
        "no-cache, private"
    } else {
        "public, immutable, max-age=31536000"
    };
    match snapshot.openapi_document(path) {
        Some(document) => openapi(&document, headers, caching),
        None => page_not_found(),
    }
}

/// The OpenAPI v2 document, in the first media type that the client accepts.
///
/// UPSTREAM: kube-openapi pkg/handler/handler.go
pub(super) fn openapi_v2(snapshot: &Snapshot, headers: &HeaderMap) -> Response {
    match v2_form(headers) {
        Some(Form::Json) => openapi(snapshot.openapi_v2(), headers, "no-cache, private"),
        Some(Form::Protobuf) => {
            let document = snapshot.openapi_v2_protobuf().clone();
            with_type(200, document, v2::ANSWERED_TYPE)
        }
        None => plain_text(406, ""),
    }
}

/// Generates the large documents one at a time: generation is slow, and all users may request them.
#[derive(Debug, Default)]
pub(crate) struct Maker(Mutex<Option<Merged>>);

/// The merged OpenAPI v2 document, with its sources.
#[derive(Debug)]
struct Merged {
    own: Arc<Snapshot>,
    others: Vec<Arc<Documents>>,
    json: Document,
    protobuf: OnceLock<Bytes>,
}

impl Merged {
    fn is_of(&self, own: &Arc<Snapshot>, others: &[Arc<Documents>]) -> bool {
        let same = |(ours, theirs): (&Arc<Documents>, &Arc<Documents>)| Arc::ptr_eq(ours, theirs);
        Arc::ptr_eq(&self.own, own)
            && self.others.len() == others.len()
            && self.others.iter().zip(others).all(same)
    }

    fn tree(own: &Snapshot, others: &[Arc<Documents>]) -> Value {
        aggregation::openapi_v2(own.openapi_v2_tree(), others)
    }
}

impl Maker {
    /// Creates a response from a document that is cached after its generation.
    pub(super) async fn make(&self, answer: impl FnOnce() -> Response) -> Response {
        let _turn = self.0.lock().await;
        heavy::run(usize::MAX, answer)
    }

    /// The OpenAPI v2 document of this server and aggregated servers.
    pub(super) async fn openapi_v2(
        &self,
        own: &Arc<Snapshot>,
        remotes: &[Arc<Remote>],
        headers: &HeaderMap,
    ) -> Response {
        let Some(form) = v2_form(headers) else {
            return plain_text(406, "");
        };
        let others: Vec<_> = remotes.iter().map(|remote| remote.documents()).collect();
        let mut kept = self.0.lock().await;
        heavy::run(usize::MAX, || {
            let merged = match kept.take().filter(|merged| merged.is_of(own, &others)) {
                Some(merged) => merged,
                None => Merged {
                    json: Document::new(json::to_string(&Merged::tree(own, &others))),
                    own: Arc::clone(own),
                    others,
                    protobuf: OnceLock::new(),
                },
            };
            let merged = kept.insert(merged);
            match form {
                Form::Json => openapi(&merged.json, headers, "no-cache, private"),
                Form::Protobuf => {
                    let make =
                        || v2::to_protobuf(&Merged::tree(&merged.own, &merged.others)).into();
                    let document = merged.protobuf.get_or_init(make).clone();
                    with_type(200, document, v2::ANSWERED_TYPE)
                }
            }
        })
    }
}

/// An OpenAPI document generated for this request.
pub(super) fn openapi_tree(tree: &Value, headers: &HeaderMap) -> Response {
    let document = Document::new(json::to_string(tree));
    openapi(&document, headers, "no-cache, private")
}

enum Form {
    Json,
    Protobuf,
}

fn v2_form(headers: &HeaderMap) -> Option<Form> {
    let mut forms = accepted(headers)
        .filter_map(|clause| clause.split(';').next())
        .map(str::trim)
        .peekable();
    if forms.peek().is_none() {
        return Some(Form::Json);
    }
    forms.find_map(|form| match form {
        "application/json" | "application/*" | "*/*" => Some(Form::Json),
        v2::MEDIA_TYPE | v2::ANSWERED_TYPE => Some(Form::Protobuf),
        _ => None,
    })
}

fn openapi(document: &Document, headers: &HeaderMap, caching: &str) -> Response {
    let builder = http::Response::builder()
        .header(VARY, "Accept")
        .header(ETAG, etag(document))
        .header(CACHE_CONTROL, caching)
        .header(CONTENT_TYPE, "application/json");
    let response = if is_known(document, headers) {
        builder
            .status(StatusCode::NOT_MODIFIED)
            .body(Body::whole(Bytes::new()))
    } else {
        builder.body(Body::whole(document.text.clone()))
    };
    response.unwrap_or_else(|_| page_not_found())
}
