//! The objects to reconcile after a change.

use crate::context::Context;
use crate::kind::Kind;
use crate::object::{Object, is_deleting, selects, selects_plainly, text};
use crate::queue::{Lane, Queue};
use crate::replica_set::selects_pod;
use crate::scheduler;

/// The controllers that reconcile objects of their own kind.
fn lane(kind: Kind) -> Option<Lane> {
    Some(match kind {
        Kind::CertificateSigningRequest => Lane::Certificate,
        Kind::CronJob => Lane::CronJob,
        Kind::DaemonSet => Lane::DaemonSet,
        Kind::Deployment => Lane::Deployment,
        Kind::Job => Lane::Job,
        Kind::Node => Lane::Node,
        Kind::PersistentVolume => Lane::PersistentVolume,
        Kind::PersistentVolumeClaim => Lane::Volume,
        Kind::PodDisruptionBudget => Lane::Disruption,
        Kind::ReplicaSet => Lane::ReplicaSet,
        Kind::ReplicationController => Lane::ReplicationController,
        Kind::StatefulSet => Lane::StatefulSet,
        _ => return None,
    })
}

/// Queues the objects affected by a change.
pub(crate) fn wake(
    context: &Context,
    queue: &mut Queue,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    let Some(object) = new.or(old) else {
        return;
    };
    if new.is_none() {
        context.clocks.forget(object.uid());
    }
    let mut waker = Waker { context, queue };
    // Pods of a deleted Job still have its finalizer.
    if object.kind == Kind::Job && new.is_none() {
        waker.queue.add(Lane::Job, object.path());
    }
    if let Some(lane) = lane(object.kind)
        && new.is_some()
    {
        // A controller's own status update does not trigger it again.
        if is_only_status(old, new) {
            waker.queue.add_quietly(lane, object.path());
        } else {
            waker.queue.add(lane, object.path());
        }
    }
    for one in [old, new].into_iter().flatten() {
        waker.controller(one);
    }
    match object.kind {
        Kind::Pod => waker.pod(old, new),
        Kind::Node => waker.node(old, new),
        Kind::Service => {
            waker.queue.add(Lane::Endpoints, object.path());
            waker.queue.add(Lane::EndpointSlice, object.path());
        }
        Kind::Endpoints => waker.queue.add_quietly(Lane::Endpoints, object.path()),
        Kind::EndpointSlice => waker.slice(object),
        Kind::PersistentVolumeClaim => waker.claim(object),
        Kind::PersistentVolume | Kind::StorageClass => waker.volume(object),
        Kind::ReplicaSet if new.is_some_and(|set| set.controller().is_none()) => {
            waker.selecting(Kind::Deployment, Lane::Deployment, object);
        }
        Kind::ControllerRevision if new.is_some_and(|one| one.controller().is_none()) => {
            waker.selecting(Kind::StatefulSet, Lane::StatefulSet, object);
            waker.selecting(Kind::DaemonSet, Lane::DaemonSet, object);
        }
        _ => {}
    }
}

/// Returns true if only the status of an object changed.
fn is_only_status(old: Option<&Object>, new: Option<&Object>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let members = [
        "generation",
        "deletionTimestamp",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ];
    old.get("spec") == new.get("spec")
        && members
            .iter()
            .all(|member| old["metadata"].get(*member) == new["metadata"].get(*member))
}

struct Waker<'w> {
    context: &'w Context,
    queue: &'w mut Queue,
}

