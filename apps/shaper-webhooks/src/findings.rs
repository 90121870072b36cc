//! The findings of the rules: errors and warnings.

use lockgate_api::field::{ErrorType, FieldError, Path, Shown};
use lockgate_webhook::{Context, FieldErrors, Verdict};

/// Above this number, further warnings would only displace others: the API server truncates them at 4096 characters in
/// total.
const MAX_WARNINGS: usize = 25;

/// Errors and warnings, collected so that all of them are reported at once.
#[derive(Debug, Default)]
pub struct Findings {
    /// The errors.
    pub errors: FieldErrors,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Findings {
    /// Adds an error.
    pub fn error(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Adds a warning.
    pub fn warn(&mut self, path: &Path<'_>, text: impl std::fmt::Display) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(format!("{path}: {text}"));
        }
    }

    /// Returns the warnings to the client, and denies if there are errors.
    ///
    /// # Errors
    ///
    /// Denies if there are errors.
    pub fn report(self, ctx: &Context) -> Verdict {
        for warning in self.warnings {
            ctx.warn(warning);
        }
        self.errors.into_verdict()
    }
}

/// A field error of a given type, with a custom message.
#[must_use]
pub(crate) fn problem(
    error_type: ErrorType,
    path: &Path<'_>,
    value: &str,
    detail: impl Into<String>,
) -> FieldError {
    let mut error = FieldError::invalid(path, Shown::Text(value), detail);
    error.error_type = error_type;
    error
}
