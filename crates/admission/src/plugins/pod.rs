//! What plugins need to know about pods.

use lockgate_api::meta::status::Status;
use serde_json::Value;

use crate::decision::{Cause, Decision};
use crate::object::Object;
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

/// The pod of a request about pods. What is not shaped like one is refused: a list that cannot be
/// read would pass for an empty one.
pub(super) fn pod_of(request: &Request) -> Result<&Value, Decision> {
    let unreadable = |what: &str| {
        let message =
            format!("Resource was marked with kind Pod but was unable to be converted: {what}");
        Decision::deny(Status::bad_request(message), Cause::Plugin)
    };
    let pod = request.object.as_ref().map(Object::value);
    let pod = pod.ok_or_else(|| unreadable("no object"))?;
    let Some(spec) = pod.get("spec").filter(|spec| !spec.is_null()) else {
        return Ok(pod);
    };
    let spec = spec
        .as_object()
        .ok_or_else(|| unreadable("spec is no object"))?;
    for name in CONTAINER_LISTS
        .into_iter()
        .chain(["volumes", "tolerations"])
    {
        let is_list = spec.get(name).is_none_or(|list| match list {
            Value::Null => true,
            Value::Array(items) => items.iter().all(Value::is_object),
            _ => false,
        });
        if !is_list {
            return Err(unreadable(&format!("spec.{name} is no list of objects")));
        }
    }
    Ok(pod)
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
