//! Field paths and field errors, in the format of the Kubernetes API.

use std::fmt;

use lockgate_go::quote::{quote, quote_json, quote_json_list};

/// The path of a field inside an object, such as `webhooks[0].rules[1].scope`.
///
/// Paths are built while validating and only formatted when an error is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Self>,
    segment: Segment<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Segment<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A path with one segment.
    #[must_use]
    pub fn root(name: &'a str) -> Self {
        Self {
            parent: None,
            segment: Segment::Name(name),
        }
    }

    /// The field `name` of this path.
    #[must_use]
    pub fn child(&'a self, name: &'a str) -> Self {
        Self {
            parent: Some(self),
            segment: Segment::Name(name),
        }
    }

    /// The list element `index` of this path.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        Self {
            parent: Some(self),
            segment: Segment::Index(index),
        }
    }

    /// The map entry `key` of this path.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Self {
            parent: Some(self),
            segment: Segment::Key(key),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            // UPSTREAM: apimachinery pkg/util/validation/field/path.go: an empty name is an index.
            Segment::Name("") => f.write_str("[]"),
            Segment::Name(name) if self.parent.is_some() => write!(f, ".{name}"),
            Segment::Name(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// The type of a field error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// A required value is missing.
    Required,
    /// The value is not allowed here.
    Forbidden,
    /// The value is malformed or out of range.
    Invalid,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value is not one of the supported values.
    NotSupported,
    /// The value is a duplicate.
    Duplicate,
    /// The value refers to something that does not exist.
    NotFound,
    /// The list is too long.
    TooMany,
    /// The list is too short.
    TooFew,
    /// The string is too long.
    TooLong,
    /// The string is too short.
    TooShort,
    /// The validation itself failed.
    InternalError,
}

impl ErrorType {
    /// The `reason` of the cause in a `Status`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::InternalError => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Forbidden => "Forbidden",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::InternalError => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::InternalError
        )
    }
}

/// A field error: `path: Title: value: detail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The type of the error.
    pub error_type: ErrorType,
    /// The formatted path of the field.
    pub field: String,
    /// The formatted value; empty for types that do not include it.
    value: String,
    /// The detail; may be empty.
    pub detail: String,
}

/// Field errors in the order of validation.
pub type FieldErrors = Vec<FieldError>;

/// A value in an error. Upstream formats by Go type, so the caller selects it: a plain `string` is
/// quoted with `%q`, a defined string type as JSON.
#[derive(Debug, Clone, Copy)]
pub enum Shown<'a> {
    /// A Go `string`.
    Text(&'a str),
    /// A defined Go string type (`FailurePolicyType`, `OperationType`, …).
    Named(&'a str),
    /// A number.
    Integer(i64),
    /// A list of strings.
    List(&'a [String]),
    /// Anything else, already formatted.
    Rendered(&'a str),
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quote(text)),
            Self::Named(text) => f.write_str(&quote_json(text)),
            Self::Integer(number) => write!(f, "{number}"),
            Self::List(items) => f.write_str(&quote_json_list(items)),
            Self::Rendered(text) => f.write_str(text),
        }
    }
}

impl FieldError {
    fn new(error_type: ErrorType, path: &Path<'_>, value: String, detail: String) -> Self {
        Self {
            error_type,
            field: path.to_string(),
            value,
            detail,
        }
    }

    /// A required value is missing.
    #[must_use]
    pub fn required(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Required, path, String::new(), detail.into())
    }

    /// The value is not allowed here.
    #[must_use]
    pub fn forbidden(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, path, String::new(), detail.into())
    }

    /// The value is malformed.
    #[must_use]
    pub fn invalid(path: &Path<'_>, value: Shown<'_>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, path, value.to_string(), detail.into())
    }

    /// The value is a duplicate.
    #[must_use]
    pub fn duplicate(path: &Path<'_>, value: Shown<'_>) -> Self {
        Self::new(ErrorType::Duplicate, path, value.to_string(), String::new())
    }

    /// The value is not one of the `supported` ones, which are listed in this order.
    #[must_use]
    pub fn not_supported(path: &Path<'_>, value: Shown<'_>, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|item| quote(item)).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        Self::new(ErrorType::NotSupported, path, value.to_string(), detail)
    }

    /// The list has `count` items, but at most `limit` are allowed.
    #[must_use]
    pub fn too_many(path: &Path<'_>, count: usize, limit: usize) -> Self {
        let noun = if limit == 1 { "item" } else { "items" };
        let detail = format!("must have at most {limit} {noun}");
        Self::new(ErrorType::TooMany, path, count.to_string(), detail)
    }

    /// The string is longer than `limit` bytes.
    #[must_use]
    pub fn too_long(path: &Path<'_>, limit: usize) -> Self {
        let noun = if limit == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {limit} {noun}");
        Self::new(ErrorType::TooLong, path, String::new(), detail)
    }

    /// The server failed to validate the value.
    #[must_use]
    pub fn internal(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::InternalError, path, String::new(), detail.into())
    }

    /// The formatted value; empty for types that do not include it.
    #[must_use]
    pub fn formatted_value(&self) -> &str {
        &self.value
    }

    /// The error without its path, as in a cause's `message`.
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = String::from(self.error_type.title());
        if self.error_type.shows_value() && !self.value.is_empty() {
            body.push_str(": ");
            body.push_str(&self.value);
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Joins errors like upstream's aggregate: a single one unchanged, several *distinct* messages in
/// brackets in order of first occurrence.
#[must_use]
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut distinct: Vec<String> = Vec::with_capacity(errors.len());
    let mut seen = std::collections::HashSet::with_capacity(errors.len());
    for text in errors.iter().map(ToString::to_string) {
        if seen.insert(text.clone()) {
            distinct.push(text);
        }
    }
    match distinct.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_paths() {
        let webhooks = Path::root("webhooks");
        let first = webhooks.index(0);
        let labels = first.child("labels");
        assert_eq!(labels.key("a").to_string(), "webhooks[0].labels[a]");
    }

    #[test]
    fn prints_each_kind_of_value() {
        let path = Path::root("f");
        let list = [String::from("a"), String::from("<")];
        for (error, want) in [
            (FieldError::required(&path, ""), "f: Required value"),
            (FieldError::forbidden(&path, "no"), "f: Forbidden: no"),
            (
                FieldError::invalid(&path, Shown::Text("<\n"), "bad"),
                "f: Invalid value: \"<\\n\": bad",
            ),
            (
                FieldError::invalid(&path, Shown::Integer(3), "bad"),
                "f: Invalid value: 3: bad",
            ),
            (
                FieldError::invalid(&path, Shown::List(&list), ""),
                "f: Invalid value: [\"a\",\"\\u003c\"]",
            ),
            (
                FieldError::not_supported(&path, Shown::Named("<"), &["A", "B"]),
                "f: Unsupported value: \"\\u003c\": supported values: \"A\", \"B\"",
            ),
            (
                FieldError::duplicate(&path, Shown::Text("a")),
                "f: Duplicate value: \"a\"",
            ),
            (
                FieldError::too_many(&path, 2, 1),
                "f: Too many: 2: must have at most 1 item",
            ),
        ] {
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn aggregates_distinct_texts_only() {
        let path = Path::root("f");
        let required = FieldError::required(&path, "");
        let forbidden = FieldError::forbidden(&path, "");
        assert_eq!(
            aggregate(&[required.clone(), required.clone()]),
            "f: Required value"
        );
        assert_eq!(
            aggregate(&[required.clone(), forbidden, required]),
            "[f: Required value, f: Forbidden]"
        );
    }
}
