//! Evaluates and compiles the ten expressions of `conformance/vectors/cel/exprs.json` and prints one line
//! for each: engine, expression, operation, nanoseconds.
//!
//! Every figure is the minimum of several rounds: on a busy machine the minimum is the least disturbed.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use lockgate_cel::admission::{Variables, compile_expression};
use lockgate_cel::eval::{Limits, evaluate};
use serde_json::Value;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(60);

/// The minimum time of one call.
fn measure(mut call: impl FnMut()) -> f64 {
    let mut batch = 1_u32;
    loop {
        let start = Instant::now();
        (0..batch).for_each(|_| call());
        let took = start.elapsed();
        if took >= ROUND || batch >= 1 << 28 {
            break;
        }
        batch *= 2;
    }
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..batch).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / f64::from(batch)
        })
        .fold(f64::INFINITY, f64::min)
}

fn print(engine: &str, expression: &str, what: &str, nanoseconds: f64) {
    println!("{engine}\t{expression}\t{what}\t{nanoseconds:.0}");
}

fn main() {
    let read = |name: &str| -> Value {
        let path = format!("{}/../../conformance/vectors/cel/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let (pod, request) = (read("pod.json"), read("req.json"));
    let expressions: BTreeMap<String, String> =
        serde_json::from_value(read("exprs.json")).expect("a map of texts");
    for (name, expression) in &expressions {
        lockgate(name, expression, &pod, &request);
        cel_crate(name, expression, &pod, &request);
    }
}

/// With exact cost, the cost limit, and variables converted for each evaluation.
fn lockgate(name: &str, expression: &str, pod: &Value, request: &Value) {
    let program = compile_expression(expression).expect("a valid expression");
    let evaluation = measure(|| {
        let variables = Variables::new(request).object(Some(pod));
        black_box(evaluate(&program, variables.inputs(), Limits::default()).cost);
    });
    print("lockgate", name, "evaluate", evaluation);
    let compilation = measure(|| {
        black_box(compile_expression(black_box(expression)).is_ok());
    });
    print("lockgate", name, "compile", compilation);
}

/// Without cost, and with variables converted once, outside of the measurement.
fn cel_crate(name: &str, expression: &str, pod: &Value, request: &Value) {
    let program = cel::Program::compile(expression).expect("a valid expression");
    let mut context = cel::Context::default();
    context.add_variable("object", pod).expect("an object");
    context.add_variable("request", request).expect("a request");
    let evaluation = measure(|| {
        black_box(program.execute(&context).is_ok());
    });
    print("cel crate", name, "evaluate", evaluation);
    let compilation = measure(|| {
        black_box(cel::Program::compile(black_box(expression)).is_ok());
    });
    print("cel crate", name, "compile", compilation);
}
