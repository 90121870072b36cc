//! Findings of the linter.

use lockgate_api::document::Span;
pub use lockgate_lint::Severity;
use serde::{Serialize, Serializer};

/// The rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The document is not YAML or JSON.
    Syntax,
    /// A value has the wrong type.
    Decode,
    /// A field does not exist in the API.
    UnknownField,
    /// A field is duplicated.
    DuplicateField,
    /// The kind does not exist in this API version.
    UnknownVersion,
    /// A value violates a validation rule of the API.
    Validation,
    /// The API accepts it, with a warning.
    ApiWarning,
    /// The version is deprecated.
    DeprecatedVersion,
    /// A default depends on the version.
    VersionedDefault,
    /// The API accepts it, but it is a risk to the cluster.
    Risk(&'static lockgate_lint::Rule),
}

impl Rule {
    /// The rules for API errors and warnings.
    const API: [Self; 9] = [
        Self::Syntax,
        Self::Decode,
        Self::UnknownField,
        Self::DuplicateField,
        Self::UnknownVersion,
        Self::Validation,
        Self::ApiWarning,
        Self::DeprecatedVersion,
        Self::VersionedDefault,
    ];

    /// Every rule.
    pub fn all() -> impl Iterator<Item = Self> {
        let risks = lockgate_lint::RULES.iter().copied().map(Self::Risk);
        Self::API.into_iter().chain(risks)
    }

    /// Returns true for rules about objects that an API server accepts without a warning.
    #[must_use]
    pub fn is_risk(self) -> bool {
        matches!(self, Self::Risk(_))
    }

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Decode => "decode",
            Self::UnknownField => "unknown-field",
            Self::DuplicateField => "duplicate-field",
            Self::UnknownVersion => "unknown-version",
            Self::Validation => "validation",
            Self::ApiWarning => "api-warning",
            Self::DeprecatedVersion => "deprecated-version",
            Self::VersionedDefault => "versioned-default",
            Self::Risk(rule) => rule.id,
        }
    }

    /// A one-sentence description of the rule.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Syntax => "The document is neither YAML nor JSON.",
            Self::Decode => "A value has a type that the API server cannot decode.",
            Self::UnknownField => {
                "The API has no such field; strict field validation rejects it, otherwise it is dropped."
            }
            Self::DuplicateField => {
                "A field is set twice; strict field validation rejects it, otherwise the last value is used."
            }
            Self::UnknownVersion => "The API has no such version of this kind.",
            Self::Validation => {
                "A value violates a validation rule of the API, so the server rejects the object."
            }
            Self::ApiWarning => "The server accepts the object and returns a warning.",
            Self::DeprecatedVersion => {
                "The API version is deprecated, and newer servers do not serve it."
            }
            Self::VersionedDefault => {
                "A field is not set, and its default depends on the API version."
            }
            Self::Risk(rule) => rule.title,
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A finding at a position.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The severity.
    pub severity: Severity,
    /// The message; the API's text where it has one.
    pub message: String,
    /// The suggested fix.
    pub help: Option<String>,
    /// The field path, such as `webhooks[0].name`; empty for the whole document.
    pub path: String,
    /// The source, as an index into the report's sources.
    pub source: usize,
    /// The bytes in the source.
    pub span: Span,
    /// The object, as an index into the report's objects.
    pub object: Option<usize>,
    /// True if `--fix` fixes it.
    pub fixable: bool,
}
