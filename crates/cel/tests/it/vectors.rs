//! Evaluates expressions with outcomes recorded from Kubernetes.
//!
//! `LOCKGATE_CEL_VECTORS=FILE` runs another file in the same format. `LOCKGATE_CEL_EXTERNAL=DIR` runs
//! third-party expressions, which are not part of this repository.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_api::access::{FixedAuthorizer, User};
use lockgate_cel::admission::{Request, RequestVariable, Variables, compile_expression};
use lockgate_cel::eval::{Limits, evaluate, evaluate_recorded};
use lockgate_cel::ext::authorizer::AuthorizerValue;
use lockgate_cel::value::{Error, Value};
use serde_json::{Value as Json, json};

/// The maximum number of printed differences.
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

    /// Prints the summary and fails if a rate is below its threshold.
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

/// The inputs of the recorded outcomes.
struct Inputs {
    pod: Json,
    request: RequestVariable,
}

impl Inputs {
    fn load() -> Self {
        let pod = json(&read(&vectors().join("pod.json")));
        let mut request = json(&read(&vectors().join("req.json")));
        // The file contains the webhook's request; conditions have these variables as well.
        for (key, value) in [
            ("uid", json!("")),
            ("object", Json::Null),
            ("oldObject", Json::Null),
        ] {
            request[key] = value;
        }
        let variable = RequestVariable::new(Request::from_json(&request));
        assert_eq!(variable.json(), &request);
        Self {
            pod,
            request: variable,
        }
    }

    fn variables(&self) -> Variables<'_> {
        let allow = AuthorizerValue::new(
            Arc::new(User::default()),
            Arc::new(FixedAuthorizer::AllowAll),
        );
        Variables::of(&self.request)
            .object(Some(&self.pod))
            .authorizer(allow, &Request::default())
    }
}

