//! What happens to an object between mutating admission and validation.

use serde_json::{Value, json};

use crate::defaults::object::{Object, at_mut, each, flag, get, get_mut, has, list, open, text};
use crate::equality::semantically_equal;
use crate::resource::{Generation, Resource};
use crate::typed::{Type, type_of};

use super::{Context, pod, service};

/// Prepares an object that is created; its metadata is complete.
pub fn prepare_create(resource: &Resource, value: &mut Value, context: &Context<'_>) {
    if matches!(
        resource.generation,
        Generation::CreateOnly | Generation::Members(_)
    ) && let Some(metadata) = value
        .as_object_mut()
        .and_then(|object| open(object, "metadata"))
    {
        metadata.insert("generation".to_owned(), Value::from(1));
    }
    reset_status(resource, value);
    if (resource.group, resource.plural) == ("", "pods") {
        return pod::prepare_create(value, context);
    }
    let Some(object) = value.as_object_mut() else {
        return;
    };
    match (resource.group, resource.plural) {
        ("", "namespaces") => namespace_finalizer(object),
        ("", "persistentvolumes") => {
            let now = context.now.to_string();
            let status = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
            object.insert("status".to_owned(), status);
        }
        ("", "persistentvolumeclaims") => data_sources(object, None),
        ("", "serviceaccounts") => secret_references(object),
        ("apps", "daemonsets") => {
            let generation = template_generation(object).max(1);
            set_template_generation(object, generation);
        }
        ("batch", "jobs") => job_selector(object),
        ("apiextensions.k8s.io", "customresourcedefinitions") => stored_version(object),
        ("certificates.k8s.io", "certificatesigningrequests") => requester(object, context),
        _ => {}
    }
}

/// Prepares an object that is updated, as a whole (`subresource` empty) or through a subresource.
/// Afterwards uid, creation time and deletion are those of the old object.
pub fn prepare_update(
    resource: &Resource,
    subresource: &str,
    value: &mut Value,
    old: &Value,
    context: &Context<'_>,
) {
    let (Some(object), Some(old_object)) = (value.as_object_mut(), old.as_object()) else {
        return;
    };
    if let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old_object, "metadata")) {
        take_over(metadata, old, "generation");
    }
    let bumps = match subresource {
        "" => {
            prepare_whole(resource, object, old_object);
            true
        }
        "status" => {
            prepare_status(resource, object, old_object, context);
            false
        }
        "approval" => {
            let conditions =
                at_mut(object, &["status"]).and_then(|status| status.remove("conditions"));
            take_over(object, old_object, "spec");
            take_over(object, old_object, "status");
            if let (Some(conditions), Some(status)) = (conditions, open(object, "status")) {
                status.insert("conditions".to_owned(), conditions);
            }
            condition_times(object, old_object, context);
            false
        }
        "finalize" => {
            take_over(object, old_object, "status");
            false
        }
        "ephemeralcontainers" => {
            pod::prepare_ephemeral_containers(object, old_object);
            true
        }
        "resize" => {
            pod::prepare_resize(object, old_object);
            true
        }
        _ => false,
    };
    if bumps {
        raise_generation(resource, value, old);
    }
    if let (Some(object), Some(old_object)) = (value.as_object_mut(), old.as_object()) {
        restore_metadata(object, old_object);
    }
}

/// What is set right after validation: a namespace carries its name, which may have been generated.
pub fn canonicalize(resource: &Resource, value: &mut Value) {
    if (resource.group, resource.plural) != ("", "namespaces") {
        return;
    }
    let Some(metadata) = value
        .as_object_mut()
        .and_then(|object| get_mut(object, "metadata"))
    else {
        return;
    };
    let name = text(metadata, "name").to_owned();
    if let Some(labels) = open(metadata, "labels") {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
}

/// Replaces a member by that of another object, absence included.
pub(super) fn take_over(object: &mut Object, from: &Object, key: &str) {
    match from.get(key) {
        Some(value) => {
            object.insert(key.to_owned(), value.clone());
        }
        None => {
            object.remove(key);
        }
    }
}

/// Metadata that a status update cannot change.
///
/// UPSTREAM: apimachinery pkg/apis/meta/v1/meta.go (ResetObjectMetaForStatus).
pub(super) fn reset_metadata(object: &mut Object, old: &Object) {
    if let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old, "metadata")) {
        for key in [
            "deletionTimestamp",
            "generation",
            "selfLink",
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
        ] {
            take_over(metadata, old, key);
        }
    }
}

