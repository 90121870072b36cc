//! Any string compiles as a match condition or is rejected, with the same result twice.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_cel::admission::{compile_condition, compile_expression};

fuzz_target!(|text: &str| {
    let any = compile_expression(text);
    let condition = compile_condition(text);
    match (any, condition) {
        (Ok(any), Ok(condition)) => {
            assert_eq!(any.output_type().to_string(), condition.output_type().to_string());
        }
        // The result is not a bool, or a constant subexpression always fails.
        (Ok(_), Err(_)) | (Err(_), Err(_)) => {}
        (Err(error), Ok(_)) => panic!("a condition, yet no expression: {error}"),
    }
});
