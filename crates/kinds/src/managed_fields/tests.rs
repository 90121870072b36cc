//! Sequences of writes, each with what upstream's field manager made of it.

use serde_json::{Value, json};

use lockgate_api::meta::time::Time;

use super::*;
use crate::structural::Schema;
use crate::typed;

/// One sequence a line: the writes, and what came of each.
const SEQUENCES: &str = include_str!("tests/sequences.jsonl");

struct Kind {
    schema: Option<Schema>,
}

fn time(step: usize) -> Time {
    Time::from_unix_seconds(978_307_200 + i64::try_from(step).unwrap())
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl Kind {
    fn of(sequence: &Value) -> Self {
        let schema = sequence.get("crd").filter(|crd| !crd.is_null()).map(|crd| {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            Schema::parse(schema).unwrap()
        });
        Self { schema }
    }

    fn shape(&self, object: &Value) -> Shape<'_> {
        match &self.schema {
            Some(schema) => Shape::Custom(schema),
            None => {
                let (group, version) = split(object["apiVersion"].as_str().unwrap());
                let kind = object["kind"].as_str().unwrap();
                Shape::BuiltIn(typed::type_of(group, version, kind).unwrap())
            }
        }
    }
}

/// The object as storage has it.
fn normalised(shape: Shape<'_>, object: &Value) -> Value {
    match shape {
        Shape::BuiltIn(ty) => {
            let mut out = ty.decode_value(object).unwrap().value;
            // Reading drops an empty list, which says that owners are to be forgotten.
            if object["metadata"]["managedFields"] == json!([]) {
                out["metadata"]["managedFields"] = json!([]);
            }
            out
        }
        _ => object.clone(),
    }
}

fn without_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, value| !value.is_null());
        members.values_mut().for_each(without_nulls);
    }
}

fn run(sequence: &Value) -> Vec<Value> {
    let kind = Kind::of(sequence);
    let mut live: Option<Value> = None;
    let mut out = Vec::new();
    for (at, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
        let object = &step["object"];
        let shape = kind.shape(object);
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
            api_version: object["apiVersion"].as_str().unwrap(),
            kind: object["kind"].as_str().unwrap(),
            subresource: text("subresource"),
            reset: reset.as_ref(),
            versions: &OneVersion,
        };
        let result: Result<Value, Value> = if text("op") == "apply" {
            continue;
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
