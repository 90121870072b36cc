//! Captured requests as input of lint rules: applies patches, computes changed fields, and validates results.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use lockgate_admission::json_patch::Patch;
use lockgate_admission::object::Object;
use lockgate_admission::request::kind as group_version_kind;
use lockgate_api::admission::GroupVersionKind;
use lockgate_lint::traffic::{
    Call, Change, ChangeKind, Exchange, Outcome, PatchOperation, Replaced,
};
use serde_json::Value;

use crate::capture::{Record, RecordedCall};
use crate::chain::{Chain, Tracing};
use crate::diff::join;
use crate::kinds::OfflineKinds;
use crate::request::from_review;

/// Converts a record to an exchange.
#[must_use]
pub fn exchange(record: &Record, kinds: &OfflineKinds) -> Exchange {
    let request = &record.request;
    let text = |of: &Value, member: &str| of[member].as_str().unwrap_or_default().to_owned();
    let resource = match &request["requestResource"] {
        Value::Object(_) => &request["requestResource"],
        _ => &request["resource"],
    };
    let mut walk = Walk {
        kinds,
        kind: group_version_kind(
            &text(&request["kind"], "group"),
            &text(&request["kind"], "version"),
            &text(&request["kind"], "kind"),
        ),
        subresource: text(request, "subResource"),
        object: request["object"].clone(),
        old: request.get("oldObject").filter(|old| old.is_object()),
    };
    Exchange {
        operation: text(request, "operation"),
        group: text(resource, "group"),
        resource: text(resource, "resource"),
        subresource: text(request, "subResource"),
        namespace: text(request, "namespace"),
        name: text(request, "name"),
        username: text(&request["userInfo"], "username"),
        again: false,
        calls: record.calls.iter().map(|call| walk.call(call)).collect(),
    }
}

/// Submits the mutated object of a record to the chain again, unchanged. `None` if the request was denied, or nothing
/// was mutated.
pub async fn sent_again(record: &Record, chain: &Chain, kinds: &OfflineKinds) -> Option<Exchange> {
    let first = from_review(&record.request, kinds).ok()?;
    let sent = first.object.as_ref()?.value().clone();
    let run = chain.run(first.clone(), Tracing::Verdicts).await;
    let left = run
        .object
        .filter(|left| run.decision.is_allowed() && *left != sent)?;
    let mut second = first;
    second.object = Some(Object::new(left));
    let run = chain.run(second, Tracing::Explained).await;
    let again = Record::of(&run.admission, String::new())?;
    Some(Exchange {
        again: true,
        ..exchange(&again, kinds)
    })
}

/// The state of the object during the calls of a request.
struct Walk<'r> {
    kinds: &'r OfflineKinds,
    kind: GroupVersionKind,
    subresource: String,
    object: Value,
    old: Option<&'r Value>,
}

impl Walk<'_> {
    fn call(&mut self, recorded: &RecordedCall) -> Call {
        let mut call = Call {
            configuration: recorded.configuration.clone(),
            webhook: recorded.webhook.clone(),
            round: recorded.round.max(1),
            outcome: outcome(recorded),
            before: digest(&self.object),
            ..Call::default()
        };
        call.after = call.before;
        let patch = recorded.response.as_ref().and_then(patch_text);
        let Some(patch) = patch.filter(|_| call.outcome == Outcome::Allowed) else {
            return call;
        };
        call.operations = operations(&patch, &self.object);
        let applied = Patch::parse(&patch).ok();
        let Some(after) = applied.and_then(|patch| patch.apply(&self.object).ok()) else {
            return call;
        };
        call.changes = changes(&self.object, &after);
        if !call.changes.is_empty() {
            let (errors, unknown) = self.problems(&self.object);
            let (errors_after, unknown_after) = self.problems(&after);
            call.invalid = without(errors_after, &errors);
            call.dropped = without(unknown, &unknown_after);
        }
        call.after = digest(&after);
        self.object = after;
        call
    }

    /// The validation errors and the unknown fields of an object.
    fn problems(&self, object: &Value) -> (Vec<String>, Vec<String>) {
        match self.kinds.read(object.clone(), &self.kind) {
            Ok((read, unknown)) => {
                let errors = match self.subresource.as_str() {
                    "" => self.kinds.validate(&read, self.old, &self.kind),
                    // Objects of subresources are validated as part of their parent object.
                    _ => Vec::new(),
                };
                let field = |told: &String| {
                    let field = told.strip_prefix("unknown field \"");
                    field.map(|field| field.trim_end_matches('"').to_owned())
                };
                (errors, unknown.iter().filter_map(field).collect())
            }
            Err(error) => (vec![error.to_string()], Vec::new()),
        }
    }
}

fn without(all: Vec<String>, known: &[String]) -> Vec<String> {
    let mut all = all;
    all.retain(|one| !known.contains(one));
    all
}

fn outcome(recorded: &RecordedCall) -> Outcome {
    match (&recorded.response, &recorded.error) {
        (Some(response), _) if response["allowed"] == true => Outcome::Allowed,
        (Some(response), _) => {
            let message = response["status"]["message"].as_str();
            Outcome::Denied(message.unwrap_or_default().to_owned())
        }
        (None, error) => Outcome::Failed(error.clone().unwrap_or_default()),
    }
}

