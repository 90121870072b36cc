//! Sequences of writes, with the results of upstream's field manager.

use serde_json::{Value, json};

use lockgate_api::meta::time::Time;

use super::*;
use crate::structural::Schema;
use crate::typed;

/// One sequence per line: the writes and their results.
const SEQUENCES: &str = include_str!("tests/sequences.jsonl");

/// The definitions of custom resources, which sequences refer to by number.
const DEFINITIONS: &str = include_str!("tests/definitions.jsonl");

/// A kind with all versions.
struct Kind {
    custom: Vec<(String, Schema)>,
}

fn time(step: usize) -> Time {
    Time::from_unix_seconds(978_307_200 + i64::try_from(step).unwrap())
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl Kind {
    fn of(sequence: &Value) -> Self {
        let definition = match sequence.get("crd") {
            None => return Self { custom: Vec::new() },
            Some(Value::Number(at)) => {
                let at = usize::try_from(at.as_u64().unwrap()).unwrap();
                serde_json::from_str(DEFINITIONS.lines().nth(at).unwrap()).unwrap()
            }
            Some(definition) => definition.clone(),
        };
        let spec = &definition["spec"];
        let versions = spec["versions"].as_array().unwrap().iter();
        let custom = versions.map(|version| {
            let group = spec["group"].as_str().unwrap();
            let name = version["name"].as_str().unwrap();
            let schema = Schema::parse(&version["schema"]["openAPIV3Schema"]).unwrap();
            (format!("{group}/{name}"), schema)
        });
        Self {
            custom: custom.collect(),
        }
    }

    fn is_custom(&self) -> bool {
        !self.custom.is_empty()
    }

    fn shape_of(&self, object: &Value) -> Option<Shape<'_>> {
        let api_version = object["apiVersion"].as_str().unwrap();
        if self.is_custom() {
            return self.shape(api_version);
        }
        let (group, version) = split(api_version);
        let ty = typed::type_of(group, version, object["kind"].as_str().unwrap())?;
        Some(Shape::BuiltIn(ty))
    }
}

/// Versions of a custom resource differ in name and schema only.
impl Versions for Kind {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        let found = self.custom.iter().find(|(name, _)| name == api_version);
        found.map(|(_, schema)| Shape::Custom(schema))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Option<Value>, BoxError> {
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Ok(self.shape(api_version).map(|_| object))
    }

    fn reset(&self, _: &str) -> Option<&Reset> {
        None
    }
}

/// The object in storage format.
fn normalised(shape: Shape<'_>, object: &Value) -> Value {
    match shape {
        Shape::BuiltIn(ty) => {
            let mut out = ty.decode_value(object).unwrap().value;
            // Decoding drops an empty list, which ends tracking.
            if object["metadata"]["managedFields"] == json!([]) {
                out["metadata"]["managedFields"] = json!([]);
            }
            out
        }
        _ => object.clone(),
    }
}

/// Go map order is random, so the order of errors is not compared.
fn sort_errors(result: &mut Value) {
    if let Some(Value::String(text)) = result.get_mut("error")
        && text.contains("errors:\n")
    {
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        *text = lines.join("\n");
    }
}

fn without_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, value| !value.is_null());
        members.values_mut().for_each(without_nulls);
    }
}

/// An error in the format of the recording.
fn error_of(error: &ApplyError) -> Value {
    let message = error.to_string();
    match error {
        ApplyError::Conflicts { causes, .. } => {
            let mut causes: Vec<_> = causes
                .iter()
                .map(|cause| format!("FieldManagerConflict|{}|{}", cause.message, cause.field))
                .collect();
            causes.sort();
            json!({ "error": message, "code": 409, "causes": causes })
        }
        ApplyError::BadRequest(_) => json!({ "error": message, "code": 400 }),
        ApplyError::Other(_) => json!({ "error": message }),
    }
}

