//! How many replicas an object asks for and has, as an object of its own.

use lockgate_api::field::{FieldError, Path, Shown};
use serde_json::{Map, Value, json};

use crate::error::{Failure, Outcome, internal, invalid, no_such_resource};
use crate::registry::{Resource, Shape};

/// The scale of a built-in kind.
fn of_built_in(object: &Value) -> Value {
    let number = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let selector = object.pointer("/spec/selector").map(selector_text);
    scale(
        object,
        number("/spec/replicas"),
        number("/status/replicas"),
        selector,
    )
}

fn scale(object: &Value, wanted: i64, found: i64, selector: Option<String>) -> Value {
    let metadata = object.get("metadata");
    let members = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ];
    let metadata: Map<String, Value> = members
        .into_iter()
        .filter_map(|member| Some((member.to_owned(), metadata?.get(member)?.clone())))
        .collect();
    let mut spec = json!({});
    if wanted != 0 {
        spec["replicas"] = wanted.into();
    }
    let mut status = json!({"replicas": found});
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A label selector as one text: `a=b,c in (d,e)`.
///
/// UPSTREAM: apimachinery pkg/labels/selector.go (String)
fn selector_text(selector: &Value) -> String {
    let mut terms: Vec<(String, String)> = Vec::new();
    // Replication controllers have a plain map.
    let labels = selector
        .get("matchLabels")
        .filter(|labels| labels.is_object());
    let is_plain = labels.is_none() && selector.get("matchExpressions").is_none();
    let labels = if is_plain { Some(selector) } else { labels };
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        terms.push((
            key.clone(),
            format!("{key}={}", value.as_str().unwrap_or_default()),
        ));
    }
    let expressions = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for expression in expressions {
        let text = |member: &str| {
            expression
                .get(member)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let mut values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let (key, values) = (text("key"), values.join(","));
        let term = match text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), term));
    }
    terms.sort();
    terms
        .into_iter()
        .map(|(_, term)| term)
        .collect::<Vec<_>>()
        .join(",")
}

/// The scale of any object.
pub(crate) fn of(resource: &Resource, object: &Value) -> Outcome<Value> {
    match &resource.shape {
        Shape::Custom(custom) => match custom.scale_paths() {
            Some(paths) => paths
                .to_scale(object)
                .map_err(|error| internal(&error.to_string())),
            None => Err(no_such_resource()),
        },
        _ => Ok(of_built_in(object)),
    }
}

/// Takes over into an object how many replicas its scale asks for.
pub(crate) fn take_over(resource: &Resource, object: &mut Value, scale: &Value) -> Outcome<()> {
    if let Shape::Custom(custom) = &resource.shape {
        let paths = custom.scale_paths().ok_or_else(no_such_resource)?;
        let mut scale = scale.clone();
        // The version was looked at already.
        if let Some(metadata) = scale.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        return paths
            .from_scale(object, &scale)
            .map_err(|error| internal(&error.to_string()));
    }
    let replicas = scale
        .pointer("/spec/replicas")
        .cloned()
        .unwrap_or_else(|| 0.into());
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(String::from("replicas"), replicas);
    }
    Ok(())
}

/// 422: there cannot be fewer than none.
pub(crate) fn negative(name: &str, replicas: i64) -> Failure {
    let spec = Path::root("spec");
    let path = spec.child("replicas");
    let error = FieldError::invalid(
        &path,
        Shown::Integer(replicas),
        "must be greater than or equal to 0",
    );
    invalid("Scale", "autoscaling", name, &[error])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_a_deployment_as_a_scale() {
        let object = json!({
            "metadata": {"name": "d", "namespace": "n", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}]}},
            "status": {"replicas": 2},
        });
        assert_eq!(
            of_built_in(&object),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "d", "namespace": "n"},
                "spec": {"replicas": 3},
                "status": {"replicas": 2, "selector": "a=1,b=2,c in (x,y)"},
            })
        );
    }
}
