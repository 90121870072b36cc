//! Quota evaluators: the names an object is charged under, the amounts, and the scopes it is in.
//!
//! UPSTREAM: kubernetes pkg/quota/v1/evaluator/core, apiserver pkg/quota/v1/generic

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockgate_admission::request::{Operation, Request};
use lockgate_go::quantity::Quantity;
use serde_json::Value;

use super::devices::{DEVICES, Devices, IMPLICIT};
use crate::amounts::{Amounts, amount, amounts, is_best_effort, of_resized_containers};
use crate::extended_resource_toleration::is_extended;
use crate::fields::{CONTAINERS, annotation, at, items, text, text_at};
use crate::rules::{Refusal, object, old_object};

/// The resource names of Pods.
const POD_NAMES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// Resource names that every container must specify if they are limited.
const DEMANDED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

const SERVICE_NAMES: [&str; 4] = [
    "count/services",
    "services",
    "services.nodeports",
    "services.loadbalancers",
];

const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

/// The maximum number of devices per claim.
const MAX_DEVICES: i64 = 32;

/// The legacy annotation for the class of a claim.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Resources that are not charged: they are not stored, or were never limited.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("", "events"),
    ("events.k8s.io", "events"),
];

/// The quota evaluator of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Evaluator {
    Pods,
    Services,
    VolumeClaims,
    /// ResourceClaims, with the objects that their usage depends on.
    ResourceClaims(Arc<Devices>),
    /// Counted objects, under these names.
    Objects(Vec<String>),
}

