//! Controllers of pods.

use serde_json::Value;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_go::json::to_string;

use crate::defaults::object::{Object, get, has, is_empty, number, text};

use super::common::{
    immutable, immutable_selector, invalid_json, invalid_selector, non_negative, one_of, required,
    selector, template_labels,
};
use super::pod::template;

const NO_MATCH: &str = "`selector` does not match template `labels`";

/// Deployments and replica sets.
pub(super) fn replicas_of_template(errors: &mut FieldErrors, object: &Object, plural: &str) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    non_negative(errors, spec, "replicas", &path);
    if plural == "replicasets" {
        non_negative(errors, spec, "minReadySeconds", &path);
    }
    controller_template(errors, spec, "ReplicaSet", true, &path);
    if plural != "deployments" {
        return;
    }
    if let Some(strategy) = get(spec, "strategy") {
        let path = path.child("strategy");
        let kind = text(strategy, "type");
        if !matches!(kind, "Recreate" | "RollingUpdate") {
            // Upstream prints its internal form, whose members have no JSON names.
            let rolling = to_string(strategy.get("rollingUpdate").unwrap_or(&Value::Null));
            let shown = format!(
                "{{\"Type\":{},\"RollingUpdate\":{rolling}}}",
                to_string(kind)
            );
            let set = &["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(
                &path,
                Shown::Rendered(&shown),
                set,
            ));
        }
        if kind == "Recreate" && has(strategy, "rollingUpdate") {
            errors.push(FieldError::forbidden(
                &path.child("rollingUpdate"),
                "may not be specified when strategy `type` is 'Recreate'",
            ));
        }
    }
    non_negative(errors, spec, "minReadySeconds", &path);
    non_negative(errors, spec, "revisionHistoryLimit", &path);
    non_negative(errors, spec, "progressDeadlineSeconds", &path);
    let deadline = number(spec, "progressDeadlineSeconds");
    if has(spec, "progressDeadlineSeconds") && deadline <= number(spec, "minReadySeconds") {
        errors.push(FieldError::invalid(
            &path.child("progressDeadlineSeconds"),
            Shown::Integer(deadline),
            "must be greater than minReadySeconds",
        ));
    }
}

