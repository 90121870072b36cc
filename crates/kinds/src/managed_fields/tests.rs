//! Sequences of writes, each with what upstream's field manager made of it.

use serde_json::{Value, json};

use lockgate_api::meta::time::Time;

use super::*;
use crate::structural::Schema;
use crate::typed;

/// One sequence a line: the writes, and what came of each.
const SEQUENCES: &str = include_str!("tests/sequences.jsonl");

/// The definitions of the custom resources that sequences name by number.
const DEFINITIONS: &str = include_str!("tests/definitions.jsonl");

/// A kind in all its versions.
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

/// Versions of a custom resource differ in nothing but their name and schema.
impl Versions for Kind {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        let found = self.custom.iter().find(|(name, _)| name == api_version);
        found.map(|(_, schema)| Shape::Custom(schema))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Option<Value>, String> {
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Ok(self.shape(api_version).map(|_| object))
    }

    fn reset(&self, _: &str) -> Option<&Reset> {
        None
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

/// Go walks maps in no order, so several errors have none.
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

/// An error in the form of the recording.
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
        // Only what is applied may be of another kind.
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
