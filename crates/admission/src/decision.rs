//! The outcome of admission.
//!
//! A refusal is a value. It carries the status for the client and its cause, so that a host can distinguish a
//! webhook's denial from a failed call.

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
    /// It may.
    Allow,
    /// It may not.
    Deny(Box<Denial>),
}

/// A refusal.
#[derive(Debug, Clone, PartialEq)]
pub struct Denial {
    /// The status the client gets.
    pub status: Status,
    /// The cause.
    pub cause: Cause,
}

/// The cause of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A webhook denied the request.
    Webhook,
    /// A policy denied the request, or could not be evaluated under `failurePolicy: Fail`.
    Policy,
    /// A webhook call failed under `failurePolicy: Fail`.
    CallFailed,
    /// A webhook that may have side effects met a dry run.
    SideEffects,
    /// A webhook's patch does not apply, or its result is no such object.
    Patch,
    /// A predicate failed, so that matching has no answer.
    Matching,
    /// A match condition could not be evaluated, and the failure policy is to refuse.
    MatchConditions,
    /// An object could not be converted.
    Conversion,
    /// Configurations or namespaces are not loaded yet.
    NotReady,
    /// The time for the request is up.
    Timeout,
    /// The request was given up: its client went away.
    Canceled,
    /// An in-process plugin denied the request.
    Plugin,
    /// A part of this process failed.
    Internal,
}

impl Decision {
    /// A refusal.
    #[must_use]
    pub fn deny(status: Status, cause: Cause) -> Self {
        Self::Deny(Box::new(Denial { status, cause }))
    }

    /// Returns `true` if the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow)
    }

    /// The status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Allow => None,
            Self::Deny(denial) => Some(&denial.status),
        }
    }
}
