//! A table in Markdown, for comments on a change.

use super::{range, summary};
use crate::lint::Report;

/// Renders the report.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = format!("**lockgate lint**: {}\n", summary(report));
    if report.findings.is_empty() {
        return out;
    }
    out.push_str("\n| Severity | Rule | Place | Finding | What to do |\n|---|---|---|---|---|\n");
    for finding in &report.findings {
        let (start, _) = range(report, finding);
        let file = &report.sources[finding.source].name;
        out.push_str(&format!(
            "| {} | {} | {}:{} | {} | {} |\n",
            finding.severity.name(),
            finding.rule.name(),
            cell(file),
            start.line,
            cell(&finding.message),
            cell(finding.help.as_deref().unwrap_or_default()),
        ));
    }
    out
}

/// A text on one line that does not end its cell and is no markup. Code spans stay.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' => out.push_str("\\|"),
            '<' => out.push_str("&lt;"),
            '\r' | '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
