//! Nodes.

use crate::amounts::round_up;
use crate::at::At;
use crate::builtin::core::pod::taint_effect;
use crate::builtin::core::resource_name::quantity_value;
use crate::cells::{Common, Row, cell, read};
use crate::checks::check_legacy_cidr;
use crate::checks::{cidr_warnings, parse_cidr_sloppy};
use crate::kind::{
    CHANGE, Context, FieldSelector, Kind, NAME, NewStatus, PROXY, Resource, Written, cluster,
    flag_selector, sub,
};
use crate::object::{Object, fill, get_mut, list, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_label_value, check_qualified_name};
use lockgate_go::json::to_string;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const NODES: Resource = cluster("", "v1", "nodes", "node", "Node", "NodeList", &Node)
    .in_etcd_as("minions")
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
    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        for (parent, key) in [("spec", "configSource"), ("status", "config")] {
            with(value, |node| {
                if let Some(parent) = get_mut(node, parent) {
                    parent.remove(key);
                }
            });
        }
    }

    fn prepare_update(
        &self,
        _subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        for (parent, key) in [("spec", "configSource"), ("status", "config")] {
            if old.pointer(&format!("/{parent}/{key}")).is_none() {
                with(value, |node| {
                    if let Some(parent) = get_mut(node, parent) {
                        parent.remove(key);
                    }
                });
            }
        }
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        node_warnings(new.object())
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        node_warnings(new.object())
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if subresource.is_empty() {
            errors.extend(self.validate_create(new, context));
        }
        errors.extend(self.validate_metadata_update(new, old));
        self.validate(&mut errors, new, Some(old), context);
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        match old {
            None => node(errors, new.object()),
            Some(old) => node_update(errors, new.object(), old.object()),
        }
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn new_status(&self) -> NewStatus {
        // Kubelets set the status on create.
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

/// `allocatable` defaults to `capacity`.
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

/// `podCIDR` is the first of `podCIDRs`; if they differ, `podCIDR` wins.
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
    // Of several conditions of one type, the last one counts.
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

/// UPSTREAM: pkg/apis/core/validation/validation.go (ValidateNode)
fn node(errors: &mut FieldErrors, object: &Object) {
    taints(errors, object);
    resources(errors, object);
    let status = At::root(object, "status");
    let info = status.at("nodeInfo");
    let swap = info.at("swap");
    let capacity = swap.at("capacity");
    if capacity.is_set() {
        let metadata = Path::root("metadata");
        let path = metadata.child("nodeSwapStatus");
        At::new(path.child("capacity"), capacity.value).positive(errors);
    }
    declared_features(errors, &status.at("declaredFeatures"));
    let spec = At::root(object, "spec");
    let ranges = spec.at("podCIDRs");
    for range in ranges.items() {
        range.check(errors, check_legacy_cidr);
    }
    let families: BTreeSet<bool> = ranges.texts().map(|range| range.contains(':')).collect();
    let wrong = ranges
        .texts()
        .position(|range| parse_cidr_sloppy(range).is_none())
        .filter(|_| ranges.len() > 1);
    if let Some((index, range)) = wrong.and_then(|index| Some((index, ranges.texts().nth(index)?)))
    {
        ranges.internal(
            errors,
            format!(
                "invalid PodCIDRs. failed to check with dual stack with error:invalid \
                 CIDR[{index}]: <nil> (invalid CIDR address: {range})"
            ),
        );
    }
    if ranges.len() > 1 && (wrong.is_some() || families.len() != 2 || ranges.len() > 2) {
        let detail = "may specify no more than one CIDR for each IP family";
        ranges.invalid(errors, detail);
    }
}

/// Validates taints; upstream's paths are below `metadata`.
fn taints(errors: &mut FieldErrors, object: &Object) {
    let spec = At::root(object, "spec");
    let metadata = Path::root("metadata");
    let all = At::new(metadata.child("taints"), spec.at("taints").value);
    let mut seen = BTreeSet::new();
    for taint in all.items() {
        let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
        key.check(errors, check_qualified_name);
        let messages = check_label_value(value.text());
        if !messages.is_empty() {
            value.invalid_as(errors, Shown::Text(value.text()), messages.join(";"));
        }
        taint_effect(errors, &effect);
        if !seen.insert((effect.text(), key.text())) {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}",
                Shown::Named(key.text()),
                Shown::Named(value.text()),
                Shown::Named(effect.text()),
                taint
                    .at("timeAdded")
                    .value
                    .map_or_else(|| String::from("null"), to_string),
            );
            let mut error = FieldError::duplicate(&taint.path, Shown::Rendered(&shown));
            error.detail = String::from("taints must be unique by key and effect pair");
            errors.push(error);
        }
    }
}

