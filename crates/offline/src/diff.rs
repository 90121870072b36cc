//! Differences between two objects: changed fields, and a unified diff.

use serde_json::Value;
use similar::TextDiff;

/// A changed field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// Its path, as in `spec.containers[0].image`.
    pub path: String,
    /// The old value; `None` if absent.
    pub before: Option<Value>,
    /// The new value; `None` if removed.
    pub after: Option<Value>,
}

/// The changed fields. A list with another length counts as one field.
#[must_use]
pub fn fields(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    // An explicit stack: depth uses heap memory, not the stack.
    let mut open = vec![(String::new(), before, after)];
    while let Some((path, before, after)) = open.pop() {
        if before == after {
            continue;
        }
        match (before, after) {
            (Value::Object(one), Value::Object(other)) => {
                let keys = one
                    .keys()
                    .chain(other.keys().filter(|key| !one.contains_key(*key)));
                let mut keys: Vec<&String> = keys.collect();
                keys.sort();
                for key in keys.into_iter().rev() {
                    let path = join(&path, key);
                    match (one.get(key), other.get(key)) {
                        (Some(one), Some(other)) => open.push((path, one, other)),
                        (before, after) => changes.push(FieldChange {
                            path,
                            before: before.cloned(),
                            after: after.cloned(),
                        }),
                    }
                }
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                for (nth, (one, other)) in one.iter().zip(other).enumerate() {
                    open.push((format!("{path}[{nth}]"), one, other));
                }
            }
            _ => changes.push(FieldChange {
                path,
                before: Some(before.clone()),
                after: Some(after.clone()),
            }),
        }
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes
}

/// The path of a field.
pub(crate) fn join(path: &str, key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match (path, key.chars().all(is_plain) && !key.is_empty()) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{}]", lockgate_go::quote::quote(key)),
    }
}

/// A unified diff of two objects as YAML.
#[must_use]
pub fn unified(before: &Value, after: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        value => lockgate_api::document::yaml::write(value),
    };
    let (before, after) = (text(before), text(after));
    let diff = TextDiff::from_lines(&before, &after);
    diff.unified_diff().context_radius(3).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_the_fields_that_differ() {
        let before = json!({"a": {"b": 1, "x": 1}, "l": [1, 2], "m": [{"n": 1}], "same": [1]});
        let after = json!({"a": {"b": 2, "k/y": 3}, "l": [1], "m": [{"n": 2}], "same": [1]});
        let changes = fields(&before, &after);
        let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(paths, ["a.b", "a.x", "a[\"k/y\"]", "l", "m[0].n"]);
        assert_eq!(changes[1].after, None);
        assert_eq!(fields(&before, &before), []);
    }
}
