//! JSON values handled without recursion: objects may nest ten thousand levels deep.

use serde_json::map::Map;
use serde_json::{Number, Value};

use lockgate_api::document;
use lockgate_api::document::Kind;

/// The maximum depth of free-form fields in built-in kinds, so that objects can be cloned, compared, serialized and
/// dropped with `serde_json`, which recurses.
///
/// Upstream's limit is ten thousand levels.
pub const MAX_DEPTH: usize = 500;

/// Converts a document to a JSON value; of duplicate keys, the last one counts.
#[must_use]
pub fn from_document(root: document::Value<'_>) -> Value {
    from_document_within(root, usize::MAX).unwrap_or_default()
}

/// Like [`from_document`]; `None` if the value nests deeper than `levels`.
#[must_use]
pub fn from_document_within(root: document::Value<'_>, levels: usize) -> Option<Value> {
    build(
        levels,
        root,
        |value| match value.kind() {
            Kind::Null => Step::Leaf(Value::Null),
            Kind::Bool => Step::Leaf(Value::Bool(value.as_bool().unwrap_or_default())),
            Kind::Number => Step::Leaf(number(value.as_number().unwrap_or_default())),
            Kind::String => Step::Leaf(Value::from(value.as_str().unwrap_or_default())),
            Kind::Array => Step::Array,
            Kind::Object => Step::Object,
        },
        |value| value.items(),
        |value| value.members().map(|member| (member.key, member.value)),
    )
}

/// Copies a value.
#[must_use]
pub fn copy(root: &Value) -> Value {
    copy_within(root, usize::MAX).unwrap_or_default()
}

/// Like [`copy`]; `None` if the value nests deeper than `levels`.
#[must_use]
pub fn copy_within(root: &Value, levels: usize) -> Option<Value> {
    build(
        levels,
        root,
        |value| match value {
            Value::Array(_) => Step::Array,
            Value::Object(_) => Step::Object,
            leaf => Step::Leaf(leaf.clone()),
        },
        |value| {
            value
                .as_array()
                .map(|list| list.iter())
                .into_iter()
                .flatten()
        },
        |value| {
            let members = value.as_object().map(Map::iter).into_iter().flatten();
            members.map(|(key, value)| (key.as_str(), value))
        },
    )
}

