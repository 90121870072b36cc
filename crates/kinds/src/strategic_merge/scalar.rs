//! Comparison of values as Go compares decoded JSON.

use serde_json::Value;

/// A comparable scalar.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Null,
    Bool(bool),
    Int(i64),
    /// The bit pattern of a double.
    Float(u64),
    Text(String),
}

/// The comparable form; `None` for containers, which are never equal.
pub(super) fn key(value: &Value) -> Option<Key> {
    Some(match value {
        Value::Null => Key::Null,
        Value::Bool(flag) => Key::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Key::Int(integer),
            None => Key::Float(number.as_f64().unwrap_or_default().to_bits()),
        },
        Value::String(text) => Key::Text(text.clone()),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// Returns true if both would have the same Go type.
pub(super) fn same_type(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_i64().is_some() == b.as_i64().is_some(),
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}
