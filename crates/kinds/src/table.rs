//! `meta.k8s.io` tables, which `kubectl get` prints.
//!
//! A client that accepts a `Table` gets columns and cells instead of objects. Built-in kinds define their columns and
//! cells ([`Kind`](crate::kind::Kind)). Custom resources have printer columns with JSONPaths in their definition.
//!
//! Cells are human-readable (two minutes ago is `2m`), so a table is a snapshot: the current time is an argument.
//!
//! UPSTREAM: kubernetes pkg/printers/internalversion/printers.go, apiserver
//! pkg/endpoints/handlers/response.go, apiextensions-apiserver
//! pkg/registry/customresource/tableconvertor.

mod columns;
mod custom;
mod json_path;
#[cfg(test)]
mod tests;

use lockgate_api::meta::time::Time;
use lockgate_go::json;
use serde_json::{Value, json};

use crate::cells::{Common, Row, cell, read};
use crate::crd::Column;
use crate::resource::Resource;
use crate::upstream_error::UpstreamError;
use crate::{conversion, tree};

pub use crate::cells::{human_duration, since};

/// The kind of objects in a table.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'k> {
    /// A built-in kind.
    BuiltIn(&'static Resource),
    /// A custom resource.
    Custom {
        /// The printer columns of its definition.
        columns: &'k [Column],
        /// `group/version`.
        api_version: &'k str,
        /// The kind of an object.
        kind: &'k str,
    },
    /// The scale of an object of a built-in kind.
    Scale,
}

/// The part of the object that a row includes (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Its metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

impl Include {
    /// Parses `includeObject`.
    ///
    /// # Errors
    ///
    /// Upstream's message about an invalid value.
    pub fn parse(text: &str) -> Result<Self, UpstreamError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be \
                 'Metadata', 'Object', 'None', or empty",
                Value::from(other)
            ).into()),
        }
    }
}

/// Whether a table has column definitions. Of a watch's events, only the first one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// They are included.
    Shown,
    /// They are omitted.
    Omitted,
}

/// Options of a table.
#[derive(Debug, Clone, Copy)]
pub struct Options<'o> {
    /// The part of their object that rows include.
    pub include: Include,
    /// Whether column definitions are included.
    pub headers: Headers,
    /// The version of the table, in `meta.k8s.io`.
    pub version: &'o str,
    /// The current time.
    pub now: Time,
}

/// Creates a table of objects. `metadata` is that of the list, or has the resourceVersion of the single object.
#[must_use]
pub fn render<'v>(
    kind: Kind<'_>,
    metadata: Value,
    objects: impl IntoIterator<Item = &'v Value>,
    options: Options<'_>,
) -> Value {
    let paths = match kind {
        Kind::BuiltIn(_) | Kind::Scale => Vec::new(),
        Kind::Custom { columns, .. } => custom::paths(columns),
    };
    let columns = column_definitions(kind, options.headers);
    let mut objects: Vec<&Value> = objects.into_iter().collect();
    if let Kind::BuiltIn(resource) = kind {
        objects.sort_by_cached_key(|object| resource.rules.sort_key(object));
    }
    let rows = objects.into_iter().map(|object| {
        let mut row = match kind {
            Kind::BuiltIn(resource) => row(resource, object, options.now),
            Kind::Custom { columns, .. } => {
                Row::of(custom::cells(columns, &paths, object, options.now))
            }
            Kind::Scale => scale_row(object, options.now),
        }
        .into_json();
        row["object"] = shown(kind, object, options);
        row
    });
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{}", options.version),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// The beginning of a table, up to its rows, for tables that are streamed.
#[must_use]
pub fn head(kind: Kind<'_>, metadata: &Value, options: Options<'_>) -> String {
    let columns = column_definitions(kind, options.headers);
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{}\",\"metadata\":{},\"columnDefinitions\":{},\"rows\":[",
        options.version,
        json::value_to_string(metadata),
        json::value_to_string(&columns),
    )
}

fn column_definitions(kind: Kind<'_>, headers: Headers) -> Value {
    match (headers, kind) {
        (Headers::Omitted, _) => Value::Null,
        (Headers::Shown, Kind::BuiltIn(resource)) => columns::built_in(resource),
        (Headers::Shown, Kind::Custom { columns, .. }) => {
            custom::headers(columns, custom::paths(columns).len())
        }
        (Headers::Shown, Kind::Scale) => columns::scale(),
    }
}

/// The row of an object as JSON without its end: the caller appends the field `object` and a brace.
#[must_use]
pub fn cells(resource: &Resource, object: &Value, now: Time) -> String {
    row(resource, object, now).into_open_text()
}

fn shown(kind: Kind<'_>, object: &Value, options: Options<'_>) -> Value {
    match options.include {
        Include::None => Value::Null,
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{}", options.version),
            "metadata": object.get("metadata"),
        }),
        Include::Object => {
            let mut object = tree::copy(object);
            // Items of lists have no `apiVersion` and `kind`.
            if let Some(members) = object.as_object_mut() {
                let (api_version, kind) = match kind {
                    Kind::BuiltIn(resource) => (resource.api_version(), resource.kind),
                    Kind::Custom {
                        api_version, kind, ..
                    } => (api_version.to_owned(), kind),
                    Kind::Scale => (String::from("autoscaling/v1"), "Scale"),
                };
                members.insert(String::from("apiVersion"), api_version.into());
                members.insert(String::from("kind"), kind.into());
            }
            object
        }
    }
}

/// The row of an object.
fn row(resource: &Resource, object: &Value, now: Time) -> Row {
    let (group, version, _) = resource.storage;
    if (group, version) != (resource.group, resource.version)
        && let Some(stored) = in_storage_version(resource, object)
    {
        return resource.rules.row(&stored, &Common::of(&stored, now));
    }
    resource.rules.row(object, &Common::of(object, now))
}

/// Cells are printed from the storage version, which represents the whole object.
fn in_storage_version(resource: &Resource, object: &Value) -> Option<Value> {
    let mut object = object.clone();
    let typed = object.as_object_mut()?;
    typed.insert(String::from("apiVersion"), resource.api_version().into());
    typed.insert(String::from("kind"), resource.kind.into());
    conversion::convert(&object, resource.storage.0, resource.storage.1).ok()
}

fn scale_row(object: &Value, now: Time) -> Row {
    Row::of(vec![
        cell(read::text(object, "/metadata/name")),
        cell(read::integer(object, "/spec/replicas")),
        cell(read::integer(object, "/status/replicas")),
        cell(since(
            read::text(object, "/metadata/creationTimestamp"),
            now,
        )),
    ])
}
