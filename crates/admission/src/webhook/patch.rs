//! Applies the patch of a response.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go

use lockgate_api::admission::response::AdmissionDecision;
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_go::quote::quote;
use serde_json::{Number, Value};

use super::denial::denial;
use super::round_trip::Failure;
use crate::host::Kinds;
use crate::json_patch::Patch;
use crate::object::Object;
use crate::trace::PatchTrace;

/// Applies the patch, if any. A patch that cannot be applied is a server error, not the webhook's: the failure policy
/// does not apply.
pub(super) fn apply(
    webhook: &str,
    answer: &AdmissionDecision,
    object: Option<&Object>,
    (kind, resource): (&GroupVersionKind, &GroupVersionResource),
    kinds: &dyn Kinds,
) -> Result<Option<(Object, PatchTrace)>, Failure> {
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let patch = Patch::parse(&answer.patch).map_err(|error| {
        let reason = format!("received undecodable patch in webhook response: {error}");
        Failure::call(reason, 503)
    })?;
    if patch.is_empty() {
        return Ok(None);
    }
    let Some(object) = object else {
        return Err(Failure::internal(&format!(
            "admission webhook {} attempted to modify the object, which is not supported for this \
             operation",
            quote(webhook)
        )));
    };
    if answer.patch_type != "JSONPatch" {
        let code = denial(webhook, answer.status.clone()).code;
        let kind = quote(&answer.patch_type);
        return Err(Failure::call(
            format!("unsupported patch type {kind}"),
            code,
        ));
    }
    // The patch is applied to the JSON text of the object. Without a schema the type of a number depends on its
    // notation.
    let written = match kinds.is_built_in(kind) {
        true => None,
        false => rewritten_numbers(object.value()),
    };
    let patched = patch
        .apply(written.as_ref().unwrap_or_else(|| object.value()))
        .map_err(|error| Failure::internal(&error.to_string()))?;
    // The type is part of the object, and is set when it is decoded.
    let says_type = |value: &Value, member: &str| value.get(member).is_some_and(Value::is_string);
    let loses_type = ["apiVersion", "kind"]
        .iter()
        .any(|member| says_type(object.value(), member) && !says_type(&patched, member));
    let decoded = match kinds.is_read_untyped(resource, kind) {
        true => kinds.decode_untyped(patched),
        false => kinds.decode(patched, kind),
    };
    let mut patched = decoded.map_err(|error| Failure::internal(&error.to_string()))?;
    // Compared before defaults are applied again: dropping a defaulted field is a change.
    let changed = loses_type || !kinds.semantically_equal(kind, object.value(), &patched);
    let unwritten = kinds.complete(&mut patched, kind);
    let trace = PatchTrace {
        text: patch.to_json(),
        changed,
    };
    let patched = Object::with_unwritten(patched, unwritten);
    Ok(Some((patched, trace)))
}

/// The object with its floats as they are decoded after Go has encoded them: an integral one is written without a
/// decimal point, and decoded as an integer if it fits. `None` if there are none.
fn rewritten_numbers(value: &Value) -> Option<Value> {
    const LEAST_WITH_EXPONENT: f64 = 1e21;
    fn integer(number: &Number) -> Option<i64> {
        let double = number.as_f64().filter(|_| number.is_f64())?;
        let is_whole = double.fract() == 0.0 && double.abs() < LEAST_WITH_EXPONENT;
        // The encoding of an integral float has no exponent, so it is an integer if it is in range.
        is_whole
            .then(|| format!("{double:.0}").parse().ok())
            .flatten()
    }
    let mut rest = vec![value];
    let mut is_affected = false;
    while let Some(value) = rest.pop() {
        match value {
            Value::Number(number) => is_affected |= integer(number).is_some(),
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => rest.extend(members.values()),
            _ => {}
        }
    }
    if !is_affected {
        return None;
    }
    let mut object = value.clone();
    let mut rest = vec![&mut object];
    while let Some(value) = rest.pop() {
        match value {
            Value::Number(number) => {
                if let Some(integer) = integer(number) {
                    *value = integer.into();
                }
            }
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => rest.extend(members.values_mut()),
            _ => {}
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_doubles_are_integers_when_they_are_read_again() {
        let object = json!({"a": [1.0, -0.0, 1.5, 2, 1e19, 1e22], "b": "1.0"});
        let again = json!({"a": [1, 0, 1.5, 2, 1e19, 1e22], "b": "1.0"});
        assert_eq!(rewritten_numbers(&object), Some(again));
        assert_eq!(rewritten_numbers(&json!({"a": [1, 1.5]})), None);
    }
}
