//! ReplicaSets, and ReplicationControllers, which differ in their selector only.
//!
//! UPSTREAM: kubernetes pkg/controller/replicaset, pkg/controller/replication

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{self, Object, count, is_deleting, map_selects, now, now_text, selects, text};
use crate::ownership::claim;
use crate::pod;
use crate::queue::Next;

/// The two kinds of replica controllers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaKind {
    pub(crate) kind: Kind,
    account: &'static str,
    component: &'static str,
}

pub(crate) const REPLICA_SET: ReplicaKind = ReplicaKind {
    kind: Kind::ReplicaSet,
    account: "replicaset-controller",
    component: "replicaset-controller",
};
pub(crate) const REPLICATION_CONTROLLER: ReplicaKind = ReplicaKind {
    kind: Kind::ReplicationController,
    account: "replication-controller",
    component: "replication-controller",
};

impl ReplicaKind {
    fn author(self) -> Author {
        Author::Controller {
            account: self.account,
            component: self.component,
        }
    }
}

/// Returns true if the selector of a ReplicaSet or ReplicationController matches a Pod.
pub(crate) fn selects_pod(set: &Object, pod: &Value) -> bool {
    let selector = set.pointer("/spec/selector");
    match set.kind {
        Kind::ReplicationController => map_selects(selector, pod),
        _ => selects(selector, pod),
    }
}

/// Reconciles the number of Pods with `replicas`.
pub(crate) async fn reconcile(
    context: &Context,
    replica_kind: ReplicaKind,
    path: &str,
) -> Reconciled {
    let Some(set) = context.cache.at(replica_kind.kind, path) else {
        return Ok(Next::Done);
    };
    let by = replica_kind.author();
    let pods = claim(context, &by, &set, Kind::Pod, |pod| selects_pod(&set, pod)).await?;
    let (active, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod::is_active(pod));
    let terminating = others.iter().filter(|pod| is_deleting(pod)).count();
    let managed = if is_deleting(&set) {
        Ok(())
    } else {
        manage(context, &by, &set, &active).await
    };
    let seconds = count(&set, "/spec/minReadySeconds");
    let readiness = pod::readiness(active.iter(), seconds, now());
    let status = status(
        &set,
        &active,
        terminating,
        &readiness,
        managed.as_ref().err(),
    );
    context.set_status(&by, &set, status).await?;
    managed?;
    Ok(match readiness.next {
        None => Next::Done,
        Some(seconds) => Next::After(Duration::from_secs(seconds.unsigned_abs())),
    })
}

async fn manage(
    context: &Context,
    by: &Author,
    set: &Object,
    active: &[Arc<Object>],
) -> Result<(), Rejected> {
    let wanted = usize::try_from(count(set, "/spec/replicas")).unwrap_or_default();
    if active.len() < wanted {
        let missing = (wanted - active.len()).min(pod::BURST_REPLICAS);
        let template = set.pointer("/spec/template").cloned().unwrap_or_default();
        let one = pod::from_template(&template, set);
        return pod::create_all(context, by, set, vec![one; missing]).await;
    }
    let mut surplus = active.to_vec();
    pod::sort_for_deletion(&mut surplus);
    let excess = (active.len() - wanted).min(pod::BURST_REPLICAS);
    let mut result = Ok(());
    for pod in surplus.iter().take(excess) {
        if let Err(refused) = pod::delete(context, by, set, pod).await {
            result = Err(refused);
        }
    }
    result
}

/// Sets a count; zero is omitted, as Go serializes it.
pub(crate) fn set_count(status: &mut Value, member: &str, to: i64) {
    if to != 0 {
        status[member] = to.into();
    } else if let Some(members) = status.as_object_mut() {
        members.remove(member);
    }
}

fn status(
    set: &Object,
    active: &[Arc<Object>],
    terminating: usize,
    readiness: &pod::Readiness,
    failure: Option<&Rejected>,
) -> Value {
    let labels = set.pointer("/spec/template/metadata/labels");
    let labeled = |pod: &&Arc<Object>| {
        labels.is_none_or(|labels| selects(Some(&json!({"matchLabels": labels})), pod))
    };
    let fully_labeled = active.iter().filter(labeled).count();
    let as_count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let mut status = json!({"replicas": active.len()});
    set_count(&mut status, "fullyLabeledReplicas", as_count(fully_labeled));
    set_count(&mut status, "readyReplicas", readiness.ready);
    set_count(&mut status, "availableReplicas", readiness.available);
    if set.kind == Kind::ReplicaSet {
        status["terminatingReplicas"] = terminating.into();
    }
    status["observedGeneration"] = count(set, "/metadata/generation").into();
    let mut conditions = object::conditions(set);
    let known = conditions
        .iter()
        .any(|condition| text(condition, "/type") == "ReplicaFailure");
    match failure {
        Some(refused) if !known => {
            let short = as_count(active.len()) < count(set, "/spec/replicas");
            conditions.push(json!({
                "type": "ReplicaFailure",
                "status": "True",
                "lastTransitionTime": now_text(),
                "reason": if short { "FailedCreate" } else { "FailedDelete" },
                "message": refused.message(),
            }));
        }
        Some(_) => {}
        None => conditions.retain(|condition| text(condition, "/type") != "ReplicaFailure"),
    }
    if !conditions.is_empty() {
        status["conditions"] = conditions.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use lockgate_api::meta::status::Status;

    use super::*;

    fn set(value: Value) -> Object {
        Object {
            kind: Kind::ReplicaSet,
            key: "/apps/replicasets/n/a".into(),
            created: 1,
            value,
        }
    }

    #[test]
    fn a_failure_is_a_condition_until_it_is_over() {
        let refused = Rejected(Box::new(Status::bad_request("exceeded quota")));
        let mut set = set(json!({"spec": {"replicas": 1}, "metadata": {"generation": 2}}));
        let none = pod::Readiness::default();
        let failed = status(&set, &[], 0, &none, Some(&refused));
        assert_eq!(failed["conditions"][0]["reason"], "FailedCreate");
        assert_eq!(failed["conditions"][0]["message"], "exceeded quota");
        assert_eq!(failed["observedGeneration"], 2);
        set.value["status"] = failed.clone();
        assert_eq!(
            status(&set, &[], 0, &none, Some(&refused)),
            failed,
            "told once"
        );
        assert!(
            status(&set, &[], 0, &none, None)
                .get("conditions")
                .is_none()
        );
    }
}
