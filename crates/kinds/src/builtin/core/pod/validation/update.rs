//! Validation of Pod updates, including subresources.

use lockgate_api::field::{FieldErrors, Path, Shown};
use serde_json::Value;

use super::security::empty_path;
use super::{APP_ARMOR, MIRROR, metadata_and_spec, pod_annotations, scheduling};
use crate::at::At;
use crate::checks::copy_field;
use crate::equality::semantically_equal;
use crate::object::{Object, get, list, number, text};
use crate::typed::{Form, Type, internal_diff, type_of};

const MUTABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";

/// Only images, deadlines, tolerations and scheduling gates are mutable.
pub(in super::super) fn update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    metadata_and_spec(errors, object, Some(old));
    annotation_updates(errors, object, old);
    let at = At::root(object, "spec");
    let old_at = At::root(old, "spec");
    for key in ["containers", "initContainers"] {
        let containers = at.at(key);
        if containers.len() != old_at.at(key).len() {
            return containers.forbidden(errors, "pod updates may not add or remove containers");
        }
        for container in containers.items() {
            let image = container.at("image");
            image.must_be_set(errors);
            if image.text().trim().len() != image.text().len() {
                image.invalid(errors, "must not have leading or trailing whitespace");
            }
        }
    }
    let (deadline, former) = (
        at.at("activeDeadlineSeconds"),
        old_at.at("activeDeadlineSeconds"),
    );
    if deadline.is_set() {
        if !(0..=i64::from(i32::MAX)).contains(&deadline.int()) {
            return deadline.within(errors, 0, i64::from(i32::MAX));
        }
        if former.is_set() && former.int() < deadline.int() {
            return deadline.invalid_int(errors, "must be less than or equal to previous value");
        }
    } else if former.is_set() {
        let detail = "must not update from a positive integer to nil value";
        deadline.invalid_or_null(errors, detail);
    }
    only_added_tolerations(errors, &at.at("tolerations"), &old_at.at("tolerations"));
    only_deleted_gates(errors, &at, &old_at);
    if let (Some(spec), Some(old_spec)) = (at.object(), old_at.object()) {
        fixed_members(errors, &at, spec, old_spec);
    }
}

fn spec_equals(one: &Object, other: &Object) -> bool {
    type_of("", "v1", "Pod")
        .and_then(|ty| ty.field("spec"))
        .is_some_and(|field| {
            let (one, other) = (Value::Object(one.clone()), Value::Object(other.clone()));
            semantically_equal(field.ty(), &one, &other)
        })
}

fn fixed_members(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &Object, old: &Object) {
    if spec_equals(spec, old) {
        return;
    }
    let mut munged = spec.clone();
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_field(&mut munged, old, key);
    }
    for key in ["containers", "initContainers"] {
        let images: Vec<Value> = list(old, key)
            .iter()
            .map(|old| old["image"].clone())
            .collect();
        let containers = munged.get_mut(key).and_then(Value::as_array_mut);
        for (container, image) in containers.into_iter().flatten().zip(images) {
            if !image.is_null() {
                container["image"] = image;
            }
        }
        // Upstream copies the list, and the copy of an empty list is nil.
        if list(&munged, key).is_empty() {
            munged.remove(key);
        }
    }
    const GRACE: &str = "terminationGracePeriodSeconds";
    if number(old, GRACE) < 0 && number(&munged, GRACE) == 1 {
        copy_field(&mut munged, old, GRACE);
    }
    if !list(old, "schedulingGates").is_empty() {
        gated_members(errors, at, &mut munged, old);
    }
    if !spec_equals(&munged, old) {
        let (munged, old) = (Value::Object(munged), Value::Object(old.clone()));
        let diff = internal_diff("PodSpec", &old, &munged);
        at.forbidden(errors, format!("{MUTABLE}{diff}"));
    }
}

