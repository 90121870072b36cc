//! Severities and profiles.

use serde::Serialize;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Informational.
    Note,
    /// Accepted by the API, and a likely problem.
    Warning,
    /// Rejected by the API, or a certain problem.
    Error,
}

impl Severity {
    /// The word in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    fn shifted(self, grade: Grade) -> Self {
        match (self, grade) {
            (severity, Grade::Usual) => severity,
            (Self::Note, Grade::Higher) | (Self::Error, Grade::Lower) => Self::Warning,
            (_, Grade::Higher) => Self::Error,
            (_, Grade::Lower) => Self::Note,
        }
    }
}

/// The severity of a finding relative to its rule's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    /// One severity below the rule's.
    Lower,
    /// The rule's severity.
    Usual,
    /// One severity above the rule's.
    Higher,
}

/// The goal that sets the severities of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Profile {
    /// No preference.
    #[default]
    Balanced,
    /// The cluster keeps working when webhooks fail.
    Availability,
    /// No request bypasses a check.
    Security,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 3] = [Self::Balanced, Self::Availability, Self::Security];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Availability => "availability",
            Self::Security => "security",
        }
    }
}

/// The severities of a rule; a rule is off in a profile without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// In [`Profile::Balanced`].
    pub balanced: Option<Severity>,
    /// In [`Profile::Availability`].
    pub availability: Option<Severity>,
    /// In [`Profile::Security`].
    pub security: Option<Severity>,
}

impl Levels {
    /// The severity of a finding of this grade.
    #[must_use]
    pub fn severity(&self, profile: Profile, grade: Grade) -> Option<Severity> {
        self.of(profile).map(|usual| usual.shifted(grade))
    }

    /// The usual severity in a profile.
    #[must_use]
    pub fn of(&self, profile: Profile) -> Option<Severity> {
        match profile {
            Profile::Balanced => self.balanced,
            Profile::Availability => self.availability,
            Profile::Security => self.security,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grade_moves_a_severity_by_one_and_never_past_the_ends() {
        use Severity::{Error, Note, Warning};
        for (usual, lower, higher) in [
            (Note, Note, Warning),
            (Warning, Note, Error),
            (Error, Warning, Error),
        ] {
            assert_eq!(usual.shifted(Grade::Lower), lower);
            assert_eq!(usual.shifted(Grade::Usual), usual);
            assert_eq!(usual.shifted(Grade::Higher), higher);
        }
    }
}
