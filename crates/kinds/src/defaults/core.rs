//! The core group without pods and volumes.

use serde_json::{Value, json};

use lockgate_go::base64;

use super::object::{
    Object, at_mut, each, fill, fill_text, get, get_mut, has, is_empty, number, open, text,
};
use super::resources::round_up;

pub(super) fn service(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let is_set = at_mut(spec, &["sessionAffinityConfig", "clientIP"])
                .is_some_and(|config| has(config, "timeoutSeconds"));
            if !is_set {
                let config = json!({"clientIP": {"timeoutSeconds": 10800}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    fill_text(spec, "type", "ClusterIP");
    each(spec, "ports", |port| {
        fill_text(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            Some(Value::Number(target)) => target.as_i64() == Some(0),
            Some(Value::String(name)) => name.is_empty(),
            _ => true,
        };
        if unset {
            port.insert("targetPort".to_owned(), Value::from(number(port, "port")));
        }
    });
    let kind = text(spec, "type").to_owned();
    let is_external = matches!(kind.as_str(), "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && !is_empty(spec, "externalIPs"));
    if is_external {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        if let Some(balancer) = at_mut(object, &["status", "loadBalancer"]) {
            each(balancer, "ingress", |ingress| {
                if !text(ingress, "ip").is_empty() {
                    fill(ingress, "ipMode", "VIP");
                }
            });
        }
    }
}

/// The texts of `stringData` become part of `data`; the server never writes them again.
pub(super) fn secret(object: &mut Object) {
    fill_text(object, "type", "Opaque");
    if let Some(Value::Object(texts)) = object.remove("stringData")
        && !texts.is_empty()
        && let Some(data) = open(object, "data")
    {
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or_default().as_bytes();
            data.insert(key, Value::String(base64::encode(bytes)));
        }
    }
}

/// A namespace carries its name as a label, so that selectors can find it.
pub(super) fn namespace(object: &mut Object) {
    if let Some(metadata) = get_mut(object, "metadata") {
        let name = text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = open(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
        }
    }
    if let Some(status) = open(object, "status") {
        fill_text(status, "phase", "Active");
    }
}

pub(super) fn endpoints(object: &mut Object) {
    each(object, "subsets", |subset| {
        each(subset, "ports", |port| fill_text(port, "protocol", "TCP"));
    });
}

pub(super) fn limit_range(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    each(spec, "limits", |item| {
        if text(item, "type") == "Container" {
            for (from, to) in [
                ("max", "default"),
                ("default", "defaultRequest"),
                ("min", "defaultRequest"),
            ] {
                let values = get(item, from).cloned().unwrap_or_default();
                if values.is_empty() {
                    continue;
                }
                if let Some(target) = open(item, to) {
                    for (name, quantity) in values {
                        target.entry(name).or_insert(quantity);
                    }
                }
            }
        }
        for key in [
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ] {
            round_up(item, key);
        }
    });
}

pub(super) fn resource_quota(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        round_up(spec, "hard");
    }
    if let Some(status) = get_mut(object, "status") {
        round_up(status, "hard");
        round_up(status, "used");
    }
}
