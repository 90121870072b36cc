//! Validation rules of custom resources, with outcomes of kube-apiserver's code.
//!
//! The first line of `crd.jsonl` is a schema with two values, each further line a rule with its
//! recorded outcome.

use lockgate_cel::crd::{
    Inputs, OldSelf, Scope, compile_rule, resource_too_costly, rule_too_costly,
};
use lockgate_cel::schema::{MAX_SCHEMA_DEPTH, Schema, SchemaError};
use lockgate_cel::{Limits, Value};
use serde_json::{Value as Json, json};

fn schema(json: &Json) -> Schema {
    Schema::from_json(json).expect("is a schema")
}

/// The result of a rule, or its error.
fn outcome(schema: &Schema, rule: &str, value: &Json, old: Option<&Json>, as_: OldSelf) -> String {
    let rule = match compile_rule(rule, schema, as_) {
        Ok(rule) => rule,
        Err(error) => return error.to_string(),
    };
    let inputs = Inputs::new(schema, value, old, as_);
    match rule.evaluate(&inputs, Limits::default()).value {
        Ok(Value::Bool(b)) => b.to_string(),
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn recorded_rules_have_their_outcomes() {
    let mut lines = include_str!("crd.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("is JSON"));
    let given = lines.next().expect("has a first line");
    let schema = schema(&given["schema"]);
    let scope = Scope::new(&schema).expect("has a type");
    let inputs = Inputs::new(
        &schema,
        &given["value"],
        Some(&given["old"]),
        OldSelf::Value,
    );
    let mut count = 0;
    for expected in lines {
        let text = expected["rule"].as_str().expect("is text");
        let found = match scope.compile_rule(text, OldSelf::Value) {
            Err(error) => json!({
                "rule": text,
                // Upstream's type name ends in a timestamp.
                "error": error.to_string().replace("selfType0", "selfType"),
            }),
            Ok(rule) => {
                let run = rule.evaluate(&inputs, Limits::default());
                let mut found = json!({
                    "rule": text,
                    "max": rule.max_cost(),
                    "old": rule.uses_old_self(),
                    "cost": run.cost,
                });
                match run.value {
                    Ok(value) => found["value"] = json!(matches!(value, Value::Bool(true))),
                    Err(error) => found["fails"] = json!(error.to_string()),
                }
                found
            }
        };
        assert_eq!(found, expected);
        count += 1;
    }
    assert!(count > 400, "{count}");
}

#[test]
fn the_root_of_a_resource_has_its_names() {
    let root = schema(&json!({ "type": "object" })).into_resource_root();
    let value = json!({ "kind": "A", "metadata": { "name": "n", "labels": {} } });
    let rule = "self.metadata.name == 'n' && self.kind == 'A' && !has(self.apiVersion)";
    assert_eq!(outcome(&root, rule, &value, None, OldSelf::Value), "true");
    let labels = outcome(
        &root,
        "has(self.metadata.labels)",
        &value,
        None,
        OldSelf::Value,
    );
    assert!(labels.contains("undefined field 'labels'"), "{labels}");
}

#[test]
fn an_optional_old_self_is_plain_once_selected_from() {
    let schema = schema(&json!({
        "type": "object",
        "properties": { "t": { "type": "string", "format": "date-time" } },
    }));
    let value = json!({ "t": "2024-01-01T00:00:00Z" });
    let run = |rule, old| outcome(&schema, rule, &value, old, OldSelf::Optional);
    assert_eq!(run("oldSelf.hasValue()", None), "false");
    assert_eq!(run("oldSelf.value() == self", Some(&value)), "false");
    assert_eq!(
        run("oldSelf.?t.orValue(self.t) == self.t", Some(&value)),
        "false"
    );
}

#[test]
fn formats_are_read_as_upstream_does() {
    let cases = [
        (
            "duration",
            "3 days 2hours",
            "self == duration('74h')",
            "true",
        ),
        ("duration", "2WEEKS", "self == duration('336h')", "true"),
        (
            "duration",
            "soon",
            "self == self",
            "Invalid duration soon: unable to parse soon as duration",
        ),
        (
            "date-time",
            "2024-01-01T00:00:00",
            "self.getFullYear() == 2024",
            "true",
        ),
        ("date-time", "", "self == timestamp(0)", "true"),
        ("date", "2024-02-29", "self.getDayOfYear() == 59", "true"),
        ("byte", "_-8=", r"self == b'\xff\xef'", "true"),
        ("byte", "aGVs\nbG8=", "self == b'hello'", "true"),
        (
            "byte",
            "a+b=",
            "self == b''",
            "Invalid byte formatted string a+b=: illegal base64 data at input byte 1",
        ),
        ("uuid", "x", "self == 'x'", "true"),
    ];
    for (format, text, rule, expected) in cases {
        let schema = schema(&json!({ "type": "string", "format": format }));
        let found = outcome(&schema, rule, &json!(text), None, OldSelf::Value);
        assert_eq!(found, expected, "{format} {text}");
    }
}

#[test]
fn data_that_contradicts_its_schema_is_an_error_where_it_is_looked_at() {
    let schema = schema(&json!({ "type": "array", "items": { "type": "integer" } }));
    let value = json!([1, "a", null]);
    for (rule, expected) in [
        ("self[0] == 1", "true"),
        ("self.size() == 3", "true"),
        ("self[1] == 1", "invalid data, expected int, got string"),
        (
            "self[2] == 1",
            "invalid data, got null for schema with nullable=false",
        ),
        ("self.exists(x, x == 1)", "true"),
        (
            "self.all(x, x == 1)",
            "invalid data, expected int, got string",
        ),
    ] {
        assert_eq!(
            outcome(&schema, rule, &value, None, OldSelf::Value),
            expected,
            "{rule}"
        );
    }
}

#[test]
fn null_cannot_be_added_to_a_list() {
    let schema = schema(&json!({
        "type": "array", "items": { "type": "integer", "nullable": true },
    }));
    let value = json!([1, null]);
    for (rule, expected) in [
        ("dyn(self[1]) == null", "true"),
        ("dyn((self + self)[1]) == null", "true"),
        (
            "dyn((self + self)[3]) == null",
            "invalid data, expected int, got structpb.NullValue",
        ),
    ] {
        let found = outcome(&schema, rule, &value, None, OldSelf::Value);
        assert_eq!(found, expected, "{rule}");
    }
}

#[test]
fn what_has_no_type_has_no_rules() {
    let schema = schema(&json!({ "x-kubernetes-preserve-unknown-fields": true }));
    let error = compile_rule("true", &schema, OldSelf::Value).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to convert to declType for CEL validation rules"
    );
}

#[test]
fn costs_beyond_the_budget_are_named() {
    let text = schema(&json!({ "type": "array", "items": { "type": "string" } }));
    let rule = compile_rule("self.all(a, self.all(b, a != b))", &text, OldSelf::Value).unwrap();
    let forbidden = rule_too_costly(rule.total_cost(Some(1))).expect("is too much");
    assert_eq!(
        forbidden,
        "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, \
         or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are \
         declared)"
    );
    let little = rule_too_costly(10_000_001).expect("is too much");
    assert!(little.contains("factor of 1.000000x "), "{little}");
    assert!(resource_too_costly(100_000_000).is_none());
}

#[test]
fn messages_must_be_text() {
    let scope = Scope::new(&schema(&json!({ "type": "integer" }))).unwrap();
    let refused = |text| {
        scope
            .compile_message(text, OldSelf::Value)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("self"),
        "messageExpression must evaluate to a string"
    );
    assert!(refused("x").starts_with("messageExpression compilation failed: ERROR: "));
    assert!(
        scope
            .compile_message("'is ' + string(self)", OldSelf::Value)
            .is_ok()
    );
}

#[test]
fn a_schema_may_be_deep_but_not_endless() {
    let nested = |levels| {
        (1..levels).fold(
            json!({ "type": "string" }),
            |inner, _| json!({ "type": "array", "items": inner }),
        )
    };
    let deepest = schema(&nested(MAX_SCHEMA_DEPTH));
    assert!(compile_rule("true", &deepest, OldSelf::Value).is_ok());
    let deeper = Schema::from_json(&nested(MAX_SCHEMA_DEPTH + 1));
    assert_eq!(deeper.unwrap_err(), SchemaError::TooDeep);
}
