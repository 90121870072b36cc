//! Semantic equality of objects.
//!
//! Built-in kinds are compared semantically: absent, `null`, an empty list and an empty map are equal. Custom
//! resources are compared literally. Hosts that know the types compare equivalent quantities and times.
//!
//! UPSTREAM: apimachinery pkg/api/equality/semantic.go, third_party/forked/golang/reflect

use serde_json::Value;

/// Compares two objects of a built-in kind semantically.
#[must_use]
pub fn typed(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let missing = &Value::Null;
            one.iter()
                .all(|(key, value)| typed(value, other.get(key).unwrap_or(missing)))
                && other
                    .iter()
                    .all(|(key, value)| one.contains_key(key) || is_empty(value))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| typed(one, other))
        }
        _ => one == other || is_empty(one) && is_empty(other),
    }
}

/// Compares two custom resources semantically.
#[must_use]
pub fn custom(one: &Value, other: &Value) -> bool {
    one == other
}

/// An object with only empty fields is not empty itself: a pointer to an empty struct differs from nil.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compares_built_in_kinds_by_meaning_and_custom_ones_by_letter() {
        for (one, other, same_typed, same_custom) in [
            (json!({}), json!({}), true, true),
            (json!({"a": []}), json!({}), true, false),
            (json!({"a": null}), json!({}), true, false),
            (json!({}), json!({"a": {}}), true, false),
            (json!({"a": []}), json!({"a": {}}), true, false),
            (json!({"a": [1]}), json!({}), false, false),
            (json!({}), json!({"a": "x"}), false, false),
            (json!({"a": [1, 2]}), json!({"a": [2, 1]}), false, false),
            (json!({"a": [{}]}), json!({"a": []}), false, false),
            (
                json!({"a": {"b": "1"}}),
                json!({"a": {"b": "1"}}),
                true,
                true,
            ),
            (
                json!({"a": {"b": "1"}}),
                json!({"a": {"b": "2"}}),
                false,
                false,
            ),
        ] {
            assert_eq!(typed(&one, &other), same_typed, "{one} {other}");
            assert_eq!(typed(&other, &one), same_typed, "{other} {one}");
            assert_eq!(custom(&one, &other), same_custom, "{one} {other}");
        }
    }
}
