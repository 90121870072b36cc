//! Who owns how many replicas there are: owners of an object, seen from its scale, and back.
//!
//! UPSTREAM: apimachinery pkg/util/managedfields/scalehandler.go

use lockgate_kinds::managed_fields::{Element, FieldManager, FieldSet, OneVersion, Shape as Owned};
use lockgate_kinds::typed::Type;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::decode::options::WriteOptions;
use crate::registry::{Resource, Shape};
use crate::write::{metadata, owners};

const SCALE: &str = "autoscaling/v1";

/// Where the number stands in an object.
fn path(resource: &Resource) -> Vec<String> {
    let path = match &resource.shape {
        Shape::Custom(custom) => custom
            .scale_paths()
            .map(|paths| paths.spec_replicas.as_str()),
        _ => Some(".spec.replicas"),
    };
    let parts = path.unwrap_or_default().split('.');
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

fn fields(entry: &Value) -> FieldSet {
    let fields = entry.get("fieldsV1").map(FieldSet::from_value);
    fields
        .and_then(Result::ok)
        .unwrap_or_else(|| FieldSet::of(&[]))
}

fn has(entry: &Value, path: &[String]) -> bool {
    let path: Vec<Element> = path
        .iter()
        .map(|part| Element::Field(part.clone().into()))
        .collect();
    fields(entry).contains(&path)
}

fn with_fields(entry: &Value, api_version: &str, fields: &FieldSet) -> Value {
    let mut members: Map<String, Value> = entry.as_object().cloned().unwrap_or_default();
    members.insert(String::from("apiVersion"), api_version.into());
    members.insert(String::from("fieldsType"), "FieldsV1".into());
    members.insert(String::from("fieldsV1"), fields.to_value());
    Value::Object(members)
}

/// The owners of an object that own its number of replicas, as owners of its scale.
pub(crate) fn of_scale(resource: &Resource, parent: &[Value]) -> Vec<Value> {
    let path = path(resource);
    let replicas = FieldSet::of(&[&["spec", "replicas"]]);
    let owning = parent
        .iter()
        .filter(|entry| is_known(resource, entry) && has(entry, &path));
    sorted(
        owning
            .map(|entry| with_fields(entry, SCALE, &replicas))
            .collect(),
    )
}

fn is_known(resource: &Resource, entry: &Value) -> bool {
    entry.get("apiVersion").and_then(Value::as_str) == Some(resource.api_version())
}

/// Notes who changed a scale.
pub(crate) fn track(
    call: &Call,
    ty: Type,
    options: &WriteOptions,
    live: &Value,
    new: Value,
) -> Value {
    let manager = FieldManager {
        shape: Owned::BuiltIn(ty),
        api_version: SCALE,
        kind: "Scale",
        subresource: "scale",
        reset: None,
        versions: &OneVersion,
    };
    manager.update(
        Some(live),
        new,
        &owners::name(call, options),
        metadata::now(),
    )
}

/// The owners of an object after its scale was changed.
pub(crate) fn of_parent(resource: &Resource, parent: &[Value], scale: &[Value]) -> Vec<Value> {
    let path = path(resource);
    let steps: Vec<&str> = path.iter().map(String::as_str).collect();
    let replicas = FieldSet::of(&[&steps]);
    let mut left: Vec<&Value> = scale.iter().collect();
    let mut entries = Vec::new();
    for entry in parent.iter().filter(|entry| is_known(resource, entry)) {
        if !has(entry, &path) {
            entries.push(entry.clone());
            continue;
        }
        let same = left
            .iter()
            .position(|other| identity(other) == identity(entry));
        if let Some(index) = same {
            left.remove(index);
            entries.push(entry.clone());
            continue;
        }
        // The scale took the number over.
        let rest = fields(entry).difference(&replicas);
        if !rest.is_empty() {
            entries.push(with_fields(entry, resource.api_version(), &rest));
        }
    }
    let in_scale = [String::from("spec"), String::from("replicas")];
    for entry in left.into_iter().filter(|entry| has(entry, &in_scale)) {
        let mut entry = with_fields(entry, resource.api_version(), &replicas);
        // UPSTREAM: times are looked up among the owners of the object, where this one is not.
        if let Some(members) = entry.as_object_mut() {
            members.remove("time");
        }
        entries.push(entry);
    }
    sorted(entries)
}

/// What makes two owners the same. Those that apply are the same whatever version they apply in.
fn identity(entry: &Value) -> [String; 4] {
    let text = |member: &str| {
        entry
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let operation = text("operation");
    let version = if operation == "Apply" {
        String::new()
    } else {
        text("apiVersion")
    };
    [text("manager"), operation, version, text("subresource")]
}

fn sorted(mut entries: Vec<Value>) -> Vec<Value> {
    entries.sort_by_cached_key(|entry| {
        let text = |member: &str| {
            entry
                .get(member)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        [
            text("operation"),
            text("time"),
            text("manager"),
            text("apiVersion"),
            text("subresource"),
        ]
    });
    entries
}

/// Sets the owners of an object.
pub(crate) fn set(object: &mut Value, entries: Vec<Value>) {
    metadata::change(object, |metadata| {
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert(String::from("managedFields"), entries.into());
        }
    });
}
