//! DaemonSets: run a Pod on every eligible node.
//!
//! UPSTREAM: kubernetes pkg/controller/daemon

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{
    Object, annotation, count, is_deleting, label, list, now, number, scaled, selects, set_label,
    text,
};
use crate::ownership::claim;
use crate::pod;
use crate::queue::Next;
use crate::replica_set::set_count;
use crate::revision::{self, HASH, Revisions};
use crate::scheduler::{is_selected, tolerates};

const AUTHOR: Author = Author::Controller {
    account: "daemon-set-controller",
    component: "daemonset-controller",
};

const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// The delay before a failed Pod is replaced.
///
/// UPSTREAM: kubernetes cmd/kube-controller-manager (the initial backoff of failed Pods)
const FAILED_POD_BACKOFF: Duration = Duration::from_secs(1);

/// The taints that Pods of every DaemonSet tolerate, with their effects.
///
/// UPSTREAM: kubernetes pkg/controller/daemon/util/daemonset_util.go (AddOrUpdateDaemonPodTolerations)
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// A DaemonSet with its Pods.
struct Daemons<'d> {
    context: &'d Context,
    set: &'d Object,
    revisions: Revisions,
    nodes: Vec<Arc<Object>>,
    /// The Pods, by node.
    pods: HashMap<String, Vec<Arc<Object>>>,
}

/// Reconciles a DaemonSet.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(set) = context.cache.at(Kind::DaemonSet, path) else {
        return Ok(Next::Done);
    };
    let selector = set.pointer("/spec/selector");
    if selector == Some(&json!({})) {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        context
            .events
            .warning(&AUTHOR, &set, "SelectingAll", message.to_owned());
        return Ok(Next::Done);
    }
    let claimed = claim(context, &AUTHOR, &set, Kind::Pod, |pod| {
        selects(selector, pod)
    });
    let claimed = claimed.await?;
    let Some(revisions) = revision::sync(context, &AUTHOR, &set).await? else {
        return Ok(Next::Done);
    };
    let mut pods = HashMap::<String, Vec<Arc<Object>>>::new();
    for pod in claimed {
        pods.entry(node_of(&pod)).or_default().push(pod);
    }
    let daemons = Daemons {
        context,
        set: &set,
        revisions,
        nodes: context.cache.all(Kind::Node),
        pods,
    };
    let mut next = Next::Done;
    let mut stepped = Ok(());
    if !is_deleting(&set) {
        match daemons.step().await {
            Ok(later) => next = later,
            Err(refused) => stepped = Err(refused),
        }
    }
    next = next.or(daemons.write_status().await?);
    let has_revision = |one: &Object| {
        let mut all = daemons.pods.values().flatten();
        all.any(|pod| label(pod, HASH) == label(one, HASH))
    };
    revision::truncate(context, &AUTHOR, &set, &daemons.revisions, has_revision).await?;
    stepped?;
    Ok(next)
}

/// The node of a Pod, or the node of its required node affinity.
fn node_of(pod: &Value) -> String {
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return bound.to_owned();
    }
    let field = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                 /nodeSelectorTerms/0/matchFields/0/values/0";
    text(pod, field).to_owned()
}

