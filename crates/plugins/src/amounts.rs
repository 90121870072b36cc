//! Resource quantities of Pods: sums, and the QoS class.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use lockgate_go::quantity::{Quantity, QuantityError};
use serde_json::Value;

use crate::fields::{CONTAINERS, at, items, members, text, text_at};
use crate::rules::Refusal;

/// Quantities by resource name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Parses a quantity. Numbers are accepted like strings.
pub(crate) fn amount(value: &Value) -> Result<Quantity, Refusal> {
    let read = match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => Err(QuantityError::FormatWrong),
    };
    read.map_err(|error| Refusal::status(400, "BadRequest", error.to_string()))
}

/// Parses the quantities at a path.
pub(crate) fn amounts(value: &Value, path: &[&str]) -> Result<Amounts, Refusal> {
    members(value, path)
        .map(|(name, value)| Ok((name.to_owned(), amount(value)?)))
        .collect()
}

/// The sum over the containers of a pod, overridden by pod-level CPU and memory. `part` is
/// `requests` or `limits`.
// UPSTREAM: kubernetes plugin/pkg/admission/limitranger/admission.go (podRequests, podLimits).
pub(crate) fn of_pod(pod: &Value, part: &str) -> Result<Amounts, Refusal> {
    let mut sum = of_containers(pod, part)?;
    for (name, quantity) in amounts(pod, &["spec", "resources", part])? {
        if matches!(name.as_str(), "cpu" | "memory") {
            sum.insert(name, quantity);
        }
    }
    Ok(sum)
}

/// The sum over the containers of a pod.
///
/// Containers run concurrently with all sidecars; every other init container runs with the sidecars before it only.
pub(crate) fn of_containers(pod: &Value, part: &str) -> Result<Amounts, Refusal> {
    sum_of_containers(pod, |container, _| amounts(container, &["resources", part]))
}

/// The sum over the containers of a Pod; resized containers count with the maximum of requested, actual and allocated
/// resources.
// UPSTREAM: component-helpers resource/helpers.go (AggregateContainerRequests, AggregateContainerLimits)
pub(crate) fn of_resized_containers(pod: &Value, part: &str) -> Result<Amounts, Refusal> {
    let is_infeasible = items(pod, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, "type") == "PodResizePending")
        .is_some_and(|condition| text(condition, "reason") == "Infeasible");
    let status_of = |name: &str| {
        let statuses = ["initContainerStatuses", "containerStatuses"];
        statuses
            .iter()
            .flat_map(|list| items(pod, &["status", list]))
            .find(|status| text(status, "name") == name)
            .filter(|status| at(status, &["resources"]).is_some())
    };
    sum_of_containers(pod, |container, can_resize| {
        let wanted = amounts(container, &["resources", part])?;
        let Some(status) = status_of(text(container, "name")).filter(|_| can_resize) else {
            return Ok(wanted);
        };
        let mut most = if is_infeasible {
            Amounts::new()
        } else {
            wanted
        };
        raise(&mut most, amounts(status, &["resources", part])?);
        if part == "requests" {
            raise(&mut most, amounts(status, &["allocatedResources"])?);
        }
        Ok(most)
    })
}

/// `needs` receives true if the status of a container counts, which it does not for init containers that terminate.
fn sum_of_containers(
    pod: &Value,
    needs: impl Fn(&Value, bool) -> Result<Amounts, Refusal>,
) -> Result<Amounts, Refusal> {
    let mut sum = Amounts::new();
    for container in items(pod, &["spec", "containers"]) {
        add(&mut sum, &needs(container, true)?)?;
    }
    let mut sidecars = Amounts::new();
    let mut alone = Amounts::new();
    for container in items(pod, &["spec", "initContainers"]) {
        let is_sidecar = text(container, "restartPolicy") == "Always";
        let mut needs = needs(container, is_sidecar)?;
        if is_sidecar {
            add(&mut sum, &needs)?;
            add(&mut sidecars, &needs)?;
            needs.clone_from(&sidecars);
        } else {
            add(&mut needs, &sidecars)?;
        }
        raise(&mut alone, needs);
    }
    raise(&mut sum, alone);
    Ok(sum)
}

pub(crate) fn add(sum: &mut Amounts, more: &Amounts) -> Result<(), Refusal> {
    for (name, quantity) in more {
        let together = match sum.get(name) {
            None => quantity.clone(),
            Some(known) => known.add(quantity).map_err(|error| {
                Refusal::status(400, "BadRequest", format!("the sum of {name}: {error}"))
            })?,
        };
        sum.insert(name.clone(), together);
    }
    Ok(())
}

/// Raises every quantity to at least the other one.
fn raise(amounts: &mut Amounts, least: Amounts) {
    for (name, quantity) in least {
        let is_more = amounts
            .get(&name)
            .is_none_or(|known| quantity.compare(known) == Ordering::Greater);
        if is_more {
            amounts.insert(name, quantity);
        }
    }
}

/// Returns true if the QoS class of a pod is `BestEffort`: no CPU and no memory requested.
// UPSTREAM: kubernetes pkg/apis/core/helper/qos/qos.go.
pub(crate) fn is_best_effort(pod: &Value) -> Result<bool, Refusal> {
    let class = text_at(pod, &["status", "qosClass"]);
    if !class.is_empty() {
        return Ok(class == "BestEffort");
    }
    if let Some(resources) = at(pod, &["spec", "resources"]) {
        return asks_for_nothing(resources);
    }
    for list in CONTAINERS {
        for container in items(pod, &["spec", list]) {
            let resources = at(container, &["resources"]);
            if !resources.map_or(Ok(true), asks_for_nothing)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn asks_for_nothing(resources: &Value) -> Result<bool, Refusal> {
    for part in ["requests", "limits"] {
        for (name, quantity) in amounts(resources, &[part])? {
            if matches!(name.as_str(), "cpu" | "memory") && quantity.sign() > 0 {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns true if two lists contain the same quantities, in any notation.
pub(crate) fn same_amounts(one: &Amounts, other: &Amounts) -> bool {
    let mut pairs = one.iter();
    one.len() == other.len()
        && pairs.all(|(name, amount)| {
            let known = other.get(name);
            known.is_some_and(|known| known.compare(amount) == Ordering::Equal)
        })
}