impl Evaluator {
    /// The evaluator of a resource; `None` if it is not charged.
    pub(crate) fn of(group: &str, resource: &str) -> Option<Self> {
        if IGNORED.contains(&(group, resource)) {
            return None;
        }
        Some(match (group, resource) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Self::ResourceClaims(Arc::default()),
            ("", "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
                Self::Objects(vec![format!("count/{resource}"), resource.to_owned()])
            }
            ("", resource) => Self::Objects(vec![format!("count/{resource}")]),
            (group, resource) => Self::Objects(vec![format!("count/{resource}.{group}")]),
        })
    }

    /// The same, with the objects on which the usage of claims depends.
    pub(crate) fn with(self, devices: &Arc<Devices>) -> Self {
        match self {
            Self::ResourceClaims(_) => Self::ResourceClaims(Arc::clone(devices)),
            other => other,
        }
    }

    /// Returns true if a request may change the usage.
    pub(crate) fn handles(&self, request: &Request) -> bool {
        let (create, update) = (
            request.operation == Operation::Create,
            request.operation == Operation::Update,
        );
        let subresource = request.subresource.as_str();
        let (old, new) = (old_object(request), object(request));
        match (self, subresource) {
            (Self::Pods, "") => create || update && is_terminating(old) != is_terminating(new),
            (Self::Pods, "resize") => update,
            (Self::VolumeClaims, "status") => {
                let allocated = ["status", "allocatedResources", "storage"];
                at(old, &allocated) != at(new, &allocated)
                    || attributes_classes(old) != attributes_classes(new)
            }
            (Self::Services | Self::VolumeClaims | Self::ResourceClaims(_), "") => create || update,
            (Self::Objects(_), "") => create,
            _ => false,
        }
    }

    /// The names of a quota that apply to such objects, sorted.
    pub(crate) fn matching_resources<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Vec<&'n str> {
        let concerns = |name: &&str| match self {
            Self::Pods => {
                POD_NAMES.contains(name)
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || is_extended_request(name)
            }
            Self::Services => SERVICE_NAMES.contains(name),
            Self::VolumeClaims => {
                let plain = ["persistentvolumeclaims", "requests.storage"];
                *name == "count/persistentvolumeclaims"
                    || plain.contains(name)
                    || plain
                        .iter()
                        .any(|plain| name.ends_with(&format!("{OF_CLASS}{plain}")))
            }
            Self::ResourceClaims(devices) => {
                *name == "count/resourceclaims.resource.k8s.io"
                    || name.ends_with(DEVICES)
                    || is_extended_request(name) && devices.concerns(name)
            }
            Self::Objects(names) => names.iter().any(|known| known == name),
        };
        let mut concerned: Vec<&str> = names.filter(|name| concerns(name)).collect();
        concerned.sort_unstable();
        concerned
    }

    /// Returns true if an object is in a scope.
    pub(crate) fn is_in(&self, scope: &Scope, object: &Value) -> Result<bool, Refusal> {
        Ok(match self {
            Self::Pods => match scope.name.as_str() {
                "Terminating" => is_terminating(object),
                "NotTerminating" => !is_terminating(object),
                "BestEffort" => is_best_effort(object)?,
                "NotBestEffort" => !is_best_effort(object)?,
                "PriorityClass" => {
                    let class = text_at(object, &["spec", "priorityClassName"]);
                    scope.selects(&BTreeSet::from([class]))
                }
                "CrossNamespacePodAffinity" => reaches_other_namespaces(object),
                _ => false,
            },
            Self::VolumeClaims if scope.name == "VolumeAttributesClass" => {
                scope.selects(&attributes_classes(object))
            }
            _ => false,
        })
    }

    /// The requests or limits that a quota requires and the object does not specify.
    pub(crate) fn missing(&self, limited: &[&str], object: &Value) -> Option<String> {
        if *self != Self::Pods || has_pod_level_resources(object) {
            return None;
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for container in CONTAINERS
            .iter()
            .flat_map(|list| items(object, &["spec", list]))
        {
            for name in limited.iter().filter(|name| DEMANDED.contains(name)) {
                let (part, resource) = match name.split_once('.') {
                    Some((part, resource)) => (part, resource),
                    None => ("requests", *name),
                };
                if at(container, &["resources", part, resource]).is_none() {
                    let containers = missing.entry(name).or_default();
                    containers.insert(text(container, "name"));
                }
            }
        }
        if missing.is_empty() {
            return None;
        }
        let told = missing.into_iter().map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        });
        let told: Vec<String> = told.collect();
        Some(format!("must specify {}", told.join("; ")))
    }

    /// The usage of an object.
    pub(crate) fn usage(&self, object: &Value) -> Result<Amounts, Refusal> {
        let mut used = Amounts::new();
        match self {
            Self::Pods => return usage_of_pod(object),
            Self::Services => {
                put(&mut used, "count/services", 1);
                put(&mut used, "services", 1);
                let ports = items(object, &["spec", "ports"]);
                let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
                let all = count(ports.len());
                let path = ["spec", "allocateLoadBalancerNodePorts"];
                let told = ports.iter().filter(|port| {
                    at(port, &["nodePort"]).and_then(Value::as_i64).unwrap_or(0) != 0
                });
                let (node_ports, balancers) = match text_at(object, &["spec", "type"]) {
                    "NodePort" => (all, 0),
                    "LoadBalancer" if at(object, &path) == Some(&Value::Bool(false)) => {
                        (count(told.count()), 1)
                    }
                    "LoadBalancer" => (all, 1),
                    _ => (0, 0),
                };
                put(&mut used, "services.nodeports", node_ports);
                put(&mut used, "services.loadbalancers", balancers);
            }
            Self::VolumeClaims => {
                let class = annotation(object, BETA_CLASS)
                    .unwrap_or_else(|| text_at(object, &["spec", "storageClassName"]));
                for name in ["count/persistentvolumeclaims", "persistentvolumeclaims"] {
                    put(&mut used, name, 1);
                }
                if !class.is_empty() {
                    put(
                        &mut used,
                        &format!("{class}{OF_CLASS}persistentvolumeclaims"),
                        1,
                    );
                }
                if let Some(storage) = storage_of(object)? {
                    if !class.is_empty() {
                        let name = format!("{class}{OF_CLASS}requests.storage");
                        used.insert(name, storage.clone());
                    }
                    used.insert(String::from("requests.storage"), storage);
                }
            }
            Self::ResourceClaims(known) => {
                put(&mut used, "count/resourceclaims.resource.k8s.io", 1);
                let mut devices: BTreeMap<String, i64> = BTreeMap::new();
                for request in items(object, &["spec", "devices", "requests"]) {
                    for (class, count) in devices_of(request) {
                        let sum = devices.entry(class).or_default();
                        *sum = sum.saturating_add(count);
                    }
                }
                for (class, count) in devices {
                    put(&mut used, &format!("{class}{DEVICES}"), count);
                }
                known.charge(object, &mut used, usage_of_pod)?;
            }
            Self::Objects(names) => {
                for name in names {
                    put(&mut used, name, 1);
                }
            }
        }
        Ok(used)
    }
}

fn put(used: &mut Amounts, name: &str, count: i64) {
    // An integer is always a valid quantity.
    if let Ok(count) = Quantity::parse(&count.to_string()) {
        used.insert(name.to_owned(), count);
    }
}

