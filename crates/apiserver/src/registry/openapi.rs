//! OpenAPI v3: an index that is asked for with every command, and documents that are asked for when
//! their hash is new.
//!
//! The hash of a document follows from what it is made of, so the index costs nothing; a document is made
//! when somebody asks for it, once per snapshot of the registry.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use lockgate_go::json;
use lockgate_kinds::openapi::{self, Part, Served, Source, v2};
use lockgate_kinds::typed::type_of;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use super::{Resource, Shape, Snapshot};
use crate::http::body::{Body, Response};
use crate::http::query::Query;
use crate::non_resource::GIT_VERSION;
use crate::respond::{page_not_found, with_type};

/// The documents by their paths, such as `apis/apps/v1`.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    documents: BTreeMap<String, Entry>,
    index: OnceLock<(Bytes, String)>,
    older: OnceLock<Bytes>,
}

#[derive(Debug)]
struct Entry {
    resources: Vec<Arc<Resource>>,
    hash: OnceLock<String>,
    text: OnceLock<Bytes>,
}

impl Cache {
    pub(crate) fn new(resources: &[Arc<Resource>]) -> Self {
        let mut documents: BTreeMap<String, Entry> = BTreeMap::new();
        for resource in resources {
            let path = match resource.group() {
                "" => format!("api/{}", resource.version),
                group => format!("apis/{group}/{}", resource.version),
            };
            let entry = documents.entry(path).or_insert_with(|| Entry {
                resources: Vec::new(),
                hash: OnceLock::new(),
                text: OnceLock::new(),
            });
            entry.resources.push(Arc::clone(resource));
        }
        Self {
            documents,
            index: OnceLock::new(),
            older: OnceLock::new(),
        }
    }
}

impl Entry {
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| {
            let mut digest = Sha512::new();
            digest.update(GIT_VERSION);
            for resource in &self.resources {
                digest.update(json::to_string(&json!([
                    resource.plural(),
                    resource.kind(),
                    resource.names.namespaced,
                ])));
                for part in &resource.subresources {
                    digest.update(&part.name);
                }
                if let Shape::Custom(custom) = &resource.shape {
                    digest.update(json::to_string(custom.declared_schema()));
                }
            }
            hex(&digest.finalize())
        })
    }

    fn text(&self) -> &Bytes {
        self.text.get_or_init(|| {
            let served: Vec<Served<'_>> = self.resources.iter().filter_map(served).collect();
            json::to_string(&openapi::document(&served)).into()
        })
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn served(resource: &Arc<Resource>) -> Option<Served<'_>> {
    Some(Served {
        group: resource.group(),
        version: &resource.version,
        plural: resource.plural(),
        kind: resource.kind(),
        namespaced: resource.names.namespaced,
        verbs: resource.names.verbs.iter().map(String::as_str).collect(),
        parts: resource
            .subresources
            .iter()
            .map(|part| Part {
                name: &part.name,
                kind: [&part.group, &part.version, &part.kind],
                verbs: part.verbs.iter().map(String::as_str).collect(),
            })
            .collect(),
        schema: match &resource.shape {
            Shape::Custom(custom) => Source::Custom(custom.declared_schema()),
            Shape::BuiltIn { ty, .. } | Shape::Plain(ty) => Source::Type(*ty),
            Shape::Registration { row, .. } => {
                Source::Type(type_of(row.group, row.version, row.kind)?)
            }
        },
    })
}

/// Where the documents are.
pub(crate) fn index(snapshot: &Snapshot, headers: &HeaderMap) -> Response {
    let cache = snapshot.openapi();
    let (text, etag) = cache.index.get_or_init(|| {
        let paths: Map<String, Value> = cache
            .documents
            .iter()
            .map(|(path, entry)| {
                let url = format!("/openapi/v3/{path}?hash={}", entry.hash());
                (path.clone(), json!({"serverRelativeURL": url}))
            })
            .collect();
        let text = json::to_string(&json!({"paths": paths}));
        let etag = hex(&Sha512::digest(text.as_bytes()));
        (text.into(), etag)
    });
    answer(text, etag, headers, "no-cache, private")
}

/// The document of one version of a group. Under a hash that is right it may be kept for good; who comes
/// with another is sent to the right one.
pub(crate) fn document(
    snapshot: &Snapshot,
    path: &str,
    headers: &HeaderMap,
    query: &Query,
) -> Response {
    let Some(entry) = snapshot.openapi().documents.get(path) else {
        return page_not_found();
    };
    match query.text("hash") {
        "" => answer(entry.text(), entry.hash(), headers, "no-cache, private"),
        hash if hash == entry.hash() => answer(
            entry.text(),
            entry.hash(),
            headers,
            "public, immutable, max-age=31536000",
        ),
        _ => {
            let url = format!("/openapi/v3/{path}?hash={}", entry.hash());
            http::Response::builder()
                .status(301)
                .header(LOCATION, url)
                .body(Body::whole(Bytes::new()))
                .unwrap_or_else(|_| page_not_found())
        }
    }
}

/// Everything in the older form, for clients that know no other. It is told in protobuf alone.
pub(crate) fn older(snapshot: &Snapshot, headers: &HeaderMap) -> Response {
    let wants = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let is_known = wants
        .flat_map(|text| text.split(','))
        .filter_map(|clause| clause.split(';').next())
        .any(|clause| [v2::MEDIA_TYPE, v2::ANSWERED_TYPE].contains(&clause.trim()));
    if !is_known {
        return page_not_found();
    }
    let text = snapshot.openapi().older.get_or_init(|| {
        let resources = snapshot.resources();
        v2::document(resources.iter().filter_map(served)).into()
    });
    with_type(200, text.clone(), v2::ANSWERED_TYPE)
}

/// A document, unless the client has it already.
fn answer(text: &Bytes, hash: &str, headers: &HeaderMap, caching: &str) -> Response {
    let etag = format!("\"{hash}\"");
    let known = headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|known| known.split(',').any(|tag| tag.trim() == etag));
    let builder = http::Response::builder()
        .header(VARY, "Accept")
        .header(ETAG, etag)
        .header(CACHE_CONTROL, caching)
        .header(CONTENT_TYPE, "application/json");
    let made = if known {
        builder.status(304).body(Body::whole(Bytes::new()))
    } else {
        builder.body(Body::whole(text.clone()))
    };
    made.unwrap_or_else(|_| page_not_found())
}