impl Waker<'_> {
    /// Queues the controller of an object.
    fn controller(&mut self, object: &Object) {
        let Some(owner) = object.controller() else {
            return;
        };
        let kind = Kind::of_reference(text(owner, "/apiVersion"), text(owner, "/kind"));
        if let Some(lane) = kind.and_then(lane) {
            let path = match object.namespace() {
                "" => text(owner, "/name").to_owned(),
                namespace => format!("{namespace}/{}", text(owner, "/name")),
            };
            self.queue.add(lane, &path);
        }
    }

    /// Queues the objects in the namespace whose selectors match.
    fn selecting(&mut self, kind: Kind, lane: Lane, object: &Object) {
        for one in self.context.cache.in_namespace(kind, object.namespace()) {
            let is_selected = match kind {
                Kind::Service => selects_plainly(one.pointer("/spec/selector"), object),
                Kind::ReplicationController => selects_pod(&one, object),
                _ => selects(one.pointer("/spec/selector"), object),
            };
            if is_selected {
                self.queue.add(lane, one.path());
            }
        }
    }

    fn pod(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let context = self.context;
        match (old, new) {
            (_, Some(pod)) => {
                let address = text(pod, "/status/podIP");
                if !address.is_empty() {
                    context.addresses.take(address, pod.uid());
                }
                self.stored_pod(pod);
            }
            (Some(pod), None) => {
                context
                    .addresses
                    .release(text(pod, "/status/podIP"), pod.uid());
                self.owner_of_owner(pod);
            }
            (None, None) => return,
        }
        if is_same_endpoint(old, new) {
            return;
        }
        for pod in [old, new].into_iter().flatten() {
            self.selecting(Kind::Service, Lane::Endpoints, pod);
            self.selecting(Kind::Service, Lane::EndpointSlice, pod);
            self.selecting(Kind::PodDisruptionBudget, Lane::Disruption, pod);
        }
    }

    fn stored_pod(&mut self, pod: &Object) {
        let node = text(pod, "/spec/nodeName");
        if scheduler::is_waiting(pod) {
            self.queue.add(Lane::Scheduler, pod.path());
        } else if !node.is_empty() {
            let is_known = self.context.cache.get(Kind::Node, "", node).is_some();
            let lane = if is_known {
                Lane::Kubelet
            } else {
                Lane::PodGarbage
            };
            self.queue.add(lane, pod.path());
        }
        if pod.controller().is_none() && !is_deleting(pod) {
            for (kind, lane) in [
                (Kind::ReplicaSet, Lane::ReplicaSet),
                (Kind::ReplicationController, Lane::ReplicationController),
                (Kind::StatefulSet, Lane::StatefulSet),
                (Kind::DaemonSet, Lane::DaemonSet),
                (Kind::Job, Lane::Job),
            ] {
                self.selecting(kind, lane, pod);
            }
        }
    }

    /// A Deployment with strategy `Recreate` waits for the last Pod of its old ReplicaSets.
    fn owner_of_owner(&mut self, pod: &Object) {
        let Some(owner) = pod.controller() else {
            return;
        };
        let set = text(owner, "/name");
        let set = self
            .context
            .cache
            .get(Kind::ReplicaSet, pod.namespace(), set);
        if let Some(set) = set {
            self.controller(&set);
        }
    }

    fn node(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let part = |node: Option<&Object>| {
            node.map(|node| {
                let ready = crate::object::is_condition_true(node, "Ready");
                (
                    node["spec"].clone(),
                    node["metadata"]["labels"].clone(),
                    ready,
                )
            })
        };
        if part(old) == part(new) {
            return;
        }
        let name = new.or(old).map_or("", Object::name);
        for set in self.context.cache.all(Kind::DaemonSet) {
            self.queue.add(Lane::DaemonSet, set.path());
        }
        for pod in self.context.cache.all(Kind::Pod) {
            if scheduler::is_waiting(&pod) {
                self.queue.add(Lane::Scheduler, pod.path());
            } else if text(&pod, "/spec/nodeName") == name {
                let lane = if new.is_some() {
                    Lane::Kubelet
                } else {
                    Lane::PodGarbage
                };
                self.queue.add(lane, pod.path());
            }
        }
    }

    fn slice(&mut self, slice: &Object) {
        let service = crate::object::label(slice, "kubernetes.io/service-name");
        if let Some(service) = service {
            let path = format!("{}/{service}", slice.namespace());
            self.queue.add_quietly(Lane::EndpointSlice, &path);
        }
    }

    /// A bound claim unblocks Pods.
    fn claim(&mut self, claim: &Object) {
        let volume = text(claim, "/spec/volumeName");
        if !volume.is_empty() {
            self.queue.add(Lane::PersistentVolume, volume);
        }
        for pod in self
            .context
            .cache
            .in_namespace(Kind::Pod, claim.namespace())
        {
            if scheduler::is_waiting(&pod) {
                self.queue.add(Lane::Scheduler, pod.path());
            }
        }
    }

    /// A new volume or class may match a waiting claim; a volume whose claim was deleted is released.
    fn volume(&mut self, object: &Object) {
        for claim in self.context.cache.all(Kind::PersistentVolumeClaim) {
            let is_bound = text(&claim, "/status/phase") == "Bound";
            if !is_bound || text(&claim, "/spec/volumeName") == object.name() {
                self.queue.add(Lane::Volume, claim.path());
            }
        }
    }
}

/// Returns true if a Pod is an equal endpoint in both versions.
fn is_same_endpoint(old: Option<&Object>, new: Option<&Object>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let pointers = [
        "/metadata/labels",
        "/metadata/deletionTimestamp",
        "/metadata/ownerReferences",
        "/status/podIP",
        "/status/phase",
        "/status/conditions",
        "/spec/nodeName",
    ];
    pointers
        .iter()
        .all(|pointer| old.pointer(pointer) == new.pointer(pointer))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn a_status_alone_is_no_news() {
        let old =
            set(json!({"metadata": {"generation": 1}, "spec": {"replicas": 1}, "status": {}}));
        let mut new = old.clone();
        new.value["status"]["replicas"] = 1.into();
        assert!(is_only_status(Some(&old), Some(&new)));
        new.value["spec"]["replicas"] = 2.into();
        assert!(!is_only_status(Some(&old), Some(&new)));
        assert!(!is_only_status(None, Some(&new)));
    }
}
