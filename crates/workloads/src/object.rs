//! Objects as JSON, and accessors shared by controllers.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lockgate_api::meta::time::Time;
use serde_json::{Map, Value, json};

use crate::api::Target;
use crate::kind::Kind;

/// A stored object.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) key: Arc<str>,
    /// The revision of its creation, which orders objects created in the same second.
    pub(crate) created: u64,
    pub(crate) value: Value,
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl Object {
    pub(crate) fn name(&self) -> &str {
        text(self, "/metadata/name")
    }

    pub(crate) fn namespace(&self) -> &str {
        text(self, "/metadata/namespace")
    }

    pub(crate) fn uid(&self) -> &str {
        text(self, "/metadata/uid")
    }

    /// The part of the storage key after the kind's prefix: `namespace/name`, or `name`.
    pub(crate) fn path(&self) -> &str {
        let prefix = self.kind.prefix().len();
        self.key.get(prefix..).unwrap_or_default()
    }

    pub(crate) fn target(&self) -> Target<'_> {
        Target {
            kind: self.kind,
            namespace: self.namespace(),
            name: self.name(),
            uid: self.uid(),
            subresource: "",
        }
    }

    pub(crate) fn status(&self) -> Target<'_> {
        Target {
            subresource: "status",
            ..self.target()
        }
    }

    /// The owner reference of the controller, if any.
    pub(crate) fn controller(&self) -> Option<&Value> {
        controller(self)
    }

    /// An owner reference to this object, as its controller.
    pub(crate) fn as_owner(&self) -> Value {
        json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.name(),
            "name": self.name(),
            "uid": self.uid(),
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// An object reference to this object, for events and targets.
    pub(crate) fn as_reference(&self) -> Value {
        let mut reference = json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.name(),
            "name": self.name(),
            "uid": self.uid(),
        });
        if !self.namespace().is_empty() {
            reference["namespace"] = self.namespace().into();
        }
        reference
    }
}

/// The string at a pointer; empty by default.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// The number at a pointer.
pub(crate) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer)?.as_i64()
}

/// The number at a pointer; zero by default.
pub(crate) fn count(value: &Value, pointer: &str) -> i64 {
    number(value, pointer).unwrap_or_default()
}

pub(crate) fn flag(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool) == Some(true)
}

/// The items at a pointer; empty by default.
pub(crate) fn list<'v>(
    value: &'v Value,
    pointer: &str,
) -> impl Iterator<Item = &'v Value> + use<'v> {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.into_iter().flatten()
}

pub(crate) fn is_deleting(value: &Value) -> bool {
    !text(value, "/metadata/deletionTimestamp").is_empty()
}

/// The value of a label.
pub(crate) fn label<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    member(value, "labels", key)
}

pub(crate) fn annotation<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    member(value, "annotations", key)
}

fn member<'v>(value: &'v Value, of: &str, key: &str) -> Option<&'v str> {
    value.get("metadata")?.get(of)?.get(key)?.as_str()
}

fn controller(value: &Value) -> Option<&Value> {
    list(value, "/metadata/ownerReferences").find(|owner| flag(owner, "/controller"))
}

/// The object at a field, created if missing.
pub(crate) fn entry<'v>(value: &'v mut Value, member: &str) -> &'v mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let found = &mut value[member];
    if !found.is_object() {
        *found = json!({});
    }
    match found {
        Value::Object(members) => members,
        _ => unreachable!("it was made an object above"),
    }
}

/// Sets a label of an object.
pub(crate) fn set_label(value: &mut Value, key: &str, to: &str) {
    set_member(value, "labels", key, to);
}

pub(crate) fn set_annotation(value: &mut Value, key: &str, to: &str) {
    set_member(value, "annotations", key, to);
}

fn set_member(value: &mut Value, of: &str, key: &str, to: &str) {
    entry(value, "metadata");
    entry(&mut value["metadata"], of).insert(key.to_owned(), to.into());
}

/// The current Unix timestamp.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// The current time in RFC 3339.
pub(crate) fn now_text() -> String {
    time_text(now())
}

pub(crate) fn time_text(seconds: i64) -> String {
    Time::from_unix_seconds(seconds).to_string()
}

/// The time at a pointer, as Unix timestamp.
pub(crate) fn time(value: &Value, pointer: &str) -> Option<i64> {
    let text = value.pointer(pointer)?.as_str()?;
    Time::parse(text).ok().map(Time::unix_seconds)
}

/// The condition of this type.
pub(crate) fn condition<'v>(value: &'v Value, of: &str) -> Option<&'v Value> {
    list(value, "/status/conditions").find(|condition| text(condition, "/type") == of)
}

pub(crate) fn is_condition_true(value: &Value, of: &str) -> bool {
    condition(value, of).is_some_and(|condition| text(condition, "/status") == "True")
}

