//! Field errors of custom resources.

use std::fmt::Display;

use lockgate_api::field::{ErrorType, FieldError, Path as FieldPath, Shown};

/// At most this many errors are kept of one check.
///
/// Upstream keeps all, and compares each with all others before it.
pub(crate) const MAX_ERRORS: usize = 10_000;

fn at(place: &impl Display, build: impl FnOnce(&FieldPath<'_>) -> FieldError) -> FieldError {
    let text = place.to_string();
    build(&FieldPath::root(&text))
}

/// The value, which is shown as it is given, is malformed.
pub(crate) fn invalid(place: &impl Display, shown: &str, detail: impl Into<String>) -> FieldError {
    at(place, |path| {
        FieldError::invalid(path, Shown::Rendered(shown), detail)
    })
}

/// As [`invalid`], for a text.
pub(crate) fn invalid_text(
    place: &impl Display,
    text: &str,
    detail: impl Into<String>,
) -> FieldError {
    at(place, |path| {
        FieldError::invalid(path, Shown::Text(text), detail)
    })
}

/// The value is of another type than the schema says.
pub(crate) fn invalid_type(place: &impl Display, text: &str, detail: String) -> FieldError {
    let mut error = invalid_text(place, text, detail);
    error.error_type = ErrorType::TypeInvalid;
    error
}

/// The value is malformed and not worth showing.
pub(crate) fn invalid_without_value(place: &impl Display, detail: &str) -> FieldError {
    // The detail stands where the value would: the text has nothing between them.
    invalid(place, detail, "")
}

/// The value has to be given.
pub(crate) fn required(place: &impl Display, detail: impl Into<String>) -> FieldError {
    at(place, |path| FieldError::required(path, detail))
}

/// The value must not be given.
pub(crate) fn forbidden(place: &impl Display, detail: impl Into<String>) -> FieldError {
    at(place, |path| FieldError::forbidden(path, detail))
}

/// The server itself failed.
pub(crate) fn internal(place: &impl Display, detail: impl Into<String>) -> FieldError {
    at(place, |path| FieldError::internal(path, detail))
}

/// The value repeats another one.
pub(crate) fn duplicate(place: &impl Display, shown: &str) -> FieldError {
    at(place, |path| {
        FieldError::duplicate(path, Shown::Rendered(shown))
    })
}

/// The value is not one of a closed set.
pub(crate) fn not_supported(place: &impl Display, shown: &str, supported: &[&str]) -> FieldError {
    at(place, |path| {
        FieldError::not_supported(path, Shown::Rendered(shown), supported)
    })
}

/// The text has more than `limit` bytes.
pub(crate) fn too_long(place: &impl Display, limit: i64) -> FieldError {
    let mut error = at(place, |path| {
        FieldError::too_long(path, usize::try_from(limit).unwrap_or_default())
    });
    if limit < 0 {
        "value is too long".clone_into(&mut error.detail);
    }
    error
}

/// The list or map has `count` items instead of at most `limit`.
pub(crate) fn too_many(place: &impl Display, count: usize, limit: i64) -> FieldError {
    let mut error = at(place, |path| {
        FieldError::too_many(path, count, usize::try_from(limit).unwrap_or_default())
    });
    if limit < 0 {
        "has too many items".clone_into(&mut error.detail);
    }
    error
}