fn run(sequence: &Value) -> Vec<Value> {
    let mut kind = Kind::of(sequence);
    let mut live: Option<Value> = None;
    let mut out = Vec::new();
    for (at, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
        let object = &step["object"];
        if step.get("crd").is_some() {
            kind = Kind::of(step);
        }
        // Only applied configurations may be of another kind.
        let known = match &live {
            Some(live) if kind.shape_of(object).is_none() || live["kind"] != object["kind"] => {
                live.clone()
            }
            _ => object.clone(),
        };
        if let Some(live) = &mut live {
            live["apiVersion"] = known["apiVersion"].clone();
        }
        let shape = kind.shape_of(&known).unwrap();
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        let reset = step["reset"].as_array().map(|paths| {
            let mut set = FieldSet::default();
            for path in paths {
                let path = path.as_array().unwrap().iter();
                set.insert(path.map(|name| Element::field(name.as_str().unwrap())));
            }
            Reset::Fields(set)
        });
        let manager = FieldManager {
            shape,
            api_version: known["apiVersion"].as_str().unwrap(),
            kind: known["kind"].as_str().unwrap(),
            subresource: text("subresource"),
            reset: reset.as_ref(),
            versions: &kind,
        };
        let result = if text("op") == "apply" {
            let force = step["force"] == true;
            manager
                .apply(live.as_ref(), object, text("manager"), force, time(at))
                .map(|object| normalised(shape, &object))
                .map_err(|error| error_of(&error))
        } else {
            let new = normalised(shape, object);
            Ok(manager.update(live.as_ref(), new, text("manager"), time(at)))
        };
        match result {
            Ok(mut object) => {
                object["metadata"]["uid"] = "u".into();
                out.push(json!({ "object": object }));
                live = Some(object);
            }
            Err(error) => out.push(error),
        }
    }
    out
}

#[test]
fn writes_give_the_owners_that_upstream_gives() {
    let file = std::env::var("LOCKGATE_MANAGED_FIELDS_VECTORS").ok();
    let text = file.map_or_else(
        || SEQUENCES.to_owned(),
        |file| std::fs::read_to_string(file).unwrap(),
    );
    let mut wrong = 0;
    for (at, line) in text.lines().enumerate() {
        let sequence: Value = serde_json::from_str(line).unwrap();
        let got = run(&sequence);
        let want = sequence["want"].as_array().unwrap();
        for (step, (got, want)) in got.iter().zip(want).enumerate() {
            let mut want = want.clone();
            let mut got = got.clone();
            if sequence.get("crd").is_none() {
                without_nulls(&mut want);
                without_nulls(&mut got);
            }
            sort_errors(&mut want);
            sort_errors(&mut got);
            if got != want {
                wrong += 1;
                if wrong < 4 {
                    eprintln!("sequence {at} step {step}: {}", sequence["steps"][step]);
                    eprintln!(" got {got}\nwant {want}");
                }
            }
        }
    }
    assert_eq!(wrong, 0);
}

fn manager<'a>(shape: Shape<'a>, api_version: &'a str, kind: &'a str) -> FieldManager<'a> {
    FieldManager {
        shape,
        api_version,
        kind,
        subresource: "",
        reset: None,
        versions: &OneVersion,
    }
}

fn config_map() -> FieldManager<'static> {
    let ty = typed::type_of("", "v1", "ConfigMap").unwrap();
    manager(Shape::BuiltIn(ty), "v1", "ConfigMap")
}

