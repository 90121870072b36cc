//! Nodes.

use crate::amounts::round_up;
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{
    CHANGE, FieldSelector, Kind, NAME, NewStatus, PROXY, Resource, cluster, flag_selector, sub,
};
use crate::object::{Object, fill, get_mut, list, text, with};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const NODES: Resource = cluster("", "v1", "nodes", "node", "Node", "NodeList", &Node)
    .short(&["no"])
    .subresources(&[
        sub("proxy", "", "v1", "NodeProxyOptions", PROXY),
        sub("status", "", "v1", "Node", CHANGE),
    ]);

const SELECTABLE: &[FieldSelector] = &[
    NAME,
    flag_selector("spec.unschedulable", &["spec", "unschedulable"]),
];

/// The kind `Node`.
#[derive(Debug)]
pub(super) struct Node;

impl Kind for Node {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn new_status(&self) -> NewStatus {
        // A node reports its own status from the start.
        NewStatus::Sent
    }

    fn columns(&self) -> &'static str {
        "Name|Status|Roles|Age|Version|+Internal-IP|+External-IP|+OS-Image|+Kernel-Version|+Container-Runtime"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        node_row(object, common)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }
}

/// A node reports what pods may use; unsaid, it is everything.
fn defaults(object: &mut Object) {
    if let Some(status) = get_mut(object, "status") {
        if let Some(capacity) = status.get("capacity").cloned() {
            fill(status, "allocatable", capacity);
        }
        round_up(status, "capacity");
        round_up(status, "allocatable");
    }
    if let Some(spec) = get_mut(object, "spec") {
        pod_cidrs(spec);
    }
}

/// The single range is the first of the list; where both are given and differ, the single one wins.
fn pod_cidrs(spec: &mut Object) {
    let listed = list(spec, "podCIDRs");
    let is_listed = !listed.is_empty();
    let first = listed
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let single = text(spec, "podCIDR").to_owned();
    if !single.is_empty() && (!is_listed || first != single) {
        spec.insert("podCIDRs".to_owned(), json!([single]));
    } else if single.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".to_owned(), Value::from(first));
    }
}

fn node_row(object: &Value, common: &Common<'_>) -> Row {
    // Of several conditions of one type, the last counts.
    let ready = read::items(object, "/status/conditions")
        .iter()
        .rfind(|condition| read::text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| read::text(condition, "/status")) {
        Some("True") => String::from("Ready"),
        Some(_) => String::from("NotReady"),
        None => String::from("Unknown"),
    };
    if read::is_true(object, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        read::items(object, "/status/addresses")
            .iter()
            .find(|address| read::text(address, "/type") == kind)
            .map_or("<none>", |address| read::text(address, "/address"))
    };
    let info =
        |member: &str| read::text_or(object, &format!("/status/nodeInfo/{member}"), "<unknown>");
    let kernel = match read::text(object, "/status/nodeInfo/architecture") {
        "" => info("kernelVersion"),
        architecture => format!("{} ({architecture})", info("kernelVersion")),
    };
    Row::of(vec![
        cell(common.name),
        cell(status),
        cell(roles(object)),
        cell(common.age.as_str()),
        cell(read::text(object, "/status/nodeInfo/kubeletVersion")),
        cell(address("InternalIP")),
        cell(address("ExternalIP")),
        cell(info("osImage")),
        cell(kernel),
        cell(info("containerRuntimeVersion")),
    ])
}

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

fn roles(object: &Value) -> String {
    let labels = read::members(object, "/metadata/labels")
        .into_iter()
        .flatten();
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
