//! Controllers: `apps`, `batch`, `autoscaling`.

use serde_json::{Value, json};

use super::object::{Object, at_mut, each, fill, fill_text, get_mut, has, is_empty, open, text};
use super::pod::{labels_default, template};
use super::storage::persistent_volume_claim;

const ROLLING_UPDATE: &str = "RollingUpdate";

pub(super) fn deployment(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "replicas", 1);
        rolling_update(spec, "strategy", json!("25%"), json!("25%"));
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        template(spec, "template");
    }
    roll_back_annotation(object);
}

pub(super) fn daemon_set(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        rolling_update(spec, "updateStrategy", json!(1), json!(0));
        fill(spec, "revisionHistoryLimit", 10);
        template(spec, "template");
    }
    // A field of former versions that lives on in an annotation.
    let name = "deprecated.daemonset.template.generation";
    if let Some(metadata) = open(object, "metadata")
        && let Some(annotations) = open(metadata, "annotations")
    {
        let generation = text(annotations, name).parse::<i64>().unwrap_or_default();
        annotations.insert(name.to_owned(), Value::String(generation.to_string()));
    }
}

/// Whom to roll back to, a field of former versions, lives on in an annotation; an empty one goes.
fn roll_back_annotation(object: &mut Object) {
    let Some(metadata) = get_mut(object, "metadata") else {
        return;
    };
    let name = "deprecated.deployment.rollback.to";
    if let Some(annotations) = get_mut(metadata, "annotations") {
        match text(annotations, name) {
            "" => {
                annotations.remove(name);
            }
            revision => {
                if let Ok(revision) = revision.parse::<i64>() {
                    annotations.insert(name.to_owned(), Value::String(revision.to_string()));
                }
            }
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

fn rolling_update(spec: &mut Object, key: &str, unavailable: Value, surge: Value) {
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

pub(super) fn stateful_set(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = open(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            fill_text(strategy, "type", ROLLING_UPDATE);
            open(strategy, "rollingUpdate");
        }
        if let Some(rolling) = get_mut(strategy, "rollingUpdate") {
            fill(rolling, "partition", 0);
        }
    }
    if let Some(policy) = open(spec, "persistentVolumeClaimRetentionPolicy") {
        fill_text(policy, "whenDeleted", "Retain");
        fill_text(policy, "whenScaled", "Retain");
    }
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    template(spec, "template");
    each(spec, "volumeClaimTemplates", |claim| {
        persistent_volume_claim(claim);
        claim.insert("apiVersion".to_owned(), Value::from("v1"));
        claim.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
    });
}

pub(super) fn replica_set(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "replicas", 1);
        template(spec, "template");
    }
}

pub(super) fn job(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        if !has(spec, "completions") && !has(spec, "parallelism") {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let limit = if has(spec, "backoffLimitPerIndex") {
            i32::MAX
        } else {
            6
        };
        fill(spec, "backoffLimit", limit);
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        let replacement = if has(spec, "podFailurePolicy") {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        fill(spec, "podReplacementPolicy", replacement);
        fill(spec, "manualSelector", false);
        job_spec(spec);
    }
    let labels = at_mut(object, &["spec", "template", "metadata", "labels"]).cloned();
    if let Some(labels) = labels {
        labels_default(object, labels);
    }
}

/// What also applies to the jobs that a cron job will make.
fn job_spec(spec: &mut Object) {
    if let Some(policy) = get_mut(spec, "podFailurePolicy") {
        each(policy, "rules", |rule| {
            each(rule, "onPodConditions", |pattern| {
                fill_text(pattern, "status", "True");
            });
        });
    }
    template(spec, "template");
}

pub(super) fn cron_job(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill_text(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    if let Some(job) = at_mut(spec, &["jobTemplate", "spec"]) {
        job_spec(job);
    }
}

pub(super) fn autoscaler_v2(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill(spec, "minReplicas", 1);
    if is_empty(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    if let Some(behavior) = get_mut(spec, "behavior") {
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        scaling_rules(behavior, "scaleUp", json!([pods, percent]));
        if let Some(rules) = get_mut(behavior, "scaleUp") {
            fill(rules, "stabilizationWindowSeconds", 0);
        }
        scaling_rules(behavior, "scaleDown", json!([percent]));
    }
}

fn scaling_rules(behavior: &mut Object, key: &str, policies: Value) {
    if let Some(rules) = open(behavior, key) {
        fill(rules, "selectPolicy", "Max");
        fill(rules, "policies", policies);
    }
}

pub(super) fn autoscaler_v1(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "minReplicas", 1);
    }
    // What a target of none means depends on the metrics that annotations carry.
    crate::conversion::round_trip_autoscaler(object);
}