fn fields(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

#[test]
fn fields_v1_is_read_and_written() {
    let same = [
        json!({}),
        json!({ "f:a": {} }),
        json!({ "f:a": { ".": {}, "f:b": {}, "k:{\"n\":1,\"p\":\"\\u003cx\\u003e\"}": { ".": {}, "f:n": {} } } }),
        json!({ "f:s": { "v:\"x\"": {}, "v:1": {}, "v:true": {}, "v:null": {}, "i:0": {}, "i:-1": {} } }),
        // Field names can contain any character.
        json!({ "f:": {}, "f:.": {}, "f:f:x": { "f:a/b": {} } }),
    ];
    for value in same {
        assert_eq!(FieldSet::from_value(&value).unwrap().to_value(), value);
    }
    let read = [
        // A member without children is an empty map.
        (json!({ "f:a": { ".": {} } }), json!({ "f:a": {} })),
        (json!({ "f:a": null }), json!({ "f:a": {} })),
        // Unknown types of path elements are dropped with their children.
        (
            json!({ "x:y": { "f:a": {} }, "f:b": {} }),
            json!({ "f:b": {} }),
        ),
        // Keys are sorted, and numbers are compared by value.
        (
            json!({ "f:a": { "k:{\"z\":1,\"b\":2}": {}, "k:{\"b\":2.0,\"z\":1}": { "f:c": {} } } }),
            json!({ "f:a": { "k:{\"b\":2,\"z\":1}": { ".": {}, "f:c": {} } } }),
        ),
        (Value::Null, json!({})),
    ];
    for (value, want) in read {
        assert_eq!(
            FieldSet::from_value(&value).unwrap().to_value(),
            want,
            "{value}"
        );
    }
    let refused = [
        json!([]),
        json!({ "f:a": 1 }),
        json!({ "f": {} }),
        json!({ "fa:": {} }),
        json!({ "v:": {} }),
        json!({ "v:{": {} }),
        json!({ "k:[]": {} }),
        json!({ "i:x": {} }),
        json!({ "é": {} }),
    ];
    for value in refused {
        assert!(FieldSet::from_value(&value).is_err(), "{value}");
    }
}

#[test]
fn sets_of_fields_behave_as_sets() {
    let set = |value: Value| FieldSet::from_value(&value).unwrap();
    let left = set(json!({ "f:a": { ".": {}, "f:b": {}, "f:c": {} }, "f:d": {} }));
    let right = set(json!({ "f:a": { "f:b": {}, "f:e": {} }, "f:d": { "f:x": {} } }));
    let values = [
        (
            left.clone().union(right.clone()),
            json!({ "f:a": { ".": {}, "f:b": {}, "f:c": {}, "f:e": {} }, "f:d": { ".": {}, "f:x": {} } }),
        ),
        (left.intersection(&right), json!({ "f:a": { "f:b": {} } })),
        (
            left.clone().difference(&right),
            json!({ "f:a": { ".": {}, "f:c": {} }, "f:d": {} }),
        ),
        (right.clone().recursive_difference(&left), json!({})),
        (
            left.clone().recursive_difference(&right),
            json!({ "f:a": { ".": {}, "f:c": {} }, "f:d": {} }),
        ),
    ];
    for (got, want) in values {
        assert_eq!(got.to_value(), want);
    }
    assert!(left.contains(&[Element::field("a"), Element::field("b")]));
    assert!(!right.contains(&[Element::field("a")]));
    assert!(!left.contains(&[]));
}

#[test]
fn only_what_an_endpoint_sets_is_owned() {
    let ty = typed::type_of("", "v1", "Pod").unwrap();
    let live = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "resources": {} }] }, "status": {},
    });
    let mut new = live.clone();
    new["spec"]["containers"][0]["image"] = "i".into();
    new["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1" } });
    new["spec"]["nodeName"] = "n".into();
    let step = |name: &str| Some(Element::field(name));
    let reset = Reset::AllBut(vec![vec![
        step("spec"),
        step("containers"),
        None,
        step("resources"),
    ]]);
    let resize = FieldManager {
        subresource: "resize",
        reset: Some(&reset),
        ..manager(Shape::BuiltIn(ty), "v1", "Pod")
    };
    let new = resize.update(Some(&live), new, "m", time(0));
    assert_eq!(
        fields(&new)[0]["fieldsV1"],
        json!({ "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": {
            "f:resources": { "f:limits": { ".": {}, "f:cpu": {} } },
        } } } }),
    );
    assert_eq!(fields(&new)[0]["subresource"], "resize");
}

#[test]
fn times_alone_are_no_change() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": { "k": "v" },
    });
    let old = config_map().update(None, object.clone(), "m", time(0));
    let mut new = config_map().update(None, object.clone(), "m", time(1));
    assert_ne!(new, old);
    ignore_timestamp_only_change(&mut new, &old);
    assert_eq!(new, old);

    let later = |change: &dyn Fn(&mut Value)| {
        let mut new = config_map().update(None, object.clone(), "m", time(1));
        change(&mut new);
        let before = new.clone();
        ignore_timestamp_only_change(&mut new, &old);
        assert_eq!(new, before);
    };
    later(&|new| new["data"]["k"] = "w".into());
    later(&|new| new["metadata"]["labels"] = json!({ "a": "b" }));
    later(&|new| new["metadata"]["managedFields"][0]["manager"] = "n".into());
    later(&|new| {
        let list = new["metadata"]["managedFields"].as_array_mut().unwrap();
        list.push(list[0].clone());
    });
}

#[test]
fn owners_broken_by_admission_are_put_back() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": { "k": "v" },
    });
    let mut object = config_map().update(None, object, "m", time(0));
    assert!(check(&object).is_ok());
    let before = fields(&object).clone();
    assert_eq!(restore_after_admission(&mut object, Some(&before)), None);
    let broken = [
        (
            "operation",
            json!("Other"),
            "operation must be `Apply` or `Update`",
        ),
        ("apiVersion", json!(""), "apiVersion must not be empty"),
        (
            "fieldsType",
            json!(""),
            "missing fieldsType in managed fields entry 0",
        ),
        (
            "fieldsType",
            json!("V2"),
            "invalid fieldsType \"V2\" in managed fields entry 0",
        ),
    ];
    for (name, value, problem) in broken {
        object["metadata"]["managedFields"][0][name] = value;
        let warning = restore_after_admission(&mut object, Some(&before)).unwrap();
        let prefix = ".metadata.managedFields was in an invalid state after admission; this could \
                      be caused by an outdated mutating admission controller; please fix your \
                      requests: ";
        assert_eq!(warning, format!("{prefix}{problem}"));
        assert_eq!(*fields(&object), before);
    }
    object["metadata"]["managedFields"][0]["fieldsV1"] = json!({ "x": {} });
    assert!(restore_after_admission(&mut object, None).is_some());
    assert!(object["metadata"].get("managedFields").is_none());
}