/// Returns true for the request name of an extended resource, for which only requests can be limited.
fn is_extended_request(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    let of_device_class = name.starts_with(IMPLICIT);
    name.starts_with("requests.") && (!is_native || of_device_class)
}

fn is_terminating(pod: &Value) -> bool {
    let deadline = at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64);
    deadline.is_some_and(|deadline| deadline >= 0)
}

fn reaches_other_namespaces(pod: &Value) -> bool {
    let reaches = |term: &Value| {
        !items(term, &["namespaces"]).is_empty() || at(term, &["namespaceSelector"]).is_some()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let of = |list: &str| items(pod, &["spec", "affinity", kind, list]);
        let required = of("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = of("preferredDuringSchedulingIgnoredDuringExecution");
        let preferred = preferred
            .iter()
            .filter_map(|term| at(term, &["podAffinityTerm"]));
        required.iter().any(reaches) || preferred.into_iter().any(reaches)
    })
}

fn attributes_classes(claim: &Value) -> BTreeSet<&str> {
    const PLACES: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &[
            "status",
            "modifyVolumeStatus",
            "targetVolumeAttributesClassName",
        ],
    ];
    let names = PLACES.iter().map(|path| text_at(claim, path));
    names.filter(|name| !name.is_empty()).collect()
}

/// Resources that a Pod can request at Pod level.
fn is_of_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn has_pod_level_resources(pod: &Value) -> bool {
    ["requests", "limits"].iter().any(|part| {
        let told = at(pod, &["spec", "resources", part]).and_then(Value::as_object);
        told.is_some_and(|told| told.keys().any(|name| is_of_pod_level(name)))
    })
}

/// The sum over the containers of a pod, with its overhead.
///
/// UPSTREAM: component-helpers resource/helpers.go (PodRequests, PodLimits)
fn needs_of_pod(pod: &Value, part: &str) -> Result<Amounts, Refusal> {
    let mut needs = of_resized_containers(pod, part)?;
    for (name, amount) in amounts(pod, &["spec", "resources", part])? {
        if is_of_pod_level(&name) {
            needs.insert(name, amount);
        }
    }
    for (name, overhead) in amounts(pod, &["spec", "overhead"])? {
        match needs.get(&name) {
            // A limit of zero means no limit.
            Some(known) if part == "limits" && known.sign() == 0 => {}
            Some(known) => {
                let sum = known.add(&overhead);
                let sum = sum.map_err(|error| Refusal::Plain(error.to_string()))?;
                needs.insert(name, sum);
            }
            // An unlimited resource stays unlimited.
            None if part == "requests" => {
                needs.insert(name, overhead);
            }
            None => {}
        }
    }
    Ok(needs)
}

fn is_over(pod: &Value) -> bool {
    if matches!(text_at(pod, &["status", "phase"]), "Failed" | "Succeeded") {
        return true;
    }
    // A Pod on a lost node stays terminating; it is not charged after its grace period.
    let grace = at(pod, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let deleted = text_at(pod, &["metadata", "deletionTimestamp"]);
    let deleted = lockgate_go::time::Timestamp::parse(deleted);
    let (Some(grace), Ok(deleted)) = (grace, deleted) else {
        return false;
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    now > deleted.unix_seconds().saturating_add(grace)
}

fn usage_of_pod(pod: &Value) -> Result<Amounts, Refusal> {
    let mut used = Amounts::new();
    put(&mut used, "count/pods", 1);
    if is_over(pod) {
        return Ok(used);
    }
    put(&mut used, "pods", 1);
    for (name, request) in needs_of_pod(pod, "requests")? {
        let is_plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-");
        let of_device_class = name.starts_with("deviceclass.resource.kubernetes.io/");
        if is_plain || of_device_class || is_extended(&name) {
            used.insert(format!("requests.{name}"), request.clone());
        }
        if is_plain {
            used.insert(name, request);
        }
    }
    for (name, limit) in needs_of_pod(pod, "limits")? {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), limit);
        }
    }
    Ok(used)
}

/// The storage capacity or request of a claim, in whole bytes.
fn storage_of(claim: &Value) -> Result<Option<Quantity>, Refusal> {
    let whole = |quantity: Quantity| {
        if quantity.is_integer() {
            return Ok(quantity);
        }
        let bytes = quantity.rounded_up(0).to_string();
        Quantity::parse(&bytes).map_err(|error| Refusal::Plain(error.to_string()))
    };
    let Some(wanted) = at(claim, &["spec", "resources", "requests", "storage"]) else {
        return Ok(None);
    };
    let wanted = whole(amount(wanted)?)?;
    if let Some(allocated) = at(claim, &["status", "allocatedResources", "storage"]) {
        let allocated = amount(allocated)?;
        if allocated.compare(&wanted) == Ordering::Greater {
            return whole(allocated).map(Some);
        }
    }
    Ok(Some(wanted))
}

