//! Runs expressions whose outcome Kubernetes itself gave.
//!
//! `LOCKGATE_CEL_VECTORS=FILE` runs another file of the same form.
//! `LOCKGATE_CEL_EXTERNAL=DIR` runs the expressions of others, which are not
//! part of this repository.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_cel::admission::{Request, Variables, compile_expression};
use lockgate_cel::eval::{Error, Limits, evaluate};
use lockgate_cel::ext::authorizer::{AuthorizerValue, FixedAuthorizer, User};
use lockgate_cel::value::Value;
use serde_json::{Value as Json, json};

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
        println!("{name}");
        for (kind, (right, wrong)) in &self.counts {
            println!("  {kind}: {right} agree, {wrong} differ");
        }
        let below: Vec<_> = self
            .counts
            .iter()
            .filter(|(kind, (right, wrong))| {
                let share = *right as f64 / (right + wrong) as f64;
                share
                    < match **kind {
                        "first syntax error" => 0.95,
                        "evaluation error" => 0.99,
                        _ => 1.0,
                    }
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

fn json(text: &str) -> Json {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    serde::Deserialize::deserialize(&mut reader).unwrap()
}

/// The inputs the outcomes were recorded with.
struct Inputs {
    pod: Json,
    request: Json,
}

impl Inputs {
    fn load() -> Self {
        let pod = json(&read(&vectors().join("pod.json")));
        let mut request = json(&read(&vectors().join("req.json")));
        // The file holds what a webhook is sent; a condition sees these too.
        for (key, value) in [
            ("uid", json!("")),
            ("object", Json::Null),
            ("oldObject", Json::Null),
        ] {
            request[key] = value;
        }
        Self { pod, request }
    }

    fn variables(&self) -> Variables<'_> {
        let allow = AuthorizerValue::new(
            Arc::new(User::default()),
            Arc::new(FixedAuthorizer::AllowAll),
        );
        Variables::new(&self.request)
            .object(Some(&self.pod))
            .authorizer(allow, &Request::default())
    }
}

/// A value with its numbers in one form, and the parts that have no order sorted.
fn canonical(value: &Json) -> String {
    match value {
        Json::Object(fields) => {
            let parts = fields
                .iter()
                .map(|(name, value)| match (name.as_str(), value) {
                    // Minus zero lost its sign when the outcome was recorded.
                    ("doubleValue", Json::Number(n)) => {
                        format!("double {:?}", n.as_f64().map(|d| d + 0.0))
                    }
                    ("entries", Json::Array(entries)) => {
                        let mut entries: Vec<_> = entries.iter().map(canonical).collect();
                        entries.sort();
                        format!("{{{}}}", entries.join("; "))
                    }
                    _ => format!("{name}: {}", canonical(value)),
                });
            parts.collect::<Vec<_>>().join(", ")
        }
        Json::Array(values) => {
            format!(
                "[{}]",
                values.iter().map(canonical).collect::<Vec<_>>().join("; ")
            )
        }
        Json::Number(n) => format!("{:?}", n.as_f64()),
        other => other.to_string(),
    }
}

/// The same with the top list sorted: upstream walks maps in random order.
fn without_order(value: &Json) -> Option<Vec<String>> {
    let values = value.get("listValue")?.get("values")?.as_array()?;
    let mut values: Vec<_> = values.iter().map(canonical).collect();
    values.sort();
    Some(values)
}

fn same_value(expected: &Json, found: &Json) -> bool {
    canonical(expected) == canonical(found)
        || (without_order(expected).is_some() && without_order(expected) == without_order(found))
}

fn run_case(case: &Json, inputs: &[Value<'_>], tally: &mut Tally) {
    let expression = case["Expr"].as_str().unwrap();
    let refused = case.get("CompileError").and_then(Json::as_str);
    let compiled = compile_expression(expression).map_err(|error| error.to_string());
    let program = match (&compiled, refused) {
        (Ok(program), None) => {
            tally.record("accepted or refused", true, String::new);
            program
        }
        (Err(got), Some(refused)) => {
            tally.record("accepted or refused", true, String::new);
            let detail = || format!("{expression}\n  expected {refused}\n  got {got}");
            if refused.contains("Syntax error") {
                let first = |text: &str| text.lines().next().map(str::to_owned);
                tally.record("first syntax error", first(got) == first(refused), detail);
            } else {
                tally.record("check error", got == refused, detail);
            }
            return;
        }
        (got, _) => {
            let got = got.as_ref().map(|_| "accepted");
            tally.record("accepted or refused", false, || {
                format!("{expression}\n  expected {refused:?}\n  got {got:?}")
            });
            return;
        }
    };
    let out_type = program.output_type().to_string();
    tally.record("type", case["OutType"].as_str() == Some(&out_type), || {
        format!(
            "{expression}\n  expected {}\n  got {out_type}",
            case["OutType"]
        )
    });
    let outcome = evaluate(program, inputs, Limits::default());
    compare_outcome(case, &outcome.value, tally);
    if case.get("Unstable").is_none() {
        tally.record("cost", case["Cost"].as_u64() == Some(outcome.cost), || {
            format!(
                "{expression}\n  expected {}\n  got {}",
                case["Cost"], outcome.cost
            )
        });
    }
}

fn compare_outcome(case: &Json, got: &Result<Value<'_>, Error>, tally: &mut Tally) {
    let expression = case["Expr"].as_str().unwrap();
    let detail = || {
        let got = got
            .as_ref()
            .map(ToString::to_string)
            .map_err(ToString::to_string);
        format!("{expression}\n  expected {case}\n  got {got:?}")
    };
    match (case.get("EvalError").and_then(Json::as_str), got) {
        (Some(expected), Err(error)) => {
            tally.record("value or error", true, detail);
            tally.record("evaluation error", error.to_string() == expected, detail);
        }
        (None, Ok(value)) => {
            tally.record("value or error", true, detail);
            let agrees = match (case.get("Value"), value.to_proto_json()) {
                (Some(expected), Some(found)) => same_value(expected, &found),
                (None, None) => case["ValueStr"].as_str() == Some(value.type_name()),
                _ => false,
            };
            tally.record("value", agrees, detail);
        }
        _ => tally.record("value or error", false, detail),
    }
}

fn run(path: &Path) {
    let text = read(path);
    let cases: Vec<Json> = if path.extension().is_some_and(|e| e == "json") {
        serde::Deserialize::deserialize(json(&text)).unwrap()
    } else {
        text.lines().map(json).collect()
    };
    let inputs = Inputs::load();
    let variables = inputs.variables();
    let mut tally = Tally::default();
    for case in &cases {
        run_case(case, variables.inputs(), &mut tally);
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

#[test]
fn expressions_from_the_tests_of_kubernetes() {
    match std::env::var_os("LOCKGATE_CEL_EXTERNAL") {
        Some(directory) => run(&Path::new(&directory).join("k8s_test_exprs.json")),
        None => println!("skipped: LOCKGATE_CEL_EXTERNAL is not set"),
    }
}
