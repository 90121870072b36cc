//! Fields of feature gates that are disabled by default. They are dropped unless the old object uses them.
//!
//! UPSTREAM: pkg/api/pod/util.go (dropDisabledFields)

use serde_json::Value;

use crate::object::{Object, each, get, get_mut, list};

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Drops disabled fields from a Pod.
pub(super) fn drop_from_pod(pod: &mut Object, old: Option<&Object>) {
    let old = old.and_then(|old| get(old, "spec"));
    if let Some(spec) = get_mut(pod, "spec") {
        drop_from_spec(spec, old);
    }
}

/// Drops disabled fields from the Pod template at this path.
pub(in crate::builtin) fn drop_from_template(
    object: &mut Object,
    old: Option<&Object>,
    path: &[&str],
) {
    let mut target = Some(object);
    let mut former = old;
    for key in path.iter().chain(&["spec"]) {
        target = target.and_then(|object| get_mut(object, key));
        former = former.and_then(|object| get(object, key));
    }
    if let Some(spec) = target {
        drop_from_spec(spec, former);
    }
}

fn drop_from_spec(spec: &mut Object, old: Option<&Object>) {
    let used = |old: &Object, pointer: &str| {
        CONTAINER_LISTS
            .iter()
            .flat_map(|key| list(old, key))
            .any(|container| container.pointer(pointer).is_some())
    };
    // ContainerStopSignals
    if !old.is_some_and(|old| used(old, "/lifecycle/stopSignal")) {
        for key in CONTAINER_LISTS {
            each(spec, key, |container| {
                let Some(lifecycle) = get_mut(container, "lifecycle") else {
                    return;
                };
                if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                    container.remove("lifecycle");
                }
            });
        }
    }
    // ClusterTrustBundleProjection, PodCertificateRequest
    for projection in ["clusterTrustBundle", "podCertificate"] {
        let is_used = old.is_some_and(|old| {
            list(old, "volumes")
                .iter()
                .filter_map(|volume| volume.pointer("/projected/sources")?.as_array())
                .flatten()
                .any(|source| source.get(projection).is_some_and(Value::is_object))
        });
        if !is_used {
            each(spec, "volumes", |volume| {
                if let Some(projected) = get_mut(volume, "projected") {
                    each(projected, "sources", |source| {
                        source.remove(projection);
                    });
                }
            });
        }
    }
    // GenericWorkload
    if old.is_none_or(|old| get(old, "schedulingGroup").is_none()) {
        spec.remove("schedulingGroup");
    }
}
