//! Report formats. All have the same content.

pub mod github;
pub mod human;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod sarif;

use super::Report;
use super::finding::{Finding, Severity};
use crate::text::Position;

/// The start and end of a finding.
fn range(report: &Report, finding: &Finding) -> (Position, Position) {
    let source = &report.sources[finding.source];
    (
        source.position(finding.span.start),
        source.position(finding.span.end),
    )
}

/// The counts by severity: `2 errors, 1 warning`.
#[must_use]
pub fn summary(report: &Report) -> String {
    let count = |severity: Severity| {
        let count = report.count(severity);
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {}{plural}", severity.name()))
    };
    let counts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .filter_map(count)
        .collect();
    let counts = if counts.is_empty() {
        String::from("no findings")
    } else {
        counts.join(", ")
    };
    let objects = report.objects.len();
    let plural = if objects == 1 { "" } else { "s" };
    let ignored = match report.ignored {
        0 => String::new(),
        1 => String::from("; 1 other object ignored"),
        ignored => format!("; {ignored} other objects ignored"),
    };
    format!("{counts} in {objects} webhook configuration{plural}{ignored}")
}
