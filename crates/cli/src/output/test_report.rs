//! Test reports: a table, JSON, JUnit and GitHub workflow commands.

use std::fmt::Write as _;
use std::time::Duration;

use lockgate_offline::coverage::ExpressionCoverage;
use serde_json::json;

use super::table;

/// The report of a test run.
#[derive(Debug)]
pub struct Report {
    /// The cases, in order.
    pub cases: Vec<CaseReport>,
    /// Invalid suites, with the reason.
    pub broken: Vec<(String, String)>,
    /// The coverage of expressions, if requested.
    pub coverage: Option<Vec<ExpressionCoverage>>,
    /// The total duration.
    pub elapsed: Duration,
}

/// The report of a case.
#[derive(Debug)]
pub struct CaseReport {
    /// The suite.
    pub suite: String,
    /// The name.
    pub name: String,
    /// The file of the case.
    pub file: String,
    /// The differences from the expectation.
    pub failures: Vec<String>,
    /// The duration.
    pub elapsed: Duration,
}

impl Report {
    /// The number of failed cases.
    #[must_use]
    pub fn failed(&self) -> usize {
        let failed = self.cases.iter().filter(|case| !case.failures.is_empty());
        failed.count()
    }
}

/// The summary line.
#[must_use]
pub fn summary(report: &Report) -> String {
    let (all, failed) = (report.cases.len(), report.failed());
    let broken = match report.broken.len() {
        0 => String::new(),
        1 => String::from(", 1 suite cannot be read"),
        many => format!(", {many} suites cannot be read"),
    };
    let plural = if all == 1 { "" } else { "s" };
    format!(
        "{all} case{plural}, {} passed, {failed} failed{broken}",
        all - failed
    )
}

/// A table of cases, the failures, and the coverage.
#[must_use]
pub fn table(report: &Report, failures_only: bool) -> String {
    let mut text = String::new();
    let shown = report
        .cases
        .iter()
        .filter(|case| !failures_only || !case.failures.is_empty());
    let rows: Vec<Vec<String>> = shown
        .map(|case| {
            let result = if case.failures.is_empty() {
                "pass"
            } else {
                "FAIL"
            };
            vec![result.to_owned(), case.suite.clone(), case.name.clone()]
        })
        .collect();
    if !rows.is_empty() {
        text.push_str(&table::render(&["RESULT", "SUITE", "CASE"], &rows));
    }
    for case in report.cases.iter().filter(|case| !case.failures.is_empty()) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{} {} ({})", case.suite, case.name, case.file);
        for failure in &case.failures {
            for (nth, line) in failure.lines().enumerate() {
                let indent = if nth == 0 { "  " } else { "    " };
                let _ = writeln!(text, "{indent}{line}");
            }
        }
    }
    for (_, error) in &report.broken {
        let _ = writeln!(text, "\ncannot be read: {error}");
    }
    if let Some(coverage) = &report.coverage {
        text.push_str(&covered(coverage));
    }
    let _ = writeln!(text, "\n{}", summary(report));
    text
}