/// Sets a condition in a list. `lastTransitionTime` changes with the status only. Returns true if it changed.
pub(crate) fn set_condition(
    conditions: &mut Vec<Value>,
    of: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> bool {
    let mut new = json!({"type": of, "status": status, "lastTransitionTime": now_text()});
    if !reason.is_empty() {
        new["reason"] = reason.into();
    }
    if !message.is_empty() {
        new["message"] = message.into();
    }
    let Some(old) = conditions
        .iter_mut()
        .find(|condition| text(condition, "/type") == of)
    else {
        conditions.push(new);
        return true;
    };
    let same = text(old, "/status") == status;
    if same && text(old, "/reason") == reason && text(old, "/message") == message {
        return false;
    }
    if same {
        new["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    *old = new;
    true
}

/// A copy of the conditions of an object.
pub(crate) fn conditions(value: &Value) -> Vec<Value> {
    list(value, "/status/conditions").cloned().collect()
}

/// Matches an object's labels against a `LabelSelector`. An empty selector matches all objects, and `None` matches
/// none.
pub(crate) fn selects(selector: Option<&Value>, object: &Value) -> bool {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else {
        return false;
    };
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut labels = labels.into_iter().flatten();
    labels.all(|(key, value)| label(object, key) == value.as_str())
        && list(selector, "/matchExpressions").all(|expression| matches(expression, object))
}

/// Matches an object's labels against a map of labels; an empty one matches nothing.
pub(crate) fn map_selects(selector: Option<&Value>, object: &Value) -> bool {
    let members = selector.and_then(Value::as_object);
    members.is_some_and(|members| {
        !members.is_empty()
            && members
                .iter()
                .all(|(key, value)| label(object, key) == value.as_str())
    })
}

fn matches(expression: &Value, object: &Value) -> bool {
    let found = label(object, text(expression, "/key"));
    is_met(expression, found)
}

/// Matches a value against a requirement of a label or node selector.
pub(crate) fn is_met(requirement: &Value, found: Option<&str>) -> bool {
    let mut values = list(requirement, "/values").filter_map(Value::as_str);
    let as_number = |text: &str| text.parse::<i64>().ok();
    match text(requirement, "/operator") {
        "In" => found.is_some_and(|found| values.any(|value| value == found)),
        "NotIn" => found.is_none_or(|found| values.all(|value| value != found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => found.and_then(as_number) > values.next().and_then(as_number),
        "Lt" => {
            let bound = values.next().and_then(as_number);
            found
                .and_then(as_number)
                .is_some_and(|found| Some(found) < bound)
        }
        _ => false,
    }
}

/// An integer, or a percentage of a total.
///
/// UPSTREAM: apimachinery pkg/util/intstr/intstr.go (GetScaledValueFromIntOrPercent)
pub(crate) fn scaled(value: Option<&Value>, total: i64, rounds_up: bool) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(total)?;
            Some(if rounds_up {
                product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0)
            } else {
                product.div_euclid(100)
            })
        }
        _ => None,
    }
}

/// The hash of a template and a collision count, in an alphabet without vowels.
///
/// UPSTREAM: kubernetes pkg/controller/controller_utils.go (ComputeHash), apimachinery pkg/util/rand, which
/// hashes Go's representation instead of the JSON.
pub(crate) fn template_hash(tree: &Value, collisions: Option<i64>) -> String {
    let mut hash = Fnv::new();
    hash.write(tree.to_string().as_bytes());
    if let Some(collisions) = collisions {
        let low = collisions.to_le_bytes();
        hash.write(&low);
    }
    safe_text(&hash.0.to_string())
}

/// Encodes digits in an alphabet without vowels, so that no words are generated.
pub(crate) fn safe_text(digits: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    digits
        .bytes()
        .map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()]))
        .collect()
}

/// The 32-bit FNV-1a hash.
pub(crate) struct Fnv(pub(crate) u32);

impl Fnv {
    pub(crate) fn new() -> Self {
        Self(2_166_136_261)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(16_777_619);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_by_labels_and_expressions() {
        let pod = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        let yes = [
            json!({}),
            json!({"matchLabels": {"a": "1"}}),
            json!({"matchExpressions": [{"key": "b", "operator": "In", "values": ["2", "3"]}]}),
            json!({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["2"]}]}),
            json!({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}),
        ];
        for selector in yes {
            assert!(selects(Some(&selector), &pod), "{selector}");
        }
        let no = [
            json!({"matchLabels": {"a": "1", "c": "3"}}),
            json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
            json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["2"]}]}),
        ];
        for selector in no {
            assert!(!selects(Some(&selector), &pod), "{selector}");
        }
        assert!(!selects(None, &pod));
        assert!(!map_selects(Some(&json!({})), &pod));
        assert!(map_selects(Some(&json!({"a": "1"})), &pod));
    }

    #[test]
    fn percentages_are_rounded_as_asked() {
        assert_eq!(scaled(Some(&json!("25%")), 3, true), Some(1));
        assert_eq!(scaled(Some(&json!("25%")), 3, false), Some(0));
        assert_eq!(scaled(Some(&json!(2)), 3, false), Some(2));
        assert_eq!(scaled(Some(&json!("x")), 3, false), None);
        assert_eq!(scaled(None, 3, false), None);
    }

    #[test]
    fn a_transition_is_a_change_of_status() {
        let mut conditions = vec![json!({
            "type": "Ready", "status": "False", "reason": "A", "lastTransitionTime": "2020-01-01T00:00:00Z",
        })];
        assert!(!set_condition(&mut conditions, "Ready", "False", "A", ""));
        assert!(set_condition(&mut conditions, "Ready", "False", "B", ""));
        assert_eq!(conditions[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert!(set_condition(&mut conditions, "Ready", "True", "", ""));
        assert_ne!(conditions[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn hashes_look_like_those_of_upstream() {
        let hash = template_hash(&json!({"spec": {}}), None);
        assert!((8..=10).contains(&hash.len()), "{hash}");
        assert!(
            hash.bytes()
                .all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte))
        );
        assert_ne!(hash, template_hash(&json!({"spec": {}}), Some(1)));
        // FNV-1a of "a", a published test vector.
        let mut fnv = Fnv::new();
        fnv.write(b"a");
        assert_eq!(fnv.0, 0xe40c_292c);
    }
}
