//! JSON values as Go decodes and prints them, without recursion.

use serde_json::{Map, Value as Json};

use lockgate_go::json::to_string;
use lockgate_go::number::format_double;
use lockgate_go::quote::quote;

/// The Go value that a JSON value is decoded to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Go<'j> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'j str),
    List(&'j [Json]),
    Map(&'j Map<String, Json>),
}

impl<'j> From<&'j Json> for Go<'j> {
    fn from(json: &'j Json) -> Self {
        match json {
            Json::Null => Self::Nil,
            Json::Bool(flag) => Self::Bool(*flag),
            // Numbers beyond signed 64 bits are floats, even if they are written as integers.
            Json::Number(number) => number.as_i64().map_or_else(
                || Self::Float(number.as_f64().unwrap_or_default()),
                Self::Int,
            ),
            Json::String(text) => Self::Text(text),
            Json::Array(items) => Self::List(items),
            Json::Object(entries) => Self::Map(entries),
        }
    }
}

/// A value as field errors print it.
pub(crate) fn shown(json: &Json) -> String {
    match Go::from(json) {
        Go::Bool(flag) => flag.to_string(),
        Go::Int(number) => number.to_string(),
        Go::Float(number) => format_double(number),
        Go::Text(text) => quote(text),
        Go::Nil | Go::List(_) | Go::Map(_) => compact(json),
    }
}

/// A value as Go's encoder prints it.
pub(crate) fn compact(json: &Json) -> String {
    let mut out = String::new();
    write(&mut out, json, &JSON, |out, scalar| {
        out.push_str(&to_string(scalar));
    });
    out
}

/// A value as Go's `%v` prints it.
pub(crate) fn verbose(json: &Json) -> String {
    const FORM: Form = Form {
        list: ("[", " ", "]"),
        map: ("map[", " ", "]"),
        key: |key| key.to_owned(),
    };
    let mut out = String::new();
    write(&mut out, json, &FORM, |out, scalar| match scalar {
        Json::Null => out.push_str("<nil>"),
        Json::String(text) => out.push_str(text),
        other => out.push_str(&shown(other)),
    });
    out
}

/// A string that is equal for two values if and only if Go's `DeepEqual` is true: unlike with [`compact`], integers
/// differ from floats of the same value.
pub(crate) fn identity(json: &Json) -> String {
    let mut out = String::new();
    write(&mut out, json, &JSON, |out, scalar| {
        out.push_str(&to_string(scalar));
        if matches!(Go::from(scalar), Go::Float(_)) {
            out.push('f');
        }
    });
    out
}

