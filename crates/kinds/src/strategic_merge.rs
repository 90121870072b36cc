//! Strategic merge patches: JSON merge patches that merge lists as sets or maps.
//!
//! A list with the strategy `merge` is merged by key; `$patch`, `$retainKeys`, `$setElementOrder/…` and
//! `$deleteFromPrimitiveList/…` are directives. The merge strategies are those of the types
//! ([`Field::patch_strategies`](crate::typed::Field::patch_strategies)), so only built-in kinds support such patches.
//!
//! Merging recurses into declared fields of both sides, at most [`MAX_DEPTH`] levels; everything else is not
//! recursive.
//!
//! UPSTREAM: apimachinery pkg/util/strategicpatch/patch.go.

mod format;
mod lists;
mod scalar;
#[cfg(test)]
mod tests;

use serde_json::Value;
use serde_json::map::Map;

use crate::tree;
use crate::typed::{Field, Form, Type};

use format::{go_type, go_verb_s, go_verb_v};

/// The maximum depth of a merge.
pub const MAX_DEPTH: usize = 256;

const DIRECTIVE: &str = "$patch";
const DELETE: &str = "delete";
const REPLACE: &str = "replace";
const MERGE: &str = "merge";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

type Object = Map<String, Value>;

/// The error of an invalid patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchError {
    /// The message, which is upstream's.
    pub message: String,
    /// The class of the error response.
    pub class: PatchErrorClass,
}

/// The class of the error response to an invalid patch.
///
/// UPSTREAM: apiserver pkg/endpoints/handlers/patch.go (interpretStrategicMergePatchError).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchErrorClass {
    /// 400: the patch is malformed.
    BadRequest,
    /// 422: the patch is not supported.
    Unprocessable,
    /// 500: an error that upstream does not classify.
    Other,
}

impl std::fmt::Display for PatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PatchError {}

impl PatchError {
    fn other(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            class: PatchErrorClass::Other,
        }
    }

    fn bad_format(of: &str) -> Self {
        Self {
            message: format!("invalid patch format of {of}"),
            class: PatchErrorClass::BadRequest,
        }
    }

    fn list_of_lists() -> Self {
        Self {
            message: String::from("lists of lists are not supported"),
            class: PatchErrorClass::Unprocessable,
        }
    }

    fn no_merge_key(map: &Value, key: &str) -> Self {
        Self::other(format!(
            "map: {} does not contain declared merge key: {key}",
            go_verb_v(map)
        ))
    }

    fn bad_type(expected: &str, actual: &Value) -> Self {
        Self::other(format!(
            "expected a {expected}, but received a {}",
            go_type(actual)
        ))
    }
}

/// Applies `patch` to `original`, an object of type `ty`.
///
/// # Errors
///
/// The patch is malformed; the message is upstream's. [`Type::decode_value`] validates the patched object.
pub fn patch(original: &Value, patch: &Value, ty: Type) -> Result<Value, PatchError> {
    let bad_request = |message: &str| PatchError {
        message: message.to_owned(),
        class: PatchErrorClass::BadRequest,
    };
    // No type nests so deeply, and deeper values must not be cloned and dropped recursively.
    let bounded = |value| tree::copy_within(value, tree::MAX_DEPTH);
    let (Some(original), Some(patch)) = (bounded(original), bounded(patch)) else {
        return Err(bad_request("exceeded max depth"));
    };
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err(bad_request("invalid JSON document"));
    };
    merge_map(original, patch, ty, 0).map(Value::Object)
}

