//! Printer columns of a definition, and their cells.
//!
//! UPSTREAM: apiextensions-apiserver pkg/registry/customresource/tableconvertor/tableconvertor.go

use lockgate_api::meta::time::Time;
use lockgate_go::json as go_json;
use serde_json::{Value, json};

use crate::crd::Column;

use super::json_path::JsonPath;
use crate::cells::read::text;
use crate::cells::since;

/// The default printer column of definitions without columns.
const AGE: (&str, &str, &str) = ("Age", "date", ".metadata.creationTimestamp");

/// The columns of a table, of which the first `readable` have valid paths.
pub(super) fn headers(columns: &[Column], readable: usize) -> Value {
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
    let age = json!({"name": AGE.0, "type": AGE.1, "format": "", "description": "", "priority": 0});
    let own = columns.iter().take(readable).map(|column| {
        let description = if column.description.is_empty() {
            let path = &column.json_path;
            format!("Custom resource definition column (in JSONPath format): {path}")
        } else {
            column.description.clone()
        };
        json!({
            "name": column.name,
            "type": column.kind,
            "format": column.format,
            "description": description,
            "priority": column.priority,
        })
    });
    let own: Vec<Value> = if columns.is_empty() {
        vec![age]
    } else {
        own.collect()
    };
    std::iter::once(name).chain(own).collect()
}

/// The paths of the columns, up to the first invalid one.
pub(super) fn paths(columns: &[Column]) -> Vec<JsonPath> {
    let default = columns.is_empty().then_some(AGE.2);
    let own = columns.iter().map(|column| column.json_path.as_str());
    own.chain(default).map_while(JsonPath::parse).collect()
}

/// The cells of an object.
pub(super) fn cells(
    columns: &[Column],
    paths: &[JsonPath],
    object: &Value,
    now: Time,
) -> Vec<Value> {
    let kinds = columns
        .iter()
        .map(|column| column.kind.as_str())
        .chain(columns.is_empty().then_some(AGE.1));
    let shown = kinds.zip(paths).map(|(kind, path)| {
        let found = path.first(object);
        found.map_or(Value::Null, |value| cell(kind, value, now))
    });
    std::iter::once(Value::from(text(object, "/metadata/name")))
        .chain(shown)
        .collect()
}

/// A value as a cell of the column's type; values of other types are omitted.
fn cell(kind: &str, value: &Value, now: Time) -> Value {
    match (kind, value) {
        ("string", _) => Value::String(printed(value)),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(truncated(number)),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.as_str() {
            "" | "null" => Value::from("<unknown>"),
            text if Time::parse(text).is_err() => Value::from("<invalid>"),
            text => Value::from(since(text, now)),
        },
        _ => Value::Null,
    }
}

/// The integer part of a number. An overflow is the minimum, as on amd64.
fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if number.abs() < LIMIT {
        return number as i64;
    }
    i64::MIN
}

/// A value as a string: collections are JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::from("<no value>"),
        other => go_json::to_string(other),
    }
}
