//! The differences between two versions of an object, and the writers of the remaining fields.

use serde::Serialize;
use serde_json::{Map, Value};

/// Values nested deeper than this are compared as a whole.
const MAX_DEPTH: usize = 64;
/// The maximum number of reported differences per step.
const MAX_CHANGES: usize = 1_000;

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Change {
    /// A JSON pointer into the object after the change, or before it for removals.
    pub(crate) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Value>,
}

/// The differences, in the order of the object after them.
pub(crate) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare(&mut String::new(), before, after, 0, &mut found);
    found
}

fn compare(path: &mut String, before: &Value, after: &Value, depth: usize, into: &mut Vec<Change>) {
    if before == after || into.len() >= MAX_CHANGES {
        return;
    }
    match (before, after) {
        (Value::Object(one), Value::Object(other)) if depth < MAX_DEPTH => {
            compare_maps(path, one, other, depth, into);
        }
        (Value::Array(one), Value::Array(other)) if depth < MAX_DEPTH => {
            compare_lists(path, one, other, depth, into);
        }
        _ => into.push(Change {
            path: path.clone(),
            before: Some(before.clone()),
            after: Some(after.clone()),
        }),
    }
}

fn compare_maps(
    path: &mut String,
    one: &Map<String, Value>,
    other: &Map<String, Value>,
    depth: usize,
    into: &mut Vec<Change>,
) {
    for (key, before) in one {
        let after = other.get(key);
        within(path, key, |path| {
            pair(path, Some(before), after, depth, into)
        });
    }
    for (key, after) in other.iter().filter(|(key, _)| !one.contains_key(*key)) {
        within(path, key, |path| pair(path, None, Some(after), depth, into));
    }
}

/// Lists of named items, such as containers, are compared by name; others by index, without the common head and tail.
fn compare_lists(
    path: &mut String,
    one: &[Value],
    other: &[Value],
    depth: usize,
    into: &mut Vec<Change>,
) {
    let name = |value: &Value| Some(value.get("name")?.as_str()?.to_owned());
    let names = |list: &[Value]| list.iter().map(name).collect::<Option<Vec<_>>>();
    if let (Some(names), Some(other_names)) = (names(one), names(other)) {
        for (at, (before, name)) in one.iter().zip(&names).enumerate() {
            let place = other_names.iter().position(|known| known == name);
            let after = place.and_then(|place| other.get(place));
            let key = place.unwrap_or(at).to_string();
            within(path, &key, |path| {
                pair(path, Some(before), after, depth, into)
            });
        }
        for (at, (after, name)) in other.iter().zip(&other_names).enumerate() {
            if !names.contains(name) {
                within(path, &at.to_string(), |path| {
                    pair(path, None, Some(after), depth, into)
                });
            }
        }
        return;
    }
    let same = |(before, after): &(&Value, &Value)| before == after;
    let head = one.iter().zip(other).take_while(same).count();
    let (rest, other_rest) = (&one[head..], &other[head..]);
    let tail = rest.iter().rev().zip(other_rest.iter().rev());
    let tail = tail.take_while(same).count();
    let (rest, other_rest) = (
        &rest[..rest.len() - tail],
        &other_rest[..other_rest.len() - tail],
    );
    for at in 0..rest.len().max(other_rest.len()) {
        let (before, after) = (rest.get(at), other_rest.get(at));
        let key = (head + at).to_string();
        within(path, &key, |path| pair(path, before, after, depth, into));
    }
}

fn pair(
    path: &mut String,
    before: Option<&Value>,
    after: Option<&Value>,
    depth: usize,
    into: &mut Vec<Change>,
) {
    match (before, after) {
        (Some(before), Some(after)) => compare(path, before, after, depth + 1, into),
        (None, None) => {}
        (before, after) => {
            if into.len() < MAX_CHANGES {
                into.push(Change {
                    path: path.clone(),
                    before: before.cloned(),
                    after: after.cloned(),
                });
            }
        }
    }
}

