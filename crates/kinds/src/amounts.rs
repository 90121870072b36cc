//! Resource quantities: rounding, and aggregation over the containers of a Pod.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;

use lockgate_go::quantity::Quantity;

use crate::object::{Object, get, get_mut, is_empty, list, text};

/// Rounds the quantities of a resource list up to milli-units.
pub(crate) fn round_up(object: &mut Object, key: &str) {
    for quantity in get_mut(object, key)
        .into_iter()
        .flat_map(|map| map.values_mut())
    {
        if let Some(rounded) = quantity.as_str().and_then(round_up_to_milli) {
            *quantity = Value::String(rounded);
        }
    }
}

/// Rounds limits and requests.
pub(crate) fn round_up_requirements(object: &mut Object, key: &str) {
    if let Some(resources) = get_mut(object, key) {
        round_up(resources, "limits");
        round_up(resources, "requests");
    }
}

/// The quantity rounded up, if it is finer than milli. Quantities are canonical, so the suffix shows the precision.
fn round_up_to_milli(quantity: &str) -> Option<String> {
    let (digits, step, unit) = if let Some(digits) = quantity.strip_suffix('n') {
        (digits, 1_000_000, "m")
    } else if let Some(digits) = quantity.strip_suffix('u') {
        (digits, 1_000, "m")
    } else if let Some(digits) = quantity.strip_suffix("e-9") {
        (digits, 1_000_000, "e-3")
    } else {
        (quantity.strip_suffix("e-6")?, 1_000, "e-3")
    };
    let digits = digits.parse::<i128>().ok()?;
    let whole = digits.unsigned_abs().div_ceil(step);
    let sign = if digits < 0 { "-" } else { "" };
    Quantity::parse(&format!("{sign}{whole}{unit}"))
        .ok()
        .map(|quantity| quantity.to_string())
}

/// Defaults missing requests to the limits.
pub(crate) fn request_limits(container: &mut Object) {
    let Some(resources) = get_mut(container, "resources") else {
        return;
    };
    let Some(limits) = get(resources, "limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    if let Some(requests) = super::object::open(resources, "requests") {
        for (name, quantity) in limits {
            requests.entry(name).or_insert(quantity);
        }
    }
}

/// Defaults pod-level resources, if they are set in part.
///
/// UPSTREAM: pkg/apis/core/v1/defaults.go (defaultHugePagePodLimits, defaultPodRequests).
pub(crate) fn pod_level(spec: &mut Object) {
    let Some(resources) = get(spec, "resources") else {
        return;
    };
    if is_empty(resources, "limits") && is_empty(resources, "requests") {
        return;
    }
    let container_limits = aggregate(spec, "limits");
    let container_requests = aggregate(spec, "requests");
    let Some(resources) = get_mut(spec, "resources") else {
        return;
    };
    let mut requests = get(resources, "requests").cloned().unwrap_or_default();
    let mut limits = get(resources, "limits").cloned().unwrap_or_default();
    for (name, quantity) in container_limits {
        if is_huge_page(&name) && !requests.contains_key(&name) {
            limits
                .entry(name)
                .or_insert(Value::String(quantity.to_string()));
        }
    }
    if !limits.is_empty() {
        for (name, quantity) in container_requests {
            if is_pod_level(&name) && !is_huge_page(&name) {
                requests
                    .entry(name)
                    .or_insert(Value::String(quantity.to_string()));
            }
        }
        for (name, quantity) in &limits {
            if is_pod_level(name) {
                requests
                    .entry(name.as_str())
                    .or_insert_with(|| quantity.clone());
            }
        }
    }
    for (key, map) in [("limits", limits), ("requests", requests)] {
        if !map.is_empty() {
            resources.insert(key.to_owned(), Value::Object(map));
        }
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

type Totals = BTreeMap<String, Quantity>;

/// The aggregated resources of all containers: the maximum of their sum, and of each init container with the sidecars
/// before it.
///
/// UPSTREAM: component-helpers resource/helpers.go (AggregateContainerRequests).
pub(crate) fn aggregate(spec: &Object, what: &str) -> BTreeMap<String, Quantity> {
    let of = |container: &Value| -> Totals {
        let resources = container.get("resources").and_then(|value| value.get(what));
        let entries = resources.and_then(Value::as_object).into_iter().flatten();
        entries
            .filter_map(|(name, quantity)| {
                Some((name.clone(), Quantity::parse(quantity.as_str()?).ok()?))
            })
            .collect()
    };
    let mut total = Totals::new();
    for container in list(spec, "containers") {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut highest) = (Totals::new(), Totals::new());
    for container in list(spec, "initContainers") {
        let mut own = of(container);
        let is_sidecar = container
            .as_object()
            .is_some_and(|container| text(container, "restartPolicy") == "Always");
        if is_sidecar {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut highest, own);
    }
    raise(&mut total, highest);
    total
}

fn add(total: &mut Totals, more: &Totals) {
    for (name, quantity) in more {
        match total.get_mut(name) {
            Some(sum) => {
                if let Ok(added) = sum.add(quantity) {
                    *sum = added;
                }
            }
            None => {
                total.insert(name.clone(), quantity.clone());
            }
        }
    }
}

fn raise(total: &mut Totals, other: Totals) {
    for (name, quantity) in other {
        let higher = total
            .get(&name)
            .is_none_or(|current| quantity.compare(current) == Ordering::Greater);
        if higher {
            total.insert(name, quantity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_what_is_finer_than_a_thousandth() {
        for (quantity, want) in [
            ("1n", Some("1m")),
            ("1500u", Some("2m")),
            ("999999u", Some("1")),
            ("-1u", Some("-1m")),
            ("100e-6", Some("1e-3")),
            ("5m", None),
            ("1", None),
        ] {
            assert_eq!(round_up_to_milli(quantity).as_deref(), want, "{quantity}");
        }
    }
}