/// The maximum number of devices of a request, by class.
fn devices_of(request: &Value) -> BTreeMap<String, i64> {
    let of = |wanted: &Value| {
        let count = match text(wanted, "allocationMode") {
            "ExactCount" => at(wanted, &["count"]).and_then(Value::as_i64).unwrap_or(0),
            "All" => MAX_DEVICES,
            _ => 0,
        };
        (text(wanted, "deviceClassName").to_owned(), count)
    };
    let alternatives = items(request, &["firstAvailable"]);
    if alternatives.is_empty() {
        return at(request, &["exactly"]).map(of).into_iter().collect();
    }
    let mut most: BTreeMap<String, i64> = BTreeMap::new();
    for (class, count) in alternatives.iter().map(of) {
        let known = most.entry(class).or_default();
        *known = count.max(*known);
    }
    most
}

/// A scope selector of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) name: String,
    operator: String,
    values: Vec<String>,
}

impl Scope {
    pub(crate) fn read(value: &Value) -> Self {
        let values = items(value, &["values"]).iter().filter_map(Value::as_str);
        Self {
            name: text(value, "scopeName").to_owned(),
            operator: text(value, "operator").to_owned(),
            values: values.map(str::to_owned).collect(),
        }
    }

    /// The scopes of a quota.
    pub(crate) fn all_of(quota: &Value) -> Vec<Self> {
        let plain = items(quota, &["spec", "scopes"])
            .iter()
            .filter_map(Value::as_str);
        let plain = plain.map(|name| Self {
            name: name.to_owned(),
            operator: String::from("Exists"),
            values: Vec::new(),
        });
        let selected = items(quota, &["spec", "scopeSelector", "matchExpressions"]);
        plain.chain(selected.iter().map(Self::read)).collect()
    }

    /// Returns true if one of the names is selected. Empty names are ignored.
    fn selects(&self, names: &BTreeSet<&str>) -> bool {
        let mut names = names.iter().filter(|name| !name.is_empty()).peekable();
        match self.operator.as_str() {
            "Exists" => names.peek().is_some(),
            "DoesNotExist" => names.peek().is_none(),
            "In" => names.any(|name| self.values.iter().any(|value| value == name)),
            "NotIn" => !names.any(|name| self.values.iter().any(|value| value == name)),
            _ => false,
        }
    }
}

impl std::fmt::Display for Scope {
    /// Go's format.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            name,
            operator,
            values,
        } = self;
        write!(f, "{{{name} {operator} [{}]}}", values.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(pod: &Value) -> BTreeMap<String, String> {
        let used = usage_of_pod(pod).unwrap();
        used.into_iter()
            .map(|(name, amount)| (name, amount.to_string()))
            .collect()
    }

    #[test]
    fn a_resized_pod_counts_with_the_most_of_what_it_has_and_wants() {
        let mut pod = json!({
            "spec": {"containers": [{"name": "c", "resources": {
                "requests": {"cpu": "1"}, "limits": {"cpu": "2"},
            }}]},
            "status": {"containerStatuses": [{
                "name": "c",
                "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}},
                "allocatedResources": {"cpu": "4"},
            }]},
        });
        let used = usage(&pod);
        assert_eq!((&*used["requests.cpu"], &*used["limits.cpu"]), ("4", "3"));
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "9"}, "limits": {"cpu": "9"}});
        assert_eq!(usage(&pod)["requests.cpu"], "9");
        // An infeasible resize is not charged.
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        let used = usage(&pod);
        assert_eq!((&*used["requests.cpu"], &*used["limits.cpu"]), ("4", "3"));
        // Without resources in the status, the spec is charged.
        pod["status"]["containerStatuses"] = json!([{"name": "c"}]);
        assert_eq!(usage(&pod)["requests.cpu"], "9");
    }

    #[test]
    fn overhead_adds_to_limits_that_there_are() {
        let pod = json!({"spec": {
            "overhead": {"cpu": "1", "memory": "1Mi"},
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "0"}}}],
        }});
        let used = usage(&pod);
        assert_eq!((&*used["limits.cpu"], &*used["limits.memory"]), ("2", "0"));
        assert_eq!(used["requests.memory"], "1Mi");
    }
}