fn within(path: &mut String, key: &str, act: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
    act(path);
    path.truncate(length);
}

/// The last writer of each field.
#[derive(Debug, Default)]
pub(crate) struct Blame(Vec<(String, Value)>);

impl Blame {
    /// Records the changes of one author.
    pub(crate) fn note(&mut self, changes: &[Change], by: &Value) {
        for change in changes {
            // Fields below it no longer exist.
            let inside = |known: &str| {
                known
                    .strip_prefix(change.path.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            self.0.retain(|(known, _)| !inside(known));
            if change.after.is_some() {
                self.0.push((change.path.clone(), by.clone()));
            }
        }
    }

    /// Returns a map from pointers to authors.
    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(before: &Value, after: &Value) -> Vec<String> {
        let text = |value: Option<Value>| value.map_or_else(String::new, |value| value.to_string());
        let changes = changes(before, after).into_iter();
        changes
            .map(|change| {
                format!(
                    "{} {}>{}",
                    change.path,
                    text(change.before),
                    text(change.after)
                )
            })
            .collect()
    }

    #[test]
    fn tells_what_was_added_removed_and_replaced() {
        let before = json!({"a": 1, "b": {"c/d": true}, "e": []});
        let after = json!({"a": 2, "b": {"c/d": true, "x~y": null}, "f": "g"});
        assert_eq!(
            shown(&before, &after),
            ["/a 1>2", "/b/x~0y >null", "/e []>", "/f >\"g\""]
        );
        assert_eq!(shown(&after, &after), [""; 0]);
    }

    #[test]
    fn compares_named_things_by_name() {
        let before = json!([{"name": "a", "image": "a:1"}, {"name": "b"}]);
        let after = json!([{"name": "new"}, {"name": "a", "image": "a:2"}]);
        assert_eq!(
            shown(&before, &after),
            [
                "/1/image \"a:1\">\"a:2\"",
                "/1 {\"name\":\"b\"}>",
                "/0 >{\"name\":\"new\"}"
            ]
        );
    }

    #[test]
    fn leaves_out_the_ends_of_lists_that_are_the_same() {
        assert_eq!(shown(&json!([1, 2, 3]), &json!([1, 9, 2, 3])), ["/1 >9"]);
        assert_eq!(shown(&json!([1, 2, 3]), &json!([1, 3])), ["/1 2>"]);
        assert_eq!(shown(&json!([1, 2]), &json!([3, 4])), ["/0 1>3", "/1 2>4"]);
    }

    #[test]
    fn ends_on_deep_and_wide_values() {
        let mut deep = json!(1);
        for _ in 0..MAX_DEPTH * 2 {
            deep = json!({ "a": deep });
        }
        assert_eq!(changes(&deep, &json!({"a": 1})).len(), 1);
        let mut other = json!(2);
        for _ in 0..MAX_DEPTH * 2 {
            other = json!({ "a": other });
        }
        assert_eq!(
            changes(&deep, &other)[0].path.matches('/').count(),
            MAX_DEPTH
        );
        let wide = |n: usize| Value::from_iter((0..5_000).map(|at| json!(at + n)));
        assert_eq!(changes(&wide(0), &wide(1)).len(), MAX_CHANGES);
    }

    #[test]
    fn blames_the_last_who_set_a_field() {
        let steps = [
            (json!({"l": {}}), "user"),
            (json!({"l": {"a": 1}, "c": [1]}), "one"),
            (json!({"l": {"a": 2}, "c": [1]}), "two"),
            (json!({"l": {"a": 2}}), "three"),
            (json!({"l": "x"}), "four"),
        ];
        let mut blame = Blame::default();
        for pair in steps.windows(2) {
            blame.note(&changes(&pair[0].0, &pair[1].0), &json!(pair[1].1));
            if pair[1].1 == "two" {
                let map = Blame(blame.0.clone()).into_value();
                assert_eq!(map, json!({"/l/a": "two", "/c": "one"}));
            }
        }
        assert_eq!(blame.into_value(), json!({"/l": "four"}));
    }
}