fn patch_text(response: &Value) -> Option<Vec<u8>> {
    let text = response["patch"].as_str()?;
    lockgate_go::base64::decode(text).ok()
}

fn operations(patch: &[u8], object: &Value) -> Vec<PatchOperation> {
    let listed: Vec<Value> = serde_json::from_slice(patch).unwrap_or_default();
    let text = |of: &Value, member: &str| of[member].as_str().unwrap_or_default().to_owned();
    let operation = |of: &Value| {
        let path = text(of, "path");
        // An operation with an index inserts before an item of the list, and replaces none.
        let inserts = text(of, "op") == "add"
            && path
                .rsplit_once('/')
                .and_then(|(list, _)| object.pointer(list))
                .is_some_and(Value::is_array);
        let replaced = match object.pointer(&path) {
            _ if inserts => Replaced::Nothing,
            None | Some(Value::Null) => Replaced::Nothing,
            Some(Value::Array(_)) => Replaced::List,
            Some(Value::Object(_)) => Replaced::Map,
            Some(_) => Replaced::Scalar,
        };
        PatchOperation {
            op: text(of, "op"),
            path,
            value: of.get("value").cloned(),
            replaced,
        }
    };
    listed.iter().map(operation).collect()
}

/// The changed fields, down to scalars. Items appended to a list are reported as additions.
fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    // An explicit stack: depth uses heap memory, not the stack.
    let mut open = vec![(String::new(), Some(before), Some(after))];
    while let Some((path, before, after)) = open.pop() {
        if before == after {
            continue;
        }
        match (before, after) {
            // A new map is reported as its fields.
            (None | Some(Value::Null), Some(Value::Object(new))) if !new.is_empty() => {
                for (key, value) in new {
                    open.push((join(&path, key), None, Some(value)));
                }
            }
            (Some(Value::Object(one)), Some(Value::Object(other))) => {
                let other_only = other.keys().filter(|key| !one.contains_key(*key));
                for key in one.keys().chain(other_only) {
                    open.push((join(&path, key), one.get(key), other.get(key)));
                }
            }
            (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
                for (nth, (one, other)) in one.iter().zip(other).enumerate() {
                    open.push((format!("{path}[{nth}]"), Some(one), Some(other)));
                }
            }
            (None | Some(Value::Null | Value::Array(_)), Some(Value::Array(other))) => {
                let one = before.and_then(Value::as_array);
                let one = one.map(Vec::as_slice).unwrap_or_default();
                changes.push(Change {
                    path,
                    kind: match added(one, other) {
                        Some(items) => ChangeKind::Added(items),
                        None => ChangeKind::Set(other.clone().into()),
                    },
                });
            }
            (_, Some(value)) => changes.push(Change {
                path,
                kind: ChangeKind::Set(value.clone()),
            }),
            (_, None) => changes.push(Change {
                path,
                kind: ChangeKind::Removed,
            }),
        }
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes
}

/// The items added to a list, if its own items are kept in order.
fn added(before: &[Value], after: &[Value]) -> Option<Vec<Value>> {
    let mut kept = before.iter().peekable();
    let mut items = Vec::new();
    for item in after {
        match kept.peek() {
            Some(next) if **next == *item => {
                kept.next();
            }
            _ => items.push(item.clone()),
        }
    }
    kept.next().is_none().then_some(items)
}

/// Metadata that differs between two writes of the same object.
const VOLATILE: [&str; 6] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "selfLink",
];

/// A digest of an object, equal for an object that is written again.
fn digest(object: &Value) -> u64 {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for member in VOLATILE {
            metadata.remove(member);
        }
    }
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(before: &Value, after: &Value) -> Vec<String> {
        let told = changes(before, after).into_iter().map(|change| {
            let kind = match change.kind {
                ChangeKind::Set(value) => format!("= {value}"),
                ChangeKind::Added(items) => format!("+ {}", Value::from(items)),
                ChangeKind::Removed => String::from("gone"),
            };
            format!("{} {kind}", change.path)
        });
        told.collect()
    }

    #[test]
    fn changes_are_told_field_by_field() {
        let before = json!({"metadata": {"name": "a"}, "l": [1, 2], "m": [{"a": 1}], "x": 1});
        let after = json!({"metadata": {"name": "a", "labels": {"k/y": "v", "z": "w"}},
            "l": [1, 3, 2], "m": [{"a": 2}], "n": [4]});
        assert_eq!(
            changed(&before, &after),
            [
                "l + [3]",
                "m[0].a = 2",
                "metadata.labels.z = \"w\"",
                "metadata.labels[\"k/y\"] = \"v\"",
                "n + [4]",
                "x gone",
            ]
        );
        assert_eq!(
            changed(&json!({"l": [1, 2]}), &json!({"l": [2, 3, 4]})),
            ["l = [2,3,4]"]
        );
        assert!(changed(&before, &before).is_empty());
    }

    #[test]
    fn digests_leave_out_what_every_write_changes() {
        let one = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "status": {"x": 1}});
        let other = json!({"metadata": {"name": "a", "uid": "u"}});
        assert_eq!(digest(&one), digest(&other));
        assert_ne!(digest(&one), digest(&json!({"metadata": {"name": "b"}})));
    }
}
