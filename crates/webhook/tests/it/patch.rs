//! Patches: they yield the intended object, also when applied by the API server, and lose no fields.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Toleration};
use lockgate_admission::json_patch;
use lockgate_webhook::patch::{Patch, merge};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The object after the API server applied a patch.
fn applied(object: &Value, patch: &Patch) -> Value {
    let patch = json_patch::Patch::parse(patch.to_json().as_bytes()).expect("a patch");
    patch.apply(object).expect("a patch that applies")
}

fn of_view(sent: &Value, before: &Value, after: &Value) -> Patch {
    let [sent, before, after] = [sent, before, after].map(Value::to_string);
    Patch::of_view(&sent, &before, &after).expect("texts of JSON")
}

/// The patch and the patched object after a change to a typed view.
fn changed<K: Serialize + for<'de> Deserialize<'de>>(
    sent: &Value,
    change: impl Fn(&mut K),
) -> (Value, K) {
    let mut typed: K = serde_json::from_value(sent.clone()).unwrap();
    let before = serde_json::to_value(&typed).unwrap();
    change(&mut typed);
    let after = serde_json::to_value(&typed).unwrap();
    let wanted = merge(sent, &before, &after);
    let result = applied(sent, &of_view(sent, &before, &after));
    assert_eq!(result, wanted);
    (result, typed)
}

/// A view may serialize the entries of a hash map in a different order each time.
#[test]
fn the_order_of_members_is_no_change() {
    let [before, after] = [r#"{"m": {"a": 1, "b": 2}}"#, r#"{"m": {"b": 2, "a": 1}}"#];
    for sent in ["{}", r#"{"m": {}}"#, r#"{"m": {"a": 1, "b": 2}}"#] {
        let patch = Patch::of_view(sent, before, after).unwrap();
        assert_eq!(patch.changes(), [], "{sent}");
    }
}

#[test]
fn a_change_of_a_pod_touches_nothing_else() {
    let sent = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": null, "labels": {}},
        "spec": {
            "fromTheFuture": {"a": [1]},
            "containers": [
                {"name": "one", "image": "x", "novel": true, "env": [{"name": "A", "value": "1", "odd": 1}]},
                {"name": "two", "resources": {}},
            ],
        },
        "status": {},
    });
    let (result, _) = changed::<Pod>(&sent, |pod| {
        let spec = pod.spec.as_mut().unwrap();
        let first = &mut spec.containers[0];
        first.image = Some("y".into());
        first.env.as_mut().unwrap().insert(
            0,
            EnvVar {
                name: "B".into(),
                ..EnvVar::default()
            },
        );
        let sidecar = Container {
            name: "sidecar".into(),
            ..Container::default()
        };
        spec.containers.insert(0, sidecar);
        spec.tolerations = Some(vec![Toleration {
            key: Some("k".into()),
            ..Toleration::default()
        }]);
    });
    let mut want = sent;
    want["spec"]["containers"] = json!([
        {"name": "sidecar"},
        {"name": "one", "image": "y", "novel": true,
            "env": [{"name": "B"}, {"name": "A", "value": "1", "odd": 1}]},
        {"name": "two", "resources": {}},
    ]);
    want["spec"]["tolerations"] = json!([{"key": "k"}]);
    assert_eq!(result, want);
}

#[test]
fn a_patch_has_no_more_operations_than_it_needs() {
    for (from, to, want) in [
        (json!({}), json!({}), json!([])),
        (
            json!({"a": 1}),
            json!({"a": 1.5}),
            json!([{"op": "replace", "path": "/a", "value": 1.5}]),
        ),
        (
            json!({"a": 1}),
            json!({}),
            json!([{"op": "remove", "path": "/a"}]),
        ),
        (
            json!([{"name": "x", "v": 1}, {"name": "y"}]),
            json!([{"name": "y"}]),
            json!([{"op": "remove", "path": "/0"}]),
        ),
        (
            json!([1, 2, 3, 4]),
            json!([1, 9, 3, 4, 5]),
            json!([
                {"op": "replace", "path": "/1", "value": 9},
                {"op": "add", "path": "/-", "value": 5},
            ]),
        ),
        (
            json!({"a/b~": {}}),
            json!({"a/b~": []}),
            json!([{"op": "replace", "path": "/a~1b~0", "value": []}]),
        ),
        (
            json!(1),
            json!([]),
            json!([{"op": "replace", "path": "", "value": []}]),
        ),
    ] {
        let patch = Patch::between(&from, &to);
        let found: Value = serde_json::from_str(&patch.to_json()).unwrap();
        assert_eq!(found, want, "{from} to {to}");
    }
}

/// A type with fields of every shape, which drops unknown fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Thing {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default)]
    count: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inner: Option<Box<Self>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<i64>,
}

