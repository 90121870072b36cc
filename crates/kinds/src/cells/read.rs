//! Accessors of object fields; absent fields read as empty.

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;
use serde_json::map::Map;

/// The value at a pointer. Unlike [`Value::pointer`], which allocates per segment, it supports no escapes: pointers
/// to fields of built-in kinds need none.
pub(crate) fn at<'v>(object: &'v Value, pointer: &str) -> Option<&'v Value> {
    let mut steps = pointer.split('/');
    steps.next();
    steps.try_fold(object, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The string at a pointer.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    at(object, pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The value of an annotation.
pub(crate) fn annotation<'v>(object: &'v Value, name: &str) -> &'v str {
    at(object, "/metadata/annotations")
        .and_then(|annotations| annotations.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The string at a pointer, or `none` if it is empty or absent.
pub(crate) fn text_or(object: &Value, pointer: &str, none: &str) -> String {
    match text(object, pointer) {
        "" => none.to_owned(),
        text => text.to_owned(),
    }
}

/// The string at a pointer, or `none` if it is absent.
pub(crate) fn present_or(object: &Value, pointer: &str, none: &str) -> String {
    let found = at(object, pointer).and_then(Value::as_str);
    found.unwrap_or(none).to_owned()
}

/// The integer at a pointer.
pub(crate) fn integer(object: &Value, pointer: &str) -> i64 {
    at(object, pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// Returns true if the value at a pointer is true.
pub(crate) fn is_true(object: &Value, pointer: &str) -> bool {
    at(object, pointer).and_then(Value::as_bool) == Some(true)
}

/// The items of the list at a pointer.
pub(crate) fn items<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    at(object, pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The number of items or entries at a pointer.
pub(crate) fn count(object: &Value, pointer: &str) -> usize {
    entries(at(object, pointer))
}

/// The number of entries of a list or a map.
pub(crate) fn entries(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    }
}

/// The fields of the object at a pointer.
pub(crate) fn members<'v>(object: &'v Value, pointer: &str) -> Option<&'v Map<String, Value>> {
    at(object, pointer).and_then(Value::as_object)
}

/// The strings of a list, joined.
pub(crate) fn joined(object: &Value, pointer: &str, separator: &str) -> String {
    let texts: Vec<&str> = items(object, pointer)
        .iter()
        .filter_map(Value::as_str)
        .collect();
    texts.join(separator)
}

/// Labels as `key=value`, sorted.
pub(crate) fn labels(object: &Value, pointer: &str) -> String {
    let pairs: Vec<String> = members(object, pointer)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        return String::from("<none>");
    }
    pairs.join(",")
}

/// The string form of a selector, or an error if it is invalid. An absent one is an empty string.
pub(crate) fn selector(object: &Value, pointer: &str) -> Result<String, ()> {
    let Some(selector) = at(object, pointer).filter(|value| value.is_object()) else {
        return Ok(String::new());
    };
    label_selector(selector)
        .compile()
        .map(|selector| selector.to_string())
        .map_err(|_| ())
}

/// The string form of a selector in tables.
pub(crate) fn shown_selector(object: &Value, pointer: &str) -> String {
    match selector(object, pointer) {
        Ok(text) if text.is_empty() => String::from("<none>"),
        Ok(text) => text,
        Err(()) => String::from("<error>"),
    }
}

fn label_selector(selector: &Value) -> LabelSelector {
    let labels = members(selector, "/matchLabels").map(|labels| {
        let value = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        labels
            .iter()
            .map(|(key, text)| (key.clone(), value(text)))
            .collect()
    });
    let expressions = items(selector, "/matchExpressions")
        .iter()
        .map(|requirement| LabelSelectorRequirement {
            key: text(requirement, "/key").to_owned(),
            operator: text(requirement, "/operator").to_owned(),
            values: Some(
                items(requirement, "/values")
                    .iter()
                    .filter_map(|value| value.as_str().map(str::to_owned))
                    .collect(),
            ),
        })
        .collect();
    LabelSelector {
        match_labels: labels,
        match_expressions: Some(expressions),
    }
}

/// The first condition of a type.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    items(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == kind)
}

/// Returns true if the first condition of a type is true.
pub(crate) fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// Returns true if the object is being deleted.
pub(crate) fn is_deleted(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// At most `shown` strings, and the number of the others.
pub(crate) fn first_few(texts: &[String], shown: usize, separator: &str) -> String {
    let first: Vec<&str> = texts.iter().take(shown).map(String::as_str).collect();
    let first = first.join(separator);
    match texts.len().checked_sub(shown) {
        None | Some(0) => first,
        Some(more) => format!("{first} + {more} more..."),
    }
}

/// A name, marked if it is the default.
pub(crate) fn with_default(name: &str, is_default: bool) -> String {
    let suffix = if is_default { " (default)" } else { "" };
    format!("{name}{suffix}")
}
