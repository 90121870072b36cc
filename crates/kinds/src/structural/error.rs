//! Field errors of custom resources.

use std::fmt::Display;

use lockgate_api::field::{ErrorType, FieldError, Path as FieldPath, Shown};

/// The maximum number of errors of one check.
///
/// Upstream keeps all errors, and compares each with all previous ones.
pub(crate) const MAX_ERRORS: usize = 10_000;

fn at(place: &impl Display, build: impl FnOnce(&FieldPath<'_>) -> FieldError) -> FieldError {
    let text = place.to_string();
    build(&FieldPath::root(&text))
}

/// An invalid value, printed as `shown`.
pub(crate) fn invalid(place: &impl Display, shown: &str, detail: impl Into<String>) -> FieldError {
    at(place, |path| {
        FieldError::invalid(path, Shown::Rendered(shown), detail)
    })
}

/// Like [`invalid`], for a string.
pub(crate) fn invalid_text(
    place: &impl Display,
    text: &str,
    detail: impl Into<String>,
) -> FieldError {
    at(place, |path| {
        FieldError::invalid(path, Shown::Text(text), detail)
    })
}

/// A value of another type than the schema's.
pub(crate) fn invalid_type(place: &impl Display, text: &str, detail: String) -> FieldError {
    let mut error = invalid_text(place, text, detail);
    error.error_type = ErrorType::TypeInvalid;
    error
}

/// An invalid value that is not printed.
pub(crate) fn invalid_without_value(place: &impl Display, detail: &str) -> FieldError {
    // The detail takes the place of the value, as in upstream's message.
    invalid(place, detail, "")
}

/// A required value.
pub(crate) fn required(place: &impl Display, detail: impl Into<String>) -> FieldError {
    at(place, |path| FieldError::required(path, detail))
}

/// A forbidden value.
pub(crate) fn forbidden(place: &impl Display, detail: impl Into<String>) -> FieldError {
    at(place, |path| FieldError::forbidden(path, detail))
}

/// An internal error.
pub(crate) fn internal(place: &impl Display, detail: impl Into<String>) -> FieldError {
    at(place, |path| FieldError::internal(path, detail))
}

/// A duplicate value.
pub(crate) fn duplicate(place: &impl Display, shown: &str) -> FieldError {
    at(place, |path| {
        FieldError::duplicate(path, Shown::Rendered(shown))
    })
}

/// A value that is not in the enum.
pub(crate) fn not_supported(place: &impl Display, shown: &str, supported: &[&str]) -> FieldError {
    at(place, |path| {
        FieldError::not_supported(path, Shown::Rendered(shown), supported)
    })
}

/// A string of more than `limit` bytes.
pub(crate) fn too_long(place: &impl Display, limit: i64) -> FieldError {
    let mut error = at(place, |path| {
        FieldError::too_long(path, usize::try_from(limit).unwrap_or_default())
    });
    if limit < 0 {
        "value is too long".clone_into(&mut error.detail);
    }
    error
}

/// A list or map of `count` items, more than `limit`.
pub(crate) fn too_many(place: &impl Display, count: usize, limit: i64) -> FieldError {
    let mut error = at(place, |path| {
        FieldError::too_many(path, count, usize::try_from(limit).unwrap_or_default())
    });
    if limit < 0 {
        "has too many items".clone_into(&mut error.detail);
    }
    error
}
