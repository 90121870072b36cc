//! Services: what goes when the type changes.

use serde_json::{Value, json};

use crate::defaults::object::{Object, get, get_mut, is_empty, list, number, text};

/// Drops what the server filled in for the former type and the client did not touch.
///
/// UPSTREAM: pkg/registry/core/service/strategy.go (dropTypeDependentFields).
pub(super) fn drop_type_dependent(object: &mut Object, old: &Object) {
    let (Some(old_spec), Some(spec)) = (get(old, "spec"), get_mut(object, "spec")) else {
        return;
    };
    let same = |spec: &Object, key: &str| spec.get(key) == old_spec.get(key);
    if needs_cluster_ip(old_spec) && !needs_cluster_ip(spec) {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, key) {
                spec.remove(key);
            }
        }
    }
    if needs_node_port(old_spec)
        && !needs_node_port(spec)
        && node_ports(spec) == node_ports(old_spec)
    {
        crate::defaults::object::each(spec, "ports", |port| {
            port.remove("nodePort");
        });
    }
    let drop_if = |spec: &mut Object, applied: bool, applies: bool, key: &str| {
        if applied && !applies && spec.get(key) == old_spec.get(key) {
            spec.remove(key);
        }
    };
    let health =
        |spec: &Object| is_balancer(spec) && text(spec, "externalTrafficPolicy") == "Local";
    let (applied, applies) = (health(old_spec), health(spec));
    drop_if(spec, applied, applies, "healthCheckNodePort");
    let (applied, applies) = (is_balancer(old_spec), is_balancer(spec));
    drop_if(spec, applied, applies, "allocateLoadBalancerNodePorts");
    drop_if(spec, applied, applies, "loadBalancerClass");
    let (applied, applies) = (is_external(old_spec), is_external(spec));
    drop_if(spec, applied, applies, "externalTrafficPolicy");
    if !is_balancer(spec)
        && let Some(status) = get_mut(object, "status")
    {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
}

fn needs_cluster_ip(spec: &Object) -> bool {
    text(spec, "type") != "ExternalName"
}

fn needs_node_port(spec: &Object) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => {
            spec.get("allocateLoadBalancerNodePorts")
                .and_then(Value::as_bool)
                != Some(false)
        }
        _ => false,
    }
}

fn is_balancer(spec: &Object) -> bool {
    text(spec, "type") == "LoadBalancer"
}

fn is_external(spec: &Object) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !is_empty(spec, "externalIPs"),
        _ => false,
    }
}

fn node_ports(spec: &Object) -> Vec<i64> {
    let mut ports: Vec<i64> = list(spec, "ports")
        .iter()
        .filter_map(Value::as_object)
        .map(|port| number(port, "nodePort"))
        .collect();
    ports.sort_unstable();
    ports
}
