//! Objects as tables, for people: what `kubectl get` prints.
//!
//! A client that asks for a `Table` gets columns and cells instead of objects. Built-in kinds say their
//! columns and cells themselves ([`Kind`](crate::kind::Kind)). Custom resources name their columns in
//! their definition, with paths into the object.
//!
//! Cells are texts as people read them (`2 minutes ago` is `2m`), so a table is a snapshot: the clock is
//! an argument.
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

/// Whose columns a table has.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'k> {
    /// A built-in kind.
    BuiltIn(&'static Resource),
    /// A custom resource.
    Custom {
        /// The columns its definition names.
        columns: &'k [Column],
        /// `group/version`.
        api_version: &'k str,
        /// The kind of an object.
        kind: &'k str,
    },
    /// The scale of an object of a built-in kind.
    Scale,
}

/// The part of its object that a row carries besides the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

impl Include {
    /// Reads `includeObject`.
    ///
    /// # Errors
    ///
    /// Upstream's text about another value.
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

/// The column definitions of a table. Of the events of a watch, only the first has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// It does.
    Shown,
    /// It does not.
    Omitted,
}

/// Options of a table.
#[derive(Debug, Clone, Copy)]
pub struct Options<'o> {
    /// The part of their objects that rows carry.
    pub include: Include,
    /// Column definitions are included.
    pub headers: Headers,
    /// The version of `meta.k8s.io` the table is in.
    pub version: &'o str,
    /// The current time.
    pub now: Time,
}

/// Makes a table of objects. `metadata` is that of the list, or tells the version of the one object.
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

/// The beginning of a table, up to its rows, for tables that are written row by row.
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

/// The row of an object as JSON without its end: the member `object` and a bracket are to follow.
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
            // Items of lists do not say their type.
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

/// Cells are told from the version that knows everything about the object.
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
