//! The columns of the built-in kinds.

use serde_json::{Value, json};

use crate::resource::Resource;

/// Group, plural, and the columns: a plus stands before those of wide tables, and a colon before a type
/// that is not `string`.
#[rustfmt::skip]
const COLUMNS: [(&str, &str, &str); 55] = [
    ("", "componentstatuses", "Name|Status|Message|Error"),
    ("", "configmaps", "Name|Data|Age"),
    ("", "endpoints", "Name|Endpoints|Age"),
    ("", "events", "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name"),
    ("", "namespaces", "Name|Status|Age"),
    ("", "nodes", "Name|Status|Roles|Age|Version|+Internal-IP|+External-IP|+OS-Image|+Kernel-Version|+Container-Runtime"),
    ("", "persistentvolumeclaims", "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|+VolumeMode"),
    ("", "persistentvolumes", "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|+VolumeMode"),
    ("", "pods", "Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates"),
    ("", "podtemplates", "Name|Containers|Images|Pod Labels"),
    ("", "replicationcontrollers", "Name|Desired:integer|Current:integer|Ready:integer|Age|+Containers|+Images|+Selector"),
    ("", "resourcequotas", "Name|Request|Limit|Age"),
    ("", "secrets", "Name|Type|Data|Age"),
    ("", "serviceaccounts", "Name|Age"),
    ("", "services", "Name|Type|Cluster-IP|External-IP|Port(s)|Age|+Selector"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "Name|Mutations:integer|ParamKind|Age"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "Name|PolicyName|ParamRef|Age"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "Name|Webhooks:integer|Age"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "Name|Validations:integer|ParamKind|Age"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "Name|PolicyName|ParamRef|Age"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "Name|Webhooks:integer|Age"),
    ("apiregistration.k8s.io", "apiservices", "Name|Service|Available|Age"),
    ("apps", "controllerrevisions", "Name|Controller|Revision|Age"),
    ("apps", "daemonsets", "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|+Containers|+Images|+Selector"),
    ("apps", "deployments", "Name|Ready|Up-to-date|Available|Age|+Containers|+Images|+Selector"),
    ("apps", "replicasets", "Name|Desired:integer|Current:integer|Ready:integer|Age|+Containers|+Images|+Selector"),
    ("apps", "statefulsets", "Name|Ready|Age|+Containers|+Images"),
    ("autoscaling", "horizontalpodautoscalers", "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age"),
    ("batch", "cronjobs", "Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|+Containers|+Images|+Selector"),
    ("batch", "jobs", "Name|Status|Completions|Duration|Age|+Containers|+Images|+Selector"),
    ("certificates.k8s.io", "certificatesigningrequests", "Name|Age|SignerName|Requestor|RequestedDuration|Condition"),
    ("coordination.k8s.io", "leases", "Name|Holder|Age"),
    ("discovery.k8s.io", "endpointslices", "Name|AddressType|Ports|Endpoints|Age"),
    ("events.k8s.io", "events", "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age"),
    ("networking.k8s.io", "ingressclasses", "Name|Controller|Parameters|Age"),
    ("networking.k8s.io", "ingresses", "Name|Class|Hosts|Address|Ports|Age"),
    ("networking.k8s.io", "ipaddresses", "Name|ParentRef"),
    ("networking.k8s.io", "networkpolicies", "Name|Pod-Selector|Age"),
    ("networking.k8s.io", "servicecidrs", "Name|CIDRs|Age"),
    ("node.k8s.io", "runtimeclasses", "Name|Handler|Age"),
    ("policy", "poddisruptionbudgets", "Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "Name|Role|Age|+Users|+Groups|+ServiceAccounts"),
    ("rbac.authorization.k8s.io", "rolebindings", "Name|Role|Age|+Users|+Groups|+ServiceAccounts"),
    ("resource.k8s.io", "deviceclasses", "Name|Age"),
    ("resource.k8s.io", "resourceclaims", "Name|State|Age"),
    ("resource.k8s.io", "resourceclaimtemplates", "Name|Age"),
    ("resource.k8s.io", "resourceslices", "Name|Node|Driver|Pool|Age"),
    ("scheduling.k8s.io", "priorityclasses", "Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy"),
    ("storage.k8s.io", "csidrivers", "Name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests|RequiresRepublish:boolean|Modes|Age"),
    ("storage.k8s.io", "csinodes", "Name|Drivers:integer|Age"),
    ("storage.k8s.io", "storageclasses", "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"),
    ("storage.k8s.io", "volumeattachments", "Name|Attacher|PV|Node|Attached:boolean|Age"),
    ("storage.k8s.io", "volumeattributesclasses", "Name|DriverName|Age"),
];

/// The columns of kinds that have none of their own.
const DEFAULT: &str = "Name|Created At:date";

/// The columns of a scale.
pub(super) fn scale() -> Value {
    let columns = "Name|Desired:integer|Available:integer|Age";
    columns.split('|').map(column).collect()
}

/// The columns of a kind.
pub(super) fn built_in(resource: &Resource) -> Value {
    let own = COLUMNS
        .iter()
        .find(|(group, plural, _)| *group == resource.group && *plural == resource.plural);
    let columns = own.map_or(DEFAULT, |row| row.2);
    columns.split('|').map(column).collect()
}

fn column(text: &str) -> Value {
    let (text, priority) = match text.strip_prefix('+') {
        Some(rest) => (rest, 1),
        None => (text, 0),
    };
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    // What identifies an object has a format of its own; a volume's attacher is said to as well.
    let format = if matches!(name, "Name" | "Attacher") {
        "name"
    } else {
        ""
    };
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
}
