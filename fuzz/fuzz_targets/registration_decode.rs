//! Webhook configurations: accepted objects can be encoded, decoded again and updated unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_api::document::json;
use lockgate_api::registration::strategy::{Request, prepare_create, prepare_update};
use lockgate_api::registration::validation::Unchecked;
use lockgate_api::registration::{ConfigurationKind, Version, codec};

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = json::parse(bytes) else {
        return;
    };
    for kind in ConfigurationKind::ALL {
        for version in [Version::V1, Version::V1beta1] {
            let Ok(decoded) = codec::decode(document.root(), kind, version) else {
                continue;
            };
            let request = Request {
                version,
                expressions: &Unchecked,
                static_manifests: false,
            };
            let mut created = decoded.value;
            if prepare_create(&mut created, &request).is_err() {
                continue;
            }
            created.metadata.resource_version = String::from("1");
            let text = codec::to_json(created, version).to_string();
            let document = json::parse(text.as_bytes()).expect("written JSON is JSON");
            let stored = codec::decode(document.root(), kind, version)
                .expect("a stored object can be decoded");
            let mut unchanged = stored.value.clone();
            let outcome = prepare_update(&mut unchanged, &stored.value, &request);
            assert!(outcome.is_ok(), "a stored object is valid: {outcome:?}");
            assert_eq!(unchanged, stored.value);
        }
    }
});
