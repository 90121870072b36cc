//! A write of a built-in kind, without the server.

use std::collections::BTreeMap;

use lockgate_api::document::json::parse;
use lockgate_api::field::FieldErrors;
use lockgate_api::meta::time::Time;
use lockgate_kinds::kind::{Context, Requester};
use lockgate_kinds::resource::{Resource, by_kind};
use lockgate_kinds::strategy::{
    canonicalize_stored, prepare_create, prepare_update, validate_create, validate_update,
    warnings_on_create, warnings_on_update,
};
use lockgate_kinds::typed::type_of;
use serde_json::{Value, json};

/// The outcome of a write.
#[allow(dead_code, reason = "used by the example only")]
#[derive(Debug)]
pub(crate) enum End {
    /// The body cannot be decoded.
    Malformed(String),
    /// These causes: reason, field, message.
    Refused(Vec<[String; 3]>),
    /// The object is stored, with these warnings.
    Stored(Value, Vec<String>),
}

const UID: &str = "6f9e0c5e-0000-4000-8000-000000000001";
const SECONDS: i64 = 1_760_000_000;

/// Calls `act` with a context for any write.
pub(crate) fn in_context<T>(act: impl FnOnce(&Context<'_>) -> T) -> T {
    let (groups, extra) = (Vec::new(), BTreeMap::new());
    let requester = Requester {
        name: "kubernetes-admin",
        uid: "",
        groups: &groups,
        extra: &extra,
    };
    act(&Context::new(Time::from_unix_seconds(SECONDS), requester))
}

/// Decodes and defaults an object; also returns the general warnings.
fn decode(resource: &Resource, object: &Value) -> Result<(Value, Vec<String>, bool), String> {
    let ty = type_of(resource.group, resource.version, resource.kind)
        .ok_or_else(|| String::from("unknown type"))?;
    // Recordings have placeholders for nondeterministic values.
    let now = Time::from_unix_seconds(SECONDS).to_string();
    let text = object
        .to_string()
        .replace("<uid>", UID)
        .replace("<now>", &now);
    let document = parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let decoded = ty.decode_with_empties(document.root());
    let decoded = decoded.map_err(|error| error.to_string())?;
    let mut value = decoded.value;
    let mut warnings = decoded.findings;
    warnings.extend(resource.rules.deprecation_warning().map(str::to_owned));
    value["apiVersion"] = json!(resource.api_version());
    value["kind"] = json!(resource.kind);
    let shares_labels = resource.rules.shares_labels(&value);
    resource.rules.apply_defaults(&mut value);
    resource
        .rules
        .apply_time_defaults(&mut value, Time::from_unix_seconds(SECONDS));
    Ok((value, warnings, shares_labels))
}

/// Sets the namespace of a namespaced object.
fn place(resource: &Resource, value: &mut Value, case: &Value) {
    let metadata = &mut value["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let namespace = case["path"]
        .as_str()
        .and_then(|path| path.split_once("/namespaces/")?.1.split('/').next())
        .or_else(|| case["namespace"].as_str());
    if let (true, Some(namespace)) = (resource.namespaced, namespace) {
        metadata["namespace"] = json!(namespace);
    }
}

/// Sets the metadata that the server sets before the strategy runs.
fn complete(resource: &Resource, value: &mut Value, case: &Value) {
    place(resource, value, case);
    let metadata = &mut value["metadata"];
    metadata["uid"] = json!(UID);
    metadata["creationTimestamp"] = json!(Time::from_unix_seconds(SECONDS).to_string());
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    if text("name").is_empty() && !text("generateName").is_empty() {
        metadata["name"] = json!(format!("{}abcde", text("generateName")));
    }
    if let Some(members) = metadata.as_object_mut() {
        for key in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            members.remove(key);
        }
        if !resource.namespaced {
            members.remove("namespace");
        }
    }
}

fn refused(errors: &FieldErrors) -> End {
    let mut causes = Vec::new();
    for error in errors {
        causes.push([
            error.error_type.reason().to_owned(),
            error.field.clone(),
            error.body().replace(UID, "<uid>"),
        ]);
    }
    End::Refused(causes)
}

/// Performs a recorded write: `op`, `kind`, `object` and, for an update, `old` and `subresource`.
pub(crate) fn run(case: &Value, context: &Context<'_>) -> End {
    match try_run(case, context) {
        Ok(end) => end,
        Err(error) => End::Malformed(error),
    }
}

fn try_run(case: &Value, context: &Context<'_>) -> Result<End, String> {
    let api_version = case["object"]["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = case["kind"].as_str().unwrap_or_default();
    let resource = by_kind(group, version, kind).ok_or_else(|| String::from("unknown resource"))?;
    let (mut value, mut warnings, shares_labels) = decode(resource, &case["object"])?;
    if case["op"] == "create" {
        complete(resource, &mut value, case);
        let errors = resource.rules.begin(&mut value, None);
        if !errors.is_empty() {
            return Ok(refused(&errors));
        }
        prepare_create(resource, &mut value, context);
        if shares_labels {
            resource.rules.follow_template(&mut value);
        }
        let errors = validate_create(resource, &value, context);
        if !errors.is_empty() {
            return Ok(refused(&errors));
        }
        warnings.extend(warnings_on_create(resource, &value, context));
        canonicalize_stored(resource, &mut value);
        // Decoding from storage applies defaults again.
        resource.rules.apply_defaults(&mut value);
        return Ok(End::Stored(value, warnings));
    }
    let subresource = case["subresource"].as_str().unwrap_or_default();
    place(resource, &mut value, case);
    let (mut old, _, shares_labels) = decode(resource, &case["old"])?;
    complete(resource, &mut old, case);
    resource.rules.begin(&mut old, None);
    if subresource.is_empty() || case["old"].get("status").is_none() {
        prepare_create(resource, &mut old, context);
        if shares_labels {
            resource.rules.follow_template(&mut old);
        }
    }
    canonicalize_stored(resource, &mut old);
    resource.rules.apply_defaults(&mut old);
    old["metadata"]["resourceVersion"] = json!("1");
    if case["rv"] == true
        || !resource.allow_unconditional_update
        || value["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    {
        value["metadata"]["resourceVersion"] = json!("1");
    }
    if subresource.is_empty() {
        let errors = resource.rules.begin(&mut value, Some(&old));
        if !errors.is_empty() {
            return Ok(refused(&errors));
        }
    }
    prepare_update(resource, subresource, &mut value, &old, context);
    let errors = validate_update(resource, subresource, &value, &old, context);
    if !errors.is_empty() {
        return Ok(refused(&errors));
    }
    warnings.extend(warnings_on_update(
        resource,
        subresource,
        &value,
        &old,
        context,
    ));
    canonicalize_stored(resource, &mut value);
    resource.rules.apply_defaults(&mut value);
    Ok(End::Stored(value, warnings))
}
