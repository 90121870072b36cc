//! The table itself.
//!
//! UPSTREAM: api/discovery/ for names and verbs, pkg/registry/*/strategy.go for the rules of
//! updates and generations.

use super::{Generation, Resource, Subresource};

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const CREATE: &[&str] = &["create"];
const CHANGE: &[&str] = &["get", "patch", "update"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const STREAM: &[&str] = &["create", "get"];
const SPEC: Generation = Generation::Members(&["spec"]);
const SCALE: Subresource = sub("scale", "autoscaling", "v1", "Scale", CHANGE);

#[rustfmt::skip]
pub(super) static RESOURCES: [Resource; 70] = [
    namespaced("", "v1", "bindings", "binding", "Binding", "BindingList").verbs(CREATE),
    cluster("", "v1", "componentstatuses", "componentstatus", "ComponentStatus", "ComponentStatusList").short(&["cs"]).verbs(&["get", "list"]),
    namespaced("", "v1", "configmaps", "configmap", "ConfigMap", "ConfigMapList").short(&["cm"]),
    namespaced("", "v1", "endpoints", "endpoints", "Endpoints", "EndpointsList").short(&["ep"]).create_on_update(),
    namespaced("", "v1", "events", "event", "Event", "EventList").short(&["ev"]).create_on_update(),
    namespaced("", "v1", "limitranges", "limitrange", "LimitRange", "LimitRangeList").short(&["limits"]).create_on_update(),
    cluster("", "v1", "namespaces", "namespace", "Namespace", "NamespaceList").short(&["ns"]).verbs(&["create", "delete", "get", "list", "patch", "update", "watch"]).subresources(&[sub("finalize", "", "v1", "Namespace", &["update"]), sub("status", "", "v1", "Namespace", CHANGE)]),
    cluster("", "v1", "nodes", "node", "Node", "NodeList").short(&["no"]).subresources(&[sub("proxy", "", "v1", "NodeProxyOptions", PROXY), sub("status", "", "v1", "Node", CHANGE)]),
    namespaced("", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", "PersistentVolumeClaimList").short(&["pvc"]).subresources(&[sub("status", "", "v1", "PersistentVolumeClaim", CHANGE)]),
    cluster("", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume", "PersistentVolumeList").short(&["pv"]).subresources(&[sub("status", "", "v1", "PersistentVolume", CHANGE)]),
    namespaced("", "v1", "pods", "pod", "Pod", "PodList").short(&["po"]).categories(&["all"]).subresources(&[sub("attach", "", "v1", "PodAttachOptions", STREAM), sub("binding", "", "v1", "Binding", CREATE), sub("ephemeralcontainers", "", "v1", "Pod", CHANGE), sub("eviction", "policy", "v1", "Eviction", CREATE), sub("exec", "", "v1", "PodExecOptions", STREAM), sub("log", "", "v1", "Pod", &["get"]), sub("portforward", "", "v1", "PodPortForwardOptions", STREAM), sub("proxy", "", "v1", "PodProxyOptions", PROXY), sub("resize", "", "v1", "Pod", CHANGE), sub("status", "", "v1", "Pod", CHANGE)]).generation(SPEC).graceful(),
    namespaced("", "v1", "podtemplates", "podtemplate", "PodTemplate", "PodTemplateList").generation(Generation::Members(&["template"])),
    namespaced("", "v1", "replicationcontrollers", "replicationcontroller", "ReplicationController", "ReplicationControllerList").short(&["rc"]).categories(&["all"]).subresources(&[SCALE, sub("status", "", "v1", "ReplicationController", CHANGE)]).generation(SPEC),
    namespaced("", "v1", "resourcequotas", "resourcequota", "ResourceQuota", "ResourceQuotaList").short(&["quota"]).subresources(&[sub("status", "", "v1", "ResourceQuota", CHANGE)]),
    namespaced("", "v1", "secrets", "secret", "Secret", "SecretList"),
    namespaced("", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount", "ServiceAccountList").short(&["sa"]).subresources(&[sub("token", "authentication.k8s.io", "v1", "TokenRequest", CREATE)]),
    namespaced("", "v1", "services", "service", "Service", "ServiceList").short(&["svc"]).categories(&["all"]).subresources(&[sub("proxy", "", "v1", "ServiceProxyOptions", PROXY), sub("status", "", "v1", "Service", CHANGE)]).create_on_update(),
    cluster("apiregistration.k8s.io", "v1", "apiservices", "apiservice", "APIService", "APIServiceList").categories(&["api-extensions"]).subresources(&[sub("status", "apiregistration.k8s.io", "v1", "APIService", CHANGE)]).conditional_update(),
    namespaced("apps", "v1", "controllerrevisions", "controllerrevision", "ControllerRevision", "ControllerRevisionList"),
    namespaced("apps", "v1", "daemonsets", "daemonset", "DaemonSet", "DaemonSetList").short(&["ds"]).categories(&["all"]).subresources(&[sub("status", "apps", "v1", "DaemonSet", CHANGE)]).generation(SPEC),
    namespaced("apps", "v1", "deployments", "deployment", "Deployment", "DeploymentList").short(&["deploy"]).categories(&["all"]).subresources(&[SCALE, sub("status", "apps", "v1", "Deployment", CHANGE)]).generation(Generation::Members(&["spec", "metadata.annotations"])),
    namespaced("apps", "v1", "replicasets", "replicaset", "ReplicaSet", "ReplicaSetList").short(&["rs"]).categories(&["all"]).subresources(&[SCALE, sub("status", "apps", "v1", "ReplicaSet", CHANGE)]).generation(SPEC),
    namespaced("apps", "v1", "statefulsets", "statefulset", "StatefulSet", "StatefulSetList").short(&["sts"]).categories(&["all"]).subresources(&[SCALE, sub("status", "apps", "v1", "StatefulSet", CHANGE)]).generation(SPEC),
    namespaced("events.k8s.io", "v1", "events", "event", "Event", "EventList").short(&["ev"]).stored_as("", "v1", "events").create_on_update(),
    cluster("authentication.k8s.io", "v1", "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", "SelfSubjectReviewList").verbs(CREATE),
    cluster("authentication.k8s.io", "v1", "tokenreviews", "tokenreview", "TokenReview", "TokenReviewList").verbs(CREATE),
    namespaced("authorization.k8s.io", "v1", "localsubjectaccessreviews", "localsubjectaccessreview", "LocalSubjectAccessReview", "LocalSubjectAccessReviewList").verbs(CREATE),
    cluster("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview", "SelfSubjectAccessReviewList").verbs(CREATE),
    cluster("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview", "SelfSubjectRulesReviewList").verbs(CREATE),
    cluster("authorization.k8s.io", "v1", "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview", "SubjectAccessReviewList").verbs(CREATE),
    namespaced("autoscaling", "v2", "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", "HorizontalPodAutoscalerList").short(&["hpa"]).categories(&["all"]).subresources(&[sub("status", "autoscaling", "v2", "HorizontalPodAutoscaler", CHANGE)]),
    namespaced("autoscaling", "v1", "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", "HorizontalPodAutoscalerList").short(&["hpa"]).categories(&["all"]).subresources(&[sub("status", "autoscaling", "v1", "HorizontalPodAutoscaler", CHANGE)]).stored_as("autoscaling", "v2", "horizontalpodautoscalers"),
    namespaced("batch", "v1", "cronjobs", "cronjob", "CronJob", "CronJobList").short(&["cj"]).categories(&["all"]).subresources(&[sub("status", "batch", "v1", "CronJob", CHANGE)]).generation(SPEC),
    namespaced("batch", "v1", "jobs", "job", "Job", "JobList").categories(&["all"]).subresources(&[sub("status", "batch", "v1", "Job", CHANGE)]).generation(SPEC),
    cluster("certificates.k8s.io", "v1", "certificatesigningrequests", "certificatesigningrequest", "CertificateSigningRequest", "CertificateSigningRequestList").short(&["csr"]).subresources(&[sub("approval", "certificates.k8s.io", "v1", "CertificateSigningRequest", CHANGE), sub("status", "certificates.k8s.io", "v1", "CertificateSigningRequest", CHANGE)]),
    cluster("networking.k8s.io", "v1", "ingressclasses", "ingressclass", "IngressClass", "IngressClassList").generation(SPEC),
    namespaced("networking.k8s.io", "v1", "ingresses", "ingress", "Ingress", "IngressList").short(&["ing"]).subresources(&[sub("status", "networking.k8s.io", "v1", "Ingress", CHANGE)]).generation(SPEC),
    cluster("networking.k8s.io", "v1", "ipaddresses", "ipaddress", "IPAddress", "IPAddressList").short(&["ip"]),
    namespaced("networking.k8s.io", "v1", "networkpolicies", "networkpolicy", "NetworkPolicy", "NetworkPolicyList").short(&["netpol"]).generation(SPEC),
    cluster("networking.k8s.io", "v1", "servicecidrs", "servicecidr", "ServiceCIDR", "ServiceCIDRList").subresources(&[sub("status", "networking.k8s.io", "v1", "ServiceCIDR", CHANGE)]),
    namespaced("policy", "v1", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget", "PodDisruptionBudgetList").short(&["pdb"]).subresources(&[sub("status", "policy", "v1", "PodDisruptionBudget", CHANGE)]).conditional_update().generation(SPEC),
    cluster("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", "ClusterRoleBindingList").create_on_update(),
    cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "clusterrole", "ClusterRole", "ClusterRoleList").create_on_update(),
    namespaced("rbac.authorization.k8s.io", "v1", "rolebindings", "rolebinding", "RoleBinding", "RoleBindingList").create_on_update(),
    namespaced("rbac.authorization.k8s.io", "v1", "roles", "role", "Role", "RoleList").create_on_update(),
    cluster("storage.k8s.io", "v1", "csidrivers", "csidriver", "CSIDriver", "CSIDriverList").conditional_update().generation(Generation::UpdateOnly(&["spec"])),
    cluster("storage.k8s.io", "v1", "csinodes", "csinode", "CSINode", "CSINodeList").conditional_update(),
    namespaced("storage.k8s.io", "v1", "csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity", "CSIStorageCapacityList").conditional_update(),
    cluster("storage.k8s.io", "v1", "storageclasses", "storageclass", "StorageClass", "StorageClassList").short(&["sc"]),
    cluster("storage.k8s.io", "v1", "volumeattachments", "volumeattachment", "VolumeAttachment", "VolumeAttachmentList").subresources(&[sub("status", "storage.k8s.io", "v1", "VolumeAttachment", CHANGE)]).conditional_update(),
    cluster("storage.k8s.io", "v1", "volumeattributesclasses", "volumeattributesclass", "VolumeAttributesClass", "VolumeAttributesClassList").short(&["vac"]),
    cluster("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "mutatingadmissionpolicy", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyList").categories(&["api-extensions"]).conditional_update().generation(SPEC),
    cluster("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding", "MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBindingList").categories(&["api-extensions"]).conditional_update().generation(SPEC),
    cluster("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration", "MutatingWebhookConfigurationList").categories(&["api-extensions"]).conditional_update().generation(Generation::Members(&["webhooks"])),
    cluster("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "validatingadmissionpolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyList").categories(&["api-extensions"]).subresources(&[sub("status", "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", CHANGE)]).conditional_update().generation(SPEC),
    cluster("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "validatingadmissionpolicybinding", "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBindingList").categories(&["api-extensions"]).conditional_update().generation(SPEC),
    cluster("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "validatingwebhookconfiguration", "ValidatingWebhookConfiguration", "ValidatingWebhookConfigurationList").categories(&["api-extensions"]).conditional_update().generation(Generation::Members(&["webhooks"])),
    cluster("admissionregistration.k8s.io", "v1beta1", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration", "MutatingWebhookConfigurationList").categories(&["api-extensions"]).stored_as("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations").conditional_update().generation(Generation::Members(&["webhooks"])),
    cluster("admissionregistration.k8s.io", "v1beta1", "validatingwebhookconfigurations", "validatingwebhookconfiguration", "ValidatingWebhookConfiguration", "ValidatingWebhookConfigurationList").categories(&["api-extensions"]).stored_as("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations").conditional_update().generation(Generation::Members(&["webhooks"])),
    cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition", "CustomResourceDefinitionList").short(&["crd", "crds"]).categories(&["api-extensions"]).subresources(&[sub("status", "apiextensions.k8s.io", "v1", "CustomResourceDefinition", CHANGE)]).conditional_update().generation(SPEC),
    cluster("scheduling.k8s.io", "v1", "priorityclasses", "priorityclass", "PriorityClass", "PriorityClassList").short(&["pc"]).generation(Generation::CreateOnly),
    namespaced("coordination.k8s.io", "v1", "leases", "lease", "Lease", "LeaseList").create_on_update().conditional_update(),
    cluster("node.k8s.io", "v1", "runtimeclasses", "runtimeclass", "RuntimeClass", "RuntimeClassList").create_on_update().conditional_update(),
    namespaced("discovery.k8s.io", "v1", "endpointslices", "endpointslice", "EndpointSlice", "EndpointSliceList").generation(Generation::Members(&["addressType", "endpoints", "ports", "metadata.labels"])),
    cluster("resource.k8s.io", "v1", "deviceclasses", "deviceclass", "DeviceClass", "DeviceClassList").generation(SPEC),
    namespaced("resource.k8s.io", "v1", "resourceclaims", "resourceclaim", "ResourceClaim", "ResourceClaimList").subresources(&[sub("status", "resource.k8s.io", "v1", "ResourceClaim", CHANGE)]),
    namespaced("resource.k8s.io", "v1", "resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate", "ResourceClaimTemplateList"),
    cluster("resource.k8s.io", "v1", "resourceslices", "resourceslice", "ResourceSlice", "ResourceSliceList").generation(SPEC),
    cluster("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "flowschema", "FlowSchema", "FlowSchemaList").subresources(&[sub("status", "flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", CHANGE)]).generation(SPEC),
    cluster("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "prioritylevelconfiguration", "PriorityLevelConfiguration", "PriorityLevelConfigurationList").subresources(&[sub("status", "flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration", CHANGE)]).generation(SPEC),
];

type Name = &'static str;
type Names = &'static [&'static str];

const fn cluster(
    group: Name,
    version: Name,
    plural: Name,
    singular: Name,
    kind: Name,
    list_kind: Name,
) -> Resource {
    Resource {
        group,
        version,
        plural,
        singular,
        kind,
        list_kind,
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: ALL,
        subresources: &[],
        storage: (group, version, plural),
        allow_create_on_update: false,
        allow_unconditional_update: true,
        generation: Generation::Untouched,
        graceful: false,
    }
}

const fn namespaced(
    group: Name,
    version: Name,
    plural: Name,
    singular: Name,
    kind: Name,
    list_kind: Name,
) -> Resource {
    Resource {
        namespaced: true,
        ..cluster(group, version, plural, singular, kind, list_kind)
    }
}

const fn sub(name: Name, group: Name, version: Name, kind: Name, verbs: Names) -> Subresource {
    Subresource {
        name,
        group,
        version,
        kind,
        verbs,
    }
}

impl Resource {
    const fn short(mut self, short_names: Names) -> Self {
        self.short_names = short_names;
        self
    }

    const fn categories(mut self, categories: Names) -> Self {
        self.categories = categories;
        self
    }

    const fn verbs(mut self, verbs: Names) -> Self {
        self.verbs = verbs;
        self
    }

    const fn subresources(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    const fn stored_as(mut self, group: Name, version: Name, plural: Name) -> Self {
        self.storage = (group, version, plural);
        self
    }

    const fn create_on_update(mut self) -> Self {
        self.allow_create_on_update = true;
        self
    }

    const fn conditional_update(mut self) -> Self {
        self.allow_unconditional_update = false;
        self
    }

    const fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    const fn graceful(mut self) -> Self {
        self.graceful = true;
        self
    }
}
