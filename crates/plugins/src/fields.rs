//! Access to fields of untyped objects. A `null` is treated as absent, as in the API server.

use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::rules::Refusal;

pub(crate) use crate::rules::CONTAINER_LISTS;

/// The container lists of a Pod spec whose resources count.
pub(crate) const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// The value at a path.
pub(crate) fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    found.filter(|value| !value.is_null())
}

/// The string at a path, if any.
pub(crate) fn text_at<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// A string field, if any.
pub(crate) fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    text_at(value, &[member])
}

/// The boolean at a path; false by default.
pub(crate) fn is_on(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of the list at a path.
pub(crate) fn items<'v>(value: &'v Value, path: &[&str]) -> &'v [Value] {
    let list = at(value, path).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// The fields of the object at a path.
pub(crate) fn members<'v>(
    value: &'v Value,
    path: &[&str],
) -> impl Iterator<Item = (&'v str, &'v Value)> + use<'v> {
    let map = at(value, path).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
}

/// The string fields of the object at a path.
pub(crate) fn texts<'v>(
    value: &'v Value,
    path: &[&str],
) -> impl Iterator<Item = (&'v str, &'v str)> + use<'v> {
    members(value, path).filter_map(|(name, value)| Some((name, value.as_str()?)))
}

/// The value of an annotation.
pub(crate) fn annotation<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    at(object, &["metadata", "annotations", key])?.as_str()
}

/// The value of a label.
pub(crate) fn label<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    at(object, &["metadata", "labels", key])?.as_str()
}

/// Returns true for the mirror Pod of a static Pod.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    annotation(pod, "kubernetes.io/config.mirror").is_some()
}

/// The object at a path, created if missing.
pub(crate) fn map_mut<'v>(
    value: &'v mut Value,
    path: &[&str],
) -> Result<&'v mut Map<String, Value>, Refusal> {
    let place = make(value, path, || Value::Object(Map::new()))?;
    place
        .as_object_mut()
        .ok_or_else(|| wrong(path, "an object"))
}

/// The list at a path, created if missing.
pub(crate) fn list_mut<'v>(
    value: &'v mut Value,
    path: &[&str],
) -> Result<&'v mut Vec<Value>, Refusal> {
    let place = make(value, path, || Value::Array(Vec::new()))?;
    place.as_array_mut().ok_or_else(|| wrong(path, "a list"))
}

/// The items of the list at a path, which is not created.
pub(crate) fn items_mut<'v>(value: &'v mut Value, path: &[&str]) -> &'v mut [Value] {
    let mut place = Some(value);
    for name in path {
        place = place.and_then(|value| value.get_mut(name));
    }
    match place.and_then(Value::as_array_mut) {
        Some(list) => list,
        None => &mut [],
    }
}

/// Sets an annotation.
pub(crate) fn annotate(
    object: &mut Value,
    key: &str,
    value: impl Into<String>,
) -> Result<(), Refusal> {
    let annotations = map_mut(object, &["metadata", "annotations"])?;
    annotations.insert(key.to_owned(), Value::String(value.into()));
    Ok(())
}

fn make<'v>(
    value: &'v mut Value,
    path: &[&str],
    last: impl FnOnce() -> Value,
) -> Result<&'v mut Value, Refusal> {
    let mut place = value;
    for name in path {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let Some(map) = place.as_object_mut() else {
            return Err(wrong(path, "inside an object"));
        };
        place = match map.entry(*name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Value::Null),
        };
    }
    if place.is_null() {
        *place = last();
    }
    Ok(place)
}

fn wrong(path: &[&str], want: &str) -> Refusal {
    let message = format!("`{}` is not {want}", path.join("."));
    Refusal::status(422, "Invalid", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn makes_what_is_missing_and_refuses_what_is_wrong() {
        let mut object = json!({"spec": null, "list": "no"});
        list_mut(&mut object, &["spec", "a", "b"])
            .unwrap()
            .push(json!(1));
        annotate(&mut object, "k", "v").unwrap();
        assert!(list_mut(&mut object, &["list"]).is_err());
        assert!(map_mut(&mut object, &["list", "x"]).is_err());
        assert_eq!(
            object,
            json!({
                "spec": {"a": {"b": [1]}},
                "list": "no",
                "metadata": {"annotations": {"k": "v"}},
            })
        );
        assert_eq!(items(&object, &["spec", "a", "b"]), [json!(1)]);
        assert!(items_mut(&mut object, &["spec", "x"]).is_empty());
        assert_eq!(annotation(&object, "k"), Some("v"));
    }
}
