//! Compiling and evaluating the ten expressions of `conformance/vectors/cel/exprs.json`.

#![allow(missing_docs, reason = "the macro generates a public function")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use lockgate_cel::admission::{
    FailurePolicy, MatchConditions, Request, RequestVariable, Variables, compile_condition,
};
use lockgate_cel::eval::{Limits, evaluate};
use serde_json::Value as Json;

fn load(name: &str) -> Json {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../conformance/vectors/cel/"
    );
    let text = std::fs::read_to_string(format!("{directory}{name}")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn conditions(criterion: &mut Criterion) {
    let (pod, request, expressions) = (load("pod.json"), load("req.json"), load("exprs.json"));
    let expressions: Vec<(&str, &str)> = expressions
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, text)| Some((name.as_str(), text.as_str()?)))
        .collect();
    let mut group = criterion.benchmark_group("evaluate");
    for (name, expression) in &expressions {
        let Ok(program) = compile_condition(expression) else {
            continue;
        };
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                let variables = Variables::new(black_box(&request)).object(Some(black_box(&pod)));
                evaluate(&program, variables.inputs(), Limits::default()).cost
            });
        });
    }
    group.finish();
    // As in the server: prepared variables, with the precomputed fields of the request.
    let request = RequestVariable::new(Request::from_json(&request));
    let variables = Variables::of(&request).object(Some(&pod));
    let mut group = criterion.benchmark_group("evaluate prepared");
    for (name, expression) in &expressions {
        let Ok(program) = compile_condition(expression) else {
            continue;
        };
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                let inputs = black_box(&variables).inputs();
                evaluate(black_box(&program), inputs, Limits::default()).cost
            });
        });
    }
    group.finish();
    let first_four = expressions.iter().filter(|(name, _)| {
        ["E1_", "E2_", "E3_", "E4_"]
            .iter()
            .any(|e| name.starts_with(e))
    });
    let list = MatchConditions::compile(first_four.copied());
    criterion.bench_function("a list of E1 to E4", |bencher| {
        bencher.iter(|| list.matches(&black_box(&variables).evaluator(), FailurePolicy::Fail));
    });
    let mut group = criterion.benchmark_group("compile");
    for (name, expression) in &expressions {
        group.bench_function(*name, |bencher| {
            bencher.iter(|| compile_condition(black_box(expression)).is_ok());
        });
    }
    group.finish();
}

criterion_group!(benches, conditions);
criterion_main!(benches);
