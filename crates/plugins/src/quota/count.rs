//! Computes the usage of a namespace, for the controller that updates the status of quotas.
//!
//! UPSTREAM: kubernetes pkg/controller/resourcequota/resource_quota_controller.go

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::devices::Devices;
use super::evaluator::{Evaluator, Scope};
use crate::amounts::{Amounts, add, amounts};
use crate::rules::Refusal;

/// A resource that a quota counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    /// The group.
    pub group: String,
    /// The plural name.
    pub resource: String,
}

/// The objects of a resource in a namespace; `None` if the resource does not exist.
pub type Usage = (Counted, Option<Vec<Arc<Value>>>);

/// The evaluator of a resource; `None` if it is not charged.
fn evaluator(group: &str, resource: &str, devices: &Arc<Devices>) -> Option<Evaluator> {
    Evaluator::of(group, resource).map(|evaluator| evaluator.with(devices))
}

/// The resources that a quota counts.
#[must_use]
pub fn counted_by(quota: &Value, devices: &Arc<Devices>) -> Vec<Counted> {
    let Ok(hard) = amounts(quota, &["spec", "hard"]) else {
        return Vec::new();
    };
    let names = || hard.keys().map(String::as_str);
    let mut counted = Vec::new();
    for (group, resource) in [
        ("", "pods"),
        ("", "services"),
        ("", "persistentvolumeclaims"),
        ("", "configmaps"),
        ("", "secrets"),
        ("", "replicationcontrollers"),
        ("", "resourcequotas"),
        ("resource.k8s.io", "resourceclaims"),
    ] {
        let evaluator = evaluator(group, resource, devices);
        if evaluator.is_some_and(|evaluator| !evaluator.matching_resources(names()).is_empty()) {
            counted.push(Counted {
                group: group.to_owned(),
                resource: resource.to_owned(),
            });
        }
    }
    for name in names() {
        if let Some(plural) = name.strip_prefix("count/") {
            let (resource, group) = plural.split_once('.').unwrap_or((plural, ""));
            counted.push(Counted {
                group: group.to_owned(),
                resource: resource.to_owned(),
            });
        }
    }
    counted.sort();
    counted.dedup();
    counted
}

/// The recalculated status of a quota, if it differs from the current one.
///
/// # Errors
///
/// Fails if a quantity is invalid.
pub fn status_of(
    quota: &Value,
    usage: &[Usage],
    devices: &Arc<Devices>,
) -> Result<Option<Value>, Refusal> {
    let hard = amounts(quota, &["spec", "hard"])?;
    let before = amounts(quota, &["status", "used"])?;
    let scopes = Scope::all_of(quota);
    let mut used = Amounts::new();
    for (counted, objects) in usage {
        let Some(evaluator) = evaluator(&counted.group, &counted.resource, devices) else {
            continue;
        };
        let Some(objects) = objects else {
            continue;
        };
        let names = evaluator.matching_resources(hard.keys().map(String::as_str));
        let mut sum = Amounts::new();
        for object in objects {
            let mut is_included = true;
            for scope in &scopes {
                is_included &= evaluator.is_in(scope, object)?;
            }
            if is_included {
                add(&mut sum, &evaluator.usage(object)?)?;
            }
        }
        for name in names {
            let zero = || crate::amounts::amount(&json!("0"));
            let amount = sum.remove(name).map_or_else(zero, Ok)?;
            // Pods and ResourceClaims share resource names.
            add(&mut used, &Amounts::from([(name.to_owned(), amount)]))?;
        }
    }
    // Usage that could not be calculated is kept.
    for (name, amount) in before {
        if hard.contains_key(&name) {
            used.entry(name).or_insert(amount);
        }
    }
    let shown = |amounts: &Amounts| -> Map<String, Value> {
        let pairs = amounts.iter();
        pairs
            .map(|(name, amount)| (name.clone(), Value::String(amount.to_string())))
            .collect()
    };
    let status = json!({"hard": shown(&hard), "used": shown(&used)});
    let known = |part: &str| -> Result<Option<Map<String, Value>>, Refusal> {
        match quota.get("status").and_then(|status| status.get(part)) {
            None => Ok(None),
            Some(_) => Ok(Some(shown(&amounts(quota, &["status", part])?))),
        }
    };
    let same = known("hard")? == Some(shown(&hard)) && known("used")? == Some(shown(&used));
    Ok((!same).then_some(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(hard: Value, status: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": status})
    }

    #[test]
    fn counts_what_there_is() {
        let hard = json!({"pods": "2", "requests.cpu": "1", "count/deployments.apps": "1", "count/nope.x": "1"});
        let quota = quota(hard.clone(), json!({}));
        let told: Vec<String> = counted_by(&quota, &Arc::default())
            .iter()
            .map(|counted| format!("{}/{}", counted.group, counted.resource))
            .collect();
        assert_eq!(told, ["/pods", "apps/deployments", "x/nope"]);
        let pod = |cpu: &str, phase: &str| {
            Arc::new(
                json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}, "status": {"phase": phase}}),
            )
        };
        let usage: Vec<Usage> = counted_by(&quota, &Arc::default())
            .into_iter()
            .map(|counted| {
                let objects = match counted.resource.as_str() {
                    "pods" => Some(vec![pod("500m", "Running"), pod("1", "Failed")]),
                    "deployments" => Some(Vec::new()),
                    _ => None,
                };
                (counted, objects)
            })
            .collect();
        let status = status_of(&quota, &usage, &Arc::default()).unwrap().unwrap();
        let used = json!({"pods": "1", "requests.cpu": "500m", "count/deployments.apps": "0"});
        assert_eq!(status, json!({"hard": hard, "used": used}));
        let mut same = quota;
        same["status"] = status;
        assert_eq!(status_of(&same, &usage, &Arc::default()).unwrap(), None);
    }
}