/// Whether clients write `status` through a subresource of its own and nowhere else.
fn has_status(resource: &Resource) -> bool {
    resource.subresource("status").is_some()
}

fn type_of_resource(resource: &Resource) -> Option<Type> {
    type_of(resource.group, resource.version, resource.kind)
}

fn reset_status(resource: &Resource, value: &mut Value) {
    // A node reports its own status from the start.
    if !has_status(resource) || (resource.group, resource.plural) == ("", "nodes") {
        return;
    }
    let zero = type_of_resource(resource)
        .and_then(|ty| ty.field("status"))
        .map(|field| field.ty().zero());
    if let (Some(zero), Some(object)) = (zero, value.as_object_mut()) {
        if zero.is_null() {
            object.remove("status");
        } else {
            object.insert("status".to_owned(), zero);
        }
    }
    if (resource.group, resource.plural) == ("", "namespaces") {
        value["status"] = json!({"phase": "Active"});
    }
}

fn prepare_whole(resource: &Resource, object: &mut Object, old: &Object) {
    if has_status(resource) {
        take_over(object, old, "status");
    }
    match (resource.group, resource.plural) {
        ("", "namespaces") => {
            let finalizers = get(old, "spec")
                .and_then(|spec| spec.get("finalizers"))
                .cloned();
            if let Some(spec) = open(object, "spec") {
                spec.remove("finalizers");
                if let Some(finalizers) = finalizers {
                    spec.insert("finalizers".to_owned(), finalizers);
                }
            }
        }
        ("", "services") => service::drop_type_dependent(object, old),
        ("", "serviceaccounts") => secret_references(object),
        ("", "persistentvolumeclaims") => data_sources(object, Some(old)),
        ("apps", "daemonsets") => {
            let member = |object: &Object, key: &str| {
                get(object, "spec")
                    .and_then(|spec| spec.get(key))
                    .cloned()
                    .unwrap_or_default()
            };
            let changed = type_of("apps", "v1", "DaemonSet")
                .and_then(|ty| ty.field("spec")?.ty().field("template"))
                .is_some_and(|field| {
                    let (new, old) = (member(object, "template"), member(old, "template"));
                    !semantically_equal(field.ty(), &new, &old)
                });
            set_template_generation(object, template_generation(old) + i64::from(changed));
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => stored_version(object),
        ("certificates.k8s.io", "certificatesigningrequests") => take_over(object, old, "spec"),
        _ => {}
    }
}

fn prepare_status(resource: &Resource, object: &mut Object, old: &Object, context: &Context<'_>) {
    match (resource.group, resource.plural) {
        ("", "pods") => return pod::prepare_status_update(object, old),
        ("", "persistentvolumes") => phase_transition(object, old, context),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            condition_times(object, old, context);
        }
        ("apps", "deployments") => {
            if let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old, "metadata")) {
                take_over(metadata, old, "labels");
            }
        }
        ("flowcontrol.apiserver.k8s.io", _) => {
            let managed =
                at_mut(object, &["metadata"]).and_then(|meta| meta.remove("managedFields"));
            take_over(object, old, "metadata");
            if let (Some(managed), Some(metadata)) = (managed, open(object, "metadata")) {
                metadata.insert("managedFields".to_owned(), managed);
            }
        }
        (
            "admissionregistration.k8s.io"
            | "resource.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io",
            _,
        )
        | ("networking.k8s.io", "servicecidrs")
        | ("storage.k8s.io", "volumeattachments") => reset_metadata(object, old),
        _ => {}
    }
    take_over(object, old, "spec");
}