fn covered(coverage: &[ExpressionCoverage]) -> String {
    let rows: Vec<Vec<String>> = coverage
        .iter()
        .map(|it| {
            let missed = match (it.evaluations, it.never) {
                (0, _) => String::from("never evaluated"),
                (_, Some(outcome)) => format!("never {outcome}"),
                _ => String::new(),
            };
            let parts: Vec<String> = match it.evaluations {
                0 => Vec::new(),
                _ => it
                    .missed
                    .iter()
                    .map(|part| format!("`{}`", one_line(part)))
                    .collect(),
            };
            let parts = match parts.len() {
                0 => String::new(),
                _ => format!("not reached: {}", parts.join(", ")),
            };
            let why = [missed, parts].into_iter().filter(|text| !text.is_empty());
            vec![
                it.owner.clone(),
                it.field.clone(),
                format!("{}/{}", it.reached, it.parts),
                why.collect::<Vec<_>>().join("; "),
            ]
        })
        .collect();
    let (reached, parts) = coverage.iter().fold((0, 0), |(reached, parts), it| {
        (reached + it.reached, parts + it.parts)
    });
    let percent = (reached * 100).checked_div(parts).unwrap_or(100);
    let table = table::render(&["OWNER", "EXPRESSION", "PARTS", "MISSED"], &rows);
    format!("\ncoverage: {percent}% of subexpressions\n{table}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One JSON object.
#[must_use]
pub fn json(report: &Report) -> String {
    let cases: Vec<_> = report
        .cases
        .iter()
        .map(|case| {
            json!({
                "suite": case.suite, "name": case.name, "file": case.file,
                "passed": case.failures.is_empty(), "failures": case.failures,
                "seconds": case.elapsed.as_secs_f64(),
            })
        })
        .collect();
    let broken: Vec<_> = report
        .broken
        .iter()
        .map(|(file, error)| json!({"file": file, "error": error}))
        .collect();
    let mut value = json!({
        "cases": cases, "broken": broken, "passed": report.cases.len() - report.failed(),
        "failed": report.failed(), "seconds": report.elapsed.as_secs_f64(),
    });
    if let Some(coverage) = &report.coverage {
        value["coverage"] = json!(coverage);
    }
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    format!("{text}\n")
}

/// JUnit XML: one test suite per suite, and one for invalid suites.
#[must_use]
pub fn junit(report: &Report) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let errors = report.broken.len();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "<testsuites tests=\"{}\" failures=\"{}\" errors=\"{errors}\" time=\"{:.3}\">",
        report.cases.len() + errors,
        report.failed(),
        report.elapsed.as_secs_f64()
    );
    for cases in report.cases.chunk_by(|one, other| one.suite == other.suite) {
        let Some(first) = cases.first() else {
            continue;
        };
        let failed = cases
            .iter()
            .filter(|case| !case.failures.is_empty())
            .count();
        let _ = writeln!(
            text,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\">",
            escape(&first.suite),
            cases.len()
        );
        for case in cases {
            let _ = write!(
                text,
                "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" time=\"{:.6}\"",
                escape(&case.suite),
                escape(&case.name),
                escape(&case.file),
                case.elapsed.as_secs_f64()
            );
            match case.failures.first() {
                None => text.push_str("/>\n"),
                Some(failure) => {
                    let message = failure.lines().next().unwrap_or_default();
                    let _ = writeln!(
                        text,
                        ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>",
                        escape(message),
                        escape(&case.failures.join("\n"))
                    );
                }
            }
        }
        text.push_str("  </testsuite>\n");
    }
    if errors > 0 {
        let _ = writeln!(
            text,
            "  <testsuite name=\"cannot be read\" tests=\"{errors}\" errors=\"{errors}\">"
        );
        for (file, error) in &report.broken {
            let _ = writeln!(
                text,
                "    <testcase classname=\"cannot be read\" name=\"{}\">\n      <error message=\"{}\"/>\n    </testcase>",
                escape(file),
                escape(error)
            );
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

/// Escapes text for XML; characters that XML does not allow are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push('\t'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// GitHub workflow commands, shown as annotations on changed files.
#[must_use]
pub fn github(report: &Report) -> String {
    let escape = |text: &str| {
        text.replace('%', "%25")
            .replace('\r', "%0D")
            .replace('\n', "%0A")
    };
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    let failed = report.cases.iter().filter(|case| !case.failures.is_empty());
    let failed = failed.map(|case| {
        format!(
            "::error file={},title=lockgate test {}::{}\n",
            property(&case.file),
            property(&case.name),
            escape(&case.failures.join("\n"))
        )
    });
    let broken = report.broken.iter().map(|(file, error)| {
        format!(
            "::error file={},title=lockgate test::{}\n",
            property(file),
            escape(error)
        )
    });
    failed.chain(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_is_well_formed_whatever_is_said() {
        let report = Report {
            cases: vec![CaseReport {
                suite: String::from("a<b"),
                name: String::from("\"quoted\" & more"),
                file: String::from("f.yaml"),
                failures: vec![String::from("one\ntwo \u{1}")],
                elapsed: Duration::from_millis(2),
            }],
            broken: vec![(String::from("x.yaml"), String::from("bad: <thing>"))],
            coverage: None,
            elapsed: Duration::ZERO,
        };
        let text = junit(&report);
        assert!(
            text.contains("name=\"&quot;quoted&quot; &amp; more\""),
            "{text}"
        );
        assert!(text.contains("message=\"one\""), "{text}");
        assert!(!text.contains('\u{1}'), "{text}");
        assert_eq!(
            text.matches("<testsuite ").count(),
            text.matches("</testsuite>").count()
        );
        assert_eq!(
            summary(&report),
            "1 case, 0 passed, 1 failed, 1 suite cannot be read"
        );
        assert!(github(&report).contains("one%0Atwo"));
    }
}
