//! The response of a webhook.

use std::collections::BTreeMap;

use crate::denial::Denial;
use crate::patch::Patch;

/// A response. It cannot violate the protocol: a patch always has its type, and is never combined with a denial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Response {
    pub(crate) decision: Decision,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    /// Allows the request, with a patch if not empty.
    Allow(Patch),
    Deny(Box<Denial>),
}

impl Default for Decision {
    fn default() -> Self {
        Self::Allow(Patch::default())
    }
}

impl Response {
    /// Allows the request.
    #[must_use]
    pub fn allow() -> Self {
        Self::default()
    }

    /// Allows the request, with a patch.
    #[must_use]
    pub fn patch(patch: Patch) -> Self {
        Self {
            decision: Decision::Allow(patch),
            ..Self::default()
        }
    }

    /// Denies the request.
    #[must_use]
    pub fn deny(denial: Denial) -> Self {
        Self {
            decision: Decision::Deny(Box::new(denial)),
            ..Self::default()
        }
    }

    /// Adds a warning for the client.
    #[must_use]
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }

    /// Adds an audit annotation.
    #[must_use]
    pub fn audit_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit_annotations.insert(key.into(), value.into());
        self
    }

    /// Returns `true` if the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.decision, Decision::Allow(_))
    }

    /// The denial, if any.
    #[must_use]
    pub fn denial(&self) -> Option<&Denial> {
        match &self.decision {
            Decision::Deny(denial) => Some(denial),
            Decision::Allow(_) => None,
        }
    }

    /// The changes of the patch; may be empty.
    #[must_use]
    pub fn changes(&self) -> &[crate::patch::Change] {
        match &self.decision {
            Decision::Allow(patch) => patch.changes(),
            Decision::Deny(_) => &[],
        }
    }

    /// Warnings for the client.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Audit annotations.
    #[must_use]
    pub fn audit_annotations(&self) -> &BTreeMap<String, String> {
        &self.audit_annotations
    }
}
