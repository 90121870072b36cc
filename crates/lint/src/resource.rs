//! Built-in resources.

/// A built-in resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    /// The served versions, the preferred version first.
    pub(crate) versions: &'static [&'static str],
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) subresources: &'static [&'static str],
}

impl Resource {
    /// `deployments.apps`, as kubectl writes it.
    pub(crate) fn qualified(&self) -> String {
        qualified(self.group, self.plural)
    }
}

/// `deployments.apps`, or the plural alone in the core group.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// The built-in resource of this group and plural.
pub(crate) fn find(group: &str, plural: &str) -> Option<&'static Resource> {
    BUILTIN
        .iter()
        .find(|resource| resource.group == group && resource.plural == plural)
}

/// Returns true for a group that every cluster serves.
pub(crate) fn is_builtin_group(group: &str) -> bool {
    BUILTIN.iter().any(|resource| resource.group == group)
}

/// Groups that v1.36 no longer serves, with the groups their resources moved to.
pub(crate) const REMOVED_GROUPS: &[(&str, &str)] =
    &[("extensions", "apps, networking.k8s.io or policy")];

const fn entry(
    group: &'static str,
    versions: &'static [&'static str],
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    subresources: &'static [&'static str],
) -> Resource {
    Resource {
        group,
        versions,
        plural,
        kind,
        namespaced,
        subresources,
    }
}

const V1: &[&str] = &["v1"];
const STATUS: &[&str] = &["status"];
const SCALED: &[&str] = &["scale", "status"];
const PROXIED: &[&str] = &["proxy", "status"];
const POD: &[&str] = &[
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
    "resize",
    "status",
];
const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";
const AUTHN: &str = "authentication.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const REGISTRATION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";

