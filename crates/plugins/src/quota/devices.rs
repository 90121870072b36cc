//! The extended resources of device classes: ResourceClaims are charged under these names, too.
//!
//! UPSTREAM: kubernetes pkg/quota/v1/evaluator/core/resource_claims.go, dynamic-resource-allocation
//! deviceclass/extendedresourcecache/extendedresourcecache.go

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::amounts::{Amounts, add};
use crate::fields::{annotation, at, items, text, text_at};
use crate::lookup::name_of;
use crate::rules::Refusal;

/// The suffix of quota names for the devices of a class.
pub(super) const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The prefix of quota names for devices that Pods request by their class.
pub(super) const IMPLICIT: &str = "requests.deviceclass.resource.kubernetes.io/";
/// The annotation of claims that a scheduler creates for the extended resources of a Pod.
const MADE_FOR_POD: &str = "resource.kubernetes.io/extended-resource-claim";

/// The objects on which the usage of a claim depends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// The extended resource of each class, if any.
    classes: BTreeMap<String, Option<String>>,
    pods: Vec<Arc<Value>>,
    claims: Vec<Arc<Value>>,
}

impl Devices {
    /// Creates the index from the cluster's device classes, and the Pods and claims of a namespace.
    #[must_use]
    pub fn new(classes: &[Arc<Value>], pods: Vec<Arc<Value>>, claims: Vec<Arc<Value>>) -> Self {
        let of = |class: &Arc<Value>| {
            let name = text_at(class, &["spec", "extendedResourceName"]);
            let name = (!name.is_empty()).then(|| name.to_owned());
            (name_of(class).to_owned(), name)
        };
        Self {
            classes: classes.iter().map(of).collect(),
            pods,
            claims,
        }
    }

    /// Returns true if claims are charged under this name, in addition to the device class.
    pub(super) fn concerns(&self, name: &str) -> bool {
        if let Some(class) = name.strip_prefix(IMPLICIT) {
            return self.classes.contains_key(class);
        }
        let names = || self.classes.values().flatten();
        name.strip_prefix("requests.")
            .is_some_and(|name| names().any(|known| known == name))
    }

    /// Adds a claim's usage of extended resources, unless its Pod is charged for it; `usage` is the Pod's.
    pub(super) fn charge(
        &self,
        claim: &Value,
        used: &mut Amounts,
        usage: impl Fn(&Value) -> Result<Amounts, Refusal>,
    ) -> Result<(), Refusal> {
        let mut extended = Amounts::new();
        for (name, amount) in &*used {
            let Some(class) = name.strip_suffix(DEVICES).filter(|class| !class.is_empty()) else {
                continue;
            };
            extended.insert(format!("{IMPLICIT}{class}"), amount.clone());
            if let Some(Some(resource)) = self.classes.get(class) {
                let one = Amounts::from([(format!("requests.{resource}"), amount.clone())]);
                add(&mut extended, &one)?;
            }
        }
        let charged = match self.pod_of(claim) {
            Some(pod) => usage(pod)?,
            None => Amounts::new(),
        };
        for (name, mut amount) in extended {
            if let Some(charged) = charged.get(&name) {
                let rest = amount.sub(charged);
                amount = rest.map_err(|error| Refusal::Plain(error.to_string()))?;
            }
            if amount.sign() > 0 {
                used.insert(name, amount);
            }
        }
        Ok(())
    }

    /// The Pod of a generated claim, if the claim is the one in its status, or otherwise its first claim.
    fn pod_of(&self, claim: &Value) -> Option<&Arc<Value>> {
        let uid = made_for(claim)?;
        let pod = self
            .pods
            .iter()
            .find(|pod| text_at(pod, &["metadata", "uid"]) == uid)?;
        let owner = controller(claim)?;
        if name_of(pod) != text(owner, "name") {
            return None;
        }
        let told = ["status", "extendedResourceClaimStatus"];
        if let Some(status) = at(pod, &told) {
            return (text(status, "resourceClaimName") == name_of(claim)).then_some(pod);
        }
        let age = |claim: &Value| text_at(claim, &["metadata", "creationTimestamp"]).to_owned();
        let is_before = |other: &Value| match age(other).cmp(&age(claim)) {
            Ordering::Less => true,
            Ordering::Equal => name_of(other) < name_of(claim),
            Ordering::Greater => false,
        };
        let mut others = self.claims.iter();
        let is_first = !others.any(|other| made_for(other) == Some(uid) && is_before(other));
        is_first.then_some(pod)
    }
}

