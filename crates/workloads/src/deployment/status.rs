//! The status of a Deployment: counts, and the conditions `Available`, `Progressing` and `ReplicaFailure`.
//!
//! UPSTREAM: kubernetes pkg/controller/deployment/progress.go, sync.go (calculateStatus)

use std::time::Duration;

use serde_json::{Value, json};

use super::{Rollout, has_deadline, is_paused, replicas};
use crate::object::{Object, condition, count, now, now_text, number, text, time};
use crate::queue::Next;
use crate::replica_set::set_count;

/// Sets a condition. With the same status and reason it is unchanged; otherwise it moves to the end.
pub(super) fn set(
    conditions: &mut Vec<Value>,
    of: &str,
    status: &str,
    reason: &str,
    message: &str,
) {
    let place = conditions.iter().position(|one| text(one, "/type") == of);
    let mut since = json!(now_text());
    if let Some(place) = place {
        let old = &conditions[place];
        if text(old, "/status") == status {
            if text(old, "/reason") == reason {
                return;
            }
            since = old["lastTransitionTime"].clone();
        }
        conditions.remove(place);
    }
    conditions.push(json!({
        "type": of,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": now_text(),
        "lastTransitionTime": since,
    }));
}

fn remove(conditions: &mut Vec<Value>, of: &str) {
    conditions.retain(|one| text(one, "/type") != of);
}

fn progressing(object: &Value) -> Option<&Value> {
    condition(object, "Progressing")
}

/// The status with the condition of a paused or resumed Deployment, if it is missing.
pub(super) fn after_pause(deployment: &Object) -> Option<Value> {
    if !has_deadline(deployment) {
        return None;
    }
    let reason = progressing(deployment).map_or("", |current| text(current, "/reason"));
    if reason == "ProgressDeadlineExceeded" {
        return None;
    }
    let (reason, message) = match (is_paused(deployment), reason == "DeploymentPaused") {
        (true, false) => ("DeploymentPaused", "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return None,
    };
    let mut conditions = crate::object::conditions(deployment);
    set(&mut conditions, "Progressing", "Unknown", reason, message);
    let mut status = deployment["status"].clone();
    status["conditions"] = conditions.into();
    Some(status)
}

/// Returns true if all Pods have the current template and are available.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let wanted = count(deployment, "/spec/replicas");
    ["updatedReplicas", "replicas", "availableReplicas"]
        .iter()
        .all(|member| status[*member].as_i64().unwrap_or_default() == wanted)
        && count(status, "/observedGeneration") >= count(deployment, "/metadata/generation")
}

fn has_progressed(before: &Value, after: &Value) -> bool {
    let old = |status: &Value| count(status, "/replicas") - count(status, "/updatedReplicas");
    let grew = |pointer: &str| count(after, pointer) > count(before, pointer);
    grew("/updatedReplicas")
        || old(after) < old(before)
        || grew("/readyReplicas")
        || grew("/availableReplicas")
}

/// The seconds until a rollout without progress exceeds its deadline.
fn deadline_in(deployment: &Value, condition: &Value) -> i64 {
    let seconds = count(deployment, "/spec/progressDeadlineSeconds");
    let since = time(condition, "/lastUpdateTime").unwrap_or_else(now);
    since + seconds - now()
}

/// Calculates the status of a Deployment from its ReplicaSets.
pub(super) fn of(rollout: &Rollout<'_>, rolls: bool) -> Value {
    let deployment = rollout.deployment;
    let sum = |pointer: &str| -> i64 { rollout.all().map(|set| count(set, pointer)).sum() };
    let available = sum("/status/availableReplicas");
    let total: i64 = rollout.all().map(|set| replicas(set)).sum();
    let updated = rollout.new.as_ref();
    let updated = updated.map_or(0, |set| count(set, "/status/replicas"));
    let mut status = json!({"observedGeneration": count(deployment, "/metadata/generation")});
    set_count(&mut status, "replicas", sum("/status/replicas"));
    set_count(&mut status, "updatedReplicas", updated);
    set_count(&mut status, "readyReplicas", sum("/status/readyReplicas"));
    set_count(&mut status, "availableReplicas", available);
    set_count(
        &mut status,
        "unavailableReplicas",
        (total - available).max(0),
    );
    status["terminatingReplicas"] = sum("/status/terminatingReplicas").into();
    if let Some(collisions) = number(deployment, "/status/collisionCount") {
        status["collisionCount"] = collisions.into();
    }
    let mut conditions = crate::object::conditions(deployment);
    let sizes = rollout.sizes();
    if available >= sizes.replicas - sizes.max_unavailable {
        let message = "Deployment has minimum availability.";
        set(
            &mut conditions,
            "Available",
            "True",
            "MinimumReplicasAvailable",
            message,
        );
    } else {
        let message = "Deployment does not have minimum availability.";
        set(
            &mut conditions,
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            message,
        );
    }
    if rolls {
        set_progress(rollout, &status, &mut conditions);
        set_failure(rollout, &mut conditions);
    }
    status["conditions"] = conditions.into();
    status
}

