//! GitHub workflow commands, shown as annotations on changed lines.

use super::range;
use crate::lint::Report;
use crate::lint::finding::Severity;

/// Renders the report.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        let command = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        let (start, end) = range(report, finding);
        let file = escape_property(&report.sources[finding.source].name);
        let mut message = finding.message.clone();
        if let Some(help) = &finding.help {
            message.push('\n');
            message.push_str(help);
        }
        out.push_str(&format!(
            "::{command} file={file},line={},col={},endLine={},endColumn={},title=lockgate {}::{}\n",
            start.line,
            start.column,
            end.line,
            end.column,
            finding.rule.name(),
            escape(&message),
        ));
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape(text).replace(':', "%3A").replace(',', "%2C")
}