/// Drops a value. The recursive `Drop` of a deep value would overflow the stack.
pub fn dismantle(root: Value) {
    let mut rest = vec![root];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => rest.extend(members.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// Returns true if two values are equal.
#[must_use]
pub fn equal(a: &Value, b: &Value) -> bool {
    let mut rest = vec![(a, b)];
    while let Some(pair) = rest.pop() {
        match pair {
            (Value::Array(a), Value::Array(b)) => {
                if a.len() != b.len() {
                    return false;
                }
                rest.extend(a.iter().zip(b));
            }
            (Value::Object(a), Value::Object(b)) => {
                if a.len() != b.len() {
                    return false;
                }
                for ((a_key, a), (b_key, b)) in a.iter().zip(b) {
                    if a_key != b_key {
                        return false;
                    }
                    rest.push((a, b));
                }
            }
            (a, b) if a == b => {}
            _ => return false,
        }
    }
    true
}

enum Step {
    Leaf(Value),
    Array,
    Object,
}

enum Open<'k, I, M> {
    Array(I, Vec<Value>),
    Object(M, Map<String, Value>, &'k str),
}

fn build<'k, S, I, M>(
    levels: usize,
    root: S,
    step: impl Fn(S) -> Step,
    items: impl Fn(S) -> I,
    members: impl Fn(S) -> M,
) -> Option<Value>
where
    S: Copy,
    I: Iterator<Item = S>,
    M: Iterator<Item = (&'k str, S)>,
{
    let mut open: Vec<Open<'k, I, M>> = Vec::new();
    let mut next = root;
    loop {
        if open.len() > levels {
            return None;
        }
        let mut done = match step(next) {
            Step::Leaf(value) => Some(value),
            Step::Array => {
                open.push(Open::Array(items(next), Vec::new()));
                None
            }
            Step::Object => {
                open.push(Open::Object(members(next), Map::new(), ""));
                None
            }
        };
        next = loop {
            let following = match (open.last_mut(), done.take()) {
                (None, value) => return value,
                (Some(Open::Array(items, out)), value) => {
                    out.extend(value);
                    items.next()
                }
                (Some(Open::Object(members, out, key)), value) => {
                    if let Some(value) = value {
                        out.insert((*key).to_owned(), value);
                    }
                    members.next().map(|(name, value)| {
                        *key = name;
                        value
                    })
                }
            };
            match following {
                Some(value) => break value,
                None => {
                    done = open.pop().map(|container| match container {
                        Open::Array(_, out) => Value::Array(out),
                        Open::Object(_, out, _) => Value::Object(out),
                    });
                }
            }
        };
    }
}

/// A number that overflows a double, with Go's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal number {0} into Go value of type float64")]
pub struct NumberError(String);

/// Checks that every number of a value fits a double, which Go decodes it as.
///
/// # Errors
///
/// The first number that does not.
pub fn check_numbers(root: document::Value<'_>) -> Result<(), NumberError> {
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        if let Some(text) = value.as_number()
            && !text.parse::<f64>().is_ok_and(f64::is_finite)
        {
            return Err(NumberError(text.to_owned()));
        }
        open.extend(value.items());
        open.extend(value.members().map(|member| member.value));
    }
    Ok(())
}

/// Converts numbers to the types that Go decodes them as without a schema: a number that does not fit an `int64` is a
/// `float64`.
pub fn read_numbers(root: &mut Value) {
    let mut rest = vec![root];
    while let Some(value) = rest.pop() {
        match value {
            Value::Number(number) if number.is_u64() && !number.is_i64() => {
                if let Some(double) = number.as_f64().and_then(Number::from_f64) {
                    *number = double;
                }
            }
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => rest.extend(members.values_mut()),
            _ => {}
        }
    }
}

/// Converts numbers to the types that they have after storage: a negative zero is serialized as `-0`, which is parsed
/// as an integer.
pub fn store_numbers(root: &mut Value) {
    let mut rest = vec![root];
    while let Some(value) = rest.pop() {
        match value {
            Value::Number(number) if is_negative_zero(number) => *value = Value::from(0),
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => rest.extend(members.values_mut()),
            _ => {}
        }
    }
}

fn is_negative_zero(number: &Number) -> bool {
    let double = number.as_f64().filter(|_| number.is_f64());
    double.is_some_and(|double| double == 0.0 && double.is_sign_negative())
}

/// Parses a number: an `int64` if possible, or else a double.
fn number(text: &str) -> Value {
    if let Ok(integer) = text.parse::<i64>() {
        return Value::from(integer);
    }
    if let Ok(integer) = text.parse::<u64>() {
        return Value::from(integer);
    }
    text.parse::<f64>()
        .ok()
        .and_then(Number::from_f64)
        .map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use lockgate_api::document::json::parse;

    use super::*;

    #[test]
    fn keeps_values_of_a_document() {
        let text = r#"{"a":[1,-2,18446744073709551615,0.5,"x",null,true,{}],"b":{"c":[]}}"#;
        let tree = from_document(parse(text.as_bytes()).unwrap().root());
        assert_eq!(tree.to_string(), text);
        assert_eq!(copy(&tree), tree);
        assert!(equal(&copy(&tree), &tree));
        assert!(!equal(&tree, &serde_json::json!({"a": [], "b": {"c": []}})));
    }

    #[test]
    fn large_numbers_are_doubles() {
        let text = r#"{"a":[18446744073709551615,9223372036854775807,-1,0.5]}"#;
        let mut tree = from_document(parse(text.as_bytes()).unwrap().root());
        read_numbers(&mut tree);
        let numbers = serde_json::json!({"a": [18_446_744_073_709_551_615.0, i64::MAX, -1, 0.5]});
        assert_eq!(tree, numbers);
    }

    #[test]
    fn a_negative_zero_is_stored_as_an_integer() {
        let mut tree = serde_json::json!({"a": [-0.0, 0.0, -0.5, 0], "b": {"c": -0.0}});
        store_numbers(&mut tree);
        assert_eq!(tree.to_string(), r#"{"a":[0,0.0,-0.5,0],"b":{"c":0}}"#);
    }

    #[test]
    fn of_repeated_members_the_last_counts() {
        let document = parse(br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(from_document(document.root()).to_string(), r#"{"a":2}"#);
    }

    #[test]
    fn depth_costs_no_stack() {
        let text = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let tree = from_document(parse(text.as_bytes()).unwrap().root());
        let second = copy(&tree);
        assert!(equal(&tree, &second));
        dismantle(tree);
        dismantle(second);
    }

    #[test]
    fn depth_can_be_bounded() {
        let document = parse(b"[[[1]]]").unwrap();
        assert!(from_document_within(document.root(), 2).is_none());
        let tree = from_document_within(document.root(), 3).unwrap();
        assert!(copy_within(&tree, 2).is_none());
        assert_eq!(copy_within(&tree, 3), Some(tree));
    }
}