/// Comparing each item with all others would take minutes.
#[test]
fn a_long_list_of_named_parts_takes_no_longer_than_it_is() {
    let part = |n: usize| json!({"name": format!("part-{n}"), "novel": n});
    let sent = json!({"count": 1, "parts": (0..100_000).map(part).collect::<Vec<_>>()});
    let (result, _) = changed::<Thing>(&sent, |view| view.parts.reverse());
    assert_eq!(result["parts"][0], part(99_999));
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", "a/b", "x~y", ""]).prop_map(String::from)
}

fn part() -> impl Strategy<Value = Part> {
    (word(), prop::option::of(0..4_i64)).prop_map(|(name, value)| Part { name, value })
}

fn thing() -> impl Strategy<Value = Thing> {
    let flat = || {
        (
            prop::option::of(word()),
            0..3_i64,
            prop::collection::btree_map(word(), word(), 0..3),
            prop::collection::vec(word(), 0..5),
            prop::collection::vec(part(), 0..5),
        )
    };
    (flat(), prop::option::of(flat())).prop_map(|(outer, inner)| {
        let make = |(text, count, labels, names, parts)| Thing {
            text,
            count,
            labels,
            names,
            parts,
            inner: None,
        };
        let mut thing = make(outer);
        thing.inner = inner.map(|inner| Box::new(make(inner)));
        thing
    })
}

/// An arbitrary document.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3_i64).prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let named =
            (word(), inner.clone()).prop_map(|(name, value)| json!({"name": name, "v": value}));
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(named, 0..4).prop_map(Value::from),
            prop::collection::btree_map(word(), inner, 0..4)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Adds unknown fields to every object with fields.
fn with_unknown(value: &Value) -> Value {
    let mut value = value.clone();
    fn mark(members: &mut Map<String, Value>) {
        members.insert("novel".into(), json!({"kept": [1]}));
        if let Some(Value::Array(parts)) = members.get_mut("parts") {
            for (place, part) in parts.iter_mut().enumerate() {
                part["novel"] = json!(place);
            }
        }
        if let Some(Value::Object(inner)) = members.get_mut("inner") {
            mark(inner);
        }
    }
    mark(value.as_object_mut().unwrap());
    value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_patch_between_two_documents_leads_from_one_to_the_other(from in document(), to in document()) {
        let patch = Patch::between(&from, &to);
        // The API server only patches objects.
        let (from, to) = (json!({"in": from}), json!({"in": to}));
        let inside = Patch::between(&from, &to);
        prop_assert_eq!(&applied(&from, &inside), &to);
        prop_assert_eq!(patch.changes().is_empty(), from == to);
        prop_assert!(Patch::between(&to, &to).changes().is_empty());
    }

    #[test]
    fn a_patch_of_a_view_leads_to_what_merging_makes(
        sent in document(),
        before in document(),
        after in document(),
    ) {
        let inside = |value: Value| json!({"in": value});
        let (sent, before, after) = (inside(sent), inside(before), inside(after));
        let patch = of_view(&sent, &before, &after);
        prop_assert_eq!(applied(&sent, &patch), merge(&sent, &before, &after));
    }

    #[test]
    fn a_typed_change_arrives_and_loses_nothing(before in thing(), after in thing()) {
        let sent = with_unknown(&serde_json::to_value(&before).unwrap());
        let (result, typed) = changed::<Thing>(&sent, |view| *view = after.clone());
        prop_assert_eq!(&typed, &after);
        // It decodes to the intended value.
        let read: Thing = serde_json::from_value(result.clone()).unwrap();
        prop_assert_eq!(&read, &after);
        // Unknown fields are kept, wherever their object is.
        prop_assert_eq!(&result["novel"], &sent["novel"]);
        if before.inner.is_some() && after.inner.is_some() {
            prop_assert_eq!(&result["inner"]["novel"], &sent["inner"]["novel"]);
        }
        // Repeating the change has no effect.
        let (again, _) = changed::<Thing>(&result, |view| *view = after.clone());
        prop_assert_eq!(again, result);
    }

    #[test]
    fn parts_that_name_themselves_keep_what_nobody_knows(
        names in prop::collection::btree_set("[a-f]", 0..6),
        order in prop::collection::vec(0..6_usize, 0..6),
        values in prop::collection::vec(prop::option::of(0..4_i64), 6),
    ) {
        let names: Vec<String> = names.into_iter().collect();
        let part = |name: &String| json!({"name": name, "novel": format!("of {name}")});
        let sent = json!({"count": 1, "parts": names.iter().map(part).collect::<Vec<_>>()});
        let mut seen = std::collections::BTreeSet::new();
        let parts: Vec<Part> = order
            .iter()
            .filter_map(|place| names.get(*place))
            .filter(|name| seen.insert((*name).clone()))
            .zip(&values)
            .map(|(name, value)| Part { name: name.clone(), value: *value })
            .collect();
        let (result, _) = changed::<Thing>(&sent, |view| view.parts = parts.clone());
        for part in result["parts"].as_array().into_iter().flatten() {
            let name = part["name"].as_str().unwrap();
            prop_assert_eq!(&part["novel"], &json!(format!("of {name}")));
        }
    }
}
