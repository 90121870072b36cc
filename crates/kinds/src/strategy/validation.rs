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

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::map::Map;

use lockgate_api::field::{FieldErrors, Path};
use lockgate_api::meta::object::{ManagedFieldsEntry, ObjectMeta};
use lockgate_api::meta::time::Time;
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
    let metadata = metadata(resource, value);
    let mut errors = validate_metadata(&metadata, name_rules(resource), &path);
    errors.extend(check_finalizers(resource, &metadata, &path));
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
        // What every kind's name must be, after what this kind's must be. The rest is fine already.
        let names = ObjectMeta {
            name: metadata.name,
            generate_name: metadata.generate_name,
            ..ObjectMeta::default()
        };
        errors = validate_metadata(&names, PATH_SEGMENT_NAMES, &path);
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
    let mut again = validate_metadata_update(&new_metadata, &old_metadata, &path);
    again.extend(check_finalizers(resource, &new_metadata, &path));
    if resource.group == "rbac.authorization.k8s.io" {
        errors.extend(check_finalizers(resource, &new_metadata, &path));
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
            errors.extend(check_finalizers(resource, &new_metadata, &path));
            workload::job(&mut errors, object);
        }
        ("", "persistentvolumeclaims") if is_whole => {
            errors.extend(validate_metadata(
                &new_metadata,
                name_rules(resource),
                &path,
            ));
            errors.extend(check_finalizers(resource, &new_metadata, &path));
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

/// Finalizers without a domain are those that Kubernetes knows. Kinds whose own rules do not look at
/// the metadata, or look only as those of custom resources do, let others pass.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (validateKubeFinalizerName), and who calls it.
fn check_finalizers(resource: &Resource, metadata: &ObjectMeta, path: &Path<'_>) -> FieldErrors {
    let lenient = matches!(
        resource.group,
        "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "events.k8s.io"
            | "policy"
    ) || (resource.group, resource.plural) == ("", "events");
    let mut errors = FieldErrors::new();
    if lenient {
        return errors;
    }
    let path = path.child("finalizers");
    for (index, name) in metadata.finalizers.iter().flatten().enumerate() {
        core::check_finalizer_name(&mut errors, name, &path.index(index));
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
///
/// Every write comes here several times, so members are taken over one by one where that is all there
/// is to it, rather than written and read again.
fn metadata(resource: &Resource, value: &Value) -> ObjectMeta {
    let nothing = Map::new();
    let members = value
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&nothing);
    let text = |name: &str| {
        let text = members.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let texts = |name: &str| {
        let map = members.get(name)?.as_object()?;
        let entry =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        map.iter().map(entry).collect::<Option<BTreeMap<_, _>>>()
    };
    let number = |name: &str| members.get(name).and_then(Value::as_i64);
    let time = |name: &str| Time::parse(members.get(name)?.as_str()?).ok();
    let namespace = text("namespace");
    ObjectMeta {
        name: text("name"),
        generate_name: text("generateName"),
        namespace: if resource.namespaced {
            String::new()
        } else {
            namespace
        },
        self_link: text("selfLink"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        generation: number("generation").unwrap_or_default(),
        creation_timestamp: time("creationTimestamp"),
        deletion_timestamp: time("deletionTimestamp"),
        deletion_grace_period_seconds: number("deletionGracePeriodSeconds"),
        labels: texts("labels"),
        annotations: texts("annotations"),
        owner_references: (members.get("ownerReferences"))
            .and_then(Value::as_array)
            .map(|owners| owners.iter().map(wire).collect()),
        finalizers: (members.get("finalizers"))
            .and_then(Value::as_array)
            .map(|list| {
                list.iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect()
            }),
        managed_fields: (members.get("managedFields"))
            .and_then(Value::as_array)
            .map(|entries| entries.iter().map(managed_fields).collect()),
    }
}

/// An owner of fields, without the fields: nothing is asked of them here.
fn managed_fields(entry: &Value) -> ManagedFieldsEntry {
    let text = |name: &str| {
        let text = entry.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    ManagedFieldsEntry {
        manager: text("manager"),
        operation: text("operation"),
        api_version: text("apiVersion"),
        fields_type: text("fieldsType"),
        subresource: text("subresource"),
        ..ManagedFieldsEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::by_kind;

    #[test]
    fn metadata_is_what_reading_it_would_give() {
        let node = by_kind("", "v1", "Node").unwrap();
        let all = json!({"metadata": {
            "name": "a", "generateName": "g-", "namespace": "n", "selfLink": "/a", "uid": "u",
            "resourceVersion": "3", "generation": 4, "deletionGracePeriodSeconds": 30,
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
            "labels": {"k": "v"}, "annotations": {"k": "v", "l": ""}, "finalizers": ["f", "g"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}],
            "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "subresource": "status",
            }],
        }});
        for object in [
            all,
            json!({"metadata": {"creationTimestamp": null}}),
            json!({}),
        ] {
            let want: ObjectMeta = object.get("metadata").map(wire).unwrap_or_default();
            assert_eq!(metadata(node, &object), want);
        }
        let pod = by_kind("", "v1", "Pod").unwrap();
        let object = json!({"metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(metadata(pod, &object).namespace, "");
    }
}
