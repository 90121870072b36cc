//! Applying the patch of an answer.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go

use lockgate_api::admission::GroupVersionKind;
use lockgate_api::admission::answer::Answer;
use lockgate_go::quote::quote;

use super::denial::denial;
use super::round_trip::Failure;
use crate::host::Kinds;
use crate::json_patch::Patch;
use crate::object::Object;
use crate::trace::PatchTrace;

/// Applies the patch, if there is one. What does not apply is the server's error, not the
/// webhook's: the failure policy does not apply.
pub(super) fn apply(
    webhook: &str,
    answer: &Answer,
    object: Option<&Object>,
    kind: &GroupVersionKind,
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
    let patched = patch
        .apply(object.value())
        .map_err(|error| Failure::internal(&error.to_string()))?;
    let mut patched = kinds
        .decode(patched, kind)
        .map_err(|error| Failure::internal(&error.to_string()))?;
    // Compared before defaults are filled in again: dropping a defaulted member is a change.
    let changed = !kinds.semantically_equal(kind, object.value(), &patched);
    kinds.apply_defaults(&mut patched, kind);
    let trace = PatchTrace {
        text: patch.to_json(),
        changed,
    };
    Ok(Some((Object::new(patched), trace)))
}
