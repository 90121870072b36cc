//! What the server refuses, in upstream's words and order.
//!
//! Metadata is checked in full for every kind. Beyond that the checks are those that people meet:
//! what is required, names, closed sets, what may not change. A kind that is not listed is checked by
//! its metadata alone.
//!
//! UPSTREAM: pkg/apis/*/validation/validation.go.

mod common;
mod core;
mod networking;
mod pod;
mod rbac;
mod workload;

use serde_json::Value;
use serde_json::map::Map;

use lockgate_api::field::{FieldErrors, Path};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::validation::{
    PATH_SEGMENT_NAMES, validate_metadata, validate_metadata_update,
};

use crate::resource::Resource;

use super::names::{check_label, name_rules};
pub(super) use common::{non_negative, wire};

/// What is wrong with an object that is created.
#[must_use]
pub fn validate_create(resource: &Resource, value: &Value) -> FieldErrors {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    let path = Path::root("metadata");
    let mut errors = validate_metadata(&metadata(resource, value), name_rules(resource), &path);
    match (resource.group, resource.plural) {
        ("", "pods") => pod::create(&mut errors, object),
        ("", "podtemplates") => pod::pod_template(&mut errors, object),
        ("apps", "deployments" | "replicasets") => {
            workload::replicas_of_template(&mut errors, object, resource.plural);
        }
        ("apps", "daemonsets") => workload::daemon_set(&mut errors, object),
        ("apps", "statefulsets") => workload::stateful_set(&mut errors, object, true),
        ("batch", "jobs") => workload::job(&mut errors, object),
        ("batch", "cronjobs") => workload::cron_job(&mut errors, object),
        ("", "replicationcontrollers") => workload::replication_controller(&mut errors, object),
        ("", "services") => core::service(&mut errors, object),
        ("", "namespaces") => core::namespace(&mut errors, object),
        ("", "persistentvolumeclaims") => core::persistent_volume_claim(&mut errors, object),
        ("", "configmaps") => core::config_map(&mut errors, object),
        ("", "secrets") => core::secret(&mut errors, object),
        ("networking.k8s.io", "ingresses") => networking::ingress(&mut errors, object),
        ("networking.k8s.io", "networkpolicies") => {
            networking::network_policy(&mut errors, object);
        }
        ("policy", "poddisruptionbudgets") => networking::disruption_budget(&mut errors, object),
        ("autoscaling", _) => networking::autoscaler(&mut errors, object, None),
        ("storage.k8s.io", "storageclasses") => core::storage_class(&mut errors, object),
        ("rbac.authorization.k8s.io", plural) => rbac::create(&mut errors, object, plural),
        _ => {}
    }
    if errors.is_empty() {
        // What every kind's name must be, after what this kind's must be.
        errors = validate_metadata(&metadata(resource, value), PATH_SEGMENT_NAMES, &path);
    }
    errors
}

/// What is wrong with an object that is updated, as a whole (`subresource` empty) or through a
/// subresource. The objects are prepared.
#[must_use]
pub fn validate_update(
    resource: &Resource,
    subresource: &str,
    value: &Value,
    old: &Value,
) -> FieldErrors {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    let old_object = old.as_object().unwrap_or(&empty);
    let path = Path::root("metadata");
    let (new_metadata, old_metadata) = (metadata(resource, value), metadata(resource, old));
    let mut errors = validate_metadata(&new_metadata, PATH_SEGMENT_NAMES, &path);
    errors.extend(validate_metadata_update(
        &new_metadata,
        &old_metadata,
        &path,
    ));
    // Every kind's own validation looks at the metadata once more.
    let again = validate_metadata_update(&new_metadata, &old_metadata, &path);
    if resource.group == "rbac.authorization.k8s.io" {
        rbac::create(&mut errors, object, resource.plural);
        errors.extend(again);
        rbac::update(&mut errors, object, old_object, resource.plural);
        return errors;
    }
    // Jobs and claims are checked like new ones first.
    let is_whole = subresource.is_empty();
    match (resource.group, resource.plural) {
        ("batch", "jobs") if is_whole => {
            errors.extend(validate_metadata(
                &new_metadata,
                name_rules(resource),
                &path,
            ));
            workload::job(&mut errors, object);
        }
        ("", "persistentvolumeclaims") if is_whole => {
            errors.extend(validate_metadata(
                &new_metadata,
                name_rules(resource),
                &path,
            ));
            core::persistent_volume_claim(&mut errors, object);
        }
        _ => {}
    }
    errors.extend(again);
    if !is_whole && subresource != "ephemeralcontainers" {
        return errors;
    }
    match (resource.group, resource.plural) {
        ("", "pods") if subresource == "ephemeralcontainers" => {
            pod::ephemeral_containers(&mut errors, object, old_object);
        }
        ("", "pods") => pod::update(&mut errors, object, old_object, &new_metadata),
        ("", "podtemplates") => pod::pod_template(&mut errors, object),
        ("apps", "deployments" | "replicasets") => {
            workload::replicas_of_template(&mut errors, object, resource.plural);
            common::immutable_selector(&mut errors, object, old_object);
        }
        ("apps", "daemonsets") => {
            common::immutable_selector(&mut errors, object, old_object);
            workload::daemon_set(&mut errors, object);
        }
        ("apps", "statefulsets") => {
            workload::stateful_set_update(&mut errors, object, old_object);
        }
        ("batch", "jobs") => {
            workload::job(&mut errors, object);
            workload::job_update(&mut errors, object, old_object);
        }
        ("batch", "cronjobs") => workload::cron_job(&mut errors, object),
        ("", "replicationcontrollers") => workload::replication_controller(&mut errors, object),
        ("", "services") => core::service(&mut errors, object),
        ("", "configmaps") => {
            core::config_map_update(&mut errors, object, old_object);
            core::config_map(&mut errors, object);
        }
        ("", "secrets") => {
            core::secret_update(&mut errors, object, old_object);
            core::secret(&mut errors, object);
        }
        ("networking.k8s.io", "ingresses") => networking::ingress(&mut errors, object),
        ("networking.k8s.io", "networkpolicies") => {
            networking::network_policy(&mut errors, object);
        }
        ("policy", "poddisruptionbudgets") => networking::disruption_budget(&mut errors, object),
        ("autoscaling", _) => {
            networking::autoscaler(&mut errors, object, Some(old_object));
        }
        ("storage.k8s.io", "storageclasses") => {
            core::storage_class(&mut errors, object);
            core::storage_class_update(&mut errors, object, old_object);
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            core::priority_class_update(&mut errors, object, old_object);
        }
        _ => {}
    }
    errors
}

/// What the client is warned of when it creates an object.
#[must_use]
pub fn warnings_on_create(resource: &Resource, value: &Value) -> Vec<String> {
    if (resource.group, resource.plural) != ("", "pods") {
        return Vec::new();
    }
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let messages = check_label(name);
    if messages.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in the Pod's hostname, which can result in surprising \
         behavior; a DNS label is recommended: [{}]",
        messages.join(" ")
    )]
}

/// The metadata in the form that is checked. Whether a namespace belongs there was decided before.
fn metadata(resource: &Resource, value: &Value) -> ObjectMeta {
    let mut metadata: ObjectMeta = value.get("metadata").map(wire).unwrap_or_default();
    if resource.namespaced {
        metadata.namespace.clear();
    }
    metadata
}
