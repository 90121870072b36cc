//! The behaviour of the API server, case by case. Expected messages are those of upstream's library.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn patch(source: &str) -> Patch {
    Patch::parse(source.as_bytes()).unwrap_or_else(|error| panic!("{source}: {error}"))
}

#[track_caller]
fn applies(object: Value, operations: Value, want: Value) {
    let patch = patch(&operations.to_string());
    assert_eq!(patch.apply(&object), Ok(want), "{operations}");
}

#[track_caller]
fn refuses(object: Value, operations: &str, want: &str) {
    let error = patch(operations).apply(&object).unwrap_err();
    assert_eq!(error.to_string(), want, "{operations}");
}

#[test]
fn refuses_what_is_not_a_patch() {
    for (source, want) in [
        ("", "unexpected end of JSON input"),
        ("[{", "unexpected end of JSON input"),
        ("[] x", "invalid character 'x' after top-level value"),
        (
            "{}",
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            "\"[]\"",
            "json: cannot unmarshal string into Go value of type jsonpatch.Patch",
        ),
        (
            "[{}, 1, true]",
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        (
            "[[]]",
            "json: cannot unmarshal array into Go value of type jsonpatch.Operation",
        ),
    ] {
        let error = Patch::parse(source.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), want, "{source}");
    }
}

#[test]
fn bounds_the_operations() {
    let operations = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
    assert_eq!(patch(&operations(MAX_OPERATIONS)).len(), MAX_OPERATIONS);
    let error = Patch::parse(operations(MAX_OPERATIONS + 1).as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn knows_when_there_is_nothing_to_do() {
    assert!(patch("[]").is_empty());
    assert!(patch("null").is_empty());
    assert!(!patch("[null]").is_empty());
}

#[test]
fn applies_every_operation() {
    applies(
        json!({"a": 1, "b": {"c": [1, 2]}, "d": "x"}),
        json!([
            {"op": "test", "path": "/a", "value": 1},
            {"op": "add", "path": "/b/c/1", "value": {"new": true}},
            {"op": "replace", "path": "/d", "value": "y"},
            {"op": "copy", "from": "/b/c/1", "path": "/b/e"},
            {"op": "move", "from": "/a", "path": "/b/c/-"},
            {"op": "remove", "path": "/b/c/0"},
        ]),
        json!({"b": {"c": [{"new": true}, 2, 1], "e": {"new": true}}, "d": "y"}),
    );
}

#[test]
fn is_lenient_where_upstream_is() {
    let object = json!({"a": {"b": [1, 2, 3]}, "n": null});
    for (operation, want) in [
        // Replacing an absent field adds it.
        (
            json!({"op": "replace", "path": "/x", "value": 1}),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "x": 1}),
        ),
        // Without a value, null is stored.
        (
            json!({"op": "add", "path": "/x"}),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "x": null}),
        ),
        // The first segment is ignored.
        (
            json!({"op": "add", "path": "dropped/x", "value": 1}),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "x": 1}),
        ),
        // Copying an absent value stores null.
        (
            json!({"op": "copy", "from": "/nope", "path": "/x"}),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "x": null}),
        ),
        (
            json!({"op": "add", "path": "/a/b/-1", "value": 4}),
            json!({"a": {"b": [1, 2, 3, 4]}, "n": null}),
        ),
        (
            json!({"op": "add", "path": "/a/b/+03", "value": 4}),
            json!({"a": {"b": [1, 2, 3, 4]}, "n": null}),
        ),
        (
            json!({"op": "remove", "path": "/a/b/-3"}),
            json!({"a": {"b": [2, 3]}, "n": null}),
        ),
        (
            json!({"op": "replace", "path": "", "value": [1]}),
            json!([1]),
        ),
        (
            json!({"op": "test", "path": "/absent", "value": null}),
            object.clone(),
        ),
        (json!({"op": "test", "path": "/n"}), object.clone()),
        (
            json!({"op": "add", "path": "/~01~1", "value": 1, "extra": []}),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "~1/": 1}),
        ),
    ] {
        applies(object.clone(), json!([operation]), want);
    }
}

