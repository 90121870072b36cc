//! Redaction: the data of Secrets, and tokens submitted for review.

use std::borrow::Cow;

use serde_json::Value;

/// The placeholder of redacted values.
pub(crate) const REDACTED: &str = "(redacted)";

/// The annotation in which `kubectl apply` stores the entire object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns true if objects of this kind contain credentials.
pub(crate) fn is_sensitive(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Secret") | ("authentication.k8s.io", "TokenReview" | "TokenRequest")
    )
}

/// The object without credentials. Objects of other kinds are borrowed unchanged.
pub(crate) fn redacted<'v>(group: &str, kind: &str, object: &'v Value) -> Cow<'v, Value> {
    if !is_sensitive(group, kind) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    let redact = |value: &mut Value| *value = Value::from(REDACTED);
    for name in ["data", "stringData"] {
        match object.get_mut(name) {
            // Keys are kept: they show what was changed.
            Some(Value::Object(members)) => members.values_mut().for_each(redact),
            Some(other) if !other.is_null() => redact(other),
            _ => {}
        }
    }
    for pointer in ["/spec/token", "/status/token"] {
        if let Some(token) = object.pointer_mut(pointer) {
            redact(token);
        }
    }
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(Value::Object(annotations)) = annotations
        && let Some(applied) = annotations.get_mut(LAST_APPLIED)
    {
        redact(applied);
    }
    Cow::Owned(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_the_keys_of_secrets_and_none_of_their_values() {
        let secret = json!({
            "kind": "Secret",
            "metadata": {"name": "s", "annotations": {LAST_APPLIED: "{\"data\":{\"k\":\"aHVudGVy\"}}", "a": "b"}},
            "data": {"k": "aHVudGVy"},
            "stringData": {"l": "hunter"},
        });
        let redacted = redacted("", "Secret", &secret);
        let text = redacted.to_string();
        assert!(
            !text.contains("aHVudGVy") && !text.contains("hunter"),
            "{text}"
        );
        assert_eq!(redacted["data"], json!({"k": REDACTED}));
        assert_eq!(redacted["metadata"]["annotations"]["a"], "b");
    }

    #[test]
    fn keeps_no_data_that_is_not_a_map() {
        let odd = json!({"data": ["aHVudGVy"], "stringData": "hunter"});
        let text = redacted("", "Secret", &odd).to_string();
        assert!(
            !text.contains("aHVudGVy") && !text.contains("hunter"),
            "{text}"
        );
    }

    #[test]
    fn keeps_no_tokens() {
        let review = json!({"spec": {"token": "hunter", "audiences": ["a"]}});
        let redacted = redacted("authentication.k8s.io", "TokenReview", &review);
        assert_eq!(
            redacted["spec"],
            json!({"token": REDACTED, "audiences": ["a"]})
        );
    }

    #[test]
    fn borrows_everything_else() {
        let map = json!({"data": {"k": "v"}});
        assert!(matches!(redacted("", "ConfigMap", &map), Cow::Borrowed(_)));
        assert!(matches!(
            redacted("example.com", "Secret", &map),
            Cow::Borrowed(_)
        ));
    }
}
