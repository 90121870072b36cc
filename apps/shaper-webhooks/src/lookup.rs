//! Lookups of other objects.

#[cfg(test)]
pub(crate) mod fake;
mod live;

use lockgate_webhook::BoxFuture;

pub use live::{Live, Scope};

use crate::api::{Assignment, Profile};

/// Reads the current state of objects, not a cache.
pub trait Lookup: Send + Sync + 'static {
    /// Returns `true` if the profile exists.
    fn profile_exists<'f>(
        &'f self,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<bool, LookupError>>;

    /// Lists assignments.
    fn assignments<'f>(
        &'f self,
        which: Which<'f>,
    ) -> BoxFuture<'f, Result<Vec<Assignment>, LookupError>>;

    /// The profiles with a label, in the data plane's scope.
    fn profiles_with<'f>(
        &'f self,
        label: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Profile>, LookupError>>;
}

/// A selection of assignments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which<'f> {
    /// All, in the data plane's scope.
    All,
    /// Assignments with a label, in the data plane's scope.
    With(&'f str),
    /// Assignments without an architecture label, in the data plane's scope. They bypassed the webhooks, so their
    /// labels are unreliable.
    Unlabelled,
    /// The assignments of a namespace.
    In(&'f str),
}

/// A failed lookup.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}")]
pub struct LookupError {
    action: String,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl LookupError {
    /// An error with the action that failed.
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
