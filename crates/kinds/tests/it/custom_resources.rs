//! Custom resources and definitions, with the results of upstream's modules v0.36.4.
//!
//! Errors are sorted by name where upstream iterates over a map in random order.

use lockgate_api::field::FieldError;
use lockgate_kinds::crd;
use lockgate_kinds::structural::{Schema, Source};
use serde_json::{Value as Json, json};

fn cases(text: &str) -> Vec<Json> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Errors in the format of the recording: reason and message.
fn texts(errors: &[FieldError]) -> Json {
    let text = |error: &FieldError| format!("{}|{error}", error.error_type.reason());
    errors.iter().map(text).collect()
}

fn expect(name: &Json, what: &str, want: &Json, found: &Json) {
    let want = if want.is_null() { &json!([]) } else { want };
    assert_eq!(want, found, "{what} of {name}");
}

#[test]
fn objects_are_read_and_checked_as_recorded() {
    for case in cases(include_str!("custom_resources/objects.jsonl")) {
        let (name, new) = (&case["name"], &case["new"]);
        let schema = Schema::parse(&case["schema"]).unwrap();
        let mut object = new.clone();
        match schema.read(&mut object, Source::Request) {
            Err(error) => assert_eq!(case["readError"], error.to_string(), "{name}"),
            Ok(unknown) => {
                assert_eq!(case.get("readError"), None, "{name}");
                expect(name, "unknown fields", &case["unknown"], &json!(unknown));
                let read = case.get("read").unwrap_or(new);
                assert_eq!(*read, object, "{name}");
                schema.default(&mut object);
                assert_eq!(*case.get("default").unwrap_or(read), object, "{name}");
            }
        }
        expect(
            name,
            "create",
            &case["create"],
            &texts(&schema.validate(new).errors),
        );
        if let Some(old) = case.get("old") {
            let found = schema.validate_update(new, old);
            expect(name, "update", &case["update"], &texts(&found.errors));
            expect(name, "warnings", &case["warnings"], &json!(found.warnings));
            let found = schema.validate_status_update(new, old);
            expect(name, "status", &case["status"], &texts(&found.errors));
        }
    }
}

/// The base definition of the cases.
fn definition() -> Json {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com",
            "names": { "plural": "widgets", "kind": "Widget" },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
                } } },
            }],
        },
    })
}

/// Applies pairs of a path and a value; null removes.
fn change(object: &mut Json, changes: &Json) {
    for change in changes.as_array().unwrap() {
        let (path, value) = (change[0].as_str().unwrap(), &change[1]);
        let (parent, key) = path.rsplit_once('/').unwrap();
        if object.pointer(parent).is_none() {
            let (grandparent, name) = parent.rsplit_once('/').unwrap();
            object.pointer_mut(grandparent).unwrap()[name] = json!({});
        }
        match object.pointer_mut(parent).unwrap() {
            Json::Array(items) if key == "-" => items.push(value.clone()),
            Json::Object(entries) if value.is_null() => drop(entries.remove(key)),
            Json::Object(entries) => drop(entries.insert(key.to_owned(), value.clone())),
            other => other[key.parse::<usize>().unwrap()] = value.clone(),
        }
    }
}

#[test]
fn definitions_are_checked_as_recorded() {
    for case in cases(include_str!("custom_resources/definitions.jsonl")) {
        let name = &case["name"];
        let mut new = definition();
        change(&mut new, &case["set"]);
        crd::defaults(&mut new);
        let mut created = new.clone();
        crd::prepare_create(&mut created);
        let errors = crd::validate_create(&created);
        expect(name, "create", &case["create"], &texts(&errors));
        let warnings = crd::warnings_on_create(&created);
        expect(name, "warnings", &case["warnings"], &json!(warnings));
        // A valid definition compiles, and an invalid one does not panic.
        let compiled = crd::CustomResource::compile(&created);
        assert!(compiled.is_ok() || !errors.is_empty(), "{name}");

        if let Some(changes) = case.get("old") {
            let mut old = definition();
            old["metadata"]["resourceVersion"] = json!("1");
            old["status"] = json!({
                "acceptedNames": { "plural": "widgets", "kind": "Widget" },
                "storedVersions": ["v1"],
                "conditions": [{ "type": "Established", "status": "True" }],
            });
            change(&mut old, changes);
            crd::defaults(&mut old);
            new["metadata"]["resourceVersion"] = json!("1");
            crd::prepare_update(&mut new, &old);
            let errors = crd::validate_update(&new, &old);
            expect(name, "update", &case["update"], &texts(&errors));
        }
    }
}

/// Nested values.
fn nested(depth: usize, innermost: Json, around: impl Fn(Json) -> Json) -> Json {
    (0..depth).fold(innermost, |inner, _| around(inner))
}

fn in_object(name: &str, value: Json) -> Json {
    Json::Object([(name.to_owned(), value)].into_iter().collect())
}