#[test]
fn errors_say_which_field_of_which_object() {
    let ty = typed::type_of("apps", "v1", "Deployment").unwrap();
    let deployment = manager(Shape::BuiltIn(ty), "apps/v1", "Deployment");
    let object = |replicas: u32| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
            "spec": { "replicas": replicas },
        })
    };
    let live = deployment
        .apply(None, &object(1), "one", false, time(0))
        .unwrap();
    let error = deployment.apply(Some(&live), &object(2), "two", false, time(1));
    let message = "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas";
    assert_eq!(
        error.unwrap_err(),
        ApplyError::Conflicts {
            message: message.to_owned(),
            causes: vec![ConflictCause {
                message: String::from("conflict with \"one\""),
                field: String::from(".spec.replicas"),
            }],
        }
    );
    assert_eq!(
        deployment.conversion_error(&object(1), "no").to_string(),
        "failed to convert new object (/d; apps/v1, Kind=Deployment) to proper version: no",
    );
    let scale = FieldManager {
        subresource: "scale",
        ..deployment
    };
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = 3.into();
    let live = scale.update(Some(&live), scaled, "hpa", time(2));
    let error = deployment.apply(Some(&live), &object(1), "one", false, time(3));
    assert_eq!(
        error.unwrap_err().to_string(),
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using \
         apps/v1: .spec.replicas",
    );
}

/// An object with a field nested so deeply that unbounded recursion would overflow the stack.
fn nested(mut object: Value, name: &str, depth: usize) -> Value {
    let mut value = json!("x");
    for _ in 0..depth {
        value = Value::Object([(String::from("a"), value)].into_iter().collect());
    }
    let members = object.as_object_mut().unwrap();
    members.insert(name.to_owned(), value);
    object
}

/// Runs on the smallest stack of a server thread.
fn on_small_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        thread.spawn_scoped(scope, test).unwrap().join().unwrap();
    });
}

#[test]
fn depth_ends_tracking_and_nothing_else() {
    on_small_stack(|| {
        let foo = manager(Shape::Deduced, "g/v1", "Foo");
        for (depth, is_tracked) in [
            (MAX_DEPTH, true),
            (MAX_DEPTH + SLACK, false),
            (10_000, false),
        ] {
            let object = || {
                let object = json!({ "apiVersion": "g/v1", "kind": "Foo" });
                nested(object, "spec", depth)
            };
            let new = foo.update(None, object(), "m", time(0));
            assert_eq!(new["metadata"].get("managedFields").is_some(), is_tracked);
            let config = object();
            let applied = foo.apply(Some(&new), &config, "n", false, time(0));
            assert_eq!(applied.is_ok(), is_tracked);
            for value in [new, config].into_iter().chain(applied.ok()) {
                crate::tree::dismantle(value);
            }
        }
        // Deep managed fields are handled, too.
        let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": "v" } });
        object["metadata"]["managedFields"] = json!([{
            "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        }]);
        let entry = object["metadata"]["managedFields"][0].take();
        object["metadata"]["managedFields"][0] = nested(entry, "fieldsV1", 10_000);
        assert!(check(&object).is_err());
        let new = config_map().update(None, object, "m", time(0));
        assert_eq!(
            fields(&new)[0]["fieldsV1"],
            json!({ "f:data": { ".": {}, "f:k": {} } })
        );
    });
}

#[test]
fn many_errors_in_long_keys_stay_bounded() {
    let ty = typed::type_of("", "v1", "Pod").unwrap();
    let pod = manager(Shape::BuiltIn(ty), "v1", "Pod");
    let env: Vec<_> = (0..2000)
        .map(|at| json!({ "name": at.to_string(), "value": 1 }))
        .collect();
    let config = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "n".repeat(100_000), "env": env }] },
    });
    let error = pod.apply(None, &config, "m", false, time(0)).unwrap_err();
    assert!(error.to_string().len() < 4 << 20);
}

#[test]
fn owners_of_the_scale_are_those_that_upstream_gives() {
    let paths = ScalePaths {
        versions: &[("apps/v1", &["spec", "replicas"]), ("g/v1", &["spec", "n"])],
    };
    let with = |list: &Value| json!({ "metadata": { "managedFields": list } });
    for line in include_str!("tests/scale.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let parent = with(&case["parent"]);
        let scale = paths.to_scale(&parent).unwrap();
        assert_eq!(scale.unwrap_or_default(), case["want_scale"], "{line}");
        let after = paths.to_parent(&parent, &with(&case["scale"]), "apps/v1");
        assert_eq!(
            after.unwrap().unwrap_or_default(),
            case["want_parent"],
            "{line}"
        );
    }
}
