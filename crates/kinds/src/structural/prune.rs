//! Removing undeclared fields.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/pruning/algorithm.go

use serde_json::Value as Json;

use super::path::Path;
use super::schema::{Additional, Node, Schema};

/// The maximum number of reported fields; all are removed.
const MAX_FINDINGS: usize = 10_000;

impl Schema {
    /// Removes undeclared fields from a custom resource, and returns their paths in order, such as
    /// `spec.ports[0].nmae`.
    ///
    /// `apiVersion`, `kind` and `metadata` are unchanged.
    pub fn prune(&self, object: &mut Json) -> Vec<String> {
        let mut findings = Findings::default();
        Pruner(&mut findings).prune_as(object, &self.root, true, &Path::ROOT);
        findings.sorted()
    }
}

impl Node {
    /// Removes undeclared fields from a value of this schema.
    pub(crate) fn prune(&self, value: &mut Json, is_resource_root: bool) {
        let mut findings = Findings {
            ignore: true,
            ..Findings::default()
        };
        let embedded = is_resource_root || self.embedded;
        Pruner(&mut findings).prune_as(value, self, embedded, &Path::ROOT);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    names: Vec<String>,
    ignore: bool,
}

impl Findings {
    fn record(&mut self, path: &Path<'_>, name: &str) {
        if !self.ignore && self.names.len() < MAX_FINDINGS {
            self.names.push(path.child(name).as_names());
        }
    }

    fn sorted(mut self) -> Vec<String> {
        self.names.sort_unstable();
        self.names
    }
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Pruner<'f>(&'f mut Findings);

impl Pruner<'_> {
    fn prune(&mut self, value: &mut Json, schema: Option<&Node>, path: &Path<'_>) {
        match schema {
            Some(schema) => self.prune_as(value, schema, schema.embedded, path),
            None => self.empty(value, path),
        }
    }

    fn prune_as(&mut self, value: &mut Json, schema: &Node, embedded: bool, path: &Path<'_>) {
        match value {
            Json::Object(entries) => entries.retain(|name, value| {
                if embedded && is_meta(name) {
                    return true;
                }
                if let Some(property) = schema.properties.get(name.as_str()) {
                    self.prune(value, Some(property), &path.child(name));
                } else if !matches!(schema.additional, Additional::Unsaid) {
                    self.prune(value, schema.entries(), &path.child(name));
                } else if !schema.preserve_unknown {
                    if !is_meta(name) || !path.is_root() {
                        self.0.record(path, name);
                    }
                    return false;
                }
                true
            }),
            Json::Array(elements) => {
                for (at, element) in elements.iter_mut().enumerate() {
                    let path = path.index(at);
                    match schema.items.as_deref() {
                        // Within a list that preserves unknown fields, only nested schemas prune again.
                        Some(items) if schema.preserve_unknown => {
                            self.prune_kept(element, items, &path);
                        }
                        None if schema.preserve_unknown => {}
                        items => self.prune(element, items, &path),
                    }
                }
            }
            _ => {}
        }
    }

    /// Prunes the items of a list that preserves unknown fields.
    fn prune_kept(&mut self, value: &mut Json, schema: &Node, path: &Path<'_>) {
        match value {
            Json::Object(entries) => {
                for (name, value) in entries {
                    if schema.embedded && is_meta(name) {
                        continue;
                    }
                    if let Some(property) = schema.properties.get(name.as_str()) {
                        self.prune(value, Some(property), &path.child(name));
                    } else if !matches!(schema.additional, Additional::Unsaid) {
                        self.prune(value, schema.entries(), &path.child(name));
                    }
                }
            }
            Json::Array(elements) => {
                if let Some(items) = schema.items.as_deref() {
                    for (at, element) in elements.iter_mut().enumerate() {
                        self.prune_kept(element, items, &path.index(at));
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes all fields of all objects in a value without a schema.
    ///
    /// Nested lists are as deep as the document, so this uses an explicit stack.
    fn empty(&mut self, value: &mut Json, path: &Path<'_>) {
        let mut open: Vec<(usize, std::slice::IterMut<'_, Json>)> = Vec::new();
        let mut next = Some(value);
        loop {
            match next {
                Some(Json::Object(entries)) => {
                    if !self.0.ignore && !entries.is_empty() {
                        let mut place = path.as_names();
                        place.extend(open.iter().map(|(at, _)| format!("[{at}]")));
                        let place = Path::printed(&place);
                        for name in entries.keys() {
                            self.0.record(&place, name);
                        }
                    }
                    entries.clear();
                }
                Some(Json::Array(elements)) => {
                    // Incremented to zero by the first element.
                    open.push((usize::MAX, elements.iter_mut()));
                }
                _ => {}
            }
            next = loop {
                let Some((at, elements)) = open.last_mut() else {
                    return;
                };
                match elements.next() {
                    Some(element) => {
                        *at = at.wrapping_add(1);
                        break Some(element);
                    }
                    None => {
                        open.pop();
                    }
                }
            };
        }
    }
}
