//! What the rules ask about other objects.

#[cfg(test)]
pub(crate) mod fake;
mod live;

use lockgate_webhook::{BoxFuture, Fault};

pub use live::{Live, Scope};

use crate::api::{Assignment, Profile};

/// Reads objects as they are now, not as they were in some cache.
pub trait Lookup: Send + Sync + 'static {
    /// Whether there is such a profile.
    fn profile_exists<'f>(
        &'f self,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<bool, LookupError>>;

    /// The assignments that have a label, wherever the data plane looks.
    fn assignments_with<'f>(
        &'f self,
        label: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Assignment>, LookupError>>;

    /// The assignments of a namespace.
    fn assignments_in<'f>(
        &'f self,
        namespace: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Assignment>, LookupError>>;

    /// The profiles that have a label, wherever the data plane looks.
    fn profiles_with<'f>(
        &'f self,
        label: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Profile>, LookupError>>;
}

/// The API did not answer the question.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}")]
pub struct LookupError {
    action: String,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl LookupError {
    /// What was tried, and why it failed.
    pub fn new(
        action: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            action: action.into(),
            source: source.into(),
        }
    }
}

impl From<LookupError> for Fault {
    fn from(error: LookupError) -> Self {
        Self::because(&error)
    }
}