/// Merges two objects.
fn merge_map(
    mut original: Object,
    mut patch: Object,
    schema: Type,
    depth: usize,
) -> Result<Object, PatchError> {
    if depth > MAX_DEPTH {
        return Err(PatchError::other(format!(
            "objects are merged at most {MAX_DEPTH} levels deep"
        )));
    }
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some(REPLACE) => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some(DELETE) => Ok(Object::new()),
            _ => {
                let kind = go_verb_s(directive);
                let map = go_verb_v(&Value::Object(patch.clone()));
                Err(PatchError::other(format!(
                    "unknown patch type: {kind} in map: {map}"
                )))
            }
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(&mut original, &mut patch, schema, depth)?;
    for (key, value) in patch {
        let (key, is_delete_list) = if key.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
            let bare = bare_key(&key, DELETE_FROM_PRIMITIVE_LIST)
                .ok_or_else(|| PatchError::bad_format("primitive list"))?;
            (bare.to_owned(), true)
        } else {
            (key, false)
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        merge_member(&mut original, key, value, is_delete_list, schema, depth)?;
    }
    Ok(original)
}

fn merge_member(
    original: &mut Object,
    key: String,
    value: Value,
    is_delete_list: bool,
    schema: Type,
    depth: usize,
) -> Result<(), PatchError> {
    let current = original.remove(&key);
    let merged = match (current, value) {
        (Some(Value::Object(current)), Value::Object(value)) => {
            let (ty, field) = lookup(schema, &key)?;
            if strategy(field) == REPLACE {
                Some(Value::Object(value))
            } else {
                Some(Value::Object(merge_map(current, value, ty, depth + 1)?))
            }
        }
        (Some(Value::Array(current)), Value::Array(value)) => {
            let (element, field) = lookup_list(schema, &key)?;
            let rules = lists::Rules {
                element,
                merge_key: field.patch_merge_key(),
                is_delete_list,
            };
            let merged = if strategy(field) == MERGE || is_delete_list {
                lists::merge(current, value, &rules, depth)?
            } else {
                value
            };
            Some(Value::Array(merged))
        }
        (current, value) => {
            if is_delete_list {
                current
            } else {
                if current
                    .as_ref()
                    .is_none_or(|current| !scalar::same_type(current, &value))
                {
                    without_directives(without_nulls(value))
                } else {
                    without_directives(value)
                }
            }
        }
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// Drops the fields of `original` that `$retainKeys` does not list.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad_format = || PatchError::bad_format("retainKeys");
    let keys = keys.as_array().ok_or_else(bad_format)?;
    let keys: std::collections::HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let covered = patch.iter().all(|(key, value)| {
        value.is_null()
            || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
            || key.starts_with(SET_ELEMENT_ORDER)
            || keys.contains(key.as_str())
    });
    if !covered {
        return Err(bad_format());
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// Merges the lists with `$setElementOrder`.
fn set_element_orders(
    original: &mut Object,
    patch: &mut Object,
    schema: Type,
    depth: usize,
) -> Result<(), PatchError> {
    let orders: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in orders {
        let order = patch.remove(&directive).unwrap_or_default();
        let order = list_of(order)?;
        let key = bare_key(&directive, SET_ELEMENT_ORDER)
            .ok_or_else(|| PatchError::bad_format("setElementOrder list"))?;
        let current = original.get(key).cloned().map(list_of).transpose()?;
        let change = patch.get(key).cloned().map(list_of).transpose()?;
        let (element, field) = lookup_list(schema, key)?;
        let merge_key = field.patch_merge_key();
        lists::check_order(change.as_deref().unwrap_or_default(), &order, merge_key)?;
        let merged = match (current.clone(), change.clone()) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(change)) => match without_directives(Value::Array(change)) {
                Some(Value::Array(list)) => list,
                _ => continue,
            },
            (Some(current), Some(change)) if strategy(field) == MERGE => {
                let rules = lists::Rules {
                    element,
                    merge_key,
                    is_delete_list: false,
                };
                lists::merge(current, change, &rules, depth)?
            }
            (Some(_), Some(change)) => change,
        };
        let (current, change) = (current.unwrap_or_default(), change.unwrap_or_default());
        let ordered = lists::put_in_order(merged, &order, &current, &change, merge_key)?;
        original.insert(key.to_owned(), Value::Array(ordered));
        patch.remove(key);
    }
    Ok(())
}

fn list_of(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(PatchError::bad_type("[]interface {}", &other)),
    }
}

