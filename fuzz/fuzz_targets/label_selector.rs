//! Label selectors: the formatted form of a parsed selector is equivalent.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_api::meta::selector::Selector;

fuzz_target!(|text: &str| {
    if let Ok(selector) = Selector::parse(text) {
        let printed = selector.to_string();
        assert_eq!(
            Selector::parse(&printed),
            Ok(selector),
            "printed as {printed:?}"
        );
    }
});
