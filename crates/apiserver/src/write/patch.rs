//! Patching an object: JSON patch, merge patch, strategic merge patch.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/patch.go

use std::sync::Mutex;

use lockgate_admission::json_patch::Patch as JsonPatch;
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_go::json;
use lockgate_kinds::strategic_merge::{self, PatchError, PatchErrorClass};
use lockgate_kinds::tree;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::decode::body;
use crate::decode::options::{FieldValidation, WriteOptions};
use crate::error::{Failure, Outcome, bad_request, internal, invalid, too_large, unprocessable};
use crate::http::limits;
use crate::http::negotiate::{self, PatchType, Sent};
use crate::metadata;
use crate::registry::{Resource, Shape};
use crate::respond::Reply;
use crate::server::Server;
use crate::write::update::{Change, New, check_name};
use crate::write::{managed_fields, strategy};

/// A patch that was read.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
    /// A configuration to apply.
    Apply(Value),
}

/// Patches the object a call is about.
pub(crate) async fn patch(server: &Server, call: &mut Call, resource: &Resource) -> Outcome<Reply> {
    let patch_type = negotiate::patch_type(&call.headers, resource.is_custom())?;
    let options = WriteOptions::of_patch(&call.query, patch_type)?;
    let patch = Patch::read(&call.body, patch_type)?;
    let findings = Mutex::new(Vec::new());
    let expected = if strategy::is_namespace(resource) {
        String::new()
    } else {
        call.target.namespace.clone()
    };
    let name = call.target.name.clone();
    let validation = options.field_validation();
    let make = |call: &Call, old: Option<&Value>| {
        if let Patch::Apply(configuration) = &patch {
            let mut tracked =
                managed_fields::apply(server, call, resource, &options, old, configuration)?;
            let uid = metadata::text(&tracked.object, "uid");
            if old.is_none() && !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(resource.conflict(&name, &why));
            }
            let (mut object, _) = resource
                .shape
                .decode_value(tracked.object)
                .map_err(bad_request)?;
            resource.shape.apply_defaults(&mut object);
            metadata::match_namespace(&mut object, &expected)?;
            check_name(&object, &name)?;
            tracked.object = object;
            return Ok(New::Tracked(tracked));
        }
        let old = old.ok_or_else(|| internal("there is nothing to patch"))?;
        let (mut object, found) = patch.apply(old, &resource.shape)?;
        strict(&patch, &object, &found, validation)?;
        if let Ok(mut findings) = findings.lock() {
            *findings = found;
        }
        resource.shape.apply_defaults(&mut object);
        metadata::match_namespace(&mut object, &expected)?;
        check_name(&object, &name)?;
        Ok(New::Object(object))
    };
    let change = Change {
        resource,
        options: &options,
        uid: None,
        create_when_missing: patch_type == PatchType::Apply,
    };
    let changed = change.apply(server, call, make).await;
    if validation == FieldValidation::Warn {
        for finding in findings.into_inner().unwrap_or_default() {
            call.notes.warn(&finding);
        }
    }
    Ok(changed?.into_reply())
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Patch {
    /// Reads a patch.
    pub(crate) fn read(bytes: &[u8], patch_type: PatchType) -> Outcome<Self> {
        let undecodable = |error: &str| bad_request(format!("error decoding patch: {error}"));
        match patch_type {
            PatchType::Json => {
                let document =
                    body::parse(bytes, Sent::Json).map_err(|error| undecodable(&error))?;
                let operations = document.root().items().count();
                if operations > limits::JSON_PATCH_OPERATIONS {
                    return Err(too_large(format!(
                        "Request entity too large: The allowed maximum operations in a JSON patch \
                         is {}, got {operations}",
                        limits::JSON_PATCH_OPERATIONS
                    )));
                }
                let patch =
                    JsonPatch::parse(bytes).map_err(|error| undecodable(&error.to_string()))?;
                Ok(Self::Json(patch))
            }
            PatchType::Merge | PatchType::Strategic => {
                let document =
                    body::parse(bytes, Sent::Json).map_err(|error| undecodable(&error))?;
                let value = tree::from_document(document.root());
                if !value.is_object() {
                    return Err(undecodable(&format!(
                        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        type_name(&value)
                    )));
                }
                Ok(if patch_type == PatchType::Merge {
                    Self::Merge(value)
                } else {
                    Self::Strategic(value)
                })
            }
            PatchType::Apply => {
                let decoded = body::parse(bytes, Sent::Yaml);
                let document = decoded
                    .map_err(|error| bad_request(format!("error decoding YAML: {error}")))?;
                Ok(Self::Apply(tree::from_document(document.root())))
            }
        }
    }

    /// The patched object, and what a strict reader minds.
    pub(crate) fn apply(&self, old: &Value, shape: &Shape) -> Outcome<(Value, Vec<String>)> {
        let patched = match self {
            Self::Json(patch) => patch.apply(old).map_err(|_| unprocessable())?,
            Self::Merge(patch) => {
                let mut object = old.clone();
                merge(&mut object, patch);
                object
            }
            Self::Apply(_) => return Err(internal("a configuration is applied, not patched")),
            Self::Strategic(patch) => {
                let ty = shape
                    .merge_type()
                    .ok_or_else(|| internal("the type of the object is unknown"))?;
                strategic_merge::patch(old, patch, ty).map_err(strategic_failed)?
            }
        };
        let shown = self.shown(&patched);
        let decoded = match self {
            Self::Strategic(_) => shape.decode_merged(patched),
            _ => shape.decode_value(patched),
        };
        decoded.map_err(|error| no_object(&shown, &error))
    }

    /// What is shown of a patch that made no such object.
    fn shown(&self, patched: &Value) -> String {
        match self {
            Self::Strategic(patch) => go_value(patch),
            _ => json::to_string(patched),
        }
    }
}