/// The field name of a directive, after the slash.
fn bare_key<'k>(directive: &'k str, prefix: &str) -> Option<&'k str> {
    directive.strip_prefix(prefix)?.strip_prefix('/')
}

/// The type and merge strategy of a field.
fn lookup(schema: Type, key: &str) -> Result<(Type, Field), PatchError> {
    let target = schema.target();
    match target.form() {
        Form::Struct => target
            .field(key)
            .map(|field| (field.ty(), field))
            .ok_or_else(|| not_found(target, key)),
        form if is_go_struct(form) => Err(not_found(target, key)),
        form => Err(PatchError::other(format!(
            "merging an object in json but data type is not struct, instead is: {}",
            go_kind(form)
        ))),
    }
}

/// The element type of a list field, and its merge strategy.
fn lookup_list(schema: Type, key: &str) -> Result<(Type, Field), PatchError> {
    let (ty, field) = lookup(schema, key)?;
    match ty.form() {
        Form::List(element) if matches!(element.form(), Form::List(_) | Form::Bytes) => {
            Err(PatchError::other("unexpected slice of slice"))
        }
        Form::List(element) => Ok((element, field)),
        _ if field.is_pointer() => Ok((ty.target(), field)),
        _ => Err(PatchError::other(format!(
            "expected slice or array type, but got: {}",
            go_kind(schema.form())
        ))),
    }
}

fn not_found(schema: Type, key: &str) -> PatchError {
    let name = schema.go_name().rsplit('.').next().unwrap_or_default();
    let key = lockgate_go::quote::quote(key);
    PatchError::other(format!(
        "unable to find api field in struct {name} for the json field {key}"
    ))
}

/// Returns true if the type is a Go struct, although its JSON is not an object.
fn is_go_struct(form: Form) -> bool {
    matches!(
        form,
        Form::Struct
            | Form::Time
            | Form::MicroTime
            | Form::Quantity
            | Form::IntOrString
            | Form::Raw
            | Form::SchemaOrBool(_)
            | Form::SchemaOrArray(_)
            | Form::SchemaOrTexts(_)
    )
}

/// The `reflect.Kind` of a type.
fn go_kind(form: Form) -> &'static str {
    match form {
        Form::Text => "string",
        Form::Bool => "bool",
        Form::Integer(32) => "int32",
        Form::Integer(_) => "int64",
        Form::Double => "float64",
        Form::Bytes | Form::List(_) => "slice",
        Form::Map(_) => "map",
        _ => "struct",
    }
}

/// The strategy other than `retainKeys`; empty if there is none.
fn strategy(field: Field) -> &'static str {
    field
        .patch_strategies()
        .find(|strategy| *strategy != "retainKeys")
        .unwrap_or_default()
}

fn has_directive(value: &Value) -> bool {
    value.get(DIRECTIVE).is_some()
}

/// The value without nested values that contain a directive; `None` if it contains one itself.
fn without_directives(mut value: Value) -> Option<Value> {
    if has_directive(&value) {
        return None;
    }
    let mut rest = vec![&mut value];
    while let Some(next) = rest.pop() {
        match next {
            Value::Object(members) => {
                members.retain(|_, value| !has_directive(value));
                rest.extend(members.values_mut());
            }
            Value::Array(items) => {
                items.retain(|value| !has_directive(value));
                rest.extend(items);
            }
            _ => {}
        }
    }
    Some(value)
}

/// The value without null fields.
fn without_nulls(mut value: Value) -> Value {
    let mut rest = vec![&mut value];
    while let Some(next) = rest.pop() {
        match next {
            Value::Object(members) => {
                members.retain(|_, value| !value.is_null());
                rest.extend(members.values_mut());
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    value
}
