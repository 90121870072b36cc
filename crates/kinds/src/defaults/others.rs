//! Networking, access, flow control, registration and the remaining groups.

use serde_json::{Value, json};

use super::object::{
    Object, at_mut, each, fill, fill_number, fill_text, flag, get, get_mut, is_empty, list, open,
    text,
};

pub(super) fn network_policy(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if is_empty(spec, "policyTypes") {
        let types = if is_empty(spec, "egress") {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        spec.insert("policyTypes".to_owned(), types);
    }
    for direction in ["ingress", "egress"] {
        each(spec, direction, |rule| {
            each(rule, "ports", |port| fill(port, "protocol", "TCP"));
        });
    }
}

pub(super) fn ingress_class(object: &mut Object) {
    if let Some(parameters) = at_mut(object, &["spec", "parameters"]) {
        fill(parameters, "scope", "Cluster");
    }
}

pub(super) fn endpoint_slice(object: &mut Object) {
    each(object, "ports", |port| {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    });
}

pub(super) fn role_binding(object: &mut Object) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = get_mut(object, "roleRef") {
        fill_text(role, "apiGroup", GROUP);
    }
    each(object, "subjects", |subject| {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill_text(subject, "apiGroup", GROUP);
        }
    });
}

pub(super) fn priority_class(object: &mut Object) {
    fill(object, "preemptionPolicy", "PreemptLowerPriority");
}

pub(super) fn token_request(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "expirationSeconds", 3600);
    }
}

pub(super) fn flow_schema(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill_number(spec, "matchingPrecedence", 1000);
    }
}

pub(super) fn priority_level(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if let Some(exempt) = get_mut(spec, "exempt") {
        fill(exempt, "nominalConcurrencyShares", 0);
        fill(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = get_mut(spec, "limited") {
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
        if let Some(queuing) = at_mut(limited, &["limitResponse", "queuing"]) {
            fill_number(queuing, "handSize", 8);
            fill_number(queuing, "queues", 64);
            fill_number(queuing, "queueLengthLimit", 50);
        }
    }
}

/// What a webhook is given depends on the version of the registration API.
pub(super) fn webhooks(object: &mut Object, version: &str, mutating: bool) {
    each(object, "webhooks", |webhook| {
        if version == "v1beta1" {
            fill(webhook, "failurePolicy", "Ignore");
            fill(webhook, "matchPolicy", "Exact");
            fill(webhook, "timeoutSeconds", 30);
            fill(webhook, "sideEffects", "Unknown");
            if is_empty(webhook, "admissionReviewVersions") {
                webhook.insert("admissionReviewVersions".to_owned(), json!(["v1beta1"]));
            }
        } else {
            fill(webhook, "failurePolicy", "Fail");
            fill(webhook, "matchPolicy", "Equivalent");
            fill(webhook, "timeoutSeconds", 10);
        }
        fill(webhook, "namespaceSelector", json!({}));
        fill(webhook, "objectSelector", json!({}));
        if mutating {
            fill(webhook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = at_mut(webhook, &["clientConfig", "service"]) {
            fill(service, "port", 443);
        }
        each(webhook, "rules", |rule| fill(rule, "scope", "*"));
    });
}

pub(super) fn admission_policy(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "failurePolicy", "Fail");
        if let Some(matching) = get_mut(spec, "matchConstraints") {
            match_resources(matching);
        }
    }
}

pub(super) fn admission_policy_binding(object: &mut Object) {
    if let Some(matching) = at_mut(object, &["spec", "matchResources"]) {
        match_resources(matching);
    }
}

fn match_resources(matching: &mut Object) {
    fill(matching, "matchPolicy", "Equivalent");
    fill(matching, "namespaceSelector", json!({}));
    fill(matching, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        each(matching, key, |rule| fill(rule, "scope", "*"));
    }
}

pub(super) fn custom_resource_definition(object: &mut Object) {
    let mut stored = None;
    if let Some(spec) = get_mut(object, "spec") {
        if let Some(names) = get_mut(spec, "names") {
            let kind = text(names, "kind").to_owned();
            if !kind.is_empty() {
                fill_text(names, "singular", &kind.to_lowercase());
                fill_text(names, "listKind", &format!("{kind}List"));
            }
        }
        fill(spec, "conversion", json!({"strategy": "None"}));
        if let Some(service) = at_mut(spec, &["conversion", "webhook", "clientConfig", "service"]) {
            fill(service, "port", 443);
        }
        let storage = |version: &&Value| {
            version
                .as_object()
                .is_some_and(|version| flag(version, "storage"))
        };
        stored = list(spec, "versions")
            .iter()
            .find(storage)
            .and_then(|version| version.get("name"))
            .cloned();
    }
    if let Some(name) = stored
        && let Some(status) = open(object, "status")
        && is_empty(status, "storedVersions")
    {
        status.insert("storedVersions".to_owned(), json!([name]));
    }
}

pub(super) fn api_service(object: &mut Object) {
    if let Some(service) = at_mut(object, &["spec", "service"]) {
        fill(service, "port", 443);
    }
}

pub(super) fn resource_claim(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        claim_spec(spec);
    }
    if let Some(devices) = at_mut(object, &["status", "allocation", "devices"]) {
        each(devices, "results", tolerations);
    }
}

pub(super) fn resource_claim_template(object: &mut Object) {
    if let Some(spec) = at_mut(object, &["spec", "spec"]) {
        claim_spec(spec);
    }
}

fn claim_spec(spec: &mut Object) {
    let Some(devices) = get_mut(spec, "devices") else {
        return;
    };
    each(devices, "requests", |request| {
        if let Some(exactly) = get_mut(request, "exactly") {
            device_request(exactly);
        }
        each(request, "firstAvailable", device_request);
    });
}

fn device_request(request: &mut Object) {
    const EXACT: &str = "ExactCount";
    fill_text(request, "allocationMode", EXACT);
    if text(request, "allocationMode") == EXACT {
        fill_number(request, "count", 1);
    }
    tolerations(request);
}

fn tolerations(holder: &mut Object) {
    each(holder, "tolerations", |toleration| {
        fill_text(toleration, "operator", "Equal");
    });
}

pub(super) fn resource_slice(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    each(spec, "devices", |device| {
        let names: Vec<String> = get(device, "nodeAllocatableResourceMappings")
            .map(|mappings| mappings.keys().cloned().collect())
            .unwrap_or_default();
        for name in names {
            if let Some(mapping) =
                at_mut(device, &["nodeAllocatableResourceMappings", name.as_str()])
            {
                fill(mapping, "allocationMultiplier", "1");
            }
        }
    });
}