/// A value as Go prints it, without recursion: `map[data:map[a:5] list:[1 2]]`.
fn go_value(value: &Value) -> String {
    enum Part<'v> {
        Value(&'v Value),
        Text(&'v str),
    }
    let mut out = String::new();
    let mut open = vec![Part::Value(value)];
    while let Some(part) = open.pop() {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Value(Value::Null) => out.push_str("<nil>"),
            Part::Value(Value::String(text)) => out.push_str(text),
            Part::Value(scalar @ (Value::Bool(_) | Value::Number(_))) => {
                out.push_str(&json::to_string(scalar));
            }
            Part::Value(Value::Array(items)) => {
                out.push('[');
                open.push(Part::Text("]"));
                for (index, item) in items.iter().enumerate().rev() {
                    open.push(Part::Value(item));
                    open.push(Part::Text(if index == 0 { "" } else { " " }));
                }
            }
            Part::Value(Value::Object(members)) => {
                out.push_str("map[");
                open.push(Part::Text("]"));
                for (index, (key, member)) in members.iter().enumerate().rev() {
                    open.push(Part::Value(member));
                    open.push(Part::Text(":"));
                    open.push(Part::Text(key));
                    open.push(Part::Text(if index == 0 { "" } else { " " }));
                }
            }
        }
    }
    out
}

fn strategic_failed(error: PatchError) -> Failure {
    match error.class {
        PatchErrorClass::BadRequest => bad_request(error.message),
        PatchErrorClass::Unprocessable => unprocessable(),
        PatchErrorClass::Other => crate::error::plain(error.message),
    }
}

/// 422: what the patch made is no such object.
fn no_object(patched: &str, why: &str) -> Failure {
    let error = FieldError::invalid(&Path::root("patch"), Shown::Text(patched), why);
    invalid("", "", "", &[error])
}

fn strict(
    patch: &Patch,
    object: &Value,
    findings: &[String],
    validation: FieldValidation,
) -> Outcome<()> {
    if validation != FieldValidation::Strict || findings.is_empty() {
        return Ok(());
    }
    let why = format!("strict decoding error: {}", findings.join(", "));
    Err(no_object(&patch.shown(object), &why))
}

/// RFC 7386, without recursion: a patch may nest as deep as a body can.
fn merge(target: &mut Value, patch: &Value) {
    let mut open = vec![(target, patch)];
    while let Some((target, patch)) = open.pop() {
        let Value::Object(changes) = patch else {
            target.clone_from(patch);
            continue;
        };
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        let Some(members) = target.as_object_mut() else {
            continue;
        };
        for (key, change) in changes {
            if change.is_null() {
                members.remove(key);
            } else {
                members.entry(key).or_insert(Value::Null);
            }
        }
        let inner = members.iter_mut().filter_map(|(key, value)| {
            let change = changes.get(key).filter(|change| !change.is_null())?;
            Some((value, change))
        });
        open.extend(inner);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_values_as_go_prints_them() {
        let value = json!({"b": [1, "x y", null, {"z": true}], "a": {}, "c": 0.5});
        assert_eq!(
            go_value(&value),
            "map[a:map[] b:[1 x y <nil> map[z:true]] c:0.5]"
        );
        let mut deep = json!(1);
        for _ in 0..10_000 {
            deep = Value::Array(vec![deep]);
        }
        assert_eq!(go_value(&deep).len(), 20_001);
        tree::dismantle(deep);
    }

    #[test]
    fn merges_as_the_standard_says() {
        for (target, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [1]}),
                json!({"a": {"b": {"c": null}}}),
                json!({"a": {"b": {}}}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut merged = target;
            merge(&mut merged, &patch);
            assert_eq!(merged, want, "{patch}");
        }
    }
}