fn set_progress(rollout: &Rollout<'_>, status: &Value, conditions: &mut Vec<Value>) {
    let deployment = rollout.deployment;
    if !has_deadline(deployment) {
        remove(conditions, "Progressing");
        return;
    }
    let current = progressing(deployment);
    let reason = current.map_or("", |current| text(current, "/reason"));
    let is_over = count(status, "/replicas") == count(status, "/updatedReplicas")
        && reason == "NewReplicaSetAvailable";
    if is_over {
        return;
    }
    let what = match &rollout.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.name()),
        None => format!("Deployment \"{}\"", deployment.name()),
    };
    if is_complete(deployment, status) {
        let message = format!("{what} has successfully progressed.");
        set(
            conditions,
            "Progressing",
            "True",
            "NewReplicaSetAvailable",
            &message,
        );
    } else if has_progressed(&deployment["status"], status) {
        let message = format!("{what} is progressing.");
        let since = current
            .filter(|current| text(current, "/status") == "True")
            .map_or_else(
                || now_text().into(),
                |current| current["lastTransitionTime"].clone(),
            );
        remove(conditions, "Progressing");
        set(
            conditions,
            "Progressing",
            "True",
            "ReplicaSetUpdated",
            &message,
        );
        if let Some(last) = conditions.last_mut() {
            last["lastTransitionTime"] = since;
        }
    } else if let Some(current) = current {
        let is_late = match reason {
            "NewReplicaSetAvailable" => false,
            "ProgressDeadlineExceeded" => true,
            _ => deadline_in(deployment, current) < 0,
        };
        if is_late {
            let message = format!("{what} has timed out progressing.");
            set(
                conditions,
                "Progressing",
                "False",
                "ProgressDeadlineExceeded",
                &message,
            );
        }
    }
}

fn set_failure(rollout: &Rollout<'_>, conditions: &mut Vec<Value>) {
    let sets = rollout.new.iter().chain(&rollout.old);
    let failure = sets
        .filter_map(|set| condition(set, "ReplicaFailure"))
        .next();
    match failure {
        None => remove(conditions, "ReplicaFailure"),
        Some(failure) => {
            let (status, reason) = (text(failure, "/status"), text(failure, "/reason"));
            let message = text(failure, "/message");
            set(conditions, "ReplicaFailure", status, reason, message);
            if let Some(last) = conditions
                .iter_mut()
                .find(|one| text(one, "/type") == "ReplicaFailure")
            {
                last["lastTransitionTime"] = failure["lastTransitionTime"].clone();
                last["lastUpdateTime"] = failure["lastTransitionTime"].clone();
            }
        }
    }
}

/// The next reconciliation of a rollout with a progress deadline.
pub(super) fn next_check(deployment: &Value, status: &Value) -> Next {
    let conditions = json!({"status": status});
    let Some(current) = progressing(&conditions) else {
        return Next::Done;
    };
    let is_settled = is_complete(deployment, status)
        || text(current, "/reason") == "ProgressDeadlineExceeded"
        || !has_deadline(deployment);
    if is_settled {
        return Next::Done;
    }
    let seconds = deadline_in(deployment, current).max(0) + 1;
    Next::After(Duration::from_secs(seconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;

    fn deployment(value: Value) -> Object {
        Object {
            kind: Kind::Deployment,
            key: "/apps/deployments/n/web".into(),
            created: 1,
            value,
        }
    }

    #[test]
    fn a_condition_keeps_its_place_while_nothing_changes() {
        let mut conditions = vec![
            json!({"type": "Available", "status": "False", "reason": "A"}),
            json!({"type": "Progressing", "status": "True", "reason": "B"}),
        ];
        set(&mut conditions, "Available", "False", "A", "other words");
        assert_eq!(conditions[0]["type"], "Available");
        set(&mut conditions, "Available", "True", "C", "");
        assert_eq!(conditions[1]["type"], "Available");
        assert_eq!(conditions.len(), 2);
    }

    #[test]
    fn pausing_and_resuming_are_told() {
        let mut object =
            deployment(json!({"spec": {"paused": true, "progressDeadlineSeconds": 600}}));
        let paused = after_pause(&object).unwrap();
        assert_eq!(paused["conditions"][0]["reason"], "DeploymentPaused");
        object.value["status"] = paused;
        assert_eq!(after_pause(&object), None);
        object.value["spec"]["paused"] = false.into();
        let resumed = after_pause(&object).unwrap();
        assert_eq!(resumed["conditions"][0]["reason"], "DeploymentResumed");
    }

    #[test]
    fn a_rollout_is_complete_when_all_pods_are_new_and_available() {
        let object = json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}});
        let mut status = json!({
            "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert!(is_complete(&object, &status));
        status["replicas"] = 3.into();
        assert!(!is_complete(&object, &status));
    }

    #[test]
    fn a_rollout_without_progress_is_looked_at_again() {
        let object = json!({"spec": {"replicas": 2, "progressDeadlineSeconds": 10}});
        let mut status = json!({"conditions": [
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
             "lastUpdateTime": now_text()}]});
        assert!(matches!(next_check(&object, &status), Next::After(after) if after.as_secs() >= 9));
        status["conditions"][0]["reason"] = "ProgressDeadlineExceeded".into();
        assert_eq!(next_check(&object, &status), Next::Done);
    }
}
