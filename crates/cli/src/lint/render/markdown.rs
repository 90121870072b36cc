//! A Markdown table, for pull request comments.

use super::{range, summary};
use crate::lint::Report;

/// Renders the report.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = format!("**lockgate lint**: {}\n", summary(report));
    if report.findings.is_empty() {
        return out;
    }
    out.push_str("\n| Severity | Rule | Position | Finding | Help |\n|---|---|---|---|---|\n");
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

/// Escapes a text for a table cell: one line, no markup except code spans.
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
