//! The outcome of admission.
//!
//! A denial is a value. It contains the status for the client and its cause, so that a host can distinguish a webhook's
//! denial from a failed call.

use lockgate_api::meta::status::Status;

/// `failurePolicy`: the outcome of a request whose webhook call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The request is denied.
    Fail,
    /// The request continues.
    Ignore,
}

/// The outcome of admission, or of one step of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// The request is allowed.
    Allow,
    /// The request is denied.
    Deny(Box<Denial>),
}

/// A denial.
#[derive(Debug, Clone, PartialEq)]
pub struct Denial {
    /// The status for the client.
    pub status: Status,
    /// The cause.
    pub cause: Cause,
}

/// The cause of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A webhook denied the request.
    Webhook,
    /// A policy denied the request, or could not be evaluated with `failurePolicy: Fail`.
    Policy,
    /// A webhook call failed with `failurePolicy: Fail`.
    CallFailed,
    /// A webhook with possible side effects matched a dry run.
    SideEffects,
    /// A webhook's patch cannot be applied, or its result is invalid.
    Patch,
    /// A predicate failed, so that matching is undecided.
    Matching,
    /// A match condition could not be evaluated, and the failure policy is `Fail`.
    MatchConditions,
    /// An object could not be converted.
    Conversion,
    /// Configurations or namespaces are not loaded yet.
    NotReady,
    /// The deadline of the request expired.
    Timeout,
    /// The request was cancelled: its client disconnected.
    Canceled,
    /// An in-process plugin denied the request.
    Plugin,
    /// An internal error.
    Internal,
}

impl Decision {
    /// Creates a denial.
    #[must_use]
    pub fn deny(status: Status, cause: Cause) -> Self {
        Self::Deny(Box::new(Denial { status, cause }))
    }

    /// Returns `true` if the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow)
    }

    /// The status of a denial.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Allow => None,
            Self::Deny(denial) => Some(&denial.status),
        }
    }
}
