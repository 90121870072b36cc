//! IP families and cluster IPs of Services, before allocation.
//!
//! Errors found here end the request before validation. The server allocates IPv4 addresses only.
//!
//! UPSTREAM: pkg/registry/core/service/storage/{storage,alloc}.go (beginCreate, beginUpdate,
//! initIPFamilyFields)

use serde_json::{Value, json};

use lockgate_api::field::FieldErrors;

use super::{cluster_ips, is_ipv6, keep_allocated, needs_cluster_ip};
use crate::at::At;
use crate::object::{Object, get, get_mut, has, is_empty, list, text};

/// Synchronizes the cluster IPs of a Service, and defaults its IP families.
pub(super) fn begin(object: &mut Object, old: Option<&Object>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if let Some(old) = old {
        keep_allocated(object, old);
    }
    let old = old.and_then(|old| get(old, "spec"));
    if let (None, Some(spec)) = (old, get_mut(object, "spec")) {
        // The client sets the singular field only.
        let address = text(spec, "clusterIP").to_owned();
        if !address.is_empty() && is_empty(spec, "clusterIPs") {
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
    }
    if get(object, "spec").is_some_and(|spec| needs_cluster_ip(spec) && !is_kept(spec, old)) {
        families(&mut errors, object, old);
    }
    errors
}

/// With `PreferDualStack`, an unchanged Service is not defaulted again.
fn is_kept(spec: &Object, old: Option<&Object>) -> bool {
    old.is_some_and(|old| {
        let same = |key: &str| spec.get(key) == old.get(key);
        let prefers = |spec: &Object| text(spec, "ipFamilyPolicy") == "PreferDualStack";
        has(spec, "ipFamilyPolicy")
            && prefers(spec)
            && (!has(old, "ipFamilyPolicy") || prefers(old))
            && ["type", "clusterIP", "clusterIPs", "ipFamilies"]
                .into_iter()
                .all(same)
    })
}

fn families(errors: &mut FieldErrors, object: &mut Object, old: Option<&Object>) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    let is_bare = text(spec, "clusterIP") == "None" && is_empty(spec, "selector");
    if !has(spec, "ipFamilyPolicy") {
        let former = old.filter(|old| has(old, "ipFamilyPolicy"));
        let policy = match former {
            Some(old) => text(old, "ipFamilyPolicy"),
            None if is_bare => "RequireDualStack",
            None => "SingleStack",
        };
        spec.insert("ipFamilyPolicy".to_owned(), Value::from(policy));
    }
    cluster_ips(errors, &At::root(object, "spec"), old);
    if !errors.is_empty() {
        return;
    }
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if old.is_some() && text(spec, "ipFamilyPolicy") == "SingleStack" {
        for key in ["clusterIPs", "ipFamilies"] {
            let is_same = old.is_some_and(|old| list(old, key) == list(spec, key));
            if let (true, Some(items)) = (is_same, spec.get_mut(key).and_then(Value::as_array_mut))
            {
                items.truncate(1);
            }
        }
    }
    let at = At::root(object, "spec");
    let (addresses, known) = (at.at("clusterIPs"), at.at("ipFamilies"));
    let policy = at.at("ipFamilyPolicy");
    if policy.text() == "SingleStack" {
        for (list, what) in [(&addresses, "cluster IPs"), (&known, "IP families")] {
            if list.len() == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are \
                     specified"
                );
                policy.invalid(errors, detail);
            }
        }
    } else if let Some(old) = old {
        for (key, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (before, now) = (list(old, key), at.at(key));
            if !now.is_empty() && now.len() < before.len() {
                let detail = format!("must be 'SingleStack' to release the secondary {what}");
                policy.invalid(errors, detail);
            }
        }
    }
    let mut inferred: Vec<Value> = known.list().to_vec();
    for (index, address) in addresses.items().enumerate() {
        if address.text() == "None" {
            break;
        }
        if index < known.len() {
            continue;
        }
        if is_ipv6(address.text()) {
            At::new(address.path, addresses.value)
                .invalid(errors, "IPv6 is not configured on this cluster");
        } else {
            inferred.push(Value::from("IPv4"));
        }
    }
    if !errors.is_empty() {
        return;
    }
    if is_bare {
        if inferred.is_empty() {
            inferred.push(Value::from("IPv4"));
        }
        if inferred.len() < 2 && policy.text() != "SingleStack" {
            let other = if inferred[0] == "IPv4" {
                "IPv6"
            } else {
                "IPv4"
            };
            inferred.push(Value::from(other));
        }
    } else {
        if policy.text() == "RequireDualStack" {
            let detail = "this cluster is not configured for dual-stack services";
            policy.invalid(errors, detail);
        }
        for family in known.items() {
            if family.text() != "IPv4" {
                family.invalid(errors, "not configured on this cluster");
            }
        }
        if inferred.is_empty() {
            inferred.push(Value::from("IPv4"));
        }
    }
    if let (true, Some(spec)) = (errors.is_empty(), get_mut(object, "spec")) {
        spec.insert("ipFamilies".to_owned(), Value::Array(inferred));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(spec: Value) -> (Value, Vec<String>) {
        let mut service = json!({ "spec": spec });
        let errors = begin(service.as_object_mut().unwrap(), None);
        let errors = errors.iter().map(ToString::to_string).collect();
        (service["spec"].clone(), errors)
    }

    #[test]
    fn families_follow_addresses_and_selectors() {
        let (spec, errors) = begun(json!({"type": "ClusterIP", "clusterIP": "10.96.0.9"}));
        assert_eq!(errors, [""; 0]);
        assert_eq!(spec["clusterIPs"], json!(["10.96.0.9"]));
        assert_eq!(spec["ipFamilies"], json!(["IPv4"]));
        let (spec, _) = begun(json!({"type": "ClusterIP", "clusterIP": "None"}));
        assert_eq!(spec["ipFamilyPolicy"], "RequireDualStack");
        assert_eq!(spec["ipFamilies"], json!(["IPv4", "IPv6"]));
    }

    #[test]
    fn a_cluster_of_one_family_refuses_two() {
        let (_, errors) = begun(json!({"type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack"}));
        assert_eq!(
            errors,
            [
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not \
              configured for dual-stack services"
            ]
        );
        let (_, errors) = begun(json!({"type": "ClusterIP", "ipFamilies": ["IPv4", "IPv6"]}));
        assert_eq!(errors.len(), 1);
    }
}
