//! Scans the labels of stored objects without parsing the objects, and computes their Bloom filters: lists by label
//! skip objects by their filters.

use lockgate_api::meta::selector::{Operator, Requirement, Selector};
use lockgate_store::Bloom;

use super::metadata_members;
use super::scan::{Members, ScanError, plain_text};

/// The labels of a stored object. Those with escapes must be parsed.
pub(crate) fn scan(value: &[u8]) -> Result<Members<'_>, ScanError> {
    let labels = metadata_members(value)?.find(b"labels")?.unwrap_or(b"{}");
    match memchr::memchr(b'\\', labels) {
        Some(_) => Err(ScanError),
        None => Members::of(labels),
    }
}

/// The Bloom filter of a stored object's labels, with an item for each key and one for each label. Anything that must
/// be parsed, or is not an object, matches every selector.
pub(crate) fn bloom(value: &[u8]) -> Bloom {
    let labels = || {
        let (mut labels, mut bloom) = (scan(value)?, Bloom::EMPTY);
        while let Some((key, value)) = labels.next()? {
            insert_key(&mut bloom, key);
            insert_label(&mut bloom, key, plain_text(value)?.as_bytes());
        }
        Ok::<_, ScanError>(bloom)
    };
    labels().unwrap_or(Bloom::FULL)
}

/// The Bloom filter contained in that of every object that matches a selector.
pub(crate) fn selected(selector: &Selector) -> Bloom {
    let mut bloom = Bloom::EMPTY;
    for requirement in selector.requirements() {
        insert_requirement(&mut bloom, requirement);
    }
    bloom
}

fn insert_requirement(bloom: &mut Bloom, requirement: &Requirement) {
    let key = requirement.key().as_bytes();
    match (requirement.operator(), requirement.values()) {
        (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => {
            insert_label(bloom, key, value.as_bytes());
        }
        (
            Operator::Equals
            | Operator::DoubleEquals
            | Operator::In
            | Operator::Exists
            | Operator::GreaterThan
            | Operator::LessThan,
            _,
        ) => insert_key(bloom, key),
        // Objects without the label match too.
        (Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist, _) => {}
    }
}

fn insert_key(bloom: &mut Bloom, key: &[u8]) {
    bloom.insert(&key);
}

fn insert_label(bloom: &mut Bloom, key: &[u8], value: &[u8]) {
    bloom.insert(&(key, value));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::encoding::encode;

    fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[a-c]", "[0-3]", 0..4)
    }

    fn requirement() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-c](=|==|!=)[0-3]",
            "[a-c] (in|notin) \\([0-3]\\)",
            "[a-c] (in|notin) \\([0-3],[0-3]\\)",
            "!?[a-c]",
            "[a-c](<|>)[0-3]",
        ]
    }

    proptest! {
        #[test]
        fn no_selected_object_is_skipped(labels in labels(), requirements in prop::collection::vec(requirement(), 0..4)) {
            let selector = Selector::parse(&requirements.join(",")).unwrap();
            let object = json!({"apiVersion": "v1", "metadata": {"labels": labels, "name": "a"}});
            if selector.matches(&labels) {
                prop_assert!(bloom(&encode(&object)).may_contain(selected(&selector)));
            }
        }
    }

    #[test]
    fn skips_most_that_are_not_selected() {
        let of = |labels| {
            bloom(&encode(
                &json!({"apiVersion": "v1", "metadata": {"labels": labels}}),
            ))
        };
        let object = of(json!({"app": "shop", "tier": "web"}));
        let may_match = |text| object.may_contain(selected(&Selector::parse(text).unwrap()));
        for text in [
            "app=shop",
            "app",
            "tier in (db,web)",
            "!other",
            "app!=web",
            "",
        ] {
            assert!(may_match(text), "{text}");
        }
        for text in ["app=web", "other", "tier in (db)", "shop=app", "other>1"] {
            assert!(!may_match(text), "{text}");
        }
        assert_eq!(of(json!({})), Bloom::EMPTY);
    }

    #[test]
    fn what_has_to_be_parsed_matches_any_selector() {
        for value in [
            &br#"{"metadata":{"labels":{"a":"\u0062"}}}"#[..],
            br#"{"metadata":{"labels":{"a": "b"}}}"#,
            br#"{"metadata":{"labels":{"a":1}}}"#,
            br#"{"metadata":{"labels":["a"]}}"#,
            br#"{"metadata":{"labels":{"a":"b""#,
            br#"{"kind":"APIServerIdentity"}"#,
            b"",
        ] {
            let found = bloom(value);
            assert_eq!(found, Bloom::FULL, "{}", String::from_utf8_lossy(value));
        }
    }
}
