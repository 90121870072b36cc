//! The objects to reconcile after a change.

use crate::context::Context;
use crate::kind::Kind;
use crate::object::{Object, is_deleting, map_selects, selects, text};
use crate::queue::{ControllerKind, Queue};
use crate::replica_set::selects_pod;
use crate::scheduler;

/// The controllers that reconcile objects of their own kind.
fn controller_of(kind: Kind) -> Option<ControllerKind> {
    Some(match kind {
        Kind::CertificateSigningRequest => ControllerKind::Certificate,
        Kind::CronJob => ControllerKind::CronJob,
        Kind::DaemonSet => ControllerKind::DaemonSet,
        Kind::Deployment => ControllerKind::Deployment,
        Kind::Job => ControllerKind::Job,
        Kind::Node => ControllerKind::Node,
        Kind::PersistentVolume => ControllerKind::PersistentVolume,
        Kind::PersistentVolumeClaim => ControllerKind::Volume,
        Kind::PodDisruptionBudget => ControllerKind::Disruption,
        Kind::ReplicaSet => ControllerKind::ReplicaSet,
        Kind::ReplicationController => ControllerKind::ReplicationController,
        Kind::StatefulSet => ControllerKind::StatefulSet,
        _ => return None,
    })
}

/// Queues the objects affected by a change.
pub(crate) fn enqueue_affected(
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
    let mut enqueuer = Enqueuer { context, queue };
    // Pods of a deleted Job still have its finalizer.
    if object.kind == Kind::Job && new.is_none() {
        enqueuer.queue.add(ControllerKind::Job, object.path());
    }
    if let Some(controller) = controller_of(object.kind)
        && new.is_some()
    {
        // A controller's own status update does not trigger it again.
        if is_only_status(old, new) {
            enqueuer.queue.add_rate_limited(controller, object.path());
        } else {
            enqueuer.queue.add(controller, object.path());
        }
    }
    for one in [old, new].into_iter().flatten() {
        enqueuer.controller(one);
    }
    match object.kind {
        Kind::Pod => enqueuer.pod(old, new),
        Kind::Node => enqueuer.node(old, new),
        Kind::Service => {
            enqueuer.queue.add(ControllerKind::Endpoints, object.path());
            enqueuer
                .queue
                .add(ControllerKind::EndpointSlice, object.path());
        }
        Kind::Endpoints => enqueuer
            .queue
            .add_rate_limited(ControllerKind::Endpoints, object.path()),
        Kind::EndpointSlice => enqueuer.slice(object),
        Kind::PersistentVolumeClaim => enqueuer.claim(object),
        Kind::PersistentVolume | Kind::StorageClass => enqueuer.volume(object),
        Kind::ReplicaSet if new.is_some_and(|set| set.controller().is_none()) => {
            enqueuer.selecting(Kind::Deployment, ControllerKind::Deployment, object);
        }
        Kind::ControllerRevision if new.is_some_and(|one| one.controller().is_none()) => {
            enqueuer.selecting(Kind::StatefulSet, ControllerKind::StatefulSet, object);
            enqueuer.selecting(Kind::DaemonSet, ControllerKind::DaemonSet, object);
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

struct Enqueuer<'w> {
    context: &'w Context,
    queue: &'w mut Queue,
}

impl Enqueuer<'_> {
    /// Queues the controller of an object.
    fn controller(&mut self, object: &Object) {
        let Some(owner) = object.controller() else {
            return;
        };
        let kind = Kind::of_reference(text(owner, "/apiVersion"), text(owner, "/kind"));
        if let Some(controller) = kind.and_then(controller_of) {
            let path = match object.namespace() {
                "" => text(owner, "/name").to_owned(),
                namespace => format!("{namespace}/{}", text(owner, "/name")),
            };
            self.queue.add(controller, &path);
        }
    }

    /// Queues the objects in the namespace whose selectors match.
    fn selecting(&mut self, kind: Kind, controller: ControllerKind, object: &Object) {
        for one in self.context.cache.in_namespace(kind, object.namespace()) {
            let is_selected = match kind {
                Kind::Service => map_selects(one.pointer("/spec/selector"), object),
                Kind::ReplicationController => selects_pod(&one, object),
                _ => selects(one.pointer("/spec/selector"), object),
            };
            if is_selected {
                self.queue.add(controller, one.path());
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
            self.selecting(Kind::Service, ControllerKind::Endpoints, pod);
            self.selecting(Kind::Service, ControllerKind::EndpointSlice, pod);
            self.selecting(Kind::PodDisruptionBudget, ControllerKind::Disruption, pod);
        }
    }

    fn stored_pod(&mut self, pod: &Object) {
        let node = text(pod, "/spec/nodeName");
        if scheduler::is_waiting(pod) {
            self.queue.add(ControllerKind::Scheduler, pod.path());
        } else if !node.is_empty() {
            let is_known = self.context.cache.get(Kind::Node, "", node).is_some();
            let controller = if is_known {
                ControllerKind::Kubelet
            } else {
                ControllerKind::PodGarbage
            };
            self.queue.add(controller, pod.path());
        }
        if pod.controller().is_none() && !is_deleting(pod) {
            for (kind, controller) in [
                (Kind::ReplicaSet, ControllerKind::ReplicaSet),
                (
                    Kind::ReplicationController,
                    ControllerKind::ReplicationController,
                ),
                (Kind::StatefulSet, ControllerKind::StatefulSet),
                (Kind::DaemonSet, ControllerKind::DaemonSet),
                (Kind::Job, ControllerKind::Job),
            ] {
                self.selecting(kind, controller, pod);
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
            self.queue.add(ControllerKind::DaemonSet, set.path());
        }
        for pod in self.context.cache.all(Kind::Pod) {
            if scheduler::is_waiting(&pod) {
                self.queue.add(ControllerKind::Scheduler, pod.path());
            } else if text(&pod, "/spec/nodeName") == name {
                let controller = if new.is_some() {
                    ControllerKind::Kubelet
                } else {
                    ControllerKind::PodGarbage
                };
                self.queue.add(controller, pod.path());
            }
        }
    }

    fn slice(&mut self, slice: &Object) {
        let service = crate::object::label(slice, "kubernetes.io/service-name");
        if let Some(service) = service {
            let path = format!("{}/{service}", slice.namespace());
            self.queue
                .add_rate_limited(ControllerKind::EndpointSlice, &path);
        }
    }

    /// A bound claim unblocks Pods.
    fn claim(&mut self, claim: &Object) {
        let volume = text(claim, "/spec/volumeName");
        if !volume.is_empty() {
            self.queue.add(ControllerKind::PersistentVolume, volume);
        }
        for pod in self
            .context
            .cache
            .in_namespace(Kind::Pod, claim.namespace())
        {
            if scheduler::is_waiting(&pod) {
                self.queue.add(ControllerKind::Scheduler, pod.path());
            }
        }
    }

    /// A new volume or class may match a waiting claim; a volume whose claim was deleted is released.
    fn volume(&mut self, object: &Object) {
        for claim in self.context.cache.all(Kind::PersistentVolumeClaim) {
            let is_bound = text(&claim, "/status/phase") == "Bound";
            if !is_bound || text(&claim, "/spec/volumeName") == object.name() {
                self.queue.add(ControllerKind::Volume, claim.path());
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
