//! Accessors of objects in normal form, in which an absent field is Go's nil or zero value.

use serde_json::map::Map;
use serde_json::{Value, json};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// Changes a value if it is an object.
pub(crate) fn with(value: &mut Value, change: impl FnOnce(&mut Object)) {
    if let Some(object) = value.as_object_mut() {
        change(object);
    }
}

/// Sets a pointer field that is nil.
pub(crate) fn fill(object: &mut Object, key: &str, value: impl Into<Value>) {
    let unset = object.get(key).is_none_or(Value::is_null);
    if unset {
        object.insert(key.to_owned(), value.into());
    }
}

/// Sets a string field that is empty.
pub(crate) fn fill_text(object: &mut Object, key: &str, value: &str) {
    if text(object, key).is_empty() {
        object.insert(key.to_owned(), Value::from(value));
    }
}

/// Sets a number field that is zero.
pub(crate) fn fill_number(object: &mut Object, key: &str, value: i64) {
    if number(object, key) == 0 {
        object.insert(key.to_owned(), Value::from(value));
    }
}

/// The string of a field; empty if absent.
pub(crate) fn text<'o>(object: &'o Object, key: &str) -> &'o str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The number of a field; zero if absent.
pub(crate) fn number(object: &Object, key: &str) -> i64 {
    object.get(key).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns true if a field is true.
pub(crate) fn flag(object: &Object, key: &str) -> bool {
    object.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns true if a pointer field is not nil.
pub(crate) fn has(object: &Object, key: &str) -> bool {
    object.get(key).is_some_and(|value| !value.is_null())
}

/// The items of a list; empty if absent.
pub(crate) fn list<'o>(object: &'o Object, key: &str) -> &'o [Value] {
    object
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// A field that is an object.
pub(crate) fn get<'o>(object: &'o Object, key: &str) -> Option<&'o Object> {
    object.get(key).and_then(Value::as_object)
}

/// A field that is an object.
pub(crate) fn get_mut<'o>(object: &'o mut Object, key: &str) -> Option<&'o mut Object> {
    object.get_mut(key).and_then(Value::as_object_mut)
}

/// The object at a path.
pub(crate) fn at_mut<'o>(object: &'o mut Object, path: &[&str]) -> Option<&'o mut Object> {
    path.iter()
        .try_fold(object, |object, key| get_mut(object, key))
}

/// A field that is an object, created if absent.
pub(crate) fn open<'o>(object: &'o mut Object, key: &str) -> Option<&'o mut Object> {
    let member = object.entry(key).or_insert(Value::Null);
    if member.is_null() {
        *member = json!({});
    }
    member.as_object_mut()
}

/// Calls `change` for every object in a list.
pub(crate) fn each(object: &mut Object, key: &str, mut change: impl FnMut(&mut Object)) {
    let list = object.get_mut(key).and_then(Value::as_array_mut);
    for item in list.into_iter().flatten() {
        if let Value::Object(item) = item {
            change(item);
        }
    }
}

/// Returns true if a map or list is absent or empty.
pub(crate) fn is_empty(object: &Object, key: &str) -> bool {
    match object.get(key) {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        _ => true,
    }
}
