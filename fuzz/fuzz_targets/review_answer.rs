//! Webhook responses. The first two bytes select the status code and the version, the rest is the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_api::admission::ReviewVersion;
use lockgate_api::admission::response::{HttpResponse, ExpectedResponse, read};

fuzz_target!(|bytes: &[u8]| {
    let [code, choice, body @ ..] = bytes else {
        return;
    };
    let version = if choice & 1 == 0 {
        ReviewVersion::V1
    } else {
        ReviewVersion::V1beta1
    };
    let code = if code & 1 == 0 {
        200
    } else {
        200 + u16::from(*code) * 2
    };
    let text = String::from_utf8_lossy(body);
    let http = HttpResponse {
        code,
        content_type: (choice & 2 == 0).then_some(&text),
        body,
    };
    let expected = ExpectedResponse {
        version,
        uid: "u",
        may_patch: choice & 4 == 0,
    };
    if let Ok(answer) = read(&http, &expected) {
        assert!(
            expected.may_patch || answer.patch.is_empty(),
            "a validating webhook changes nothing"
        );
    }
});
