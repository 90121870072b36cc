//! Compiled expressions evaluate within their limits, with the same result and cost every time.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use lockgate_cel::admission::{Request, Variables, compile_expression};
use lockgate_cel::eval::{Limits, evaluate};
use lockgate_api::access::{FixedAuthorizer, User};
use lockgate_cel::ext::authorizer::AuthorizerValue;
use serde_json::Value;

static POD: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../conformance/vectors/cel/pod.json")).expect("a pod")
});
static REQUEST: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../conformance/vectors/cel/req.json")).expect("a request")
});

/// A small limit, so that the fuzzer tries many expressions rather than long loops.
const COST_LIMIT: u64 = 50_000;

fuzz_target!(|text: &str| {
    let Ok(program) = compile_expression(text) else { return };
    let authorizer =
        AuthorizerValue::new(Arc::new(User::default()), Arc::new(FixedAuthorizer::AllowAll));
    let variables = Variables::new(&REQUEST)
        .object(Some(&POD))
        .authorizer(authorizer, &Request::default());
    let run = || {
        let limits = Limits { cost: COST_LIMIT, ..Limits::default() };
        let evaluation = evaluate(&program, variables.inputs(), limits);
        let outcome = match &evaluation.value {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        (outcome, evaluation.cost)
    };
    assert_eq!(run(), run());
});
