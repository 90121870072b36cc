//! Invalid managed fields after admission, and writes that only change timestamps.

use serde_json::{Map, Value};

use super::managers::{self, ManagedFieldsError, Managers};
use super::value::equal;

/// Restores the managed fields from before admission if they cannot be decoded after it. Returns the warning for the
/// client.
// UPSTREAM: apiserver pkg/endpoints/handlers/fieldmanager/admission.go
pub fn restore_after_admission(object: &mut Value, before: Option<&Value>) -> Option<String> {
    let problem = check(object).err()?;
    managers::set_list(object, before.cloned());
    Some(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by \
         an outdated mutating admission controller; please fix your requests: {problem}"
    ))
}

/// Checks that the managed fields of an object can be decoded.
///
/// # Errors
///
/// They cannot be decoded.
pub fn check(object: &Value) -> Result<(), ManagedFieldsError> {
    Managers::decode(managers::list_of(object).unwrap_or_default()).map(drop)
}

/// Restores the timestamps of managed fields if nothing else changed, so that the write is a no-op.
// UPSTREAM: apiserver pkg/endpoints/handlers/fieldmanager/equality.go
pub fn ignore_timestamp_only_change(new: &mut Value, old: &Value) {
    let Some(old_list) = managers::list_of(old) else {
        return;
    };
    let Some(new_list) = managers::list_of(new) else {
        return;
    };
    if old_list.is_empty() || old_list.len() != new_list.len() {
        return;
    }
    let pairs = || new_list.iter().zip(old_list);
    let is_same_time = |new: &Value, old: &Value| new.get("time") == old.get("time");
    if pairs().all(|(new, old)| is_same_time(new, old))
        || !pairs().all(|(new, old)| equal_but(new, old, "time", |_, _| true))
        || !equal_but(new, old, "metadata", |new, old| {
            equal_but(new, old, "managedFields", |_, _| true)
        })
    {
        return;
    }
    managers::set_list(new, Some(Value::from(old_list)));
}

/// Returns true if two maps are equal, comparing one field with another predicate.
fn equal_but(
    left: &Value,
    right: &Value,
    name: &str,
    same: impl Fn(&Value, &Value) -> bool,
) -> bool {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else {
        return equal(left, right);
    };
    let others =
        |members: &Map<String, Value>| members.len() - usize::from(members.contains_key(name));
    if others(left) != others(right) {
        return false;
    }
    let rest = left.iter().filter(|(key, _)| *key != name);
    for (key, left) in rest {
        if !right.get(key).is_some_and(|right| equal(left, right)) {
            return false;
        }
    }
    match (left.get(name), right.get(name)) {
        (Some(left), Some(right)) => same(left, right),
        _ => true,
    }
}
