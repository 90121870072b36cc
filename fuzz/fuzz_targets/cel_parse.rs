//! Any text is parsed to an expression or refused with issues, whose rendering names a place in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_cel::{source, syntax};

fuzz_target!(|text: &str| {
    if let Err(issues) = syntax::parse(text) {
        assert!(!issues.is_empty());
        assert!(!source::render(text, &issues).is_empty());
    }
});
