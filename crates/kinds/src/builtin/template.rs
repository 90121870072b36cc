//! Controllers of pods: what their templates, selectors and rows have in common.

use super::core::pod::template;
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{invalid_json, invalid_selector, required, selector, template_labels};
use crate::object::{Object, fill, fill_text, get, get_mut, has, is_empty, open, text};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use serde_json::Value;

pub(super) const NO_MATCH: &str = "`selector` does not match template `labels`";

pub(super) fn controller_template(
    errors: &mut FieldErrors,
    spec: &Object,
    owner: &str,
    checks_template: bool,
    path: &Path<'_>,
) {
    // Replica sets came out of deployments, and their text with them.
    let empty = if owner == "StatefulSet" {
        "empty selector is invalid for statefulset"
    } else {
        "empty selector is invalid for deployment"
    };
    let selector_path = path.child("selector");
    let compiled = if has(spec, "selector") {
        let compiled = selector(errors, spec, path);
        if selects_everything(spec) {
            invalid_selector(errors, &selector_path, spec.get("selector"), empty);
        }
        if compiled.is_none() {
            let detail = if owner == "StatefulSet" {
                ""
            } else {
                "invalid label selector"
            };
            invalid_selector(errors, &selector_path, spec.get("selector"), detail);
            return;
        }
        compiled
    } else {
        required(errors, &selector_path);
        None
    };
    let template_path = path.child("template");
    let (shown, labels) = template_labels(spec);
    // No selector at all selects nothing.
    if compiled.is_none_or(|selector| !selector.is_empty() && !selector.matches(&labels)) {
        let metadata = template_path.child("metadata");
        invalid_json(errors, &metadata.child("labels"), shown, NO_MATCH);
    }
    if checks_template {
        template(errors, spec, &template_path);
    }
    always_restarts(errors, spec, &template_path, owner);
}

pub(super) fn selects_everything(spec: &Object) -> bool {
    get(spec, "selector").is_some_and(|selector| {
        is_empty(selector, "matchLabels") && is_empty(selector, "matchExpressions")
    })
}

/// Pods that a controller keeps running restart always.
pub(super) fn always_restarts(
    errors: &mut FieldErrors,
    spec: &Object,
    path: &Path<'_>,
    owner: &str,
) {
    let empty = Object::new();
    let pod = get(spec, "template")
        .and_then(|template| get(template, "spec"))
        .unwrap_or(&empty);
    let path = path.child("spec");
    let policy = text(pod, "restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported(
            &path.child("restartPolicy"),
            Shown::Named(policy),
            &["Always"],
        ));
    }
    if has(pod, "activeDeadlineSeconds") {
        errors.push(FieldError::forbidden(
            &path.child("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {owner} is not Supported"),
        ));
    }
}

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
        // With another strategy a client gets zeros for what it left out of this one.
        if let Some(rolling) = get_mut(strategy, "rollingUpdate") {
            fill(rolling, "maxUnavailable", 0);
            fill(rolling, "maxSurge", 0);
        }
    }
}

pub(super) const TEMPLATE: &str = "/spec/template/spec/containers";

/// The names and the images of the containers in a template.
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

/// Replica sets and replication controllers, whose selectors differ in form.
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

/// How many of the wanted replicas are ready.
pub(super) fn ready(object: &Value) -> Value {
    let ready = read::integer(object, "/status/readyReplicas");
    cell(format!(
        "{ready}/{}",
        read::integer(object, "/spec/replicas")
    ))
}
