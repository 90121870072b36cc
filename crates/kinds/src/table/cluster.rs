//! What a cluster is made of and who may do what in it.

use std::collections::BTreeSet;

use lockgate_api::meta::time::Time;
use serde_json::Value;

use super::cells::{Common, Row, cell};
use super::duration::{human_duration, since};
use super::read::{condition, integer, is_deleted, is_true, items, members, text, text_or};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

pub(super) fn node(object: &Value, common: &Common<'_>) -> Row {
    // Of several conditions of one type, the last counts.
    let ready = items(object, "/status/conditions")
        .iter()
        .rfind(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => String::from("Ready"),
        Some(_) => String::from("NotReady"),
        None => String::from("Unknown"),
    };
    if is_true(object, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        items(object, "/status/addresses")
            .iter()
            .find(|address| text(address, "/type") == kind)
            .map_or("<none>", |address| text(address, "/address"))
    };
    let info = |member: &str| text_or(object, &format!("/status/nodeInfo/{member}"), "<unknown>");
    let kernel = match text(object, "/status/nodeInfo/architecture") {
        "" => info("kernelVersion"),
        architecture => format!("{} ({architecture})", info("kernelVersion")),
    };
    Row::of(vec![
        cell(common.name),
        cell(status),
        cell(roles(object)),
        cell(common.age.as_str()),
        cell(text(object, "/status/nodeInfo/kubeletVersion")),
        cell(address("InternalIP")),
        cell(address("ExternalIP")),
        cell(info("osImage")),
        cell(kernel),
        cell(info("containerRuntimeVersion")),
    ])
}

