//! One JSON object with everything.

use serde::Serialize;

use super::range;
use crate::lint::Report;
use crate::lint::finding::{Rule, Severity};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'r> {
    findings: Vec<FindingOut<'r>>,
    objects: Vec<ObjectOut<'r>>,
    summary: Summary,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingOut<'r> {
    rule: Rule,
    severity: Severity,
    message: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'r str>,
    file: &'r str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<usize>,
    #[serde(skip_serializing_if = "is_false")]
    fixable: bool,
}

fn is_false(value: &bool) -> bool {
    !*value
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectOut<'r> {
    file: &'r str,
    api_version: &'r str,
    kind: &'r str,
    name: &'r str,
    default_differences: Vec<DifferenceOut>,
}

#[derive(Serialize)]
struct DifferenceOut {
    path: String,
    v1: Option<&'static str>,
    v1beta1: &'static str,
}

#[derive(Serialize)]
struct Summary {
    errors: usize,
    warnings: usize,
    notes: usize,
    configurations: usize,
    ignored: usize,
}

/// Renders the report.
#[must_use]
pub fn render(report: &Report) -> String {
    let findings = report.findings.iter().map(|finding| {
        let (start, end) = range(report, finding);
        FindingOut {
            rule: finding.rule,
            severity: finding.severity,
            message: &finding.message,
            help: finding.help.as_deref(),
            file: &report.sources[finding.source].name,
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            path: &finding.path,
            object: finding.object,
            fixable: finding.fixable,
        }
    });
    let objects = report.objects.iter().map(|object| ObjectOut {
        file: &report.sources[object.source].name,
        api_version: &object.api_version,
        kind: object.kind,
        name: &object.name,
        default_differences: object
            .default_differences
            .iter()
            .map(|(index, difference)| DifferenceOut {
                path: format!("webhooks[{index}].{}", difference.field),
                v1: difference.v1,
                v1beta1: difference.v1beta1,
            })
            .collect(),
    });
    let output = Output {
        findings: findings.collect(),
        objects: objects.collect(),
        summary: Summary {
            errors: report.count(Severity::Error),
            warnings: report.count(Severity::Warning),
            notes: report.count(Severity::Note),
            configurations: report.objects.len(),
            ignored: report.ignored,
        },
    };
    // Plain data with string keys always serialises.
    serde_json::to_string_pretty(&output).unwrap_or_default() + "\n"
}
