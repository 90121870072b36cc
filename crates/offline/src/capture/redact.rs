//! Removes Secret data and tokens from captures.

use serde_json::Value;

use super::Record;

/// The placeholder for redacted values: `REDACTED` in base64, so that it is valid in a Secret's `data`.
pub const REDACTED: &str = "UkVEQUNURUQ=";

/// The annotation in which kubectl stores the entire object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Redacts Secret data, tokens and passwords in a record.
pub fn redact(record: &mut Record) {
    let kind = record.request["kind"]["kind"].as_str().unwrap_or_default();
    let group = record.request["kind"]["group"].as_str().unwrap_or_default();
    let is_secret = group.is_empty() && kind == "Secret";
    let is_token = matches!(kind, "TokenRequest" | "TokenReview");
    if !is_secret && !is_token {
        return;
    }
    for member in ["object", "oldObject"] {
        redact_object(&mut record.request[member], is_secret);
    }
    if let Some(mutated) = &mut record.mutated {
        redact_object(mutated, is_secret);
    }
    for call in &mut record.calls {
        let Some(response) = &mut call.response else {
            continue;
        };
        // A patch may contain them as well.
        if let Some(members) = response.as_object_mut()
            && let Some(patch) = members.get("patch").and_then(Value::as_str)
        {
            let patch = redacted_patch(patch);
            members.insert(String::from("patch"), patch.into());
        }
    }
}

fn redact_object(object: &mut Value, is_secret: bool) {
    let Some(members) = object.as_object_mut() else {
        return;
    };
    if is_secret {
        for member in ["data", "stringData"] {
            for value in members
                .get_mut(member)
                .and_then(Value::as_object_mut)
                .into_iter()
                .flat_map(|values| values.values_mut())
            {
                *value = REDACTED.into();
            }
        }
    }
    for (part, member) in [("status", "token"), ("spec", "token")] {
        if let Some(token) = members.get_mut(part).and_then(|part| part.get_mut(member)) {
            *token = REDACTED.into();
        }
    }
    let annotations = members
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(applied) = annotations.and_then(|all| all.get_mut(LAST_APPLIED)) {
        *applied = REDACTED.into();
    }
}

/// The patch with the values below `data` and `stringData` redacted. An undecodable patch is dropped.
fn redacted_patch(patch: &str) -> String {
    let decoded = lockgate_go::base64::decode(patch).ok();
    let operations = decoded.and_then(|bytes| serde_json::from_slice::<Vec<Value>>(&bytes).ok());
    let mut operations = operations.unwrap_or_default();
    for operation in &mut operations {
        let path = operation["path"].as_str().unwrap_or_default();
        let is_secret = ["/data", "/stringData", "/metadata/annotations"]
            .iter()
            .any(|below| path.starts_with(below))
            || path.is_empty();
        if !is_secret {
            continue;
        }
        if let Some(value) = operation.get_mut("value") {
            match value {
                Value::Object(members) => {
                    for value in members.values_mut() {
                        *value = REDACTED.into();
                    }
                }
                value => *value = REDACTED.into(),
            }
        }
    }
    lockgate_go::base64::encode(Value::Array(operations).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::RecordedCall;
    use super::*;

    #[test]
    fn no_content_of_a_secret_stays() {
        let patch = json!([{"op": "add", "path": "/data/x", "value": "aHVudGVyMg=="},
            {"op": "add", "path": "/stringData", "value": {"y": "hunter2"}}]);
        let patch = lockgate_go::base64::encode(patch.to_string().as_bytes());
        let secret = json!({"kind": "Secret", "data": {"a": "aHVudGVyMg=="}, "stringData": {"b": "hunter2"},
            "metadata": {"annotations": {LAST_APPLIED: "{\"stringData\":{\"b\":\"hunter2\"}}"}}});
        let mut record = Record {
            request: json!({"kind": {"group": "", "kind": "Secret"}, "object": secret, "oldObject": secret}),
            mutated: Some(secret),
            calls: vec![RecordedCall {
                response: Some(json!({"allowed": true, "patch": patch})),
                ..RecordedCall::default()
            }],
            ..Record::default()
        };
        redact(&mut record);
        let line = record.to_line();
        assert!(!line.contains("hunter2"), "{line}");
        assert!(!line.contains("aHVudGVyMg"), "{line}");
        let patch = record.calls[0].response.as_ref().unwrap()["patch"]
            .as_str()
            .unwrap()
            .to_owned();
        let patch = String::from_utf8(lockgate_go::base64::decode(&patch).unwrap()).unwrap();
        assert!(
            !patch.contains("hunter2") && !patch.contains("aHVudGVyMg"),
            "{patch}"
        );
        assert!(line.contains("\"a\""), "names of keys stay");
    }
}