fn resources(errors: &mut FieldErrors, object: &Object) {
    let status = At::root(object, "status");
    for key in ["capacity", "allocatable"] {
        let amounts = status.at(key);
        for (name, amount) in amounts.entries() {
            let at = At::new(amounts.path.child(name), amount.value);
            quantity_value(errors, &at, name);
        }
    }
}

fn declared_features(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const NAME_MAX: usize = 253;
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.split('/').all(|part| {
                part.starts_with(|c: char| c.is_ascii_alphabetic())
                    && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
            })
    };
    let names: Vec<&str> = at.texts().collect();
    for (index, feature) in at.items().enumerate() {
        let name = feature.text();
        let quoted = lockgate_go::quote::quote(name);
        if name.len() > NAME_MAX {
            let detail = format!(
                "invalid feature name {quoted}: must be no more than {NAME_MAX} characters"
            );
            feature.invalid(errors, detail);
        } else if !is_name(name) {
            let detail = format!(
                "invalid feature name {quoted}: must start with an UpperCamelCase segment, with \
                 subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), \
                 and contain only alphanumeric characters and slashes"
            );
            feature.invalid(errors, detail);
        }
        if let Some(next) = names.get(index + 1) {
            let path = at.path.index(index + 1);
            if name == *next {
                errors.push(FieldError::duplicate(&path, Shown::Text(next)));
            } else if name > *next {
                let detail = "list must be sorted alphabetically";
                errors.push(FieldError::invalid(&path, Shown::Text(next), detail));
            }
        }
    }
}

/// Validates which fields of a Node change.
fn node_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    resources(errors, object);
    let (status, spec) = (At::root(object, "status"), At::root(object, "spec"));
    let former = At::root(old, "spec");
    declared_features(errors, &status.at("declaredFeatures"));
    let mut seen = BTreeSet::new();
    for address in status.at("addresses").items() {
        let (kind, own) = (address.at("type").text(), address.at("address").text());
        if !seen.insert((kind, own)) {
            let shown = format!(
                "{{\"Type\":{},\"Address\":{}}}",
                Shown::Named(kind),
                Shown::Named(own)
            );
            address.duplicate_as(errors, Shown::Rendered(&shown));
        }
    }
    let (ranges, former_ranges) = (spec.at("podCIDRs"), former.at("podCIDRs"));
    const FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";
    if !former_ranges.is_empty() {
        if former_ranges.len() != ranges.len() {
            ranges.forbidden(errors, FIXED);
        } else {
            for (one, other) in former_ranges.texts().zip(ranges.texts()) {
                if one != other {
                    ranges.forbidden(errors, FIXED);
                }
            }
        }
    }
    let (provider, former_provider) = (spec.at("providerID"), former.at("providerID"));
    if !former_provider.is_empty() && former_provider.text() != provider.text() {
        let detail = "node updates may not change providerID except from \"\" to valid";
        provider.forbidden(errors, detail);
    }
    taints(errors, object);
    if spec.at("externalID").text() != former.at("externalID").text() {
        spec.at("externalID")
            .forbidden(errors, "may not be updated");
    }
}

/// UPSTREAM: pkg/registry/core/node/strategy.go (fieldIsDeprecatedWarnings)
fn node_warnings(object: &Object) -> Vec<String> {
    let spec = At::root(object, "spec");
    let mut warnings = Vec::new();
    if spec.at("configSource").is_set() {
        warnings.push(String::from("spec.configSource: the feature is removed"));
    }
    if !spec.at("externalID").is_empty() {
        warnings.push(String::from(
            "spec.externalID: this field is deprecated, and is unused by Kubernetes",
        ));
    }
    for range in spec.at("podCIDRs").items() {
        warnings.extend(cidr_warnings(&range.path, range.text()));
    }
    warnings
}
