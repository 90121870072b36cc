//! Patches of webhooks: a decoded and reencoded patch has the same result or error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_admission::json_patch::Patch;
use serde_json::{Value, json};

fuzz_target!(|text: &[u8]| {
    let Ok(patch) = Patch::parse(text) else {
        return;
    };
    let written = patch.to_json();
    let again = Patch::parse(written.as_bytes()).expect("what was written is a patch");
    assert_eq!(again.to_json(), written);
    for object in objects() {
        let (one, other) = (patch.apply(&object), again.apply(&object));
        match (one, other) {
            (Ok(one), Ok(other)) => assert_eq!(one, other, "{written}"),
            (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string(), "{written}"),
            (one, other) => panic!("{written}: {one:?} and {other:?}"),
        }
    }
});

fn objects() -> [Value; 2] {
    [
        json!({}),
        json!({
            "kind": "Pod",
            "metadata": {"labels": {"a": "b", "": "empty", "x/y~z": "1"}, "finalizers": []},
            "spec": {"containers": [{"name": "c", "args": ["1", "2"]}, {"name": "d"}], "n": 1.5},
            "status": null,
        }),
    ]
}
