//! Named expressions of admission policies.
//!
//! `policies.jsonl` holds policies with what kube-apiserver's own code made of them, and what was
//! left of the budget.

use lockgate_cel::admission::{Composition, PolicyEvaluation, Request, Variables};
use lockgate_cel::eval::Program;
use lockgate_cel::program::CompileError;
use serde_json::{Value as Json, json};

/// What the expressions of a policy yield on a fixed object, and what is left of the budget.
fn outcome(variables: &[(&str, &str)], expressions: &[&str], budget: u64) -> (Vec<String>, i64) {
    let composition = Composition::compile(true, variables.iter().copied());
    let programs: Vec<Result<Program, CompileError>> = expressions
        .iter()
        .map(|expression| composition.compile_expression(expression, None))
        .collect();
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "web", "labels": { "team": "a" } },
        "spec": { "replicas": 7, "names": ["a", "b"] },
    });
    let params = json!({ "limit": 3 });
    let request = Request {
        operation: "CREATE".to_owned(),
        ..Request::default()
    }
    .to_json();
    let inputs = Variables::new(&request)
        .object(Some(&object))
        .policy_inputs(None, Some(&params));
    let named = composition.named();
    let mut evaluation = PolicyEvaluation::new(&named, &inputs, None).with_budget(budget);
    let mut results = Vec::new();
    for (expression, program) in expressions.iter().zip(&programs) {
        results.push(match program {
            Err(error) => format!("compilation error: {error}"),
            Ok(program) => match evaluation.evaluate(program) {
                Err(spent) => return (vec![format!("ERROR {spent}")], -1),
                Ok(Ok(value)) => value.to_string(),
                Ok(Err(error)) => format!("expression '{expression}' resulted in error: {error}"),
            },
        });
    }
    (results, evaluation.remaining() as i64)
}

#[test]
fn named_expressions_are_evaluated_as_kubernetes_does() {
    let texts = |value: &Json| -> Vec<String> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    let mut compared = 0;
    for line in include_str!("policies.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let variables: Vec<Vec<String>> = case["Variables"]
            .as_array()
            .unwrap()
            .iter()
            .map(texts)
            .collect();
        let variables: Vec<_> = variables.iter().map(|v| (&*v[0], &*v[1])).collect();
        let expressions = texts(&case["Expressions"]);
        let expressions: Vec<_> = expressions.iter().map(String::as_str).collect();
        let budget = match case["Budget"].as_u64() {
            None | Some(0) => lockgate_cel::limits::POLICY_BUDGET,
            Some(units) => units,
        };
        let expected = (texts(&case["Results"]), case["Remaining"].as_i64().unwrap());
        assert_eq!(
            outcome(&variables, &expressions, budget),
            expected,
            "{variables:?} {expressions:?}"
        );
        compared += expressions.len();
    }
    assert!(compared > 70, "only {compared} expressions were compared");
}

#[test]
fn an_expression_that_selects_itself_is_an_error() {
    let (results, _) = outcome(
        &[("a", "dyn(variables)['b']"), ("b", "dyn(variables)['a']")],
        &["variables.a == 1"],
        1_000,
    );
    assert_eq!(
        results,
        [
            "expression 'variables.a == 1' resulted in error: composited variable \"a\" fails to \
             evaluate: composited variable \"b\" fails to evaluate: composited variable \"a\" \
             fails to evaluate: it selects itself"
        ]
    );
}

/// Runs on the stack a worker thread commonly has.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run);
    thread.unwrap().join().expect("it fits the stack");
}

#[test]
fn expressions_that_select_one_another_are_bounded() {
    on_a_small_stack(|| {
        let chain = |length: usize, of: &dyn Fn(String) -> String| -> String {
            let named: Vec<(String, String)> = (0..length)
                .map(|nth| match nth {
                    0 => ("v0".to_owned(), "1".to_owned()),
                    _ => (format!("v{nth}"), of(format!("variables.v{}", nth - 1))),
                })
                .collect();
            let named: Vec<_> = named.iter().map(|(n, e)| (&**n, &**e)).collect();
            let last = format!("variables.v{}", length - 1);
            outcome(&named, &[&last], 10_000_000).0.remove(0)
        };
        assert_eq!(chain(60, &|before| format!("{before} + 1")), "60");
        // Each of them is as deep as an expression may be.
        let deep = |before: String| format!("{}{before}{}", "(1+".repeat(120), ")".repeat(120));
        assert_eq!(chain(2, &deep), "121");
        let refused = chain(100, &deep);
        assert!(
            refused.ends_with("variables are nested too deeply"),
            "{refused}"
        );
        let refused = chain(400, &|before| format!("{before} + 1"));
        assert!(
            refused.ends_with("variables are nested too deeply"),
            "{refused}"
        );
    });
}
