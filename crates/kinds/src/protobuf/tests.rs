//! Decoding of single values. `tests/it` compares whole objects with upstream.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::tree::MAX_DEPTH;
use crate::typed::{Type, type_of};

use super::*;

/// A length-delimited field.
fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend(value);
    out
}

fn pod() -> Type {
    type_of("", "v1", "Pod").unwrap()
}

/// Decodes a message; errors are compared by message.
fn decode(ty: Type, message: &[u8]) -> Result<Value, String> {
    super::decode(ty, message).map_err(|error| error.to_string())
}

fn read(kind: &str, message: &[u8]) -> Result<Value, String> {
    decode(type_of("", "v1", kind).unwrap(), message)
}

#[test]
fn an_empty_message_is_an_empty_object() {
    assert_eq!(
        read("Pod", &[]),
        Ok(json!({"metadata": {}, "spec": {"containers": null}, "status": {}}))
    );
}

#[test]
fn opens_envelopes() {
    let kind = [bytes(1, b"v1"), bytes(2, b"Pod")].concat();
    let body = [
        MAGIC.to_vec(),
        bytes(1, &kind),
        bytes(2, b"raw"),
        bytes(3, b""),
        bytes(4, b"x"),
        bytes(9, b"unknown"),
    ]
    .concat();
    let envelope = Envelope::open(&body).unwrap();
    assert_eq!(
        (envelope.api_version.as_str(), envelope.kind.as_str()),
        ("v1", "Pod")
    );
    assert_eq!(envelope.raw, b"raw");
    assert_eq!(envelope.group_version(), ("", "v1"));
    for (body, error) in [
        (&b""[..], "empty data"),
        (
            b"{}",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a", "unexpected EOF"),
        (
            b"k8s\0\x08\x01",
            "proto: wrong wireType = 0 for field TypeMeta",
        ),
        (b"k8s\0\x10\x01", "proto: wrong wireType = 0 for field Raw"),
    ] {
        assert_eq!(Envelope::open(body).unwrap_err().to_string(), error);
    }
}

#[test]
fn refuses_what_is_no_message() {
    for (message, error) in [
        (&[0x0a][..], "unexpected EOF"),
        (&[0x0a, 5, 1], "unexpected EOF"),
        (&[0x08, 1], "proto: wrong wireType = 0 for field Metadata"),
        (&[0x0c], "proto: Pod: wiretype end group for non-group"),
        (&[0x02, 0], "proto: Pod: illegal tag 0 (wire type 2)"),
        (&[0x7e], "proto: illegal wireType 6"),
        (
            &[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
            "proto: negative length found during unmarshaling",
        ),
        (&[0xff; 11], "proto: integer overflow"),
        // An unterminated group.
        (&[0x7b, 0x7b], "unexpected EOF"),
    ] {
        assert_eq!(read("Pod", message).unwrap_err(), error, "{message:?}");
    }
}

#[test]
fn passes_over_what_it_does_not_know() {
    let unknown = [
        vec![0x78, 1],
        vec![0x79, 1, 2, 3, 4, 5, 6, 7, 8],
        bytes(15, b"text"),
        // A nested group, with fields of every wire type.
        vec![
            0x7b, 0x73, 0x08, 0x01, 0x74, 0x0a, 1, 0, 0x0d, 1, 2, 3, 4, 0x7c,
        ],
        vec![0x7d, 1, 2, 3, 4],
    ]
    .concat();
    let message = [unknown, bytes(1, &bytes(1, b"a"))].concat();
    assert_eq!(
        read("ConfigMap", &message),
        Ok(json!({"metadata": {"name": "a"}}))
    );
}

#[test]
fn reads_a_repeated_message_over_the_earlier_one() {
    let metadata = |number, text: &[u8]| bytes(1, &bytes(number, text));
    let message = [metadata(1, b"a"), metadata(3, b"n"), metadata(1, b"b")].concat();
    assert_eq!(
        read("ConfigMap", &message),
        Ok(json!({"metadata": {"name": "b", "namespace": "n"}}))
    );
}

#[test]
fn replaces_every_byte_that_is_no_text() {
    let message = bytes(1, &bytes(1, b"a\xe2\x82b\xff"));
    assert_eq!(
        read("ConfigMap", &message),
        Ok(json!({"metadata": {"name": "a\u{fffd}\u{fffd}b\u{fffd}"}}))
    );
}

#[test]
fn takes_packed_numbers_and_entries_without_a_value() {
    let groups = bytes(4, &[1, 0x80, 1]);
    let spec = bytes(2, &bytes(14, &groups));
    let pod = read("Pod", &spec).unwrap();
    assert_eq!(
        pod["spec"]["securityContext"]["supplementalGroups"],
        json!([1, 128])
    );
    let map = read("ConfigMap", &bytes(2, &bytes(1, b"k"))).unwrap();
    assert_eq!(map["data"], json!({"k": ""}));
}

#[test]
fn refuses_values_that_json_cannot_say() {
    let schema = |bits: f64| {
        let maximum = [vec![9 << 3 | 1], bits.to_le_bytes().to_vec()].concat();
        let validation = bytes(1, &maximum);
        let version = bytes(7, &bytes(4, &validation));
        decode(
            type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap(),
            &bytes(2, &version),
        )
    };
    assert_eq!(
        schema(f64::NAN).unwrap_err(),
        "json: unsupported value: NaN"
    );
    assert_eq!(
        schema(f64::NEG_INFINITY).unwrap_err(),
        "json: unsupported value: -Inf"
    );
    assert_eq!(
        schema(1.5).unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["maximum"],
        1.5
    );
}

#[test]
fn bounds_depth_and_size() {
    let ty = type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    // Deeply nested `not`.
    let nested = |levels: usize| {
        let mut schema = Vec::new();
        for _ in 0..levels {
            let mut field = vec![0xe2, 0x01];
            field.extend(bytes(0, &schema).into_iter().skip(1));
            schema = field;
        }
        decode(ty, &bytes(2, &bytes(7, &bytes(4, &bytes(1, &schema)))))
    };
    assert!(nested(100).is_ok());
    assert_eq!(nested(MAX_DEPTH).unwrap_err(), "exceeded max depth");
    assert_eq!(nested(2_000).unwrap_err(), "exceeded max depth");

    let owners = bytes(13, &[]).repeat(MAX_MESSAGES);
    assert_eq!(
        decode(pod(), &bytes(1, &owners)).unwrap_err(),
        format!("more than {MAX_MESSAGES} messages")
    );
}

proptest! {
    #[test]
    fn never_panics(message in proptest::collection::vec(any::<u8>(), 0..400)) {
        for (group, version, kind) in [
            ("", "v1", "Pod"),
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            ("authorization.k8s.io", "v1", "SubjectAccessReview"),
            ("coordination.k8s.io", "v1", "Lease"),
        ] {
            let _ = decode(type_of(group, version, kind).unwrap(), &message);
        }
        let _ = Envelope::open(&[&MAGIC[..], &message].concat());
    }

    /// Random bytes rarely nest deeply; fields with small numbers do.
    #[test]
    fn never_panics_on_nested_fields(
        fields in proptest::collection::vec((1_u8..16, any::<Vec<u8>>(), any::<bool>()), 1..12),
    ) {
        let mut message = Vec::new();
        for (number, value, wraps) in fields {
            let field = bytes(number, if wraps { &message } else { &value });
            if wraps {
                message = field;
            } else {
                message.extend(field);
            }
        }
        for kind in ["Pod", "Event", "PersistentVolume", "Service"] {
            if let Ok(value) = read(kind, &message) {
                let ty = type_of("", "v1", kind).unwrap();
                prop_assert!(ty.decode_value(&value).is_ok());
            }
        }
    }
}
