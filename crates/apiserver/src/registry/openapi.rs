//! OpenAPI v3: an index that kubectl requests with every command, and documents that it requests when their hash
//! changes.
//!
//! The hash of a document is computed from its sources, so the index costs nothing; a document is generated on
//! request, once per snapshot of the registry.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use lockgate_go::json;
use lockgate_kinds::openapi::{self, Descriptions, Part, Served, Source, v2};
use lockgate_kinds::typed::type_of;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use super::document::{Document, hex};
use super::{Resource, Shape, Snapshot};
use crate::version::GIT_VERSION;

/// The source of the descriptions of built-in types: lines that are unpacked when a document is generated, and then
/// freed.
pub(crate) type DescriptionText = fn() -> String;

fn described(text: Option<DescriptionText>) -> Descriptions {
    text.map_or_else(Descriptions::default, |text| Descriptions::parse(text()))
}

/// The documents by path, such as `apis/apps/v1`.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    descriptions: Option<DescriptionText>,
    documents: BTreeMap<String, Entry>,
    index: OnceLock<Document>,
    v2: OnceLock<Document>,
    v2_protobuf: OnceLock<Bytes>,
}

#[derive(Debug)]
struct Entry {
    resources: Vec<Arc<Resource>>,
    hash: OnceLock<String>,
    text: OnceLock<Bytes>,
}

impl Cache {
    pub(crate) fn new(resources: &[Arc<Resource>], descriptions: Option<DescriptionText>) -> Self {
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
            descriptions,
            documents,
            index: OnceLock::new(),
            v2: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
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

    fn text(&self, descriptions: Option<DescriptionText>) -> &Bytes {
        self.text.get_or_init(|| {
            let served: Vec<Served<'_>> = self.resources.iter().filter_map(served).collect();
            json::to_string(&openapi::document(&served, &described(descriptions))).into()
        })
    }
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

impl Snapshot {
    /// The schema of a resource's objects without references; `None` if it is nested too deeply.
    pub(crate) fn resolved_schema(resource: &Arc<Resource>, depth: usize) -> Option<Value> {
        openapi::resolved_schema(&served(resource)?, depth)
    }

    /// The index of OpenAPI v3 documents.
    pub(crate) fn openapi_index(&self) -> &Document {
        self.openapi.index.get_or_init(|| {
            let documents = self.openapi.documents.iter();
            let paths: Map<String, Value> = documents
                .map(|(path, entry)| {
                    let url = document_url(path, entry.hash());
                    (path.clone(), json!({"serverRelativeURL": url}))
                })
                .collect();
            Document::new(json::to_string(&json!({"paths": paths})))
        })
    }

    /// The hash of the document of a group version; `None` if it is not served.
    pub(crate) fn openapi_hash(&self, path: &str) -> Option<&str> {
        self.openapi.documents.get(path).map(Entry::hash)
    }

    /// The document of a group version.
    pub(crate) fn openapi_document(&self, path: &str) -> Option<Document> {
        let entry = self.openapi.documents.get(path)?;
        Some(Document {
            text: entry.text(self.openapi.descriptions).clone(),
            hash: entry.hash().to_owned(),
        })
    }

    /// The OpenAPI v2 document.
    pub(crate) fn openapi_v2(&self) -> &Document {
        self.openapi
            .v2
            .get_or_init(|| Document::new(json::to_string(&self.openapi_v2_tree())))
    }

    /// The same in protobuf.
    pub(crate) fn openapi_v2_protobuf(&self) -> &Bytes {
        self.openapi
            .v2_protobuf
            .get_or_init(|| v2::to_protobuf(&self.openapi_v2_tree()).into())
    }

    /// The same as a tree.
    pub(crate) fn openapi_v2_tree(&self) -> Value {
        let descriptions = described(self.openapi.descriptions);
        v2::document(self.resources.iter().filter_map(served), &descriptions)
    }
}

/// The URL of a document with its hash, whose content never changes.
pub(crate) fn document_url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}
