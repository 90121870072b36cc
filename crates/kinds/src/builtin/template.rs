//! Shared parts of workload kinds: templates, selectors and table rows.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::checks::{check_label, check_percent, invalid_selector, wire};
use crate::object::{Object, fill, fill_text, get_mut, open, text};
use lockgate_api::field::FieldErrors;
use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::selector::Selector;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) const ROLLING_UPDATE: &str = "RollingUpdate";

pub(super) fn rolling_update(spec: &mut Object, key: &str, unavailable: Value, surge: Value) {
    if let Some(strategy) = open(spec, key) {
        fill_text(strategy, "type", ROLLING_UPDATE);
        if text(strategy, "type") == ROLLING_UPDATE
            && let Some(rolling) = open(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", unavailable);
            fill(rolling, "maxSurge", surge);
        }
        // With another strategy type, unset fields of `rollingUpdate` are zero.
        if let Some(rolling) = get_mut(strategy, "rollingUpdate") {
            fill(rolling, "maxUnavailable", 0);
            fill(rolling, "maxSurge", 0);
        }
    }
}

pub(super) const TEMPLATE: &str = "/spec/template/spec/containers";

/// The cells with names and images of the containers.
pub(super) fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let list = read::items(object, pointer);
    let joined = |member: &str| {
        let texts: Vec<&str> = list
            .iter()
            .map(|container| read::text(container, member))
            .collect();
        cell(texts.join(","))
    };
    [joined("/name"), joined("/image")]
}

/// The row of a ReplicaSet or ReplicationController, whose selectors differ.
pub(super) fn replicas_row(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    let is_set = object.pointer("/spec/selector").is_some_and(|selector| {
        selector.get("matchLabels").is_some_and(Value::is_object)
            || selector
                .get("matchExpressions")
                .is_some_and(Value::is_array)
    });
    let selector = if is_set {
        read::shown_selector(object, "/spec/selector")
    } else {
        read::labels(object, "/spec/selector")
    };
    Row::of(vec![
        cell(common.name),
        cell(read::integer(object, "/spec/replicas")),
        cell(read::integer(object, "/status/replicas")),
        cell(read::integer(object, "/status/readyReplicas")),
        cell(common.age.as_str()),
        names,
        images,
        cell(selector),
    ])
}

/// The ready and desired replicas.
pub(super) fn ready(object: &Value) -> Value {
    let ready = read::integer(object, "/status/readyReplicas");
    cell(format!(
        "{ready}/{}",
        read::integer(object, "/spec/replicas")
    ))
}

pub(super) const NO_MATCH: &str = "`selector` does not match template `labels`";

/// The compiled selector of a spec; `None` if it is absent or invalid.
pub(super) fn compiled(spec: &At<'_, '_>) -> Option<Selector> {
    let selector: LabelSelector = wire(spec.at("selector").value?);
    selector.compile().ok()
}