/// Node affinity and node selectors of gated Pods can be narrowed.
fn gated_members(errors: &mut FieldErrors, at: &At<'_, '_>, munged: &mut Object, old: &Object) {
    let empty = Object::new();
    let selector = get(munged, "nodeSelector").unwrap_or(&empty);
    let former = get(old, "nodeSelector").unwrap_or(&empty);
    if selector != former {
        if former
            .iter()
            .any(|(key, value)| selector.get(key) != Some(value))
        {
            at.at("nodeSelector").invalid_or_null(
                errors,
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        copy_field(munged, old, "nodeSelector");
    }
    let nodes = |spec: &Object| {
        let affinity = get(spec, "affinity");
        affinity
            .and_then(|affinity| affinity.get("nodeAffinity"))
            .cloned()
    };
    let (new, former) = (nodes(munged), nodes(old));
    if new == former {
        return;
    }
    only_added_terms(errors, at, former.as_ref());
    let Some(Value::Object(affinity)) = munged.get_mut("affinity") else {
        if let Some(former) = former {
            munged.insert(
                "affinity".to_owned(),
                serde_json::json!({ "nodeAffinity": former }),
            );
        }
        return;
    };
    match former {
        Some(former) => {
            affinity.insert("nodeAffinity".to_owned(), former);
        }
        None => {
            affinity.remove("nodeAffinity");
        }
    }
    if affinity.is_empty() && get(old, "affinity").is_none() {
        munged.remove("affinity");
    }
}

fn only_added_terms(errors: &mut FieldErrors, at: &At<'_, '_>, former: Option<&Value>) {
    const TERMS: &str = "/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let Some(old_terms) = former
        .and_then(|former| former.pointer(TERMS))
        .and_then(Value::as_array)
        .filter(|terms| !terms.is_empty())
    else {
        return;
    };
    let affinity = at.at("affinity");
    let nodes = affinity.at("nodeAffinity");
    let required = nodes.at("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.at("nodeSelectorTerms");
    if terms.len() != old_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return terms.invalid_or_null(errors, detail);
    }
    for (term, old) in terms.items().zip(old_terms) {
        let parts = ["matchExpressions", "matchFields"];
        let old_part = |key: &str| {
            let part = old.get(key).and_then(Value::as_array);
            part.map_or(&[][..], Vec::as_slice)
        };
        let was_empty = parts.iter().all(|key| old_part(key).is_empty());
        let only_added = if was_empty {
            parts.iter().all(|key| term.at(key).is_empty())
        } else {
            parts
                .iter()
                .all(|key| term.at(key).list().starts_with(old_part(key)))
        };
        if !only_added {
            let detail = "only additions are allowed (no mutations or deletions)";
            term.invalid(errors, detail);
        }
    }
}

fn only_added_tolerations(errors: &mut FieldErrors, at: &At<'_, '_>, old: &At<'_, '_>) {
    let bare = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(members) = toleration.as_object_mut() {
            members.remove("tolerationSeconds");
        }
        toleration
    };
    let kept = |old: &Value| at.list().iter().any(|new| bare(new) == bare(old));
    if old.list().iter().all(kept) {
        scheduling::tolerations(errors, at, None);
    } else {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        at.forbidden(errors, detail);
    }
}

fn only_deleted_gates(errors: &mut FieldErrors, at: &At<'_, '_>, old: &At<'_, '_>) {
    let former = old.at("schedulingGates");
    for gate in at.at("schedulingGates").items() {
        let name = gate.at("name");
        if !former
            .items()
            .any(|old| old.at("name").text() == name.text())
        {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            );
            name.forbidden(errors, detail);
        }
    }
}

fn annotations_of(object: &Object) -> Option<&Value> {
    get(object, "metadata").and_then(|metadata| metadata.get("annotations"))
}

