//! JUnit XML, for CI systems that show tests: an object is a test case.

use super::range;
use crate::lint::Report;
use crate::lint::finding::{Finding, Severity};

/// Renders the report. Errors and warnings are failures, notes are output.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut cases = String::new();
    let mut failed = 0;
    let mut count = 0;
    let mut case = |file: &str, name: &str, findings: &[&Finding]| {
        count += 1;
        let failures: Vec<&&Finding> = findings
            .iter()
            .filter(|finding| finding.severity > Severity::Note)
            .collect();
        failed += usize::from(!failures.is_empty());
        cases.push_str(&format!(
            "    <testcase classname=\"{}\" name=\"{}\">\n",
            escape(file),
            escape(name)
        ));
        // A test case has at most one failure element, with all findings in its text.
        if let Some(first) = failures.first() {
            let texts: Vec<String> = failures
                .iter()
                .map(|finding| text(report, finding))
                .collect();
            cases.push_str(&format!(
                "      <failure type=\"{}\" message=\"{}\">{}</failure>\n",
                first.rule.name(),
                escape(&first.message),
                escape(&texts.join("\n"))
            ));
        }
        let notes: Vec<String> = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Note)
            .map(|finding| text(report, finding))
            .collect();
        if !notes.is_empty() {
            let notes = escape(&notes.join("\n"));
            cases.push_str(&format!("      <system-out>{notes}</system-out>\n"));
        }
        cases.push_str("    </testcase>\n");
    };
    let mut of_objects: Vec<Vec<&Finding>> = vec![Vec::new(); report.objects.len()];
    let mut of_sources: Vec<Vec<&Finding>> = vec![Vec::new(); report.sources.len()];
    for finding in &report.findings {
        match finding.object {
            Some(object) => of_objects[object].push(finding),
            None => of_sources[finding.source].push(finding),
        }
    }
    for (object, findings) in report.objects.iter().zip(&of_objects) {
        case(
            &report.sources[object.source].name,
            &object.title(),
            findings,
        );
    }
    for (source, findings) in report.sources.iter().zip(&of_sources) {
        if !findings.is_empty() {
            case(&source.name, "documents", findings);
        }
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  \
         <testsuite name=\"lockgate lint\" tests=\"{count}\" failures=\"{failed}\">\n{cases}  \
         </testsuite>\n</testsuites>\n"
    )
}

fn text(report: &Report, finding: &Finding) -> String {
    let (start, _) = range(report, finding);
    let file = &report.sources[finding.source].name;
    let help = finding.help.as_deref().unwrap_or_default();
    let severity = finding.severity.name();
    let rule = finding.rule.name();
    let head = format!(
        "{file}:{}:{}: {severity}[{rule}]: ",
        start.line, start.column
    );
    format!("{head}{} {help}", finding.message)
        .trim_end()
        .to_owned()
}

/// Escapes for XML 1.0, which has no control characters at all.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push('\t'),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
