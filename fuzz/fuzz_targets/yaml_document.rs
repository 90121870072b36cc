//! YAML documents: a parsed document can be encoded as JSON and parsed again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_api::document::{json, yaml};

fuzz_target!(|text: &str| {
    if let Ok(documents) = yaml::parse_all(text) {
        for document in documents {
            let written = document.root().to_json();
            let again = json::parse(written.as_bytes()).expect("written JSON is JSON");
            assert_eq!(again.root().to_json(), written);
        }
    }
    for part in yaml::split(text) {
        let _ = yaml::parse(&text[part]);
    }
});
