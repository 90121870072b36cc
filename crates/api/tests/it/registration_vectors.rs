//! What the registration API answered to create and update requests.

use lockgate_api::decode::strict_error;
use lockgate_api::document::json;
use lockgate_api::registration::strategy::{Request, prepare_create, prepare_update};
use lockgate_api::registration::validation::{Environment, ExpressionChecker};
use lockgate_api::registration::{Configuration, Version, codec};
use serde_json::{Value, json};

use crate::gaps::{run_suite, same};

#[test]
fn registration_vectors_agree() {
    run_suite("registration", "LOCKGATE_REGISTRATION_VECTORS", check);
}

struct Conditions;

impl ExpressionChecker for Conditions {
    fn check(&self, expression: &str, _: Environment) -> Result<(), String> {
        lockgate_cel::admission::check_condition(expression)
    }
}

fn check(vector: &Value) -> Result<(), String> {
    let want = |key: &str| vector.get(key).cloned().unwrap_or(Value::Null);
    let (mut new, version) = match decode(&vector["new"]) {
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
    let result = if vector["old"].is_null() {
        if new.metadata.name.is_empty() && !new.metadata.generate_name.is_empty() {
            new.metadata.name = format!("{}abcde", new.metadata.generate_name);
        }
        prepare_create(&mut new, &request)
    } else {
        let (mut old, _) = decode(&vector["old"]).map_err(|error| format!("old: {error}"))?;
        old.metadata.generation = 1;
        new.metadata.resource_version = String::from("1");
        prepare_update(&mut new, &old, &request)
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
            if let Some(stored) = vector.get("storedWebhooks") {
                let json = codec::to_json(new, Version::V1);
                let webhooks = json.get("webhooks").cloned().unwrap_or(Value::Null);
                same("storedWebhooks", &webhooks, stored)?;
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

/// Decodes strictly, as a client that asks for field validation sees it.
fn decode(object: &Value) -> Result<(Configuration, Version), String> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let (kind, version) = codec::identify(api_version, kind).expect("a webhook configuration");
    let document = json::parse(object.to_string().as_bytes()).map_err(|error| error.to_string())?;
    let decoded =
        codec::decode(document.root(), kind, version).map_err(|error| error.to_string())?;
    if !decoded.findings.is_empty() {
        return Err(strict_error(&decoded.findings));
    }
    Ok((decoded.value, version))
}