/// Returns true if the usage of a claim depends on its Pod.
pub(super) fn is_made_for_pod(claim: &Value) -> bool {
    made_for(claim).is_some()
}

/// The UID of the Pod that a claim was created for.
fn made_for(claim: &Value) -> Option<&str> {
    if annotation(claim, MADE_FOR_POD) != Some("true") {
        return None;
    }
    let owner = controller(claim)?;
    let is_pod = text(owner, "kind") == "Pod" && text(owner, "apiVersion") == "v1";
    is_pod.then(|| text(owner, "uid"))
}

fn controller(object: &Value) -> Option<&Value> {
    items(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| at(owner, &["controller"]) == Some(&Value::Bool(true)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::evaluator::Evaluator;
    use super::*;

    fn class(name: &str, resource: Option<&str>) -> Arc<Value> {
        Arc::new(json!({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}))
    }

    fn claim(name: &str, class: &str, count: i64) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
            },
            "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}},
            ]}},
        })
    }

    fn pod(resource: &str, count: &str, claim: Option<&str>) -> Arc<Value> {
        let status = claim.map(|name| json!({"resourceClaimName": name}));
        Arc::new(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {resource: count}}}]},
            "status": {"extendedResourceClaimStatus": status},
        }))
    }

    fn used(devices: Devices, claim: &Value) -> Vec<String> {
        let evaluator = Evaluator::ResourceClaims(Arc::new(devices));
        let used = evaluator.usage(claim).unwrap();
        let told = used.iter().map(|(name, amount)| format!("{name}={amount}"));
        told.filter(|told| !told.starts_with("count/")).collect()
    }

    const GPU: &str = "requests.example.com/gpu=";

    #[test]
    fn claims_are_charged_as_extended_resources() {
        let classes = [class("gpu", Some("example.com/gpu")), class("nic", None)];
        let devices = |pods, claims| Devices::new(&classes, pods, claims);
        let plain = claim("c", "gpu", 3);
        let all = used(devices(Vec::new(), Vec::new()), &plain);
        assert_eq!(
            all,
            [
                "gpu.deviceclass.resource.k8s.io/devices=3",
                "requests.deviceclass.resource.kubernetes.io/gpu=3",
                "requests.example.com/gpu=3",
            ]
        );
        let nic = used(devices(Vec::new(), Vec::new()), &claim("c", "nic", 1));
        assert_eq!(nic.len(), 2, "{nic:?}");
        // The Pod has already been charged for two of them.
        let has = |told: &[String], count: &str| told.contains(&format!("{GPU}{count}"));
        let paid = |claim: Option<&str>| vec![pod("example.com/gpu", "2", claim)];
        assert!(has(&used(devices(paid(None), Vec::new()), &plain), "1"));
        assert!(has(
            &used(devices(paid(Some("c")), Vec::new()), &plain),
            "1"
        ));
        // Another claim is that of the Pod, by its status or by its age.
        assert!(has(
            &used(devices(paid(Some("b")), Vec::new()), &plain),
            "3"
        ));
        let earlier = vec![Arc::new(claim("b", "gpu", 1)), Arc::new(plain.clone())];
        assert!(has(&used(devices(paid(None), earlier), &plain), "3"));
        // A claim that was not generated for the Pod.
        let mut own = plain.clone();
        own["metadata"]["annotations"] = json!({});
        assert!(has(&used(devices(paid(None), Vec::new()), &own), "3"));
        // All of it was charged to the Pod, under the name of the class.
        let implicit = vec![pod("deviceclass.resource.kubernetes.io/gpu", "3", None)];
        let told = used(devices(implicit, Vec::new()), &plain);
        assert!(
            !told.iter().any(|told| told.starts_with(IMPLICIT)),
            "{told:?}"
        );
    }

    #[test]
    fn names_concern_claims_if_a_class_stands_for_them() {
        let classes = [class("gpu", Some("example.com/gpu")), class("nic", None)];
        let devices = Devices::new(&classes, Vec::new(), Vec::new());
        for (name, expected) in [
            ("requests.example.com/gpu", true),
            ("requests.example.com/nic", false),
            ("requests.deviceclass.resource.kubernetes.io/gpu", true),
            ("requests.deviceclass.resource.kubernetes.io/nic", true),
            ("requests.deviceclass.resource.kubernetes.io/fpga", false),
            ("example.com/gpu", false),
        ] {
            assert_eq!(devices.concerns(name), expected, "{name}");
        }
    }
}