/// The brackets and separators of an output format.
struct Form {
    list: (&'static str, &'static str, &'static str),
    map: (&'static str, &'static str, &'static str),
    key: fn(&str) -> String,
}

const JSON: Form = Form {
    list: ("[", ",", "]"),
    map: ("{", ",", "}"),
    key: |key| to_string(key),
};

/// Prints a value with an explicit stack, since values may nest deeper than the thread's stack allows.
fn write(out: &mut String, json: &Json, form: &Form, scalar: impl Fn(&mut String, &Json)) {
    enum Step<'j> {
        Value(&'j Json),
        Key(&'j str),
        Text(&'static str),
    }
    let mut steps = vec![Step::Value(json)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Text(text) => out.push_str(text),
            Step::Key(key) => {
                out.push_str(&(form.key)(key));
                out.push(':');
            }
            Step::Value(Json::Array(items)) => {
                let (open, between, close) = form.list;
                out.push_str(open);
                steps.push(Step::Text(close));
                for (at, item) in items.iter().enumerate().rev() {
                    steps.push(Step::Value(item));
                    if at > 0 {
                        steps.push(Step::Text(between));
                    }
                }
            }
            Step::Value(Json::Object(entries)) => {
                let (open, between, close) = form.map;
                out.push_str(open);
                steps.push(Step::Text(close));
                for (at, (key, value)) in entries.iter().enumerate().rev() {
                    steps.push(Step::Value(value));
                    steps.push(Step::Key(key));
                    if at > 0 {
                        steps.push(Step::Text(between));
                    }
                }
            }
            Step::Value(other) => scalar(out, other),
        }
    }
}

/// Copies a value with an explicit stack.
pub(crate) fn copy(json: &Json) -> Json {
    /// An open container, with its remaining children.
    enum Open<'j> {
        List(Vec<Json>, std::slice::Iter<'j, Json>),
        Map(Map<String, Json>, &'j str, serde_json::map::Iter<'j>),
    }
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut next = Some(json);
    loop {
        let mut done = match next.take() {
            Some(Json::Array(items)) => {
                open.push(Open::List(Vec::with_capacity(items.len()), items.iter()));
                None
            }
            Some(Json::Object(entries)) => {
                open.push(Open::Map(Map::new(), "", entries.iter()));
                None
            }
            Some(scalar) => Some(scalar.clone()),
            None => None,
        };
        while next.is_none() {
            match (open.last_mut(), done.take()) {
                (None, Some(value)) => return value,
                (None, None) => return Json::Null,
                (Some(Open::List(items, rest)), value) => {
                    items.extend(value);
                    next = rest.next();
                }
                (Some(Open::Map(entries, key, rest)), value) => {
                    if let Some(value) = value {
                        entries.insert((*key).to_owned(), value);
                    }
                    next = rest.next().map(|(name, value)| {
                        *key = name;
                        value
                    });
                }
            }
            if next.is_none() {
                done = open.pop().map(|full| match full {
                    Open::List(items, _) => items.into(),
                    Open::Map(entries, ..) => entries.into(),
                });
            }
        }
    }
}

/// Returns true if two values are equal as Go's `DeepEqual` defines it.
pub(crate) fn equal(left: &Json, right: &Json) -> bool {
    let mut pairs = vec![(left, right)];
    while let Some((left, right)) = pairs.pop() {
        match (Go::from(left), Go::from(right)) {
            (Go::List(a), Go::List(b)) => {
                if a.len() != b.len() {
                    return false;
                }
                pairs.extend(a.iter().zip(b));
            }
            (Go::Map(a), Go::Map(b)) => {
                if a.len() != b.len() {
                    return false;
                }
                for (key, value) in a {
                    match b.get(key) {
                        Some(other) => pairs.push((value, other)),
                        None => return false,
                    }
                }
            }
            (a, b) if a == b => {}
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(depth: usize, innermost: Json) -> Json {
        (0..depth).fold(innermost, |inner, at| match at % 2 {
            0 => Json::Array(vec![inner]),
            _ => Json::Object([("a".to_owned(), inner)].into_iter().collect()),
        })
    }

    #[test]
    fn shows_values_as_field_errors_do() {
        for (value, want) in [
            (json!(null), "null"),
            (json!(3), "3"),
            (json!(1.5), "1.5"),
            (json!(1_000_000.0), "1e+06"),
            (json!("a<"), "\"a<\""),
            (
                json!({"b": "<", "a": [1.0, null, {}]}),
                "{\"a\":[1,null,{}],\"b\":\"\\u003c\"}",
            ),
        ] {
            assert_eq!(shown(&value), want);
        }
    }

    #[test]
    fn tells_whole_numbers_from_floats() {
        assert!(!equal(&json!([1]), &json!([1.0])));
        assert_ne!(identity(&json!([1])), identity(&json!([1.0])));
        assert_eq!(compact(&json!([1])), compact(&json!([1.0])));
        assert!(equal(&json!({"a": [1, "x"]}), &json!({"a": [1, "x"]})));
        assert!(!equal(&json!({"a": 1}), &json!({"b": 1})));
    }

    #[test]
    fn deep_values_cost_no_stack() {
        let (one, other) = (nested(9_999, json!(1)), nested(9_999, json!(2)));
        assert!(!equal(&one, &other));
        assert!(equal(&one, &one));
        assert_eq!(compact(&one).matches('[').count(), 5_000);
        assert!(equal(&copy(&one), &one));
    }

    #[test]
    fn copies_are_equal() {
        for value in [
            json!(null),
            json!("x"),
            json!([]),
            json!({}),
            json!({"a": [1, {}, [], {"b": null}], "c": {"d": [[2]]}}),
        ] {
            assert_eq!(copy(&value), value);
        }
    }
}
