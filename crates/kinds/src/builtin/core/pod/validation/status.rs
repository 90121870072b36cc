//! Validation of Pod status, which kubelets and controllers update.
//!
//! UPSTREAM: pkg/apis/core/validation/validation.go (ValidatePodStatusUpdate)

use std::collections::BTreeSet;

use lockgate_api::field::{FieldError, FieldErrors, Shown};
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use serde_json::{Value, json};

use super::update::annotation_updates;
use crate::at::At;
use crate::builtin::core::resource_name::is_native;
use crate::checks::{check_label, check_legacy_ip, dual_stack_failure, parse_ip_sloppy};
use crate::object::{Object, each, get, list, text};

/// The maximum length of a device health message.
const HEALTH_MESSAGE_MAX: usize = 1024;

/// The container lists and their status lists.
const CONTAINERS: [(&str, &str); 3] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

/// Validates a status update.
pub(in super::super) fn status_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    annotation_updates(errors, object, old);
    let none = Object::new();
    let spec = get(object, "spec").unwrap_or(&none);
    let (at, former) = (At::root(object, "status"), At::root(old, "status"));
    for condition in at.at("conditions").items() {
        if condition.at("observedGeneration").int() < 0 {
            condition
                .at("observedGeneration")
                .invalid_int(errors, "must be a non-negative integer");
        }
        let kind = condition.at("type");
        if !matches!(kind.text(), "PodScheduled" | "Ready" | "Initialized") {
            At::new(condition.path.child("Type"), kind.value).check(errors, check_qualified_name);
        }
    }
    let (nominated, before) = (at.at("nominatedNodeName"), former.at("nominatedNodeName"));
    if nominated.text() != before.text() && !nominated.is_empty() {
        nominated.check(errors, check_subdomain);
        if get(old, "spec").is_some_and(|spec| !text(spec, "nodeName").is_empty()) {
            let detail = "may not be set on pods that are already bound to a node";
            nominated.forbidden(errors, detail);
        }
    }
    if at.at("observedGeneration").int() < 0 {
        at.at("observedGeneration")
            .invalid_int(errors, "must be a non-negative integer");
    }
    let (class, old_class) = (at.at("qosClass"), former.at("qosClass"));
    class.immutable(errors, &old_class);
    let old_spec = get(old, "spec").unwrap_or(&none);
    for (containers, statuses) in CONTAINERS {
        transitions(
            errors,
            &at.at(statuses),
            &former.at(statuses),
            |name, code| {
                containers != "ephemeralContainers" && may_restart(old_spec, containers, name, code)
            },
        );
    }
    claim_statuses(errors, &at, spec);
    extended_claim(errors, &at.at("extendedResourceClaimStatus"), spec);
    node_allocatable(errors, &at, spec);
    addresses(errors, &at, &former);
    for (_, statuses) in CONTAINERS {
        users(errors, &at.at(statuses), spec);
    }
    for (containers, statuses) in CONTAINERS {
        for status in at.at(statuses).items() {
            let allocated = status.at("allocatedResourcesStatus");
            if containers != "ephemeralContainers" {
                allocated_resources(errors, &status, list(spec, containers));
            } else if !allocated.is_empty() {
                allocated.forbidden(errors, "must not be specified in container status");
            }
        }
    }
}

/// A terminated container cannot run again, unless its restart policy allows it. Indexes are those of the old
/// statuses.
fn transitions(
    errors: &mut FieldErrors,
    statuses: &At<'_, '_>,
    former: &At<'_, '_>,
    may_restart: impl Fn(&str, i64) -> bool,
) {
    for old in former.items() {
        let state = old.at("state");
        let ended = state.at("terminated");
        if !ended.is_set() {
            continue;
        }
        let name = old.at("name").text();
        for new in statuses.items() {
            if new.at("name").text() != name || new.at("state").at("terminated").is_set() {
                continue;
            }
            if !may_restart(name, ended.at("exitCode").int()) {
                let detail = "may not be transitioned to non-terminated state";
                state.forbidden(errors, detail);
            }
        }
    }
}