/// The labels of the template of a spec.
pub(super) fn labels_of(template: &At<'_, '_>) -> BTreeMap<String, String> {
    let metadata = template.at("metadata");
    metadata
        .at("labels")
        .object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Reports that the selector does not match the labels of the template.
pub(super) fn labels_do_not_match(errors: &mut FieldErrors, template: &At<'_, '_>) {
    let metadata = template.at("metadata");
    metadata.at("labels").invalid_or_null(errors, NO_MATCH);
}

/// Validates the selector of a controller and its Pod template.
pub(super) fn controller_template(
    errors: &mut FieldErrors,
    spec: &At<'_, '_>,
    template: &At<'_, '_>,
    owner: &str,
    checks: impl FnOnce(&mut FieldErrors, &At<'_, '_>),
) {
    // Upstream's ReplicaSet validation was copied from Deployments, with its messages.
    let kind = if owner == "StatefulSet" {
        "statefulset"
    } else {
        "deployment"
    };
    let selector = spec.at("selector");
    let matcher = compiled(spec);
    if selector.is_set() {
        selector.label_selector(errors);
        if selects_everything(spec) {
            let detail = format!("empty selector is invalid for {kind}");
            invalid_selector(errors, &selector.path, selector.value, &detail);
        }
    } else {
        selector.required(errors);
    }
    if selector.is_set() && matcher.is_none() {
        let detail = if owner == "StatefulSet" {
            ""
        } else {
            "invalid label selector"
        };
        invalid_selector(errors, &selector.path, selector.value, detail);
        if owner == "StatefulSet" {
            always_restarts(errors, template, owner);
        }
        return;
    }
    // An absent selector selects nothing.
    let labels = labels_of(template);
    if matcher.is_none_or(|matcher| !matcher.is_empty() && !matcher.matches(&labels)) {
        labels_do_not_match(errors, template);
    }
    checks(errors, template);
    always_restarts(errors, template, owner);
}

pub(super) fn selects_everything(spec: &At<'_, '_>) -> bool {
    let selector = spec.at("selector");
    selector.is_set()
        && selector.at("matchLabels").is_empty()
        && selector.at("matchExpressions").is_empty()
}

/// Validates that the restart policy is `Always`.
pub(super) fn always_restarts(errors: &mut FieldErrors, template: &At<'_, '_>, owner: &str) {
    let pod = template.at("spec");
    pod.at("restartPolicy").known(errors, &["Always"]);
    if pod.at("activeDeadlineSeconds").is_set() {
        pod.at("activeDeadlineSeconds").forbidden(
            errors,
            format!("activeDeadlineSeconds in {owner} is not Supported"),
        );
    }
}

/// Validates a non-negative integer or a percentage.
pub(super) fn int_or_percent(errors: &mut FieldErrors, at: &At<'_, '_>) {
    match at.value {
        Some(Value::String(_)) => at.check(errors, check_percent),
        _ => at.non_negative(errors),
    }
}

fn percent(at: &At<'_, '_>) -> Option<i64> {
    let text = at.text();
    if !check_percent(text).is_empty() {
        return None;
    }
    text.strip_suffix('%')?.parse().ok()
}

/// The number of an integer or a percentage; zero for another string.
pub(super) fn int_or_percent_value(at: &At<'_, '_>) -> i64 {
    percent(at).unwrap_or_else(|| match at.value {
        Some(Value::String(text)) => text.parse().unwrap_or_default(),
        _ => at.int(),
    })
}

pub(super) fn at_most_all(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if percent(at).is_some_and(|percent| percent > 100) {
        at.invalid(errors, "must not be greater than 100%");
    }
}

/// Validates the counts of a status: not negative, at most `replicas`, and available at most ready.
pub(super) fn replica_counts(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    counts: &[&str],
    bounded: &[&str],
    ready: &str,
) {
    for key in counts {
        at.at(key).non_negative(errors);
    }
    for key in bounded {
        if at.at(key).int() > at.at("replicas").int() {
            at.at(key)
                .invalid_int(errors, "cannot be greater than status.replicas");
        }
    }
    if at.at("availableReplicas").int() > at.at("readyReplicas").int() {
        at.at("availableReplicas")
            .invalid_int(errors, format!("cannot be greater than {ready}"));
    }
}

/// Rejects a decrease of the collision count.
pub(super) fn collisions(errors: &mut FieldErrors, at: &At<'_, '_>, old: &At<'_, '_>) {
    let (new, former) = (at.at("collisionCount"), old.at("collisionCount"));
    if former.is_set() && (!new.is_set() || new.int() < former.int()) {
        new.invalid_int(errors, "cannot be decremented");
    }
}

/// The warning about a name that is not a DNS label, although Pods are named after it.
pub(super) fn name_warning(name: &str) -> Vec<String> {
    let messages = check_label(name);
    if messages.is_empty() {
        return messages;
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising \
         behavior; a DNS label is recommended: [{}]",
        messages.join(" ")
    )]
}