fn controller_template(
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

fn selects_everything(spec: &Object) -> bool {
    get(spec, "selector").is_some_and(|selector| {
        is_empty(selector, "matchLabels") && is_empty(selector, "matchExpressions")
    })
}

/// Pods that a controller keeps running restart always.
fn always_restarts(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>, owner: &str) {
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

pub(super) fn daemon_set(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    let compiled = selector(errors, spec, &path);
    let template_path = path.child("template");
    let (shown, labels) = template_labels(spec);
    // No selector at all selects nothing; a broken one has been told of.
    let selects = match compiled {
        Some(selector) => selector.matches(&labels),
        None => has(spec, "selector"),
    };
    if !selects {
        let metadata = template_path.child("metadata");
        invalid_json(errors, &metadata.child("labels"), shown, NO_MATCH);
    }
    if selects_everything(spec) {
        let detail = "empty selector is invalid for daemonset";
        invalid_selector(
            errors,
            &path.child("selector"),
            spec.get("selector"),
            detail,
        );
    }
    template(errors, spec, &template_path);
    always_restarts(errors, spec, &template_path, "DaemonSet");
    non_negative(errors, spec, "minReadySeconds", &path);
    non_negative(errors, spec, "revisionHistoryLimit", &path);
}

/// A stateful set. Templates that were let in before are not checked again.
pub(super) fn stateful_set(errors: &mut FieldErrors, object: &Object, checks_template: bool) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        errors.push(FieldError::invalid(
            &path.child("podManagementPolicy"),
            Shown::Named(policy),
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    non_negative(errors, spec, "replicas", &path);
    non_negative(errors, spec, "minReadySeconds", &path);
    controller_template(errors, spec, "StatefulSet", checks_template, &path);
}

/// What of a stateful set may change.
pub(super) fn stateful_set_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "persistentVolumeClaimRetentionPolicy",
        "revisionHistoryLimit",
    ];
    let mut old_errors = FieldErrors::new();
    stateful_set(&mut old_errors, old, true);
    stateful_set(errors, object, old_errors.is_empty());
    let empty = Object::new();
    let (new, old) = (
        get(object, "spec").unwrap_or(&empty),
        get(old, "spec").unwrap_or(&empty),
    );
    let fixed = |key: &&String| !MUTABLE.contains(&key.as_str());
    let keys = new.keys().chain(old.keys());
    if keys.filter(fixed).any(|key| new.get(key) != old.get(key)) {
        errors.push(FieldError::forbidden(
            &Path::root("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
             'template', 'updateStrategy', 'revisionHistoryLimit', \
             'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

pub(super) fn job(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    job_spec(errors, spec, &path);
    if !has(spec, "selector") {
        required(errors, &path.child("selector"));
    }
    let compiled = selector(errors, spec, &path);
    let (shown, labels) = template_labels(spec);
    if compiled.is_none_or(|selector| !selector.matches(&labels)) {
        let template = path.child("template");
        let metadata = template.child("metadata");
        invalid_json(errors, &metadata.child("labels"), shown, NO_MATCH);
    }
}

fn job_spec(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        non_negative(errors, spec, key, path);
    }
    let template_path = path.child("template");
    template(errors, spec, &template_path);
    let empty = Object::new();
    let pod = get(spec, "template")
        .and_then(|template| get(template, "spec"))
        .unwrap_or(&empty);
    let policy = text(pod, "restartPolicy");
    if !matches!(policy, "OnFailure" | "Never") {
        let spec_path = template_path.child("spec");
        let path = spec_path.child("restartPolicy");
        if policy == "Always" || policy.is_empty() {
            errors.push(FieldError::required(
                &path,
                "valid values: \"OnFailure\", \"Never\"",
            ));
        } else {
            errors.push(FieldError::not_supported(
                &path,
                Shown::Named(policy),
                &["OnFailure", "Never"],
            ));
        }
    }
}

/// What of a job may not change.
pub(super) fn job_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let path = Path::root("spec");
    immutable_selector(errors, object, old);
    for key in [
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        let member = |object| get(object, "spec").and_then(|spec: &Object| spec.get(key));
        immutable(errors, (member(object), member(old)), &path.child(key));
    }
}

pub(super) fn cron_job(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    if text(spec, "schedule").is_empty() {
        required(errors, &path.child("schedule"));
    }
    one_of(
        errors,
        spec,
        "concurrencyPolicy",
        &path,
        &["Allow", "Forbid", "Replace"],
    );
    let job_template = path.child("jobTemplate");
    if let Some(job) = get(spec, "jobTemplate").and_then(|template| get(template, "spec")) {
        job_spec(errors, job, &job_template.child("spec"));
    }
    non_negative(errors, spec, "successfulJobsHistoryLimit", &path);
    non_negative(errors, spec, "failedJobsHistoryLimit", &path);
}

pub(super) fn replication_controller(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    non_negative(errors, spec, "minReadySeconds", &path);
    if is_empty(spec, "selector") {
        required(errors, &path.child("selector"));
    }
    non_negative(errors, spec, "replicas", &path);
    let template_path = path.child("template");
    if !has(spec, "template") {
        return required(errors, &template_path);
    }
    let (shown, labels) = template_labels(spec);
    let selects = get(spec, "selector").is_none_or(|selector| {
        selector
            .iter()
            .all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
    });
    if !selects {
        let metadata = template_path.child("metadata");
        invalid_json(errors, &metadata.child("labels"), shown, NO_MATCH);
    }
    template(errors, spec, &template_path);
    always_restarts(errors, spec, &template_path, "ReplicationController");
}