/// UPSTREAM: pkg/api/v1/pod/util.go (AllContainersCouldRestart, ContainerShouldRestart)
fn may_restart(spec: &Object, key: &str, name: &str, code: i64) -> bool {
    let rules = |container: &Value| {
        let rules = container
            .get("restartPolicyRules")
            .and_then(Value::as_array);
        rules.cloned().unwrap_or_default()
    };
    let restarts_all = ["initContainers", "containers"]
        .iter()
        .flat_map(|key| list(spec, key))
        .flat_map(rules)
        .any(|rule| rule["action"] == "RestartAllContainers");
    if restarts_all {
        return true;
    }
    let mut containers = list(spec, key).iter();
    let Some(container) = containers.find(|container| container["name"] == name) else {
        return false;
    };
    let by_policy = |policy: &str| match policy {
        "Always" => Some(true),
        "OnFailure" => Some(code != 0),
        "Never" => Some(false),
        _ => None,
    };
    if let Some(policy) = container.get("restartPolicy").and_then(Value::as_str) {
        let matching = rules(container).into_iter().find(|rule| {
            let codes = rule["exitCodes"]["values"].as_array();
            let has = codes.is_some_and(|codes| codes.iter().any(|known| *known == code));
            match rule["exitCodes"]["operator"].as_str() {
                Some("In") => has,
                Some("NotIn") => !has,
                _ => false,
            }
        });
        if matching.is_some_and(|rule| rule["action"] == "Restart") {
            return true;
        }
        if let Some(decided) = by_policy(policy) {
            return decided;
        }
    }
    by_policy(text(spec, "restartPolicy")).unwrap_or(true)
}

fn claim_statuses(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &Object) {
    let names: BTreeSet<&str> = list(spec, "resourceClaims")
        .iter()
        .filter_map(|claim| claim["name"].as_str())
        .collect();
    let mut seen = BTreeSet::new();
    for status in at.at("resourceClaimStatuses").items() {
        let name = status.at("name");
        if !names.contains(name.text()) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            name.invalid(errors, detail);
        }
        if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
        if status.at("resourceClaimName").is_set() {
            status
                .at("resourceClaimName")
                .check(errors, check_subdomain);
        }
    }
}

/// Validates the ResourceClaim of a Pod's extended resources.
fn extended_claim(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &Object) {
    if !at.is_set() {
        return;
    }
    let mappings = at.at("requestMappings");
    if mappings.is_empty() {
        mappings.required_because(errors, "at least one request mapping is required");
    }
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let (container, resource) = (mapping.at("containerName"), mapping.at("resourceName"));
        let request = mapping.at("requestName");
        // Of containers with the same name, the last one counts.
        let known = ["initContainers", "containers"]
            .iter()
            .flat_map(|key| list(spec, key))
            .rfind(|known| known["name"] == container.text());
        match known {
            None => container.invalid(
                errors,
                "must match the name of an entry in spec.initContainers.name or \
                 spec.containers.name",
            ),
            Some(known)
                if known["resources"]["requests"]
                    .get(resource.text())
                    .is_none() =>
            {
                resource.invalid(
                    errors,
                    "must match the extended resource name of an entry in \
                     spec.initContainers.resources.requests or spec.containers.resources.requests",
                )
            }
            Some(_) => {}
        }
        At::new(at.path.child("requestName"), request.value).check(errors, check_label);
        if !seen.insert([container.text(), resource.text(), request.text()]) {
            for one in [&container, &resource, &request] {
                one.duplicate(errors);
            }
        }
    }
    let claim = at.at("resourceClaimName");
    if claim.is_empty() {
        claim.required(errors);
    } else {
        claim.check(errors, check_subdomain);
    }
}

/// Validates the node-allocatable resources of claims.
fn node_allocatable(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &Object) {
    let of_status = at.at("resourceClaimStatuses");
    let known: BTreeSet<&str> = list(spec, "resourceClaims")
        .iter()
        .chain(of_status.list())
        .filter_map(|claim| claim["resourceClaimName"].as_str())
        .collect();
    for status in at.at("nodeAllocatableResourceClaimStatuses").items() {
        let claim = status.at("resourceClaimName");
        if claim.is_empty() {
            claim.required_because(errors, "must not be empty");
        }
        if !known.contains(claim.text()) {
            claim.invalid(errors, "no mapping found in pod reference");
        }
        let (containers, resources) = (status.at("containers"), status.at("resources"));
        if containers.is_empty() {
            containers.required_because(errors, "must not be empty");
        }
        if resources.is_empty() {
            resources.required_because(errors, "must not be empty");
        }
        for (name, amount) in resources.entries() {
            if !is_native(name) {
                let detail = "must be a node allocatable resource name";
                amount.invalid_as(errors, Shown::Text(name), detail);
            }
            if amount.quantity().is_some_and(|amount| amount.sign() < 0) {
                amount.invalid(errors, "must be non-negative");
            }
        }
    }
}

/// Validates the users of containers.
fn users(errors: &mut FieldErrors, statuses: &At<'_, '_>, spec: &Object) {
    let system = get(spec, "os").map_or("linux", |os| text(os, "name"));
    for status in statuses.items() {
        let user = status.at("user");
        let linux = user.at("linux");
        if !linux.is_set() {
            continue;
        }
        match system {
            "windows" => linux.forbidden(errors, "cannot be set for a windows pod"),
            "linux" => {
                id(errors, &linux.at("uid"));
                id(errors, &linux.at("gid"));
                for group in linux.at("supplementalGroups").items() {
                    id(errors, &group);
                }
            }
            _ => {}
        }
    }
}