/// A value with normalised numbers, and its unordered parts sorted.
fn canonical(value: &Json) -> String {
    match value {
        Json::Object(fields) => {
            let parts = fields
                .iter()
                .map(|(name, value)| match (name.as_str(), value) {
                    // The recording lost the sign of minus zero.
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

/// Like [`canonical`], with the top-level list sorted: upstream iterates over maps in random order.
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

fn run_case(case: &Json, variables: &Variables<'_>, tally: &mut Tally) {
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
    let inputs = variables.inputs();
    let outcome = evaluate(program, inputs, Limits::default());
    // A recorded evaluation runs every step in the machine.
    let (recorded, _) = evaluate_recorded(program, inputs, Limits::default());
    let same = outcome.cost == recorded.cost
        && format!("{:?}", outcome.value) == format!("{:?}", recorded.value);
    tally.record("the same in the machine", same, || expression.to_owned());
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
        run_case(case, &variables, &mut tally);
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

/// Expressions with syntax errors and further issues; the complete text is compared.
#[test]
fn complaints_about_broken_expressions() {
    for line in include_str!("broken.jsonl").lines() {
        let case = json(line);
        let expression = case["Expr"].as_str().unwrap();
        let error = compile_expression(expression).unwrap_err();
        assert_eq!(
            error.to_string(),
            case["CompileError"].as_str().unwrap(),
            "{expression}"
        );
    }
}

/// Steps are fused where that is not recorded; the outcome must be the same.
#[test]
fn recording_changes_neither_outcome_nor_cost_at_any_limit() {
    let inputs = Inputs::load();
    let variables = inputs.variables();
    let mut expressions: Vec<String> = read(&vectors().join("hand.jsonl"))
        .lines()
        .filter_map(|line| Some(json(line)["Expr"].as_str()?.to_owned()))
        .collect();
    let named = json(&read(&vectors().join("exprs.json")));
    expressions.extend(
        named
            .as_object()
            .unwrap()
            .values()
            .filter_map(|text| Some(text.as_str()?.to_owned())),
    );
    // Operands of a string test that are missing, not a string, or not in a document.
    for operand in [
        "object.metadata.name",
        "object.metadata.nope",
        "object.metadata.name.nope",
        "object.metadata.labels",
        "object.spec.containers.map(c, c.image)[0]",
        "oldObject.metadata.name",
    ] {
        for test in ["== 'web'", "!= 'web'", ".startsWith('web')"] {
            expressions.push(format!("{operand}{test} || !has(object.spec.nope.more)"));
        }
    }
    let mut compared = 0;
    for expression in expressions {
        let Ok(program) = compile_expression(&expression) else {
            continue;
        };
        let shown = |value: Result<Value<'_>, Error>| match value {
            Ok(value) => Ok(value.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let full = evaluate(&program, variables.inputs(), Limits::default()).cost;
        for cost in (0..full.min(60)).chain([full, Limits::default().cost]) {
            let limits = Limits {
                cost,
                interrupt: None,
            };
            let quiet = evaluate(&program, variables.inputs(), limits);
            let (recorded, _) = evaluate_recorded(&program, variables.inputs(), limits);
            assert_eq!(quiet.cost, recorded.cost, "{expression} at {cost}");
            assert_eq!(
                shown(quiet.value),
                shown(recorded.value),
                "{expression} at {cost}"
            );
            compared += 1;
        }
    }
    assert!(
        compared > 1_000,
        "only {compared} evaluations were compared"
    );
}

/// Prints a notice about a skipped test and how to run it. The test harness captures the print macros'
/// output of passing tests, so this writes to the stream itself.
fn skipped(what: &str, setting: &str) {
    use std::io::Write as _;
    let command = format!("{setting} cargo test -p lockgate-cel --test it vectors");
    // Bypasses the output capture of the test harness.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED {what}: run `{command}`").unwrap();
}

#[test]
fn a_file_named_by_the_environment() {
    match std::env::var_os("LOCKGATE_CEL_VECTORS") {
        Some(path) => run(Path::new(&path)),
        None => skipped("vectors of others", "LOCKGATE_CEL_VECTORS=FILE"),
    }
}

#[test]
fn expressions_from_the_tests_of_kubernetes() {
    match std::env::var_os("LOCKGATE_CEL_EXTERNAL") {
        Some(directory) => run(&Path::new(&directory).join("k8s_test_exprs.json")),
        None => skipped(
            "expressions of Kubernetes' tests",
            "LOCKGATE_CEL_EXTERNAL=DIR",
        ),
    }
}

/// A test of the language's conformance suite, with Kubernetes' outcome, in the format of our
/// recordings. `None` if it requires variables, messages or a container, which match conditions do not
/// have.
fn from_language_suite(test: &Json) -> Option<Json> {
    let needs = [
        "container",
        "type_env",
        "bindings",
        "disable_check",
        "check_only",
    ];
    if needs.iter().any(|name| test.get(name).is_some()) {
        return None;
    }
    let verdict = &test["k8s"];
    let detail = verdict["Detail"].as_str().unwrap_or_default();
    let mut case = json!({ "Expr": test["expr"] });
    match verdict["Status"].as_str()? {
        "check_error" | "parse_error" => {
            case["CompileError"] = json!(format!("compilation failed: {detail}"));
        }
        "program_error" => {
            case["CompileError"] = json!(format!("program instantiation failed: {detail}"));
        }
        "pass" | "fail" => {
            case["OutType"] = verdict.get("OutType")?.clone();
            case["Cost"] = verdict["Cost"].clone();
            for (name, recorded) in [("Value", "Value"), ("EvalError", "Err")] {
                if let Some(value) = verdict.get(recorded) {
                    case[name] = value.clone();
                }
            }
            if case.get("Value").is_none() && case.get("EvalError").is_none() {
                return None;
            }
        }
        _ => return None,
    }
    // Kubernetes iterates over maps in random order, which changes the cost of loops that end early.
    let expression = test["expr"].as_str()?;
    let loops = [".all(", ".exists(", ".transformMap("];
    if expression.starts_with('{') && loops.iter().any(|name| expression.contains(name)) {
        case["Unstable"] = json!(true);
    }
    Some(case)
}

#[test]
fn the_suite_of_the_language_itself() {
    let Some(directory) = std::env::var_os("LOCKGATE_CEL_EXTERNAL") else {
        return skipped("the CEL conformance suite", "LOCKGATE_CEL_EXTERNAL=DIR");
    };
    let path = Path::new(&directory).join("cel_spec_conformance_with_k8s_verdict.jsonl.gz");
    let tests: Vec<Json> = read(&path).lines().map(json).collect();
    let inputs = Inputs::load();
    let variables = inputs.variables();
    let mut tally = Tally::default();
    for case in tests.iter().filter_map(from_language_suite) {
        run_case(&case, &variables, &mut tally);
    }
    tally.finish(&path.display().to_string());
}
