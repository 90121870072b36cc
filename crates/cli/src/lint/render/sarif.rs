//! SARIF 2.1.0, for code scanning services.

use serde_json::{Value, json};

use super::range;
use crate::lint::Report;
use crate::lint::finding::{Finding, Rule};

/// Renders the report.
#[must_use]
pub fn render(report: &Report) -> String {
    let rules: Vec<Value> = Rule::all().map(described).collect();
    let results: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| result(report, finding))
        .collect();
    let log = json!({
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "lockgate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn described(rule: Rule) -> Value {
    let mut described = json!({
        "id": rule.name(),
        "shortDescription": { "text": rule.description() },
    });
    if let Rule::Risk(rule) = rule {
        described["fullDescription"] = json!({ "text": rule.summary });
        described["help"] = json!({ "text": rule.advice });
    }
    described
}

fn result(report: &Report, finding: &Finding) -> Value {
    let (start, end) = range(report, finding);
    let text = match &finding.help {
        Some(help) => format!("{}\n{help}", finding.message),
        None => finding.message.clone(),
    };
    let rule_index = Rule::all().position(|rule| rule == finding.rule);
    let mut result = json!({
        "ruleId": finding.rule.name(),
        "ruleIndex": rule_index,
        "level": finding.severity.name(),
        "message": { "text": text },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(&report.sources[finding.source].name) },
                "region": {
                    "startLine": start.line,
                    "startColumn": start.column,
                    "endLine": end.line,
                    "endColumn": end.column,
                },
            },
        }],
    });
    if let Some(object) = finding.object {
        let logical = json!([{ "fullyQualifiedName": report.objects[object].title() }]);
        result["locations"][0]["logicalLocations"] = logical;
    }
    result
}

/// A path as a URI reference, percent-encoded.
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
