//! Recorded responses of the registration API to create and update requests.

use lockgate_api::decode::strict_error;
use lockgate_api::document::{self, Document};
use lockgate_api::meta::type_meta::TypeMeta;
use lockgate_api::registration::strategy::{Request, prepare_create, prepare_update};
use lockgate_api::registration::validation::{Environment, ExpressionChecker, ExpressionError};
use lockgate_api::registration::{Configuration, Version, codec};
use serde_json::{Value, json};

use crate::gaps::{run_suite, same};

#[test]
fn registration_vectors_agree() {
    run_suite("registration", "LOCKGATE_REGISTRATION_VECTORS", check);
}

struct Conditions;

impl ExpressionChecker for Conditions {
    fn check(&self, expression: &str, _: Environment) -> Result<(), ExpressionError> {
        use lockgate_cel::CompileError;
        lockgate_cel::admission::check_condition(expression).map_err(|error| match error {
            CompileError::Program(reason) => ExpressionError::Program(reason.to_string()),
            other => ExpressionError::Compilation(other.to_string()),
        })
    }
}

fn check(vector: &Value, document: &Document) -> Result<(), String> {
    let want = |key: &str| vector.get(key).cloned().unwrap_or(Value::Null);
    let (mut new, version) = match decode(document.root().get("new").unwrap()) {
        Ok(decoded) => decoded,
        Err(problem) => return same("decodeError", &json!(problem), &want("decodeError")),
    };
    same(
        "outcome",
        &json!(want("outcome") == "decodeError"),
        &json!(false),
    )?;

    let request = Request {
        version,
        expressions: &Conditions,
        static_manifests: false,
    };
    let old = document.root().get("old");
    let is_create = old.is_none();
    let result = if let Some(old) = old {
        let (mut old, _) = decode(old).map_err(|error| format!("old: {error}"))?;
        old.metadata.generation = 1;
        old.metadata.resource_version = String::from("1");
        if new.metadata.resource_version.is_empty() {
            new.metadata.resource_version = String::from("1");
        }
        prepare_update(&mut new, &old, &request)
    } else {
        if new.metadata.name.is_empty() && !new.metadata.generate_name.is_empty() {
            new.metadata.name = format!("{}abcde", new.metadata.generate_name);
        }
        prepare_create(&mut new, &request)
    };
    match result {
        Ok(warnings) => {
            same("outcome", &json!("ok"), &want("outcome"))?;
            let warnings = if warnings.is_empty() {
                Value::Null
            } else {
                json!(warnings)
            };
            same("warnings", &warnings, &want("warnings"))?;
            same(
                "generation",
                &json!(new.metadata.generation),
                &want("generation"),
            )?;
            let stored = codec::to_json(new, Version::V1);
            for (key, member) in [
                ("storedWebhooks", "webhooks"),
                ("storedMetadata", "metadata"),
            ] {
                if vector.get(key).is_some() {
                    let got = stored.get(member).cloned().unwrap_or(Value::Null);
                    let clear = |value| without_identity(value, is_create);
                    same(key, &clear(got), &clear(want(key)))?;
                }
            }
            Ok(())
        }
        Err(status) => {
            let got = serde_json::to_value(&status).unwrap();
            same("outcome", &json!("error"), &want("outcome"))?;
            for key in ["message", "code", "reason", "details"] {
                same(key, &got[key], &want(key))?;
            }
            Ok(())
        }
    }
}

/// Removes the fields that the server generates on creation.
fn without_identity(mut value: Value, is_create: bool) -> Value {
    if let Some(members) = value.as_object_mut().filter(|_| is_create) {
        members.remove("uid");
        members.remove("creationTimestamp");
    }
    value
}

/// Decodes strictly, as with `fieldValidation=Strict`.
fn decode(object: document::Value<'_>) -> Result<(Configuration, Version), String> {
    let claim = TypeMeta::read(object).map_err(|error| error.to_string())?;
    let (kind, version) =
        codec::identify(&claim.api_version(), &claim.kind).expect("a webhook configuration");
    let decoded = codec::decode(object, kind, version).map_err(|error| error.to_string())?;
    if !decoded.findings.is_empty() {
        return Err(strict_error(&decoded.findings));
    }
    Ok((decoded.value, version))
}