impl Daemons<'_> {
    fn hash(&self) -> &str {
        label(&self.revisions.update, HASH).unwrap_or_default()
    }

    /// A Pod for a node.
    fn pod(&self, node: &str) -> Value {
        let template = &self.set["spec"]["template"];
        let mut pod = pod::from_template(template, self.set);
        set_label(&mut pod, HASH, self.hash());
        if let Some(generation) = annotation(self.set, GENERATION_ANNOTATION) {
            set_label(&mut pod, GENERATION_LABEL, generation);
        }
        let term = json!({"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]}]});
        let path = "requiredDuringSchedulingIgnoredDuringExecution";
        pod["spec"]["affinity"]["nodeAffinity"][path] = json!({"nodeSelectorTerms": [term]});
        let mut tolerations: Vec<Value> = list(&pod, "/spec/tolerations").cloned().collect();
        let on_host = crate::object::flag(&pod, "/spec/hostNetwork");
        let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
        for (key, effect) in TOLERATED.into_iter().chain(on_host.then_some(network)) {
            let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
        pod["spec"]["tolerations"] = tolerations.into();
        pod
    }

    /// Returns whether a node should get a Pod, and whether an existing Pod may stay.
    fn wants(&self, node: &Object) -> (bool, bool) {
        let mut pod = self.pod(node.name());
        // Uses the node affinity of the template, without the generated one for the node's name.
        pod["spec"]["affinity"] = self.set["spec"]["template"]["spec"]["affinity"].clone();
        if !is_selected(&pod, node) {
            return (false, false);
        }
        let blocks = |effects: &[&str]| {
            list(node, "/spec/taints")
                .any(|taint| effects.contains(&text(taint, "/effect")) && !tolerates(&pod, taint))
        };
        (
            !blocks(&["NoSchedule", "NoExecute"]),
            !blocks(&["NoExecute"]),
        )
    }

    fn is_new(&self, pod: &Value) -> bool {
        label(pod, HASH) == Some(self.hash())
    }

    fn is_available(&self, pod: &Value) -> bool {
        let seconds = count(self.set, "/spec/minReadySeconds");
        !is_deleting(pod) && pod::available_in(pod, seconds, now()) == Some(0)
    }

    fn active(&self, node: &str) -> Vec<&Arc<Object>> {
        let pods = self.pods.get(node).into_iter().flatten();
        let mut pods: Vec<_> = pods.filter(|pod| pod::is_active(pod)).collect();
        pods.sort_by_key(|pod| pod.created);
        pods
    }

    /// `maxUnavailable` and `maxSurge` of a rolling update, as numbers of nodes.
    fn bounds(&self, wanted: i64) -> (i64, i64) {
        let bound = |member: &str| {
            let value = self
                .set
                .pointer(&format!("/spec/updateStrategy/rollingUpdate/{member}"));
            scaled(value, wanted, true).unwrap_or_default()
        };
        let (unavailable, surge) = (bound("maxUnavailable"), bound("maxSurge"));
        match (unavailable, surge) {
            (0, 0) => (1, 0),
            other => other,
        }
    }

    async fn step(&self) -> Result<Next, Rejected> {
        let mut next = Next::Done;
        let mut missing = Vec::new();
        for node in &self.nodes {
            let (runs, stays) = self.wants(node);
            let active = self.active(node.name());
            let failed = self.pods.get(node.name()).into_iter().flatten();
            for pod in failed.filter(|pod| pod::is_finished(pod) && !is_deleting(pod)) {
                next = next.or(self.replace(pod).await?);
            }
            let is_empty = self.pods.get(node.name()).is_none_or(Vec::is_empty);
            if runs && is_empty {
                missing.push(self.pod(node.name()));
            } else if !stays {
                for pod in active {
                    pod::delete(self.context, &AUTHOR, self.set, pod).await?;
                }
            } else {
                self.delete_surplus(&active).await?;
            }
        }
        pod::create_all(self.context, &AUTHOR, self.set, missing).await?;
        if text(self.set, "/spec/updateStrategy/type") != "OnDelete" {
            self.update().await?;
        }
        Ok(next)
    }

    /// Deletes a finished Pod after a delay.
    async fn replace(&self, pod: &Object) -> Result<Next, Rejected> {
        let clocks = &self.context.clocks;
        let left = clocks.left(pod.uid(), "failed", FAILED_POD_BACKOFF, Instant::now());
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        let (name, node) = (pod.name(), text(pod, "/spec/nodeName"));
        let message = format!(
            "Found failed daemon pod {}/{name} on node {node}, will try to kill it",
            pod.namespace()
        );
        self.context
            .events
            .warning(&AUTHOR, self.set, "FailedDaemonPod", message);
        pod::delete(self.context, &AUTHOR, self.set, pod).await?;
        Ok(Next::Done)
    }

    /// Deletes surplus Pods: each node keeps one, or two during an update with surge.
    async fn delete_surplus(&self, active: &[&Arc<Object>]) -> Result<(), Rejected> {
        let (new, old): (Vec<&Arc<Object>>, Vec<&Arc<Object>>) =
            active.iter().copied().partition(|pod| self.is_new(pod));
        let surplus = new.iter().skip(1).chain(old.iter().skip(1));
        for pod in surplus {
            pod::delete(self.context, &AUTHOR, self.set, pod).await?;
        }
        Ok(())
    }

    /// Replaces Pods of old revisions within `maxUnavailable` and `maxSurge`.
    async fn update(&self) -> Result<(), Rejected> {
        let wanted: Vec<_> = self
            .nodes
            .iter()
            .filter(|node| self.wants(node).0)
            .collect();
        let total = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
        let (max_unavailable, max_surge) = self.bounds(total);
        let has_available = |node: &&&Arc<Object>| {
            let mut pods = self.active(node.name()).into_iter();
            pods.any(|pod| self.is_available(pod))
        };
        let available = wanted.iter().filter(has_available).count();
        let unavailable = total - i64::try_from(available).unwrap_or_default();
        let mut budget = max_unavailable - unavailable;
        let with_two = wanted
            .iter()
            .filter(|node| self.active(node.name()).len() > 1);
        let mut surge = max_surge - i64::try_from(with_two.count()).unwrap_or_default();
        let mut extra = Vec::new();
        for node in wanted {
            let active = self.active(node.name());
            let Some(old) = active.iter().find(|pod| !self.is_new(pod)) else {
                continue;
            };
            let new = active.iter().find(|pod| self.is_new(pod));
            match new {
                Some(new) if self.is_available(new) => {
                    pod::delete(self.context, &AUTHOR, self.set, old).await?;
                }
                Some(_) => {}
                None if !self.is_available(old) => {
                    pod::delete(self.context, &AUTHOR, self.set, old).await?;
                }
                None if max_surge > 0 => {
                    if surge > 0 {
                        surge -= 1;
                        extra.push(self.pod(node.name()));
                    }
                }
                None => {
                    if budget > 0 {
                        budget -= 1;
                        pod::delete(self.context, &AUTHOR, self.set, old).await?;
                    }
                }
            }
        }
        pod::create_all(self.context, &AUTHOR, self.set, extra).await
    }

    async fn write_status(&self) -> Reconciled {
        let set = self.set;
        let seconds = count(set, "/spec/minReadySeconds");
        let [mut desired, mut current, mut misscheduled] = [0_i64; 3];
        let [mut ready, mut available, mut updated] = [0_i64; 3];
        let mut next = Next::Done;
        for node in &self.nodes {
            let active = self.active(node.name());
            if !self.wants(node).0 {
                misscheduled += i64::from(!active.is_empty());
                continue;
            }
            desired += 1;
            // Of two Pods, the newer one counts.
            let Some(pod) = active.last() else {
                continue;
            };
            current += 1;
            updated += i64::from(self.is_new(pod));
            match pod::available_in(pod, seconds, now()) {
                None => continue,
                Some(0) => available += 1,
                Some(left) => next = next.or(Next::After(Duration::from_secs(left.unsigned_abs()))),
            }
            ready += 1;
        }
        let mut status = json!({
            "observedGeneration": count(set, "/metadata/generation"),
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": current,
            "numberMisscheduled": misscheduled,
            "numberReady": ready,
        });
        set_count(&mut status, "updatedNumberScheduled", updated);
        set_count(&mut status, "numberAvailable", available);
        set_count(&mut status, "numberUnavailable", desired - available);
        if let Some(collisions) = number(set, "/status/collisionCount") {
            status["collisionCount"] = collisions.into();
        }
        if let Some(conditions) = set.pointer("/status/conditions") {
            status["conditions"] = conditions.clone();
        }
        self.context.set_status(&AUTHOR, set, status).await?;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_belongs_to_the_node_it_is_meant_for() {
        let bound = json!({"spec": {"nodeName": "a"}});
        assert_eq!(node_of(&bound), "a");
        let meant = json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}}}}});
        assert_eq!(node_of(&meant), "b");
    }
}