/// Raises the generation if a member that counts has changed.
fn raise_generation(resource: &Resource, value: &mut Value, old: &Value) {
    let (Generation::Members(members) | Generation::UpdateOnly(members)) = resource.generation
    else {
        return;
    };
    let changed = members.iter().any(|path| {
        let pointer = format!("/{}", path.replace('.', "/"));
        let find = |value: &Value| value.pointer(&pointer).cloned().unwrap_or_default();
        let ty = path
            .split('.')
            .try_fold(type_of_resource(resource), |ty, name| {
                Some(Some(ty?.field(name)?.ty()))
            });
        match ty.flatten() {
            Some(ty) => !semantically_equal(ty, &find(value), &find(old)),
            None => find(value) != find(old),
        }
    });
    if !changed {
        return;
    }
    let current = old
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    if let Some(metadata) = value
        .as_object_mut()
        .and_then(|object| open(object, "metadata"))
    {
        metadata.insert(
            "generation".to_owned(),
            Value::from(current.saturating_add(1)),
        );
    }
}

/// What an update can never change.
fn restore_metadata(object: &mut Object, old: &Object) {
    let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old, "metadata")) else {
        return;
    };
    if text(metadata, "uid").is_empty() {
        take_over(metadata, old, "uid");
    }
    if old.contains_key("creationTimestamp") {
        take_over(metadata, old, "creationTimestamp");
    }
    if old.contains_key("deletionTimestamp") {
        take_over(metadata, old, "deletionTimestamp");
    }
    if !metadata.contains_key("deletionGracePeriodSeconds") {
        take_over(metadata, old, "deletionGracePeriodSeconds");
    }
}

fn namespace_finalizer(object: &mut Object) {
    let Some(spec) = open(object, "spec") else {
        return;
    };
    let mut finalizers = list(spec, "finalizers").to_vec();
    if !finalizers.iter().any(|name| name == "kubernetes") {
        finalizers.push(Value::from("kubernetes"));
    }
    spec.insert("finalizers".to_owned(), Value::Array(finalizers));
}

/// The older and the newer way to name where data comes from say the same. The older one never took
/// anything but claims and snapshots, and still drops the rest.
fn data_sources(object: &mut Object, old: Option<&Object>) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    let was_used = old
        .and_then(|old| get(old, "spec"))
        .is_some_and(|old| has(old, "dataSource") || has(old, "dataSourceRef"));
    let is_foreign = get(spec, "dataSource").is_some_and(|source| {
        let pair = (text(source, "apiGroup"), text(source, "kind"));
        !matches!(
            pair,
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    });
    if is_foreign && !was_used && !has(spec, "dataSourceRef") {
        spec.remove("dataSource");
    }
    match (
        get(spec, "dataSource").cloned(),
        get(spec, "dataSourceRef").cloned(),
    ) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), Value::Object(source));
        }
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            let mut source = reference;
            source.remove("namespace");
            source.entry("apiGroup").or_insert(Value::Null);
            spec.insert("dataSource".to_owned(), Value::Object(source));
        }
        _ => {}
    }
}

/// Of a reference to a secret only the name is kept.
fn secret_references(object: &mut Object) {
    each(object, "secrets", |secret| {
        secret.retain(|key, _| key == "name")
    });
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Object) -> i64 {
    get(object, "metadata")
        .and_then(|metadata| get(metadata, "annotations"))
        .and_then(|annotations| text(annotations, TEMPLATE_GENERATION).parse().ok())
        .unwrap_or_default()
}

fn set_template_generation(object: &mut Object, generation: i64) {
    if let Some(metadata) = open(object, "metadata")
        && let Some(annotations) = open(metadata, "annotations")
    {
        annotations.insert(
            TEMPLATE_GENERATION.to_owned(),
            Value::from(generation.to_string()),
        );
    }
}