#[test]
fn deep_objects_are_handled_without_recursion() {
    const DEPTH: usize = 9_990;
    let schema = Schema::parse(&json!({
        "type": "object",
        "properties": {
            "kept": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "lists": { "type": "array", "items": { "type": "array", "items": {
                "type": "object", "additionalProperties": true,
            } } },
            "values": { "type": "array", "items": {
                "x-kubernetes-preserve-unknown-fields": true, "enum": [1],
            }, "x-kubernetes-list-type": "set" },
        },
    }))
    .unwrap();
    let lists = |innermost| nested(DEPTH, innermost, |inner| Json::Array(vec![inner]));
    let maps = |innermost| nested(DEPTH, innermost, |inner| in_object("a", inner));
    // A copy would recurse, so the object is built twice.
    let build = || {
        let mut object = json!({ "apiVersion": "a/b", "kind": "C", "metadata": {} });
        object["kept"] = in_object("x", maps(json!(1)));
        let inner = in_object("x", lists(json!({ "gone": 1 })));
        object["lists"] = Json::Array(vec![Json::Array(vec![inner])]);
        object["values"] = Json::Array(vec![maps(json!(1)), lists(json!(1)), maps(json!(1))]);
        object["gone"] = maps(json!(1));
        object
    };
    let (mut object, old) = (build(), build());

    let unknown = schema.read(&mut object, Source::Request).unwrap();
    assert_eq!(unknown.len(), 2);
    assert_eq!(unknown[0], "gone");
    assert!(unknown[1].starts_with("lists[0][0].x[0][0]") && unknown[1].ends_with("[0].gone"));
    schema.default(&mut object);
    let errors = schema.validate(&object).errors;
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["values[0]", "values[1]", "values[2]", "values[2]"]);
    assert_eq!(schema.validate_update(&object, &old).errors, []);
}

#[test]
fn deep_schemas_are_refused() {
    let around = |inner| {
        let mut schema = json!({ "type": "object" });
        schema["properties"] = in_object("a", inner);
        schema
    };
    let deepest = nested(127, json!({ "type": "string" }), around);
    assert!(Schema::parse(&deepest).is_ok());
    let too_deep = nested(4_900, json!({ "type": "string" }), around);
    let error = Schema::parse(&too_deep).unwrap_err();
    assert_eq!(error.to_string(), "more than 128 levels");

    let mut good = definition();
    good["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = deepest;
    crd::defaults(&mut good);
    crd::prepare_create(&mut good);
    assert_eq!(crd::validate_create(&good), []);
    let mut bad = good.clone();
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = too_deep;
    let want = "spec.versions[0].schema.openAPIV3Schema: Invalid value: \"\": more than 128 levels";
    let errors = crd::validate_create(&bad);
    assert_eq!(texts(&errors), json!([format!("FieldValueInvalid|{want}")]));
    assert_eq!(crd::warnings_on_create(&bad), [""; 0]);
}

#[test]
fn rules_on_every_level_of_a_large_schema_are_refused() {
    let leaves: serde_json::Map<String, Json> = (0..5_000)
        .map(|at| (format!("leaf{at}"), json!({ "type": "string" })))
        .collect();
    let around = |inner| {
        let mut schema =
            json!({ "type": "object", "x-kubernetes-validations": [{ "rule": "true" }] });
        schema["properties"] = in_object("a", inner);
        schema
    };
    let innermost = json!({ "type": "object", "properties": leaves });
    let mut definition = definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = nested(60, innermost, around);
    crd::defaults(&mut definition);
    crd::prepare_create(&mut definition);
    let errors = crd::validate_create(&definition);
    let want = "FieldValueInvalid|spec.versions[0].schema.openAPIV3Schema: Invalid value: \"\": \
                rules see more than 250000 schemas together";
    assert_eq!(texts(&errors), json!([want]));
    assert!(crd::CustomResource::compile(&definition).is_err());
}

#[test]
fn errors_without_end_are_cut_off() {
    let schema = Schema::parse(&json!({ "type": "object", "properties": {
        "types": { "type": "array", "items": { "type": "string" } },
        "sets": { "type": "array", "x-kubernetes-list-type": "set",
            "items": { "x-kubernetes-int-or-string": true } },
        "resources": { "type": "array", "items": { "type": "object",
            "x-kubernetes-embedded-resource": true } },
        "rules": { "type": "array", "items": { "type": "integer",
            "x-kubernetes-validations": [{ "rule": "self > 0" }] } },
    } }))
    .unwrap();
    let mut twice: Vec<u32> = (0..50_000).collect();
    twice.extend_from_within(..);
    for object in [
        json!({ "types": vec![0; 100_000] }),
        json!({ "sets": twice }),
        json!({ "resources": vec![json!({}); 50_000] }),
        json!({ "rules": vec![0; 100_000] }),
    ] {
        let count = schema.validate(&object).errors.len();
        assert!((9_000..11_000).contains(&count), "{count}");
    }
}

#[test]
fn rules_stop_when_they_cost_too_much() {
    let list = |rule: &str| {
        json!({ "type": "array", "items": { "type": "integer" }, "x-kubernetes-validations": [
            { "rule": rule, "message": "m" }, { "rule": "false" },
        ] })
    };
    let numbers: Vec<u32> = (0..300).collect();
    let schema = Schema::parse(&json!({ "type": "object", "properties": {
        "l": list("self.all(x, self.all(y, x + y >= 0) && self.all(y, x + y >= 0))"),
    } }))
    .unwrap();
    let many: Vec<u32> = (0..2_000).collect();
    let errors = schema.validate(&json!({ "l": many })).errors;
    assert_eq!(
        texts(&errors),
        json!([
            "FieldValueInvalid|l: Invalid value: \"array\": 'operation cancelled: actual cost limit \
             exceeded': no further validation rules will be run due to call cost exceeds limit for \
             rule: m"
        ])
    );

    let schema = Schema::parse(&json!({ "type": "object", "properties": {
        "l": { "type": "array", "items": list("self.all(x, self.all(y, x + y >= 0))") },
    } }))
    .unwrap();
    let errors = schema.validate(&json!({ "l": vec![numbers; 40] })).errors;
    let last = errors.last().map(ToString::to_string).unwrap();
    assert!(
        last.ends_with(
            "Invalid value: \"array\": validation failed due to running out of cost budget, no \
             further validation rules will be run"
        ),
        "{last}"
    );
    // Each list before violated its second rule.
    assert!(errors.len() > 2 && errors.len() < 40);
}