fn id(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if !(0..=i64::from(i32::MAX)).contains(&at.int()) {
        at.invalid_int(errors, "must be between 0 and 2147483647, inclusive");
    }
}

/// Validates the health of a container's devices.
fn allocated_resources(errors: &mut FieldErrors, status: &At<'_, '_>, containers: &[Value]) {
    let name = status.at("name").text();
    let container = containers
        .iter()
        .find(|container| container["name"] == name);
    for allocated in status.at("allocatedResourcesStatus").items() {
        let resource = allocated.at("name");
        if let Some(container) = container {
            let resources = container.get("resources").unwrap_or(&Value::Null);
            let (found, detail) = if resource.text().starts_with("claim:") {
                let claims = resources.get("claims").and_then(Value::as_array);
                let found = claims.into_iter().flatten().any(|claim| {
                    let of = |key: &str| claim.get(key).and_then(Value::as_str).unwrap_or_default();
                    let full = match of("request") {
                        "" => format!("claim:{}", of("name")),
                        request => format!("claim:{}/{request}", of("name")),
                    };
                    full == resource.text()
                });
                let detail = "must match one of the container's resource claims in a format \
                              'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
                (found, detail)
            } else {
                let requests = resources.get("requests");
                let found =
                    requests.is_some_and(|requests| requests.get(resource.text()).is_some());
                (found, "must match one of the container's resource requests")
            };
            if !found {
                resource.invalid(errors, detail);
            }
        }
        let mut seen = BTreeSet::new();
        for device in allocated.at("resources").items() {
            let (health, message) = (device.at("health"), device.at("message"));
            health.known(errors, &["Healthy", "Unhealthy", "Unknown"]);
            if message.is_set() && message.text().is_empty() {
                message.required_because(errors, "must be non-empty if specified");
            } else if message.text().len() > HEALTH_MESSAGE_MAX {
                message.too_long(errors, HEALTH_MESSAGE_MAX);
            }
            if !seen.insert(device.at("resourceID").text()) {
                device.at("resourceID").duplicate(errors);
            }
        }
    }
}

/// Validates Pod IPs, at most one per IP family.
fn addresses(errors: &mut FieldErrors, at: &At<'_, '_>, old: &At<'_, '_>) {
    for (key, single) in [("podIPs", "podIP"), ("hostIPs", "hostIP")] {
        let all = at.at(key);
        let known: Vec<&str> = old
            .at(key)
            .list()
            .iter()
            .map(|ip| ip["ip"].as_str().unwrap_or_default())
            .collect();
        if let (true, Some(first)) = (key == "hostIPs", all.items().next())
            && first.at("ip").text() != at.at(single).text()
        {
            first.at("ip").invalid(errors, "must be equal to `hostIP`");
        }
        for ip in all.items() {
            let text = ip.at("ip").text();
            if !known.contains(&text) {
                At::new(ip.path, ip.at("ip").value).check(errors, check_legacy_ip);
            }
        }
        if all.len() < 2 {
            continue;
        }
        let texts: Vec<&str> = all
            .list()
            .iter()
            .map(|ip| ip["ip"].as_str().unwrap_or_default())
            .collect();
        let failure = dual_stack_failure(&texts);
        let is_readable = failure.is_none();
        if let Some(detail) = failure {
            all.internal(errors, detail);
        }
        // An IPv4-mapped IPv6 address counts as IPv4.
        let families: BTreeSet<bool> = texts
            .iter()
            .filter_map(|ip| parse_ip_sloppy(ip))
            .map(|ip| ip.to_canonical().is_ipv6())
            .collect();
        if !is_readable || families.len() != 2 || all.len() > 2 {
            let shown: Vec<Value> = texts.iter().map(|ip| json!({"IP": ip})).collect();
            errors.push(FieldError::invalid(
                &all.path,
                Shown::Rendered(&Value::Array(shown).to_string()),
                "may specify no more than one IP for each IP family",
            ));
        }
    }
}

/// Drops fields of disabled feature gates, unless the old status uses them.
pub(in super::super) fn drop_disabled(status: &mut Object, old: &Object) {
    let key = "nodeAllocatableResourceClaimStatuses";
    if list(old, key).is_empty() {
        status.remove(key);
    }
    let mounts = |status: &Object| {
        let statuses = CONTAINERS.iter().flat_map(|(_, key)| list(status, key));
        statuses
            .flat_map(|status| status["volumeMounts"].as_array().into_iter().flatten())
            .any(|mount| mount["volumeStatus"].is_object())
    };
    if !mounts(old) {
        for (_, key) in CONTAINERS {
            each(status, key, |container| {
                each(container, "volumeMounts", |mount| {
                    mount.remove("volumeStatus");
                });
            });
        }
    }
}
