//! OpenAPI v3 documents: the operations and schemas of a group version.
//!
//! Clients use operations to discover field validation and dry run (`kubectl apply`), and schemas for field names and
//! types (`kubectl explain`) and for merge keys of lists (patches). Paths are generated from the resources, schemas
//! from the type tables or from the definition. The caller supplies the descriptions of built-in types.
//!
//! UPSTREAM: kube-openapi pkg/builder3, apiextensions-apiserver pkg/controller/openapi/builder.

mod descriptions;
mod operations;
mod schemas;
#[cfg(test)]
mod tests;
pub mod v2;

use serde_json::{Map, Value, json};

pub use descriptions::Descriptions;

use crate::typed::Type;

/// A resource of a document.
#[derive(Debug, Clone)]
pub struct Served<'s> {
    /// The API group; empty for the core group.
    pub group: &'s str,
    /// The version.
    pub version: &'s str,
    /// The plural name, as in paths.
    pub plural: &'s str,
    /// The kind of one object.
    pub kind: &'s str,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// The verbs.
    pub verbs: Vec<&'s str>,
    /// The subresources.
    pub parts: Vec<Part<'s>>,
    /// The schema of objects.
    pub schema: Source<'s>,
}

/// A subresource.
#[derive(Debug, Clone)]
pub struct Part<'s> {
    /// The last segment of its path.
    pub name: &'s str,
    /// The group, version and kind of its body.
    pub kind: [&'s str; 3],
    /// The verbs.
    pub verbs: Vec<&'s str>,
}

/// The source of a schema.
#[derive(Debug, Clone, Copy)]
pub enum Source<'s> {
    /// A built-in type.
    Type(Type),
    /// The schema of a definition.
    Custom(&'s Value),
}

/// The document of one group version.
#[must_use]
pub fn document(resources: &[Served<'_>], descriptions: &Descriptions) -> Value {
    let mut schemas = schemas::Schemas::new(descriptions);
    let mut paths = Map::new();
    for resource in resources {
        let name = schemas.add_kind(resource);
        operations::add(resource, &name, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": paths,
        "components": {"schemas": schemas.finish()},
    })
}

/// The schema of a kind with all references resolved; recursive references are replaced by an untyped object. `None`
/// if it has more than `depth` levels.
///
/// UPSTREAM: apiserver pkg/cel/openapi/resolver/refs.go
#[must_use]
pub fn resolved_schema(resource: &Served<'_>, depth: usize) -> Option<Value> {
    let undescribed = Descriptions::default();
    let mut schemas = schemas::Schemas::new(&undescribed);
    let name = schemas.add_kind(resource);
    let schemas = schemas.finish();
    let mut within = vec![name.as_str()];
    resolve(schemas.get(&name)?, &schemas, &mut within, depth)
}

fn resolve<'s>(
    schema: &'s Value,
    schemas: &'s Map<String, Value>,
    within: &mut Vec<&'s str>,
    depth: usize,
) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    if let Some(name) = referred(schema) {
        if within.contains(&name) {
            return Some(json!({"type": "object"}));
        }
        within.push(name);
        let resolved = resolve(schemas.get(name)?, schemas, within, depth);
        within.pop();
        return resolved;
    }
    let mut resolved = Map::new();
    for (keyword, value) in schema.as_object()? {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(members)) => {
                let mut properties = Map::new();
                for (name, member) in members {
                    let member = resolve(member, schemas, within, depth)?;
                    properties.insert(name.clone(), member);
                }
                properties.into()
            }
            ("items" | "additionalProperties", Value::Object(_)) => {
                resolve(value, schemas, within, depth)?
            }
            // These keywords are not used, and may be deeply nested.
            ("allOf" | "anyOf" | "oneOf" | "not" | "default" | "example", _) => continue,
            (_, value) => value.clone(),
        };
        resolved.insert(keyword.clone(), value);
    }
    Some(resolved.into())
}

/// The target of a reference, which may be wrapped in `allOf` to add keywords.
fn referred(schema: &Value) -> Option<&str> {
    let parts = schema.get("allOf").and_then(Value::as_array);
    let mut holders = std::iter::once(schema).chain(parts.into_iter().flatten());
    let name = holders.find_map(|holder| holder.get("$ref")?.as_str())?;
    name.strip_prefix("#/components/schemas/")
}

/// A `x-kubernetes-group-version-kind` extension.
fn group_version_kind([group, version, kind]: [&str; 3]) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// A reference to a schema of the document.
fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}
