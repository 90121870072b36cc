//! The findings of the rules: errors and warnings.

use lockgate_api::field::{ErrorType, FieldError, Path, Shown};
use lockgate_webhook::{Context, FieldErrors, Verdict};

/// Beyond this many, further warnings would only push others out: the API server passes on 4096
/// characters.
const MAX_WARNINGS: usize = 25;

/// Problems and remarks, collected so that the user sees all of them at once.
#[derive(Debug, Default)]
pub struct Findings {
    /// The error.
    pub errors: FieldErrors,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Findings {
    /// Something is wrong.
    pub fn error(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Something is worth a word.
    pub fn warn(&mut self, path: &Path<'_>, text: impl std::fmt::Display) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(format!("{path}: {text}"));
        }
    }

    /// Gives the remarks to the client, and denies when something is wrong.
    ///
    /// # Errors
    ///
    /// Something is wrong.
    pub fn report(self, ctx: &Context) -> Verdict {
        for warning in self.warnings {
            ctx.warn(warning);
        }
        self.errors.into_verdict()
    }
}

/// A problem of some type, in words of our own.
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
