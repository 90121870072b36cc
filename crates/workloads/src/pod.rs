//! Pods of controllers: creation from templates, activity, readiness, availability.

use std::cmp::Reverse;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::Context;
use crate::kind::Kind;
use crate::object::{
    Object, annotation, condition, count, is_condition_true, is_deleting, list, text, time,
};

/// The maximum number of concurrent Pod creations.
const WIDTH: usize = 32;
/// The maximum number of Pods created per reconciliation.
///
/// UPSTREAM: kubernetes pkg/controller/replicaset/replica_set.go (BurstReplicas)
pub(crate) const BURST_REPLICAS: usize = 500;

/// A Pod from a template, with its controller reference.
///
/// UPSTREAM: kubernetes pkg/controller/controller_utils.go (GetPodFromTemplate)
pub(crate) fn from_template(template: &Value, owner: &Object) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", owner.name()),
        "namespace": owner.namespace(),
        "ownerReferences": [owner.as_owner()],
    });
    for member in ["labels", "annotations", "finalizers"] {
        if let Some(found) = template.pointer(&format!("/metadata/{member}")) {
            metadata[member] = found.clone();
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template.get("spec").cloned().unwrap_or_default(),
    })
}

/// Creates a Pod of a controller, and records an event.
pub(crate) async fn create(
    context: &Context,
    by: &Author,
    owner: &Object,
    pod: Value,
) -> Result<(), Rejected> {
    match context.api.create(by, Kind::Pod, pod).await {
        Ok(created) => {
            let name = text(&created, "/metadata/name");
            let message = format!("Created pod: {name}");
            context
                .events
                .normal(by, owner, "SuccessfulCreate", message);
            Ok(())
        }
        Err(refused) => {
            if !refused.is_namespace_terminating() {
                let message = format!("Error creating: {}", refused.message());
                context.events.warning(by, owner, "FailedCreate", message);
            }
            Err(refused)
        }
    }
}

/// Creates Pods in batches of doubling size, so that a rejection affects few requests.
///
/// UPSTREAM: kubernetes pkg/controller/replicaset/replica_set.go (slowStartBatch)
pub(crate) async fn create_all(
    context: &Context,
    by: &Author,
    owner: &Object,
    pods: Vec<Value>,
) -> Result<(), Rejected> {
    let mut pods = pods.into_iter();
    let mut size = 1;
    loop {
        let batch: Vec<_> = pods.by_ref().take(size).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let created = batch.into_iter().map(|pod| create(context, by, owner, pod));
        for result in join_all(created).await {
            match result {
                Err(refused) if !refused.is_namespace_terminating() => return Err(refused),
                _ => {}
            }
        }
        size = (size * 2).min(WIDTH);
    }
}

/// Deletes a Pod of a controller, and records an event.
pub(crate) async fn delete(
    context: &Context,
    by: &Author,
    owner: &Object,
    pod: &Object,
) -> Result<(), Rejected> {
    let deleted = context.api.delete(by, pod.target(), None).await;
    match deleted {
        Ok(()) => {
            let message = format!("Deleted pod: {}", pod.name());
            context
                .events
                .normal(by, owner, "SuccessfulDelete", message);
            Ok(())
        }
        Err(refused) if refused.is_not_found() || refused.is_conflict() => Ok(()),
        Err(refused) => {
            let message = format!("Error deleting: {}", refused.message());
            context.events.warning(by, owner, "FailedDelete", message);
            Err(refused)
        }
    }
}

pub(crate) fn phase(pod: &Value) -> &str {
    text(pod, "/status/phase")
}

pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// UPSTREAM: kubernetes pkg/controller/controller_utils.go (IsPodActive)
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !is_deleting(pod)
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    is_condition_true(pod, "Ready")
}

/// The seconds until a Pod has been ready for `minReadySeconds`. `None` if it is not ready.
pub(crate) fn available_in(pod: &Value, min_ready_seconds: i64, now: i64) -> Option<i64> {
    if !is_ready(pod) {
        return None;
    }
    let since = condition(pod, "Ready").and_then(|ready| time(ready, "/lastTransitionTime"));
    Some((since.unwrap_or(now) + min_ready_seconds - now).max(0))
}

/// The numbers of ready and available Pods, and the time of the next change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) ready: i64,
    pub(crate) available: i64,
    /// The seconds until the next Pod is available.
    pub(crate) next: Option<i64>,
}

