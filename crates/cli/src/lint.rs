//! Linting: the decoding errors, validation errors and warnings an API server would return, and risks.
//!
//! ```text
//!   files, folders, stdin ──► source ──► check (decode, validate, locate) ──► Report ──► render
//! ```
//!
//! Fixes are edits of the sources, applied between two checks.
//! Checking never prints and rendering never decides; a [`Report`] connects them.

pub mod check;
pub mod edit;
pub mod finding;
pub mod fix;
mod locate;
pub mod render;
pub mod source;
pub(crate) mod suggest;

use crate::text::Source;
use finding::{Finding, Severity};
use lockgate_api::registration::defaults::DefaultDifference;

/// The result of linting.
#[derive(Debug, Default)]
pub struct Report {
    /// The sources.
    pub sources: Vec<Source>,
    /// The webhook configurations, policies and bindings, in order.
    pub objects: Vec<LintedObject>,
    /// The findings, in order.
    pub findings: Vec<Finding>,
    /// The number of documents of other kinds.
    pub ignored: usize,
    /// The fixes of findings, by object.
    pub fixes: Vec<edit::ObjectFixes>,
    /// The number of captured calls of webhooks among the objects.
    pub captured_calls: usize,
}

/// A checked object.
#[derive(Debug)]
pub struct LintedObject {
    /// Its source, as an index into [`Report::sources`].
    pub source: usize,
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its name or generateName; may be empty.
    pub name: String,
    /// Defaults applied to it that depend on the API version: the webhook's index and the field.
    pub default_differences: Vec<(usize, DefaultDifference)>,
}

impl LintedObject {
    /// The kind and name, as kubectl would print them.
    #[must_use]
    pub fn title(&self) -> String {
        let name = if self.name.is_empty() {
            "<no name>"
        } else {
            &self.name
        };
        format!("{}/{name}", self.kind)
    }
}

impl Report {
    /// Counts the findings of a severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// Returns `true` if a document could not be parsed.
    #[must_use]
    pub fn has_unreadable(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.rule == finding::Rule::Syntax)
    }
}
