//! Violated invariants of dispatch.
//!
//! A webhook that was not called has not allowed the request, so each of these denies it with an internal error,
//! whatever the failure policy: that applies to failures of webhooks, not of this process.

use lockgate_api::meta::status::Status;
use lockgate_go::quote::quote;

use crate::decision::{Cause, Decision};

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BrokenInvariant {
    /// The index contains a webhook that the snapshot does not have.
    #[error("webhook {0} is indexed but not registered")]
    Index(usize),
    /// The target of a match is not among the equivalent resources.
    #[error("webhook {} matched an unknown equivalent resource", quote(.0))]
    Equivalent(String),
    /// The objects in the webhook's version are missing.
    #[error("webhook {} was called without objects", quote(.0))]
    Objects(String),
    /// The call of the webhook ended without a result.
    #[error("the call of webhook {} was lost", quote(.0))]
    Task(String),
}

impl BrokenInvariant {
    pub(super) fn into_status(self) -> Status {
        tracing::error!(error = %self, "admission invariant broken");
        Status::internal_error(&self.to_string())
    }

    pub(super) fn into_decision(self) -> Decision {
        Decision::deny(self.into_status(), Cause::Internal)
    }
}