/// UPSTREAM: the discovery of kube-apiserver v1.36, stable groups.
pub(crate) static BUILTIN: &[Resource] = &[
    entry("", V1, "bindings", "Binding", true, &[]),
    entry("", V1, "configmaps", "ConfigMap", true, &[]),
    entry("", V1, "endpoints", "Endpoints", true, &[]),
    entry("", V1, "events", "Event", true, &[]),
    entry("", V1, "limitranges", "LimitRange", true, &[]),
    entry(
        "",
        V1,
        "namespaces",
        "Namespace",
        false,
        &["finalize", "status"],
    ),
    entry("", V1, "nodes", "Node", false, PROXIED),
    entry(
        "",
        V1,
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        true,
        STATUS,
    ),
    entry(
        "",
        V1,
        "persistentvolumes",
        "PersistentVolume",
        false,
        STATUS,
    ),
    entry("", V1, "pods", "Pod", true, POD),
    entry("", V1, "podtemplates", "PodTemplate", true, &[]),
    entry(
        "",
        V1,
        "replicationcontrollers",
        "ReplicationController",
        true,
        SCALED,
    ),
    entry("", V1, "resourcequotas", "ResourceQuota", true, STATUS),
    entry("", V1, "secrets", "Secret", true, &[]),
    entry(
        "",
        V1,
        "serviceaccounts",
        "ServiceAccount",
        true,
        &["token"],
    ),
    entry("", V1, "services", "Service", true, PROXIED),
    entry(
        REGISTRATION,
        V1,
        "mutatingadmissionpolicies",
        "MutatingAdmissionPolicy",
        false,
        &[],
    ),
    entry(
        REGISTRATION,
        V1,
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        false,
        &[],
    ),
    entry(
        REGISTRATION,
        V1,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        false,
        &[],
    ),
    entry(
        REGISTRATION,
        V1,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        false,
        STATUS,
    ),
    entry(
        REGISTRATION,
        V1,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        false,
        &[],
    ),
    entry(
        REGISTRATION,
        V1,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        false,
        &[],
    ),
    entry(
        "apiextensions.k8s.io",
        V1,
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
        STATUS,
    ),
    entry(
        "apiregistration.k8s.io",
        V1,
        "apiservices",
        "APIService",
        false,
        STATUS,
    ),
    entry(
        "apps",
        V1,
        "controllerrevisions",
        "ControllerRevision",
        true,
        &[],
    ),
    entry("apps", V1, "daemonsets", "DaemonSet", true, STATUS),
    entry("apps", V1, "deployments", "Deployment", true, SCALED),
    entry("apps", V1, "replicasets", "ReplicaSet", true, SCALED),
    entry("apps", V1, "statefulsets", "StatefulSet", true, SCALED),
    entry(
        AUTHN,
        V1,
        "selfsubjectreviews",
        "SelfSubjectReview",
        false,
        &[],
    ),
    entry(AUTHN, V1, "tokenreviews", "TokenReview", false, &[]),
    entry(
        AUTHZ,
        V1,
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
        &[],
    ),
    entry(
        AUTHZ,
        V1,
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
        &[],
    ),
    entry(
        AUTHZ,
        V1,
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
        &[],
    ),
    entry(
        AUTHZ,
        V1,
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
        &[],
    ),
    entry(
        "autoscaling",
        &["v2", "v1"],
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        true,
        STATUS,
    ),
    entry("batch", V1, "cronjobs", "CronJob", true, STATUS),
    entry("batch", V1, "jobs", "Job", true, STATUS),
    entry(
        CERTIFICATES,
        V1,
        "certificatesigningrequests",
        "CertificateSigningRequest",
        false,
        &["approval", "status"],
    ),
    entry("coordination.k8s.io", V1, "leases", "Lease", true, &[]),
    entry(
        "discovery.k8s.io",
        V1,
        "endpointslices",
        "EndpointSlice",
        true,
        &[],
    ),
    entry("events.k8s.io", V1, "events", "Event", true, &[]),
    entry(FLOW, V1, "flowschemas", "FlowSchema", false, STATUS),
    entry(
        FLOW,
        V1,
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        false,
        STATUS,
    ),
    entry(NETWORKING, V1, "ingressclasses", "IngressClass", false, &[]),
    entry(NETWORKING, V1, "ingresses", "Ingress", true, STATUS),
    entry(NETWORKING, V1, "ipaddresses", "IPAddress", false, &[]),
    entry(
        NETWORKING,
        V1,
        "networkpolicies",
        "NetworkPolicy",
        true,
        &[],
    ),
    entry(NETWORKING, V1, "servicecidrs", "ServiceCIDR", false, STATUS),
    entry(
        "node.k8s.io",
        V1,
        "runtimeclasses",
        "RuntimeClass",
        false,
        &[],
    ),
    entry(
        "policy",
        V1,
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        true,
        STATUS,
    ),
    entry(
        RBAC,
        V1,
        "clusterrolebindings",
        "ClusterRoleBinding",
        false,
        &[],
    ),
    entry(RBAC, V1, "clusterroles", "ClusterRole", false, &[]),
    entry(RBAC, V1, "rolebindings", "RoleBinding", true, &[]),
    entry(RBAC, V1, "roles", "Role", true, &[]),
    entry(
        "resource.k8s.io",
        V1,
        "deviceclasses",
        "DeviceClass",
        false,
        &[],
    ),
    entry(
        "resource.k8s.io",
        V1,
        "resourceclaims",
        "ResourceClaim",
        true,
        STATUS,
    ),
    entry(
        "resource.k8s.io",
        V1,
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        true,
        &[],
    ),
    entry(
        "resource.k8s.io",
        V1,
        "resourceslices",
        "ResourceSlice",
        false,
        &[],
    ),
    entry(
        "scheduling.k8s.io",
        V1,
        "priorityclasses",
        "PriorityClass",
        false,
        &[],
    ),
    entry(STORAGE, V1, "csidrivers", "CSIDriver", false, &[]),
    entry(STORAGE, V1, "csinodes", "CSINode", false, &[]),
    entry(
        STORAGE,
        V1,
        "csistoragecapacities",
        "CSIStorageCapacity",
        true,
        &[],
    ),
    entry(STORAGE, V1, "storageclasses", "StorageClass", false, &[]),
    entry(
        STORAGE,
        V1,
        "volumeattachments",
        "VolumeAttachment",
        false,
        STATUS,
    ),
    entry(
        STORAGE,
        V1,
        "volumeattributesclasses",
        "VolumeAttributesClass",
        false,
        &[],
    ),
];