fn roles(object: &Value) -> String {
    let labels = members(object, "/metadata/labels").into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return String::from("<none>");
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

pub(super) fn event(object: &Value, now: Time) -> Row {
    let at = |pointer: &str| since(text(object, pointer), now);
    let first = match text(object, "/firstTimestamp") {
        "" => at("/eventTime"),
        time => since(time, now),
    };
    let mut last = match text(object, "/lastTimestamp") {
        "" => first.clone(),
        time => since(time, now),
    };
    let mut count = integer(object, "/count");
    if object.get("series").is_some_and(Value::is_object) {
        last = at("/series/lastObservedTime");
        count = integer(object, "/series/count");
    } else if count == 0 {
        // One that never came again has no count.
        count = 1;
    }
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let target = match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = text_or(
        object,
        "/source/component",
        text(object, "/reportingComponent"),
    );
    let host = text_or(object, "/source/host", text(object, "/reportingInstance"));
    let source = if host.is_empty() {
        source
    } else {
        format!("{source}, {host}")
    };
    Row::of(vec![
        cell(last),
        cell(text(object, "/type")),
        cell(text(object, "/reason")),
        cell(target),
        cell(text(object, "/involvedObject/fieldPath")),
        cell(source),
        cell(text(object, "/message").trim()),
        cell(first),
        cell(count),
        cell(text(object, "/metadata/name")),
    ])
}

pub(super) fn component_status(object: &Value) -> Row {
    let healthy = items(object, "/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Healthy");
    let (status, message, error) = match healthy {
        None => ("Unknown", "", ""),
        Some(condition) => (
            match text(condition, "/status") {
                "True" => "Healthy",
                _ => "Unhealthy",
            },
            text(condition, "/message"),
            text(condition, "/error"),
        ),
    };
    let name = text(object, "/metadata/name");
    Row::of([name, status, message, error].map(cell).to_vec())
}

pub(super) fn quota(object: &Value, common: &Common<'_>) -> Row {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = members(object, "/status/used");
    for (resource, hard) in members(object, "/status/hard").into_iter().flatten() {
        let used = used.and_then(|used| used.get(resource));
        let shown = format!(
            "{resource}: {}/{}",
            used.and_then(Value::as_str).unwrap_or("0"),
            hard.as_str().unwrap_or("0")
        );
        if resource.starts_with("limits.") {
            limits.push(shown);
        } else {
            requests.push(shown);
        }
    }
    Row::of(vec![
        cell(common.name),
        cell(requests.join(", ")),
        cell(limits.join(", ")),
        cell(common.age.as_str()),
    ])
}

pub(super) fn role_binding(object: &Value, common: &Common<'_>) -> Row {
    let subjects = |kind: &str| {
        let names: Vec<String> = items(object, "/subjects")
            .iter()
            .filter(|subject| text(subject, "/kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "/namespace"), text(subject, "/name"))
                }
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        cell(names.join(", "))
    };
    let role = format!(
        "{}/{}",
        text(object, "/roleRef/kind"),
        text(object, "/roleRef/name")
    );
    Row::of(vec![
        cell(common.name),
        cell(role),
        cell(common.age.as_str()),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ])
}

pub(super) fn certificate_request(object: &Value, common: &Common<'_>) -> Row {
    let mut status = if condition(object, "Denied").is_some() {
        String::from("Denied")
    } else if condition(object, "Approved").is_some() {
        String::from("Approved")
    } else {
        String::from("Pending")
    };
    if condition(object, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let wanted = object
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64);
    Row::of(vec![
        cell(common.name),
        cell(common.age.as_str()),
        cell(text_or(object, "/spec/signerName", "<none>")),
        cell(text(object, "/spec/username")),
        cell(wanted.map_or_else(|| String::from("<none>"), human_duration)),
        cell(status),
    ])
}

pub(super) fn flow_schema(object: &Value, common: &Common<'_>) -> Row {
    let method = match object.pointer("/spec/distinguisherMethod") {
        Some(method) if method.is_object() => text(method, "/type"),
        _ => "<none>",
    };
    let dangling = condition(object, "Dangling");
    Row::of(vec![
        cell(common.name),
        cell(text(object, "/spec/priorityLevelConfiguration/name")),
        cell(integer(object, "/spec/matchingPrecedence")),
        cell(method),
        cell(common.age.as_str()),
        cell(dangling.map_or("?", |condition| text(condition, "/status"))),
    ])
}

pub(super) fn priority_level(object: &Value, common: &Common<'_>) -> Row {
    let limited = object
        .pointer("/spec/limited")
        .filter(|limited| limited.is_object());
    let queuing = limited
        .and_then(|limited| limited.pointer("/limitResponse/queuing"))
        .filter(|queuing| queuing.is_object());
    let amount = |holder: Option<&Value>, pointer: &str| match holder {
        Some(holder) => cell(integer(holder, pointer)),
        None => cell("<none>"),
    };
    Row::of(vec![
        cell(common.name),
        cell(text(object, "/spec/type")),
        amount(limited, "/nominalConcurrencyShares"),
        amount(queuing, "/queues"),
        amount(queuing, "/handSize"),
        amount(queuing, "/queueLengthLimit"),
        cell(common.age.as_str()),
    ])
}

pub(super) fn resource_claim(object: &Value, common: &Common<'_>) -> Row {
    let is_allocated = object
        .pointer("/status/allocation")
        .is_some_and(Value::is_object);
    let mut states = Vec::new();
    if is_deleted(object) {
        states.push("deleted");
    } else if !is_allocated {
        states.push("pending");
    }
    if is_allocated {
        states.push("allocated");
        if !items(object, "/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    }
    Row::of(vec![
        cell(common.name),
        cell(states.join(",")),
        cell(common.age.as_str()),
    ])
}

pub(super) fn api_service(object: &Value, common: &Common<'_>) -> Row {
    let service = match object.pointer("/spec/service") {
        Some(service) if service.is_object() => {
            format!("{}/{}", text(service, "/namespace"), text(service, "/name"))
        }
        _ => String::from("Local"),
    };
    let available = match condition(object, "Available") {
        None => String::from("Unknown"),
        Some(condition) => match (text(condition, "/status"), text(condition, "/reason")) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    Row::of(vec![
        cell(common.name),
        cell(service),
        cell(available),
        cell(common.age.as_str()),
    ])
}
