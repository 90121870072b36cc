//! Any string is an expression or is rejected with issues that have a valid position.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_cel::admission::compile_expression;
use lockgate_cel::program::CompileError;

fuzz_target!(|text: &str| {
    if let Err(CompileError::Issues { issues, rendered }) = compile_expression(text) {
        assert!(!issues.is_empty() && rendered.starts_with("ERROR: <input>:"), "{rendered}");
        for issue in issues {
            assert!(issue.offset.is_none_or(|at| at as usize <= text.len()));
        }
    }
});