/// Rejects changes of immutable annotations.
pub(super) fn annotation_updates(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let path = Path::root("metadata");
    let at = At::new(path.child("annotations"), annotations_of(object));
    let former = At::new(path.child("annotations"), annotations_of(old));
    for (key, value) in former.entries() {
        if at.entry(key).value == value.value {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            value.forbidden(errors, "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            value.forbidden(errors, "may not remove or update mirror pod annotation");
        }
    }
    for (key, value) in at.entries() {
        if former.entry(key).is_set() {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            value.forbidden(errors, "may not add AppArmor annotations");
        }
        if key == MIRROR {
            value.forbidden(errors, "may not add mirror pod annotation");
        }
    }
    pod_annotations(errors, &at, &At::root(object, "spec"), Some(old));
}

fn is_mirror(object: &Object) -> bool {
    annotations_of(object).is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

/// Ephemeral containers can be added, but not changed.
pub(in super::super) fn ephemeral_containers(
    errors: &mut FieldErrors,
    object: &Object,
    old: &Object,
) {
    metadata_and_spec(errors, object, Some(old));
    annotation_updates(errors, object, old);
    if is_mirror(old) {
        errors.clear();
        let detail = "static pods do not support ephemeral containers";
        return empty_path().forbidden(errors, detail);
    }
    let spec = At::root(object, "spec");
    let at = spec.at("ephemeralContainers");
    let empty = Object::new();
    let old_spec = get(old, "spec").unwrap_or(&empty);
    for former in list(old_spec, "ephemeralContainers") {
        let name = former["name"].as_str().unwrap_or_default();
        let new = at
            .list()
            .iter()
            .rfind(|container| container["name"] == name);
        let verb = match new {
            None => "removed",
            Some(new) if new != former => "changed",
            Some(_) => continue,
        };
        let quoted = lockgate_go::quote::quote(name);
        let detail = format!("existing ephemeral containers {quoted} may not be {verb}\n");
        at.forbidden(errors, detail);
    }
}

/// Validates an in-place resize of containers.
pub(in super::super) fn resize(errors: &mut FieldErrors, object: &Object, old: &Object) {
    metadata_and_spec(errors, object, Some(old));
    let empty = Object::new();
    let old_spec = get(old, "spec").unwrap_or(&empty);
    let is_windows = get(old_spec, "os").is_some_and(|os| text(os, "name") == "windows");
    if is_mirror(old) || is_windows {
        errors.clear();
        let detail = if is_mirror(old) {
            "static pods cannot be resized"
        } else {
            "windows pods cannot be resized"
        };
        return empty_path().forbidden(errors, detail);
    }
    let at = At::root(object, "spec");
    let class = super::super::quality_of_service(&Value::Object(object.clone()));
    let former = match get(old, "status").map_or("", |status| text(status, "qosClass")) {
        "" => super::super::quality_of_service(&Value::Object(old.clone())),
        class => class,
    };
    if class != former {
        let own = get(object, "status").map_or("", |status| text(status, "qosClass"));
        at.invalid_as(
            errors,
            Shown::Named(own),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    if !supports_resize(old) {
        at.forbidden(errors, "Pod running on node without support for resize");
    }
    let mut masked = get(object, "spec").cloned().unwrap_or_default();
    pod_level_resize(errors, &at, old_spec, &mut masked);
    let claims = get(old, "status").map_or(&[][..], |status| {
        list(status, "nodeAllocatableResourceClaimStatuses")
    });
    if !claims.is_empty() {
        let detail = "pods with node allocatable resource claims cannot be resized";
        at.forbidden(errors, detail);
    }
    if !same_containers(errors, &at, old_spec) {
        return;
    }
    for key in ["initContainers", "containers"] {
        for (container, former) in at.at(key).items().zip(list(old_spec, key)) {
            let resources = container.at("resources");
            for what in ["requests", "limits"] {
                if removes(&resources.at(what), former["resources"].get(what)) {
                    let detail = format!("resource {what} cannot be removed");
                    resources.at(what).forbidden(errors, detail);
                }
            }
        }
    }
    let container_type = spec_type().and_then(|spec| match spec.field("containers")?.ty().form() {
        Form::List(element) => Some(element),
        _ => None,
    });
    let same = |new: &Value, old: &Value| {
        container_type.is_none_or(|container| semantically_equal(container, new, old))
    };
    for key in ["containers", "initContainers"] {
        let containers = at.at(key);
        let mut kept = Vec::new();
        for (container, former) in containers.items().zip(list(old_spec, key)) {
            let new = container.value.cloned().unwrap_or_default();
            let mut rest = new.clone();
            let resources = without_resizable(&new["resources"], &former["resources"]);
            rest["resources"] = resources;
            let is_init = key == "initContainers";
            if !same(&rest, former) {
                if is_init {
                    let detail =
                        "only cpu and memory resources for init or sidecar containers are mutable";
                    container.forbidden(errors, detail);
                } else {
                    at.forbidden(errors, "only cpu and memory resources are mutable");
                }
            }
            if is_init && new["restartPolicy"] != "Always" && !same(&new, former) {
                let policies = container.at("resizePolicy");
                for policy in policies.items() {
                    if policy.at("restartPolicy").text() == "RestartContainer" {
                        let detail = "non-sidecar init containers with a resize policy of \
                                      RestartContainer cannot be resized";
                        container.forbidden(errors, detail);
                    }
                }
            }
            kept.push(rest);
        }
        if !kept.is_empty() {
            masked.insert(key.to_owned(), Value::Array(kept));
        }
    }
    let is_same = spec_type().is_none_or(|spec| {
        let (masked, old) = (Value::Object(masked), Value::Object(old_spec.clone()));
        semantically_equal(spec, &masked, &old)
    });
    if errors.is_empty() && !is_same {
        at.forbidden(errors, "only cpu and memory resources are mutable");
    }
}

fn spec_type() -> Option<Type> {
    let pod = type_of("", "v1", "Pod")?;
    Some(pod.field("spec")?.ty())
}

/// A node supports resize if it reports the resources of running containers; without any, it is assumed to.
fn supports_resize(pod: &Object) -> bool {
    let statuses = get(pod, "status").map_or(&[][..], |status| list(status, "containerStatuses"));
    let running = statuses
        .iter()
        .find(|status| status["state"]["running"].is_object());
    running.is_none_or(|status| status["resources"].is_object())
}

/// Returns true if a resource was removed.
fn removes(new: &At<'_, '_>, old: Option<&Value>) -> bool {
    let old = old.and_then(Value::as_object);
    old.is_some_and(|old| old.keys().any(|name| !new.entry(name).is_set()))
}

/// The resources with the old CPU and memory, and without claims.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (dropCPUMemoryResourcesFromContainer)
fn without_resizable(new: &Value, old: &Value) -> Value {
    let mut kept = Object::new();
    for what in ["limits", "requests"] {
        let mut amounts = new[what].as_object().cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            amounts.remove(name);
            if let Some(amount) = old[what].get(name) {
                amounts.insert(name.to_owned(), amount.clone());
            }
        }
        kept.insert(what.to_owned(), Value::Object(amounts));
    }
    Value::Object(kept)
}

/// Validates a resize of pod-level resources: CPU and memory are mutable. Sets them in `masked` to the old values.
fn pod_level_resize(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    old_spec: &Object,
    masked: &mut Object,
) {
    let new = at.at("resources");
    let old = old_spec.get("resources").filter(|old| old.is_object());
    let is_set = |resources: Option<&Value>| {
        ["requests", "limits"].iter().any(|what| {
            let amounts = resources.and_then(|resources| resources.get(what)?.as_object());
            amounts.is_some_and(|amounts| !amounts.is_empty())
        })
    };
    if !is_set(old) && !is_set(new.value) {
        return;
    }
    let Some(value) = new.value else {
        return new.forbidden(errors, "pod-level resources cannot be removed");
    };
    for what in ["requests", "limits"] {
        if removes(&new.at(what), old.and_then(|old| old.get(what))) {
            let detail = format!("pod-level resource {what} cannot be removed");
            new.at(what).forbidden(errors, detail);
        }
    }
    let mut rest = without_resizable(value, old.unwrap_or(&Value::Null));
    if let Some(claims) = value.get("claims") {
        rest["claims"] = claims.clone();
    }
    let ty = spec_type().and_then(|spec| Some(spec.field("resources")?.ty().target()));
    let empty = Value::Object(Object::new());
    let is_same = ty.is_none_or(|ty| semantically_equal(ty, &rest, old.unwrap_or(&empty)));
    if !is_same {
        at.forbidden(
            errors,
            "only cpu and memory resources are mutable at pod-level",
        );
    }
    masked.remove("resources");
    if old.is_some() || !is_same {
        masked.insert("resources".to_owned(), rest);
    }
}

/// Containers must not be added, removed, renamed or reordered.
fn same_containers(errors: &mut FieldErrors, at: &At<'_, '_>, old_spec: &Object) -> bool {
    let before = errors.len();
    for key in ["containers", "initContainers"] {
        let containers = at.at(key);
        let former = list(old_spec, key);
        if containers.len() != former.len() {
            let detail = format!("{key} may not be added or removed on resize");
            containers.forbidden(errors, detail);
            continue;
        }
        for (container, former) in containers.items().zip(former) {
            if container.at("name").text() != former["name"].as_str().unwrap_or_default() {
                let detail = format!("{key} may not be renamed or reordered on resize");
                container.at("name").forbidden(errors, detail);
            }
        }
    }
    errors.len() == before
}
