//! Captures from audit logs of any API server: events of level Request or RequestResponse.

use lockgate_admission::request::{kind, resource};
use lockgate_kinds::resource as rows;
use serde_json::{Value, json};

use crate::capture::{Record, RecordedDecision, redact};
use crate::kinds::OfflineKinds;

/// An event that cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// It is not an event of audit.k8s.io.
    NotAnEvent,
    /// Another stage of the same request is used.
    Stage,
    /// It is a read, a review or a non-resource request.
    NotAWrite,
    /// Its level omits the object: Request or RequestResponse is required.
    NoObject,
    /// It is a patch, whose result requires the level RequestResponse.
    Patch,
}

/// Converts an audit event to a record.
///
/// # Errors
///
/// Fails if the event cannot be replayed.
pub fn record(event: &Value, kinds: &OfflineKinds) -> Result<Record, Skipped> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if event["kind"] != "Event" || !text(&event["apiVersion"]).starts_with("audit.k8s.io/") {
        return Err(Skipped::NotAnEvent);
    }
    if event["stage"] != "ResponseComplete" {
        return Err(Skipped::Stage);
    }
    let reference = &event["objectRef"];
    if !reference.is_object() {
        return Err(Skipped::NotAWrite);
    }
    let operation = match text(&event["verb"]).as_str() {
        "create" => "CREATE",
        "update" | "patch" => "UPDATE",
        "delete" => "DELETE",
        _ => return Err(Skipped::NotAWrite),
    };
    let code = event["responseStatus"]["code"].as_i64().unwrap_or_default();
    let is_stored = (200..300).contains(&code);
    let is_patch = event["verb"] == "patch";
    // The stored object includes all admission changes, so the object in the request is preferred.
    let object = match operation {
        "DELETE" => Value::Null,
        _ if !is_patch && event["requestObject"].is_object() => event["requestObject"].clone(),
        _ if is_stored && event["responseObject"].is_object() => event["responseObject"].clone(),
        _ if is_patch => return Err(Skipped::Patch),
        _ => return Err(Skipped::NoObject),
    };
    let old = match operation {
        "DELETE" if event["responseObject"]["metadata"].is_object() => {
            event["responseObject"].clone()
        }
        _ => Value::Null,
    };
    let asked = resource(
        &text(&reference["apiGroup"]),
        &text(&reference["apiVersion"]),
        &text(&reference["resource"]),
    );
    let of = match kinds.of_resource(&asked) {
        Some(known) => known.kind,
        None => {
            let name = text(&object["kind"]);
            kind(&asked.group, &asked.version, &name)
        }
    };
    let part = text(&reference["subresource"]);
    let of = match rows::find(&asked.group, &asked.version, &asked.resource) {
        Some(row) if !part.is_empty() => row
            .subresource(&part)
            .map_or(of, |part| kind(part.group, part.version, part.kind)),
        _ => of,
    };
    let user = match &event["impersonatedUser"] {
        Value::Object(_) => &event["impersonatedUser"],
        _ => &event["user"],
    };
    let denied = matches!(code, 400..=499) && code != 409 && code != 404 && code != 401;
    let uri = text(&event["requestURI"]);
    let mut request = json!({
        "operation": operation,
        "kind": {"group": of.group, "version": of.version, "kind": of.kind},
        "resource": {"group": asked.group, "version": asked.version, "resource": asked.resource},
        "name": reference["name"].as_str().or_else(|| object["metadata"]["name"].as_str()).unwrap_or_default(),
        "namespace": text(&reference["namespace"]),
        "userInfo": user, "object": object, "oldObject": old,
        "dryRun": uri.contains("dryRun=All"),
    });
    if !part.is_empty() {
        request["subResource"] = part.into();
    }
    let mut record = Record {
        time: text(&event["requestReceivedTimestamp"]),
        request,
        decision: Some(RecordedDecision {
            allowed: !denied,
            code: denied.then(|| i32::try_from(code).unwrap_or_default()),
            message: if denied {
                text(&event["responseStatus"]["message"])
            } else {
                String::new()
            },
            warnings: Vec::new(),
        }),
        ..Record::default()
    };
    redact(&mut record);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Value {
        json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "stage": "ResponseComplete",
            "verb": "create", "requestURI": "/api/v1/namespaces/shop/pods?dryRun=All",
            "user": {"username": "ann", "groups": ["dev"]},
            "objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "apiVersion": "v1"},
            "responseStatus": {"code": 422, "message": "no"},
            "requestObject": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z"})
    }

    #[test]
    fn reads_writes_and_leaves_the_rest() {
        let kinds = OfflineKinds::default();
        let found = record(&event(), &kinds).unwrap();
        assert_eq!(found.request["operation"], "CREATE");
        assert_eq!(found.request["kind"]["kind"], "Pod");
        assert_eq!(found.request["dryRun"], true);
        assert_eq!(found.request["userInfo"]["username"], "ann");
        let decision = found.decision.unwrap();
        assert_eq!(
            (decision.allowed, decision.code, decision.message.as_str()),
            (false, Some(422), "no")
        );
        let with = |member: &str, value: Value| {
            let mut event = event();
            event[member] = value;
            record(&event, &kinds).unwrap_err()
        };
        assert_eq!(with("verb", "list".into()), Skipped::NotAWrite);
        assert_eq!(with("stage", "RequestReceived".into()), Skipped::Stage);
        assert_eq!(with("requestObject", Value::Null), Skipped::NoObject);
        assert_eq!(with("kind", "Pod".into()), Skipped::NotAnEvent);
        assert_eq!(with("verb", "patch".into()), Skipped::Patch);
    }

    #[test]
    fn keeps_secrets_out() {
        let mut event = event();
        event["objectRef"]["resource"] = "secrets".into();
        event["requestObject"] =
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "aHVudGVyMg=="}});
        let found = record(&event, &OfflineKinds::default()).unwrap();
        assert!(!found.to_line().contains("aHVudGVyMg"));
    }
}