pub(crate) fn readiness<'p>(
    pods: impl Iterator<Item = &'p Arc<Object>>,
    min_ready_seconds: i64,
    now: i64,
) -> Readiness {
    let mut found = Readiness::default();
    for pod in pods {
        match available_in(pod, min_ready_seconds, now) {
            None => continue,
            Some(0) => found.available += 1,
            Some(seconds) => {
                found.next = Some(found.next.map_or(seconds, |next| next.min(seconds)));
            }
        }
        found.ready += 1;
    }
    found
}

/// The maximum restart count of the containers.
fn restarts(pod: &Value) -> i64 {
    let statuses = list(pod, "/status/containerStatuses");
    let counts = statuses.map(|status| count(status, "/restartCount"));
    counts.max().unwrap_or_default()
}

/// Sorts Pods in deletion order: less advanced Pods first, then Pods that share their node with more others, then
/// younger ones.
///
/// UPSTREAM: kubernetes pkg/controller/controller_utils.go (ActivePodsWithRanks)
pub(crate) fn sort_for_deletion(pods: &mut [Arc<Object>]) {
    let mut nodes = std::collections::HashMap::<String, usize>::new();
    for pod in pods.iter() {
        let node = text(pod, "/spec/nodeName").to_owned();
        *nodes.entry(node).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let node = text(pod, "/spec/nodeName");
        let stage = match phase(pod) {
            "Pending" => 0,
            "Unknown" => 1,
            _ => 2,
        };
        let cost = annotation(pod, "controller.kubernetes.io/pod-deletion-cost");
        let cost: i64 = cost.and_then(|cost| cost.parse().ok()).unwrap_or_default();
        let company = nodes.get(node).copied().unwrap_or_default();
        (
            !node.is_empty(),
            stage,
            is_ready(pod),
            cost,
            Reverse(company),
            Reverse(restarts(pod)),
            Reverse(pod.created),
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, created: u64, value: Value) -> Arc<Object> {
        let mut value = value;
        value["metadata"]["name"] = name.into();
        Arc::new(Object {
            kind: Kind::Pod,
            key: format!("/core/pods/n/{name}").into(),
            created,
            value,
        })
    }

    #[test]
    fn a_pod_is_available_after_it_was_ready_for_a_while() {
        let pod = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"}]}});
        assert_eq!(available_in(&pod, 0, 100), Some(0));
        assert_eq!(available_in(&pod, 10, 103), Some(7));
        assert_eq!(available_in(&pod, 10, 200), Some(0));
        assert_eq!(available_in(&json!({}), 0, 100), None);
    }

    #[test]
    fn those_that_came_less_far_are_deleted_first() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let mut pods = vec![
            pod(
                "old",
                1,
                json!({"spec": {"nodeName": "a"}, "status": {"phase": "Running", "conditions": ready}}),
            ),
            pod(
                "young",
                2,
                json!({"spec": {"nodeName": "b"}, "status": {"phase": "Running", "conditions": ready}}),
            ),
            pod(
                "unready",
                1,
                json!({"spec": {"nodeName": "c"}, "status": {"phase": "Running"}}),
            ),
            pod(
                "pending",
                1,
                json!({"spec": {"nodeName": "d"}, "status": {"phase": "Pending"}}),
            ),
            pod(
                "unbound",
                1,
                json!({"spec": {}, "status": {"phase": "Pending"}}),
            ),
            pod(
                "cheap",
                1,
                json!({
                "metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}},
                "spec": {"nodeName": "e"}, "status": {"phase": "Running", "conditions": ready}}),
            ),
        ];
        sort_for_deletion(&mut pods);
        let names: Vec<_> = pods.iter().map(|pod| pod.name()).collect();
        assert_eq!(
            names,
            ["unbound", "pending", "unready", "cheap", "young", "old"]
        );
    }

    #[test]
    fn a_pod_of_a_template_belongs_to_its_controller() {
        let owner = Object {
            kind: Kind::ReplicaSet,
            key: "/apps/replicasets/n/web".into(),
            created: 1,
            value: json!({"metadata": {"name": "web", "namespace": "n", "uid": "u"}}),
        };
        let template = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": []}});
        let pod = from_template(&template, &owner);
        assert_eq!(pod["metadata"]["generateName"], "web-");
        assert_eq!(pod["metadata"]["labels"], json!({"a": "1"}));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
        assert_eq!(
            pod["metadata"]["ownerReferences"][0]["apiVersion"],
            "apps/v1"
        );
        assert_eq!(pod["spec"], json!({"containers": []}));
    }
}
