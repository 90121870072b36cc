//! Semantic equality of objects: values are compared parsed, and absent and empty lists are equal.
//!
//! UPSTREAM: apimachinery pkg/api/equality/semantic.go.

use std::cmp::Ordering;

use serde_json::Value;

use lockgate_go::quantity::Quantity;

use crate::tree;
use crate::typed::{Form, Type};

static NULL: Value = Value::Null;

/// Returns true if two values of type `ty` are semantically equal. Absent, null and empty lists and maps are equal,
/// and so are quantities of the same value.
#[must_use]
pub fn semantically_equal(ty: Type, a: &Value, b: &Value) -> bool {
    let mut rest = vec![(ty, a, b)];
    while let Some((ty, a, b)) = rest.pop() {
        // Schemas are recursive types: descending into two absent values would not terminate.
        if a.is_null() && b.is_null() {
            continue;
        }
        // A nil pointer equals only another nil pointer.
        if ty != ty.target() && a.is_null() != b.is_null() {
            return false;
        }
        let equal = match ty.form() {
            Form::Struct => {
                for field in ty.target().fields() {
                    let member = |object| Value::get(object, field.name()).unwrap_or(&NULL);
                    rest.push((field.ty(), member(a), member(b)));
                }
                true
            }
            Form::List(element) => {
                let (a, b) = (items(a), items(b));
                rest.extend(a.iter().zip(b).map(|(a, b)| (element, a, b)));
                a.len() == b.len()
            }
            Form::Map(element) => {
                let mut all = members(a) == members(b);
                for (key, value) in a.as_object().into_iter().flatten() {
                    match b.get(key) {
                        Some(other) => rest.push((element, value, other)),
                        None => all = false,
                    }
                }
                all
            }
            Form::Quantity => same_quantity(a, b),
            Form::Text | Form::Bytes => {
                a.as_str().unwrap_or_default() == b.as_str().unwrap_or_default()
            }
            Form::Bool => a.as_bool().unwrap_or_default() == b.as_bool().unwrap_or_default(),
            Form::Integer(_) => a.as_i64().unwrap_or_default() == b.as_i64().unwrap_or_default(),
            _ => tree::equal(a, b),
        };
        if !equal {
            return false;
        }
    }
    true
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn members(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

fn same_quantity(a: &Value, b: &Value) -> bool {
    let read = |value: &Value| Quantity::parse(value.as_str().unwrap_or("0")).ok();
    match (read(a), read(b)) {
        (Some(a), Some(b)) => a.compare(&b) == Ordering::Equal,
        _ => tree::equal(a, b),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::typed::type_of;

    use super::*;

    #[test]
    fn compares_by_meaning() {
        let ty = type_of("", "v1", "Pod").unwrap();
        let pod = |memory: &str, labels: Value, context: Value| {
            json!({"metadata": {"labels": labels}, "spec": {"securityContext": context,
                "containers": [{"name": "a", "resources": {"limits": {"memory": memory}}}]}})
        };
        let same = |a: &Value, b: &Value| semantically_equal(ty, a, b);
        let base = pod("1Gi", Value::Null, Value::Null);
        assert!(same(&base, &pod("1024Mi", json!({}), Value::Null)));
        assert!(!same(&base, &pod("1Mi", json!({}), Value::Null)));
        assert!(!same(&base, &pod("1Gi", json!({"a": "b"}), Value::Null)));
        // A pointer to an empty struct differs from nil.
        assert!(!same(&base, &pod("1Gi", Value::Null, json!({}))));
        assert!(same(
            &json!({"spec": {"containers": null}}),
            &json!({"spec": {"containers": []}})
        ));
    }

    #[test]
    fn compares_types_that_contain_themselves() {
        let ty = type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
        let definition = |schema: Value| json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
        let one = definition(json!({"type": "object", "not": {"type": "string"}}));
        assert!(semantically_equal(ty, &one, &one.clone()));
        let other = definition(json!({"type": "object", "not": {"type": "string", "not": {}}}));
        assert!(!semantically_equal(ty, &one, &other));
        assert!(!semantically_equal(ty, &one, &definition(Value::Null)));
    }
}
