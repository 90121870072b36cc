//! Fields that field selectors may name, and how each is read from an object.

use serde_json::Value;

/// A field that field selectors may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSelector {
    /// The label as clients write it.
    pub label: &'static str,
    read: Read,
}

/// The conversion of a field to the string that selectors compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// The text at a path; empty when absent.
    Text(&'static [&'static str]),
    /// The boolean at a path; `false` when absent.
    Flag(&'static [&'static str]),
    /// The number at a path; `0` when absent.
    Number(&'static [&'static str]),
    /// The first of these texts that is not empty.
    FirstOf(&'static [&'static [&'static str]]),
    /// Supported in name only: it is in no object's set of fields.
    Absent,
}

impl FieldSelector {
    /// The text that selectors compare, for one object.
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

/// The first of several texts that is not empty.
pub(crate) const fn first_of(
    label: &'static str,
    paths: &'static [&'static [&'static str]],
) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::FirstOf(paths),
    }
}

/// A field that selectors may name and that is in no object's set of fields.
pub(crate) const fn absent(label: &'static str) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::Absent,
    }
}

pub(crate) const NAME: FieldSelector = select("metadata.name", &["metadata", "name"]);
pub(crate) const NAMESPACE: FieldSelector =
    select("metadata.namespace", &["metadata", "namespace"]);
