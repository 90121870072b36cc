//! Recorded creates and updates of built-in kinds, up to validation: which errors and warnings they
//! get. The suite of the server runs them to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use lockgate_api::document::json::parse;
use lockgate_api::meta::time::Time;
use lockgate_kinds::kind::{Context, Requester};
use lockgate_kinds::resource::{Resource, by_kind};
use lockgate_kinds::strategy::{
    canonicalize, prepare_create, prepare_update, validate_create, validate_update,
    warnings_on_create, warnings_on_update,
};
use lockgate_kinds::typed::type_of;
use serde_json::{Value, json};

/// What a write ends in, as far as kinds decide it.
#[derive(Debug, PartialEq)]
enum End {
    /// The body cannot be decoded.
    Malformed,
    /// These causes: reason, field, message.
    Refused(Vec<[String; 3]>),
    /// The object is stored, with these warnings.
    Stored(BTreeSet<String>),
}

fn cases() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../conformance/vectors/validation/validation.jsonl.gz");
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Spaces that Go's diffs choose at random are one space.
fn squeezed(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

const UID: &str = "6f9e0c5e-0000-4000-8000-000000000001";
const NOW: &str = "2026-01-01T00:00:00Z";

/// Decodes an object; also what clients are warned of whatever it says.
fn decode(resource: &Resource, object: &Value) -> Option<(Value, Vec<String>)> {
    let ty = type_of(resource.group, resource.version, resource.kind)?;
    // Recordings name what differs from run to run.
    let text = object
        .to_string()
        .replace("<uid>", UID)
        .replace("<now>", NOW);
    let document = parse(text.as_bytes()).ok()?;
    let decoded = ty.decode(document.root()).ok()?;
    let mut value = decoded.value;
    let mut warnings = decoded.findings;
    warnings.extend(resource.rules.deprecation_warning().map(str::to_owned));
    value["apiVersion"] = json!(resource.api_version());
    value["kind"] = json!(resource.kind);
    resource.rules.apply_defaults(&mut value);
    Some((value, warnings))
}

fn complete(resource: &Resource, value: &mut Value) {
    let metadata = &mut value["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata["uid"] = json!(UID);
    metadata["creationTimestamp"] = json!(NOW);
    if !resource.namespaced
        && let Some(members) = metadata.as_object_mut()
    {
        members.remove("namespace");
    }
}

fn run(case: &Value, context: &Context<'_>) -> End {
    let api_version = case["object"]["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = case["kind"].as_str().unwrap();
    let Some(resource) = by_kind(group, version, kind) else {
        return End::Malformed;
    };
    let refused = |errors: Vec<lockgate_api::field::FieldError>| {
        let mut causes = Vec::new();
        for error in &errors {
            causes.push([
                error.error_type.reason().to_owned(),
                error.field.clone(),
                squeezed(
                    error
                        .body()
                        .replace(UID, "<uid>")
                        .split('\n')
                        .next()
                        .unwrap_or_default(),
                ),
            ]);
        }
        End::Refused(causes)
    };
    if case["op"] == "create" {
        let Some((mut value, mut warnings)) = decode(resource, &case["object"]) else {
            return End::Malformed;
        };
        complete(resource, &mut value);
        prepare_create(resource, &mut value, context);
        let errors = validate_create(resource, &value, context);
        if !errors.is_empty() {
            return refused(errors);
        }
        warnings.extend(warnings_on_create(resource, &value, context));
        return End::Stored(warnings.into_iter().collect());
    }
    let (Some((mut old, _)), Some((mut value, mut warnings))) = (
        decode(resource, &case["old"]),
        decode(resource, &case["object"]),
    ) else {
        return End::Malformed;
    };
    complete(resource, &mut old);
    prepare_create(resource, &mut old, context);
    canonicalize(resource, &mut old);
    old["metadata"]["resourceVersion"] = json!("1");
    if case["rv"] == true || !resource.allow_unconditional_update {
        value["metadata"]["resourceVersion"] = json!("1");
    }
    if value["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        value["metadata"]["resourceVersion"] = json!("1");
    }
    prepare_update(resource, "", &mut value, &old, context);
    let errors = validate_update(resource, "", &value, &old, context);
    if !errors.is_empty() {
        return refused(errors);
    }
    warnings.extend(warnings_on_update(resource, &value, &old, context));
    End::Stored(warnings.into_iter().collect())
}

fn wanted(case: &Value) -> Option<End> {
    let want = &case["want"];
    Some(match want["code"].as_u64()? {
        200 | 201 => End::Stored(
            want["warnings"]
                .as_array()?
                .iter()
                .filter_map(|warning| warning.as_str().map(str::to_owned))
                .collect(),
        ),
        422 => {
            let mut causes = Vec::new();
            for cause in want["causes"].as_array()? {
                let member = |key: &str| cause[key].as_str().unwrap_or_default();
                causes.push([
                    member("reason").to_owned(),
                    member("field").to_owned(),
                    squeezed(member("message").split('\n').next().unwrap_or_default()),
                ]);
            }
            End::Refused(causes)
        }
        400 => End::Malformed,
        _ => return None,
    })
}

/// The cases that do not agree yet. An entry that agrees fails the test.
fn differing() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../conformance/vectors/validation/differing.txt");
    std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Prints how many of each kind agree; `LOCKGATE_VALIDATION_DIFF` names a file for the others.
#[test]
fn validates_like_upstream() {
    let (groups, extra) = (Vec::new(), BTreeMap::new());
    let requester = Requester {
        name: "kubernetes-admin",
        uid: "",
        groups: &groups,
        extra: &extra,
    };
    let context = Context::new(Time::from_unix_seconds(1_760_000_000), requester);
    let known = differing();
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut surprises, mut differences) = (Vec::new(), String::new());
    for case in cases() {
        if case["op"] == "setup" {
            continue;
        }
        let Some(want) = wanted(&case) else {
            continue;
        };
        let got = run(&case, &context);
        let id = case["id"].as_str().unwrap();
        let row = table
            .entry(case["gvk"].as_str().unwrap().to_owned())
            .or_default();
        row.1 += 1;
        if got == want {
            row.0 += 1;
            if known.contains(id) {
                surprises.push(format!("{id} agrees now: take it off the list"));
            }
            continue;
        }
        let difference = format!(
            "{id} {} {} {}\n   want {want:?}\n   got  {got:?}\n",
            case["op"].as_str().unwrap(),
            case["gvk"].as_str().unwrap(),
            case["mut"],
        );
        if !known.contains(id) {
            surprises.push(difference.clone());
        }
        differences.push_str(&difference);
    }
    if let Some(file) = std::env::var_os("LOCKGATE_VALIDATION_DIFF") {
        std::fs::write(file, differences).unwrap();
    }
    let (mut agreed, mut all) = (0, 0);
    for (kind, (good, total)) in &table {
        println!("{kind:60} {good:4}/{total}");
        agreed += good;
        all += total;
    }
    println!("{agreed}/{all}");
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}
