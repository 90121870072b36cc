//! Selectable fields, and how they are read from an object.

use serde_json::Value;

/// A selectable field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSelector {
    /// The field label, as clients write it.
    pub label: &'static str,
    read: Read,
}

/// The conversion of a field to the string that selectors compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// The string at a path; empty if absent.
    Text(&'static [&'static str]),
    /// The boolean at a path; `false` if absent.
    Flag(&'static [&'static str]),
    /// The number at a path; `0` if absent.
    Number(&'static [&'static str]),
    /// The first nonempty string of several paths.
    FirstOf(&'static [&'static [&'static str]]),
    /// Accepted, but absent from the field set of every object.
    Absent,
}

impl FieldSelector {
    /// The field of an object as the string that selectors compare.
    #[must_use]
    pub fn read(&self, object: &Value) -> String {
        match self.read {
            Read::Text(path) => text(object, path).to_owned(),
            Read::Flag(path) => at(object, path)
                .and_then(Value::as_bool)
                .unwrap_or_default()
                .to_string(),
            Read::Number(path) => at(object, path)
                .and_then(Value::as_i64)
                .unwrap_or_default()
                .to_string(),
            Read::FirstOf(paths) => paths
                .iter()
                .map(|path| text(object, path))
                .find(|text| !text.is_empty())
                .unwrap_or_default()
                .to_owned(),
            Read::Absent => String::new(),
        }
    }
}

fn at<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, segment| match value {
        Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
        _ => value.get(segment),
    })
}

fn text<'v>(object: &'v Value, path: &[&str]) -> &'v str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) const fn select(label: &'static str, path: &'static [&'static str]) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::Text(path),
    }
}

/// A boolean field.
pub(crate) const fn flag_selector(
    label: &'static str,
    path: &'static [&'static str],
) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::Flag(path),
    }
}

/// A numeric field.
pub(crate) const fn number_selector(
    label: &'static str,
    path: &'static [&'static str],
) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::Number(path),
    }
}

/// The first nonempty string of several paths.
pub(crate) const fn first_of(
    label: &'static str,
    paths: &'static [&'static [&'static str]],
) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::FirstOf(paths),
    }
}

/// A field that is accepted, but absent from the field set of every object.
pub(crate) const fn absent(label: &'static str) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::Absent,
    }
}

pub(crate) const NAME: FieldSelector = select("metadata.name", &["metadata", "name"]);
pub(crate) const NAMESPACE: FieldSelector =
    select("metadata.namespace", &["metadata", "namespace"]);
