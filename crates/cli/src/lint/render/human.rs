//! Human-readable output: each finding underlined in its source, then a table of the objects.

use crate::lint::Report;
use crate::lint::check::describe_differences;
use crate::lint::finding::{Finding, Severity};
use crate::output::diagnostic::{Artist, Drawing, Level};
use crate::output::table;

/// Rendering options.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Color the output.
    pub color: bool,
    /// The maximum number of findings to show.
    pub max_findings: usize,
    /// Also show defaults that depend on the API version.
    pub defaults: bool,
}

/// Renders the report.
#[must_use]
pub fn render(report: &Report, options: &Options) -> String {
    let artist = Artist::new(options.color);
    let mut out = String::new();
    for finding in report.findings.iter().take(options.max_findings) {
        let Finding { rule, severity, .. } = finding;
        out.push_str(&artist.draw(&Drawing {
            severity: match severity {
                Severity::Error => Level::Error,
                Severity::Warning => Level::Warning,
                Severity::Note => Level::Note,
            },
            code: format!("{}[{}]", severity.name(), rule.name()),
            message: &finding.message,
            help: finding.help.as_deref(),
            source: &report.sources[finding.source],
            span: finding.span,
            label: &finding.path,
        }));
        out.push('\n');
    }
    let hidden = report.findings.len().saturating_sub(options.max_findings);
    if hidden > 0 {
        out.push_str(&format!(
            "… and {hidden} more; set --max-findings to show more\n\n"
        ));
    }
    if !report.objects.is_empty() {
        out.push_str(&objects(report, options));
    }
    out
}

fn objects(report: &Report, options: &Options) -> String {
    let mut counts = vec![[0_usize; 2]; report.objects.len()];
    let mut rejected = vec![false; report.objects.len()];
    for finding in &report.findings {
        if let Some(index) = finding.object {
            rejected[index] |= finding.severity == Severity::Error && !finding.rule.is_risk();
            match finding.severity {
                Severity::Error => counts[index][0] += 1,
                Severity::Warning => counts[index][1] += 1,
                Severity::Note => {}
            }
        }
    }
    let rows: Vec<Vec<String>> = report
        .objects
        .iter()
        .zip(counts.iter().zip(&rejected))
        .map(|(object, ([errors, warnings], rejected))| {
            let status = if *rejected { "rejected" } else { "ok" };
            vec![
                report.sources[object.source].name.clone(),
                object.title(),
                object
                    .api_version
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                status.to_owned(),
                errors.to_string(),
                warnings.to_string(),
            ]
        })
        .collect();
    let mut out = table::render(
        &[
            "FILE",
            "CONFIGURATION",
            "VERSION",
            "STATUS",
            "ERRORS",
            "WARNINGS",
        ],
        &rows,
    );
    if options.defaults {
        let rows: Vec<Vec<String>> = report
            .objects
            .iter()
            .flat_map(|object| {
                let texts = describe_differences(&object.default_differences);
                texts.into_iter().map(|text| vec![object.title(), text])
            })
            .collect();
        out.push('\n');
        out.push_str(&table::render(
            &["CONFIGURATION", "DEFAULT THAT DEPENDS ON THE VERSION"],
            &rows,
        ));
    }
    out
}
