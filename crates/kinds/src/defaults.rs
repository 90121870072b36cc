//! What the server fills in when it reads an object, before admission sees it.
//!
//! Objects come in normal form ([`Type::decode`](crate::typed::Type::decode)) and leave in it. Beside
//! the defaults proper this does what upstream's way through its internal version does: members that
//! say the same under two names agree, `stringData` becomes `data`, retired annotations go.
//!
//! Not here: what a strategy does on a write, what needs the clock
//! (`timeAdded` of device taints) or an allocator (cluster addresses).
//!
//! UPSTREAM: pkg/apis/*/{defaults.go,zz_generated.defaults.go,conversion.go}.

mod core;
mod image;
pub(crate) mod object;
mod others;
mod pod;
pub(crate) mod resources;
mod storage;
#[cfg(test)]
mod tests;
mod workload;

use serde_json::Value;

/// Fills in what a client left out. Kinds without defaults are left alone.
pub fn apply(group: &str, version: &str, kind: &str, value: &mut Value) {
    let Some(object) = value.as_object_mut() else {
        return;
    };
    match (group, kind) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(object, "template"),
        ("", "ReplicationController") => pod::replication_controller(object),
        ("", "Service") => core::service(object),
        ("", "Secret") => core::secret(object),
        ("", "Namespace") => core::namespace(object),
        ("", "Node") => storage::node(object),
        ("", "PersistentVolume") => storage::persistent_volume(object),
        ("", "PersistentVolumeClaim") => storage::persistent_volume_claim(object),
        ("", "Endpoints") => core::endpoints(object),
        ("", "LimitRange") => core::limit_range(object),
        ("", "ResourceQuota") => core::resource_quota(object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "DaemonSet") => workload::daemon_set(object),
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("apps", "ReplicaSet") => workload::replica_set(object),
        ("batch", "Job") => workload::job(object),
        ("batch", "CronJob") => workload::cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") if version == "v1" => {
            workload::autoscaler_v1(object);
        }
        ("autoscaling", "HorizontalPodAutoscaler") => workload::autoscaler_v2(object),
        ("networking.k8s.io", "NetworkPolicy") => others::network_policy(object),
        ("networking.k8s.io", "IngressClass") => others::ingress_class(object),
        ("discovery.k8s.io", "EndpointSlice") => others::endpoint_slice(object),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(object),
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver(object),
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            others::role_binding(object);
        }
        ("scheduling.k8s.io", "PriorityClass") => others::priority_class(object),
        ("authentication.k8s.io", "TokenRequest") => others::token_request(object),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => others::flow_schema(object),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            others::priority_level(object);
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            others::webhooks(object, version, false);
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            others::webhooks(object, version, true);
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy",
        ) => others::admission_policy(object),
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => others::admission_policy_binding(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            others::custom_resource_definition(object);
        }
        ("apiregistration.k8s.io", "APIService") => others::api_service(object),
        ("resource.k8s.io", "ResourceClaim") => others::resource_claim(object),
        ("resource.k8s.io", "ResourceClaimTemplate") => others::resource_claim_template(object),
        ("resource.k8s.io", "ResourceSlice") => others::resource_slice(object),
        _ => {}
    }
}
