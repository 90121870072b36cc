//! The list of known gaps, and the test runner for vectors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockgate_api::document::{Document, json};

#[derive(serde::Deserialize)]
struct Gaps {
    #[serde(default)]
    gap: Vec<Gap>,
}

#[derive(serde::Deserialize)]
struct Gap {
    suite: String,
    id: String,
    reason: String,
}

pub(crate) fn conformance() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

/// Runs `check` on every vector of a suite: the expectation, and the whole vector as a document, which keeps
/// the order of members and duplicates. The file is `conformance/vectors/<suite>.jsonl`, or the value of the
/// environment variable `variable`.
///
/// Vectors must pass unless listed as a gap, and gaps must fail.
pub(crate) fn run_suite(
    suite: &str,
    variable: &str,
    check: impl Fn(&serde_json::Value, &Document) -> Result<(), String>,
) {
    let own = conformance().join(format!("vectors/{suite}.jsonl"));
    let file = std::env::var_os(variable).map_or(own, PathBuf::from);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let gaps = std::fs::read_to_string(conformance().join("gaps.toml")).unwrap();
    let gaps: Gaps = toml::from_str(&gaps).unwrap();
    let gaps: BTreeMap<String, String> = gaps
        .gap
        .into_iter()
        .filter(|gap| gap.suite == suite)
        .map(|gap| {
            assert!(!gap.reason.trim().is_empty(), "{} has no reason", gap.id);
            (gap.id, gap.reason)
        })
        .collect();

    let mut failures = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let document = json::parse(line.as_bytes()).unwrap();
        let vector = expectation(&document);
        let id = vector["id"].as_str().unwrap();
        count += 1;
        match (check(&vector, &document), gaps.get(id)) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Ok(()), Some(_)) => failures.push(format!("{id}: listed as a gap but agrees")),
            (Err(difference), None) => failures.push(format!("{id}: {difference}")),
        }
    }
    assert!(count > 0, "{} holds no vectors", file.display());
    assert!(
        failures.is_empty(),
        "{} of {count} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// A vector without its input objects, which `serde_json` might not parse.
fn expectation(document: &Document) -> serde_json::Value {
    document
        .root()
        .members()
        .filter(|member| !matches!(member.key, "new" | "old"))
        .map(|member| {
            let value: serde_json::Value = serde_json::from_str(&member.value.to_json()).unwrap();
            (member.key.to_owned(), value)
        })
        .collect()
}

/// Compares two JSON values; the error contains both.
pub(crate) fn same(
    what: &str,
    got: &serde_json::Value,
    want: &serde_json::Value,
) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what}\n  got  {got}\n  want {want}"))
}