#[test]
fn refuses_in_the_words_of_the_library() {
    let object = json!({"a": {"b": [1, 2, 3]}, "n": null, "s": "text"});
    for (operation, want) in [
        (r#"{}"#, "Unexpected kind: unknown"),
        (r#"{"op": 1}"#, "Unexpected kind: unknown"),
        (r#"{"op": "merge"}"#, "Unexpected kind: merge"),
        (
            r#"{"op": "add"}"#,
            "add operation failed to decode path: missing value",
        ),
        (
            r#"{"op": "add", "path": ""}"#,
            r#"add operation does not apply: doc is missing path: "": missing value"#,
        ),
        (
            r#"{"op": "add", "path": "/x/y", "value": 1}"#,
            r#"add operation does not apply: doc is missing path: "/x/y": missing value"#,
        ),
        (
            r#"{"op": "add", "path": "/s/y", "value": 1}"#,
            r#"add operation does not apply: doc is missing path: "/s/y": missing value"#,
        ),
        (
            r#"{"op": "add", "path": "/a/b/5", "value": 1}"#,
            "error in add for path: '/a/b/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (
            r#"{"op": "add", "path": "/a/b/-5", "value": 1}"#,
            "error in add for path: '/a/b/-5': Unable to access invalid index: -5: invalid index referenced",
        ),
        (
            r#"{"op": "add", "path": "/a/b/x", "value": 1}"#,
            "error in add for path: '/a/b/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            r#"{"op": "remove", "path": 1}"#,
            "remove operation failed to decode path: missing value",
        ),
        (
            r#"{"op": "remove", "path": "/x"}"#,
            "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            r#"{"op": "remove", "path": "/a/b/99999999999999999999"}"#,
            "error in remove for path: '/a/b/99999999999999999999': strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        (
            r#"{"op": "replace", "path": null}"#,
            "replace operation failed to decode path: operation missing path field: missing value",
        ),
        (
            r#"{"op": "replace", "path": {}}"#,
            "replace operation failed to decode path: json: cannot unmarshal object into Go value of type string",
        ),
        (
            r#"{"op": "replace", "path": "", "value": 1}"#,
            "replace operation value must be object or array: %!w(<nil>)",
        ),
        (
            r#"{"op": "replace", "path": "/a/b/3", "value": 1}"#,
            "replace operation does not apply: doc is missing key: /a/b/3: missing value",
        ),
        (
            r#"{"op": "replace", "path": "/x/y", "value": 1}"#,
            "replace operation does not apply: doc is missing path: /x/y: missing value",
        ),
        (
            r#"{"op": "move", "path": "/x"}"#,
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            r#"{"op": "move", "from": "/absent", "path": "/x"}"#,
            "error in move for path: 'absent': Unable to remove nonexistent key: absent: missing value",
        ),
        (
            r#"{"op": "move", "from": "/x/y", "path": "/x"}"#,
            "move operation does not apply: doc is missing from path: /x/y: missing value",
        ),
        (
            r#"{"op": "move", "from": "/a", "path": "/a/c"}"#,
            "move operation does not apply: doc is missing destination path: /a/c: missing value",
        ),
        (
            r#"{"op": "copy", "from": "/a/b/x", "path": "/x"}"#,
            "error in copy for from: '/a/b/x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            r#"{"op": "copy", "from": "/a", "path": "/a/b/9"}"#,
            "error while adding value during copy: Unable to access invalid index: 9: invalid index referenced",
        ),
        (
            r#"{"op": "test", "path": "/s", "value": "other"}"#,
            "testing value /s failed: test failed",
        ),
        (
            r#"{"op": "test", "path": "/x/y", "value": 1}"#,
            "test operation does not apply: is missing path: /x/y: missing value",
        ),
        (
            r#"{"op": "test", "path": "/a/b/-9", "value": 1}"#,
            "error in test for path: '/a/b/-9': Unable to access invalid index: -9: invalid index referenced",
        ),
    ] {
        refuses(object.clone(), &format!("[{operation}]"), want);
    }
    refuses(
        json!("text"),
        "[]",
        "json: cannot unmarshal string into Go value of type jsonpatch.partialDoc",
    );
}

#[test]
fn compares_texts_and_not_meanings() {
    let object = json!({"n": 1, "f": 1.5, "s": "<", "o": {"a": [1, {"b": null}]}});
    let passes = |path: &str, value: &str| {
        let operation = format!(r#"[{{"op": "test", "path": "{path}", "value": {value}}}]"#);
        patch(&operation).apply(&object).is_ok()
    };
    assert!(passes("/n", "1"));
    assert!(!passes("/n", "1.0"));
    assert!(!passes("/n", "1e0"));
    assert!(passes("/f", "1.5"));
    // The object is encoded with HTML escapes before the comparison.
    assert!(passes("/s", r#""\u003c""#));
    assert!(!passes("/s", r#""<""#));
    assert!(passes("/o", r#" { "a" : [ 1 , {"b" : null} ] } "#));
    assert!(!passes("/o", r#"{"a": [1, {"b": 1}]}"#));
    assert!(!passes("/o", r#"{"a": [1]}"#));
    assert!(!passes("/o", r#"{"a": [1, {"b": null}], "c": 1}"#));
    assert!(passes(
        "",
        r#"{"n":1,"f":1.5,"s":"\u003c","o":{"a":[1,{"b":null}]}}"#
    ));
}

#[test]
fn stands_where_the_library_would_panic() {
    let null_list = json!({"a": [null]});
    applies(
        null_list.clone(),
        json!([{"op": "test", "path": "/a", "value": [null]}]),
        null_list.clone(),
    );
    refuses(
        null_list.clone(),
        r#"[{"op": "test", "path": "/a", "value": [1]}]"#,
        "testing value /a failed: test failed",
    );
    refuses(
        null_list.clone(),
        r#"[{"op": "test", "path": ""}]"#,
        "testing value  failed: test failed",
    );
    refuses(
        null_list.clone(),
        r#"[{"op": "replace", "path": ""}]"#,
        "replace operation value must be object or array: %!w(<nil>)",
    );
    refuses(
        null_list,
        r#"[{"op": "add", "path": "/x", "value": null},
            {"op": "copy", "from": "/x", "path": "/y"},
            {"op": "add", "path": "/y/z", "value": 1}]"#,
        "error in add for path: '/y/z': assignment to entry in nil map",
    );
}

#[test]
fn leaves_untouched_numbers_alone() {
    let object: Value =
        serde_json::from_str(r#"{"big": 18446744073709551615, "f": 0.1, "l": [9007199254740993]}"#)
            .unwrap();
    let mut want = object.clone();
    want["new"] = json!(9_007_199_254_740_993_i64);
    let patch = patch(r#"[{"op": "add", "path": "/new", "value": 9007199254740993}]"#);
    assert_eq!(patch.apply(&object), Ok(want));
}

#[test]
fn bounds_what_copies_add() {
    let megabyte = "x".repeat(1 << 20);
    let copies = vec![json!({"op": "copy", "from": "/a", "path": "/l/-"}); 3];
    refuses(
        json!({"a": megabyte, "l": []}),
        &json!(copies).to_string(),
        "Unable to complete the copy, the accumulated size increase of copy is 3145734, exceeding the limit 3145728",
    );
    // Doubling an object repeatedly reaches the limit.
    let doubling: Vec<Value> = (0..MAX_OPERATIONS)
        .map(|number| json!({"op": "copy", "from": "/o", "path": format!("/o/{number}")}))
        .collect();
    let error = patch(&json!(doubling).to_string())
        .apply(&json!({"o": {}}))
        .unwrap_err();
    assert!(error.to_string().starts_with("Unable to complete the copy"));
}

#[test]
fn bounds_the_depth() {
    let deep = format!("{}{}", "[".repeat(9_990), "]".repeat(9_990));
    let operation = format!(r#"[{{"op": "add", "path": "/x", "value": {deep}}}]"#);
    refuses(json!({}), &operation, "exceeded max depth");
    // Deep values that are removed in the end are allowed.
    let both = format!(
        r#"[{{"op": "add", "path": "/x", "value": {deep}}},
            {{"op": "copy", "from": "/x", "path": "/y"}},
            {{"op": "test", "path": "/y", "value": {deep}}},
            {{"op": "remove", "path": "/x"}}, {{"op": "remove", "path": "/y"}}]"#
    );
    assert_eq!(patch(&both).apply(&json!({})), Ok(json!({})));
    // Nesting existing values is limited too.
    let nesting: Vec<Value> = (0..MAX_OPERATIONS / 2)
        .flat_map(|_| {
            [
                json!({"op": "add", "path": "/b", "value": {}}),
                json!({"op": "move", "from": "/a", "path": "/b/a"}),
                json!({"op": "move", "from": "/b", "path": "/a"}),
            ]
        })
        .take(MAX_OPERATIONS)
        .collect();
    refuses(
        json!({"a": {}}),
        &json!(nesting).to_string(),
        "exceeded max depth",
    );
}

#[test]
fn takes_linear_time() {
    // This would take minutes if each operation moved or read everything after its position.
    let object = json!({"l": vec![0; 500_000], "s": "x".repeat(1 << 20)});
    let long = "x".repeat(1 << 20);
    let step = |number: usize| match number % 4 {
        0 => json!({"op": "add", "path": "/l/0", "value": 1}),
        1 => json!({"op": "remove", "path": "/l/250000"}),
        2 => json!({"op": "move", "from": "/s", "path": "/t"}),
        _ => json!({"op": "move", "from": "/t", "path": "/s"}),
    };
    let operations: Vec<Value> = (0..MAX_OPERATIONS).map(step).collect();
    let patched = patch(&json!(operations).to_string())
        .apply(&object)
        .unwrap();
    assert_eq!(patched["l"].as_array().map(Vec::len), Some(500_000));
    assert_eq!(patched["s"], json!(long));
}

#[test]
fn writes_itself_for_the_audit_log() {
    for (source, want) in [
        ("null", "[]"),
        ("[null, {}]", "[null,{}]"),
        (
            r#"[{"value": {"b": 1.0, "a": "<\u00e9>"}, "path": "/a", "op": "add", "op": "test"}]"#,
            r#"[{"op":"test","path":"/a","value":{"b":1.0,"a":"\u003c\u00e9\u003e"}}]"#,
        ),
        (r#"[ { "<" : null } ]"#, r#"[{"\u003c":null}]"#),
    ] {
        assert_eq!(patch(source).to_json(), want);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c<~/é]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_operation() -> impl Strategy<Value = Value> {
    let kind = proptest::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
    let path = || "(/([a-c]|-|-?[0-3]|~[01])){0,3}";
    (kind, path(), path(), proptest::option::of(any_json())).prop_map(
        |(kind, path, from, value)| {
            let mut operation = json!({"op": kind, "path": path, "from": from});
            if let Some(value) = value {
                operation["value"] = value;
            }
            operation
        },
    )
}

proptest! {
    #[test]
    fn never_panics(object in any_json(), operations in proptest::collection::vec(any_operation(), 0..12)) {
        let patch = patch(&Value::from(operations).to_string());
        let _ = patch.apply(&object);
        let _ = patch.to_json();
    }

    #[test]
    fn never_panics_on_bytes(source in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(patch) = Patch::parse(&source) {
            let _ = patch.apply(&json!({}));
        }
    }

    #[test]
    fn changes_nothing_without_operations(object in any_json()) {
        if object.is_object() || object.is_array() {
            prop_assert_eq!(patch("[]").apply(&object), Ok(object));
        }
    }

    #[test]
    fn adds_what_it_then_finds(object in any_json(), value in any_json()) {
        if object.is_object() {
            let added = patch(&json!([{"op": "add", "path": "/new", "value": value}]).to_string())
                .apply(&object);
            let mut want = object;
            want["new"] = value;
            prop_assert_eq!(added, Ok(want));
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_replaced_one_by_one() {
    let patch = Patch::parse(b"[{\"op\": \"add\xef\xbf\", \"path\": \"/a\"}]").unwrap();
    let written = patch.to_json();
    assert_eq!(
        written,
        "[{\"op\":\"add\u{fffd}\u{fffd}\",\"path\":\"/a\"}]"
    );
    let again = Patch::parse(written.as_bytes()).unwrap();
    for patch in [patch, again] {
        let error = patch.apply(&json!({})).unwrap_err();
        assert_eq!(error.to_string(), "Unexpected kind: add\u{fffd}\u{fffd}");
    }
}