/// A job selects its pods by its own uid, unless the client wants to select by hand.
fn job_selector(object: &mut Object) {
    let metadata = |key| {
        get(object, "metadata")
            .map_or("", |metadata| text(metadata, key))
            .to_owned()
    };
    let (name, uid) = (metadata("name"), metadata("uid"));
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if flag(spec, "manualSelector") {
        return;
    }
    if let Some(template) = open(spec, "template")
        && let Some(metadata) = open(template, "metadata")
        && let Some(labels) = open(metadata, "labels")
    {
        for (label, value) in [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ] {
            labels
                .entry(label)
                .or_insert_with(|| Value::from(value.as_str()));
        }
    }
    if let Some(selector) = open(spec, "selector")
        && let Some(labels) = open(selector, "matchLabels")
    {
        labels
            .entry("batch.kubernetes.io/controller-uid")
            .or_insert_with(|| Value::from(uid));
    }
}

/// The version that is stored belongs to those that may be in storage.
fn stored_version(object: &mut Object) {
    let storage = get(object, "spec")
        .map_or(&[][..], |spec| list(spec, "versions"))
        .iter()
        .filter_map(Value::as_object)
        .find(|version| flag(version, "storage"))
        .map(|version| text(version, "name").to_owned());
    if let Some(name) = storage
        && let Some(status) = open(object, "status")
    {
        let mut stored = list(status, "storedVersions").to_vec();
        if !stored.iter().any(|known| known == name.as_str()) {
            stored.push(Value::from(name));
        }
        status.insert("storedVersions".to_owned(), Value::Array(stored));
    }
}

/// Who asks for a certificate is not for the client to say.
fn requester(object: &mut Object, context: &Context<'_>) {
    let Some(spec) = open(object, "spec") else {
        return;
    };
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    let who = context.requester;
    for (key, value) in [("username", who.name), ("uid", who.uid)] {
        if !value.is_empty() {
            spec.insert(key.to_owned(), Value::from(value));
        }
    }
    if !who.groups.is_empty() {
        spec.insert("groups".to_owned(), Value::from(who.groups));
    }
    if !who.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(who.extra));
    }
}

/// Notes when the phase of a volume changed, if the client did not.
fn phase_transition(object: &mut Object, old: &Object, context: &Context<'_>) {
    const TIME: &str = "lastPhaseTransitionTime";
    let old_status = get(old, "status").cloned().unwrap_or_default();
    let Some(status) = get_mut(object, "status") else {
        return;
    };
    let is_unset = !status.contains_key(TIME);
    if text(status, "phase") == text(&old_status, "phase") {
        if is_unset {
            take_over(status, &old_status, TIME);
        }
    } else if is_unset || status.get(TIME) == old_status.get(TIME) {
        status.insert(TIME.to_owned(), Value::from(context.now.to_string()));
    }
}

/// Conditions of a signing request say when they were updated and when they changed.
fn condition_times(object: &mut Object, old: &Object, context: &Context<'_>) {
    let known: Vec<(Value, Value)> = get(old, "status")
        .map_or(&[][..], |status| list(status, "conditions"))
        .iter()
        .map(|condition| (condition["type"].clone(), condition["status"].clone()))
        .collect();
    let now = Value::from(context.now.to_string());
    let is_unset = |condition: &Object, key: &str| condition.get(key).is_none_or(Value::is_null);
    if let Some(status) = get_mut(object, "status") {
        each(status, "conditions", |condition| {
            if is_unset(condition, "lastUpdateTime") {
                condition.insert("lastUpdateTime".to_owned(), now.clone());
            }
            let own = (condition.get("type"), condition.get("status"));
            let is_same = known
                .iter()
                .any(|(kind, status)| own == (Some(kind), Some(status)));
            if is_unset(condition, "lastTransitionTime") && !is_same {
                condition.insert("lastTransitionTime".to_owned(), now.clone());
            }
        });
    }
}
