//! Common conditions are evaluated without allocating.

use lockgate_cel::admission::{Variables, compile_condition};
use lockgate_cel::eval::{Limits, evaluate};
use serde_json::Value as Json;

#[test]
fn common_conditions_do_not_allocate() {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../conformance/vectors/cel/"
    );
    let load = |name: &str| -> Json {
        serde_json::from_str(&std::fs::read_to_string(format!("{directory}{name}")).unwrap())
            .unwrap()
    };
    let (pod, request, expressions) = (load("pod.json"), load("req.json"), load("exprs.json"));
    for (name, expression) in expressions.as_object().unwrap() {
        let program = compile_condition(expression.as_str().unwrap()).unwrap();
        let run = || {
            let variables = Variables::new(&request).object(Some(&pod));
            let outcome = evaluate(&program, variables.inputs(), Limits::default());
            assert!(outcome.value.is_ok(), "{name}: {:?}", outcome.value);
        };
        // A pattern's automaton is built on first use.
        run();
        assert_eq!(
            allocation_counter::measure(run).count_total,
            0,
            "{name} allocates"
        );
    }
}
