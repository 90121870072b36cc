//! What plugins need to know about pods.

use serde_json::Value;

use crate::request::Request;

/// The lists of containers in a pod's spec, in the order they are visited.
///
/// UPSTREAM: kubernetes pkg/apis/core/pods/helpers.go
pub(super) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// Whether a request is about pods themselves, not about a subresource of theirs.
pub(super) fn is_about_pods(request: &Request) -> bool {
    let resource = &request.resource;
    resource.group.is_empty() && resource.resource == "pods" && request.subresource.is_empty()
}

/// The items of a list in the spec.
pub(super) fn items<'v>(pod: &'v Value, list: &str) -> &'v [Value] {
    let list = pod.get("spec").and_then(|spec| spec.get(list));
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The same, to be changed.
pub(super) fn items_mut<'v>(pod: &'v mut Value, list: &str) -> &'v mut [Value] {
    let list = pod.get_mut("spec").and_then(|spec| spec.get_mut(list));
    match list.and_then(Value::as_array_mut) {
        Some(list) => list,
        None => &mut [],
    }
}

/// A text member; nothing when it is absent.
pub(super) fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
