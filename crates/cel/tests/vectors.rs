//! Runs expressions whose outcome Kubernetes itself gave.
//!
//! `LOCKGATE_CEL_VECTORS=FILE` runs another file of the same form.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use lockgate_cel::admission::check_expression;
use serde_json::Value as Json;

/// How many disagreements are printed before the rest is only counted.
const SHOWN: usize = 20;

/// Agreements and disagreements by kind.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<&'static str, (usize, usize)>,
    shown: Vec<String>,
}

impl Tally {
    fn record(&mut self, kind: &'static str, agrees: bool, detail: impl FnOnce() -> String) {
        let (right, wrong) = self.counts.entry(kind).or_default();
        if agrees {
            *right += 1;
        } else {
            *wrong += 1;
            if self.shown.len() < SHOWN {
                self.shown.push(format!("[{kind}] {}", detail()));
            }
        }
    }

    /// Prints the summary and fails if anything falls below its bar.
    fn finish(self, name: &str) {
        println!("{name}: {:?}", self.counts);
        let below: Vec<_> = self
            .counts
            .iter()
            .filter(|(kind, (right, wrong))| {
                let share = *right as f64 / (right + wrong) as f64;
                share < if **kind == "syntax" { 0.95 } else { 1.0 }
            })
            .map(|(kind, _)| *kind)
            .collect();
        assert!(
            below.is_empty(),
            "{name} below the bar in {below:?}\n{}",
            self.shown.join("\n")
        );
    }
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/vectors/cel")
}

fn read(path: &Path) -> String {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut text)
            .unwrap();
    } else {
        std::io::BufReader::new(file)
            .read_to_string(&mut text)
            .unwrap();
    }
    text
}

/// One expression and what Kubernetes makes of it.
fn case(line: &str) -> Json {
    let mut reader = serde_json::Deserializer::from_str(line);
    reader.disable_recursion_limit();
    serde::Deserialize::deserialize(&mut reader).unwrap()
}

fn run(path: &Path) {
    let mut tally = Tally::default();
    for line in read(path).lines() {
        let case = case(line);
        let expression = case["Expr"].as_str().unwrap();
        let refused = case.get("CompileError").and_then(Json::as_str);
        let got = check_expression(expression);
        let detail = || format!("{expression}\n  expected {case}\n  got {got:?}");
        // Building the program may fail later than checking.
        if refused.is_some_and(|text| text.starts_with("program instantiation failed")) {
            continue;
        }
        tally.record(
            "accepted or refused",
            got.is_ok() == refused.is_none(),
            detail,
        );
        match (&got, refused) {
            (Err(got), Some(refused)) if refused.contains("Syntax error") => {
                tally.record(
                    "syntax",
                    got.lines().next() == refused.lines().next(),
                    detail,
                );
            }
            (Err(got), Some(refused)) => tally.record("check", got == refused, detail),
            (Ok(got), None) => {
                tally.record(
                    "type",
                    case["OutType"] == Json::from(got.to_string()),
                    detail,
                );
            }
            _ => {}
        }
    }
    tally.finish(&path.display().to_string());
}

#[test]
fn hand_written_expressions() {
    run(&vectors().join("hand.jsonl"));
}

#[test]
fn every_operator_on_every_kind_of_operand() {
    run(&vectors().join("matrix.jsonl.gz"));
}

#[test]
fn a_file_named_by_the_environment() {
    match std::env::var_os("LOCKGATE_CEL_VECTORS") {
        Some(path) => run(Path::new(&path)),
        None => println!("skipped: LOCKGATE_CEL_VECTORS is not set"),
    }
}
