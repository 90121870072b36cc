//! Recorded creates and updates of built-in kinds, up to validation: errors and warnings. The server's tests run them
//! completely.

mod compared;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

/// The recorded outcome of a write.
#[derive(Debug, PartialEq)]
enum End {
    /// The body cannot be decoded.
    Malformed,
    /// These causes: reason, field, first line of the message.
    Refused(Vec<[String; 3]>),
    /// The object is stored, with these warnings.
    Stored(BTreeSet<String>),
}

fn cases(file: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = folder
        .join("../../conformance/vectors/validation")
        .join(file);
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Collapses spaces, which Go's diffs choose at random.
fn squeezed(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn run(case: &Value) -> End {
    match write::in_context(|context| write::run(case, context)) {
        write::End::Malformed(_) => End::Malformed,
        write::End::Refused(mut causes) => {
            for [_, _, message] in &mut causes {
                *message = squeezed(message.split('\n').next().unwrap_or_default());
            }
            End::Refused(causes)
        }
        write::End::Stored(_, warnings) => End::Stored(warnings.into_iter().collect()),
    }
}

fn wanted(case: &Value) -> Option<End> {
    let want = &case["want"];
    Some(match want["code"].as_u64()? {
        200 | 201 => End::Stored(
            want["warnings"]
                .as_array()?
                .iter()
                .filter_map(|warning| warning.as_str().map(str::to_owned))
                .collect(),
        ),
        422 => {
            let mut causes = Vec::new();
            for cause in want["causes"].as_array()? {
                let member = |key: &str| cause[key].as_str().unwrap_or_default();
                causes.push([
                    member("reason").to_owned(),
                    member("field").to_owned(),
                    squeezed(member("message").split('\n').next().unwrap_or_default()),
                ]);
            }
            End::Refused(causes)
        }
        400 => End::Malformed,
        _ => return None,
    })
}

/// The cases with known differences. An entry that matches fails the test.
fn differing() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../conformance/vectors/validation/differing.txt");
    std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Prints the number of matching cases per kind; `LOCKGATE_VALIDATION_DIFF` is a file for the others.
#[test]
fn validates_like_upstream() {
    let known = differing();
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut surprises, mut differences) = (Vec::new(), String::new());
    for case in cases("validation.jsonl.gz") {
        if case["op"] == "setup" {
            continue;
        }
        let Some(want) = wanted(&case) else {
            continue;
        };
        let got = run(&case);
        let id = case["id"].as_str().unwrap();
        let row = table
            .entry(case["gvk"].as_str().unwrap().to_owned())
            .or_default();
        row.1 += 1;
        if got == want {
            row.0 += 1;
            if known.contains(id) {
                surprises.push(format!("{id} agrees now: take it off the list"));
            }
            continue;
        }
        let difference = format!(
            "{id} {} {} {}\n   want {want:?}\n   got  {got:?}\n",
            case["op"].as_str().unwrap(),
            case["gvk"].as_str().unwrap(),
            case["mut"],
        );
        if !known.contains(id) {
            surprises.push(difference.clone());
        }
        differences.push_str(&difference);
    }
    if let Some(file) = std::env::var_os("LOCKGATE_VALIDATION_DIFF") {
        std::fs::write(file, differences).unwrap();
    }
    let (mut agreed, mut all) = (0, 0);
    for (kind, (good, total)) in &table {
        println!("{kind:60} {good:4}/{total}");
        agreed += good;
        all += total;
    }
    println!("{agreed}/{all}");
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

/// Errors are compared without order, since some follow Go map order.
fn sorted(mut causes: Vec<[String; 3]>) -> Vec<[String; 3]> {
    causes.sort();
    causes
}

#[test]
fn generated_writes_end_as_upstreams_strategies_end_them() {
    let mut differences = Vec::new();
    for case in cases("generated.jsonl.gz") {
        let want = &case["want"];
        let texts = |value: &Value| -> Vec<String> {
            let texts = value.as_array().into_iter().flatten();
            texts
                .filter_map(|it| Some(it.as_str()?.to_owned()))
                .collect()
        };
        let wanted = if want.get("malformed").is_some() {
            End::Malformed
        } else if let Some(causes) = want.get("causes").and_then(Value::as_array) {
            let cause = |cause: &Value| -> Option<[String; 3]> {
                let [reason, field, message] = texts(cause).try_into().ok()?;
                let message = message.replace("6f9e0c5e-0000-4000-8000-000000000001", "<uid>");
                let first = message.split('\n').next().unwrap_or_default();
                Some([reason, field, squeezed(first)])
            };
            End::Refused(sorted(causes.iter().filter_map(cause).collect()))
        } else {
            End::Stored(texts(&want["warnings"]).into_iter().collect())
        };
        let got = match run(&case) {
            End::Refused(causes) => End::Refused(sorted(causes)),
            End::Stored(warnings) => {
                // Warnings about decoding and deprecated kinds are not the strategy's.
                let own = |text: &String| {
                    !text.starts_with("unknown field") && !text.contains(" is deprecated in v1.")
                };
                End::Stored(warnings.into_iter().filter(own).collect())
            }
            malformed => malformed,
        };
        if got != wanted {
            let id = &case["id"];
            differences.push(format!("{id}\n   want {wanted:?}\n   got  {got:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
