//! The kubelet of simulated nodes: Pods start, become ready, complete, restart and stop as planned.
//!
//! A reconciliation determines the stage of a Pod and its remaining time, and enters the next stage when it is over.
//!
//! UPSTREAM: kubernetes pkg/kubelet/kubelet_pods.go, pkg/kubelet/status

mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled, ignore_not_found};
use crate::kind::Kind;
use crate::node;
use crate::object::{Object, count, flag, is_deleting, list, number, text};
use crate::plan::{Behaviour, Plan};
use crate::pod;
use crate::queue::Next;
use status::{Condition, ContainerStatuses, is_sidecar};

/// The initial backoff of container restarts, doubled each time.
///
/// UPSTREAM: kubernetes pkg/kubelet/kubelet.go (backOffPeriod, MaxContainerBackOff)
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// The delay before a Pod whose node never existed is deleted.
///
/// UPSTREAM: kubernetes pkg/controller/podgc/gc_controller.go (quarantineTime)
const QUARANTINE: Duration = Duration::from_secs(40);

const POD_GC: Author = Author::Controller {
    account: "pod-garbage-collector",
    component: "pod-garbage-collector",
};

/// The stage of a Pod, according to its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is bound to the node, and no container runs.
    Pending,
    /// The init container of this index runs.
    Initializing(usize),
    Running,
    /// A container is in CrashLoopBackOff.
    BackingOff,
    Finished,
}

fn stage(pod: &Value) -> Stage {
    match pod::phase(pod) {
        "Succeeded" | "Failed" => return Stage::Finished,
        "Running" => {
            let waits = list(pod, "/status/containerStatuses")
                .any(|status| status.pointer("/state/waiting").is_some());
            return if waits {
                Stage::BackingOff
            } else {
                Stage::Running
            };
        }
        _ => {}
    }
    let runs = list(pod, "/status/initContainerStatuses")
        .enumerate()
        .filter(|(number, _)| !is_sidecar(pod, *number))
        .find(|(_, status)| status.pointer("/state/running").is_some());
    runs.map_or(Stage::Pending, |(number, _)| Stage::Initializing(number))
}

/// A Pod on a simulated node.
struct Sandbox<'s> {
    context: &'s Context,
    pod: &'s Object,
    node: Arc<Object>,
    by: Author,
    plan: Plan,
}

/// Reconciles a Pod on a simulated node.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(pod) = context.cache.at(Kind::Pod, path) else {
        return Ok(Next::Done);
    };
    let name = text(&pod, "/spec/nodeName");
    let node = context.cache.get(Kind::Node, "", name);
    let Some(node) = node.filter(|node| !name.is_empty() && node::is_simulated(node)) else {
        return Ok(Next::Done);
    };
    let sandbox = Sandbox {
        context,
        pod: &pod,
        by: Author::Kubelet(name.to_owned()),
        node,
        plan: Plan::of(&pod, &context.settings),
    };
    sandbox.step().await
}

impl Sandbox<'_> {
    /// The remaining time of a stage; `None` if it is over.
    fn remaining(&self, stage: &str, lasts: Duration) -> Option<Next> {
        let clocks = &self.context.clocks;
        let left = clocks.left(self.pod.uid(), stage, lasts, Instant::now());
        (!left.is_zero()).then_some(Next::After(left))
    }

    async fn step(&self) -> Reconciled {
        if is_deleting(self.pod) {
            return self.stop().await;
        }
        match stage(self.pod) {
            Stage::Finished => Ok(Next::Done),
            Stage::Pending => self.start().await,
            Stage::Initializing(number) => self.initialize(number).await,
            Stage::Running => self.run().await,
            Stage::BackingOff => self.restart().await,
        }
    }

    /// Records the events of a container start.
    fn record_start(&self, of: &str, container: &Value) {
        let field = format!("spec.{of}{{{}}}", text(container, "/name"));
        let image = text(container, "/image");
        let pulled = format!(
            "Container image \"{image}\" already present on machine and can be accessed by the pod"
        );
        for (reason, message) in [
            ("Pulled", pulled),
            ("Created", String::from("Container created")),
            ("Started", String::from("Container started")),
        ] {
            let events = &self.context.events;
            events.of_container(&self.by, self.pod, &field, reason, message);
        }
    }

    async fn write(&self, status: Value) -> Reconciled {
        self.context.set_status(&self.by, self.pod, status).await?;
        Ok(Next::Done)
    }

    fn status(&self) -> ContainerStatuses<'_> {
        ContainerStatuses {
            pod: self.pod,
            status: self.pod.get("status").cloned().unwrap_or_else(|| json!({})),
        }
    }

    /// The status with Pod IPs and start time.
    fn accepted(&self) -> Option<ContainerStatuses<'_>> {
        let mut container_statuses = self.status();
        let host = node::address(&self.node);
        let is_on_host = flag(self.pod, "/spec/hostNetwork");
        let known = text(self.pod, "/status/podIP");
        let address = if is_on_host {
            host.clone()
        } else if known.is_empty() {
            let addresses = &self.context.addresses;
            addresses.allocate(self.pod.uid())?.to_string()
        } else {
            known.to_owned()
        };
        container_statuses.accept(&host, &address);
        Some(container_statuses)
    }

    async fn start(&self) -> Reconciled {
        if let Some(next) = self.remaining("pending", self.plan.start_after) {
            return Ok(next);
        }
        let Some(mut container_statuses) = self.accepted() else {
            return Ok(Next::Retry);
        };
        if self.plan.behaviour == Behaviour::ImagePullError {
            container_statuses.fail_to_pull();
            let container = &self.pod["spec"]["containers"][0];
            let image = text(container, "/image");
            let message = format!("Failed to pull image \"{image}\": not found");
            let events = &self.context.events;
            events.warning(&self.by, self.pod, "Failed", message);
            return self.write(container_statuses.finish()).await;
        }
        self.start_from(container_statuses, 0).await
    }

    /// Starts the init containers from an index on: sidecars at once, others one at a time. After the last one, the
    /// containers are started.
    async fn start_from(
        &self,
        mut container_statuses: ContainerStatuses<'_>,
        from: usize,
    ) -> Reconciled {
        let containers: Vec<&Value> = list(self.pod, "/spec/initContainers").collect();
        for (number, container) in containers.iter().enumerate().skip(from) {
            container_statuses.run_init(number);
            self.record_start("initContainers", container);
            if !is_sidecar(self.pod, number) {
                container_statuses.set_uninitialized();
                return self.write(container_statuses.finish()).await;
            }
        }
        for container in list(self.pod, "/spec/containers") {
            self.record_start("containers", container);
        }
        let is_ready = self.plan.ready_after.is_zero() && self.may_be_ready();
        container_statuses.run(is_ready);
        self.write(container_statuses.finish()).await
    }

    fn may_be_ready(&self) -> bool {
        self.plan.behaviour != Behaviour::NotReady
    }

    async fn initialize(&self, number: usize) -> Reconciled {
        let name = format!("init {number}");
        if let Some(next) = self.remaining(&name, self.plan.start_after) {
            return Ok(next);
        }
        let mut container_statuses = self.status();
        container_statuses.end_init(number);
        self.start_from(container_statuses, number + 1).await
    }

    async fn run(&self) -> Reconciled {
        if self.plan.behaviour == Behaviour::Evict {
            let mut container_statuses = self.status();
            container_statuses.evict();
            let message = String::from("The node was low on resource: memory. ");
            let events = &self.context.events;
            events.warning(&self.by, self.pod, "Evicted", message);
            return self.write(container_statuses.finish()).await;
        }
        let is_ready = pod::is_ready(self.pod);
        if is_ready != self.may_be_ready() {
            if !is_ready && let Some(next) = self.remaining("running", self.plan.ready_after) {
                return Ok(next);
            }
            let mut container_statuses = self.status();
            container_statuses.run(!is_ready);
            return self.write(container_statuses.finish()).await;
        }
        if !self.readiness_gates_reflected() {
            let mut container_statuses = self.status();
            container_statuses.set_ready_condition();
            return self.write(container_statuses.finish()).await;
        }
        let Some(code) = self.plan.exit_code(self.pod) else {
            return Ok(Next::Done);
        };
        let stage = format!("runs {}", self.restarts());
        if let Some(next) = self.remaining(&stage, self.plan.complete_after) {
            return Ok(next);
        }
        let mut container_statuses = self.status();
        let policy = text(self.pod, "/spec/restartPolicy");
        if policy == "Never" || policy == "OnFailure" && code == 0 {
            container_statuses.complete(code);
        } else {
            container_statuses.back_off(code);
            let name = text(&self.pod["spec"]["containers"][0], "/name");
            let message = format!(
                "Back-off restarting failed container {name} in pod {}_{}({})",
                self.pod.name(),
                self.pod.namespace(),
                self.pod.uid()
            );
            let events = &self.context.events;
            events.warning(&self.by, self.pod, "BackOff", message);
        }
        self.write(container_statuses.finish()).await
    }

    /// Returns true if the condition `Ready` reflects the readiness gates.
    fn readiness_gates_reflected(&self) -> bool {
        pod::is_ready(self.pod) == (self.may_be_ready() && status::are_gates_open(self.pod))
            || list(self.pod, "/spec/readinessGates").next().is_none()
    }

    fn restarts(&self) -> i64 {
        let statuses = list(self.pod, "/status/containerStatuses");
        let counts = statuses.map(|status| count(status, "/restartCount"));
        counts.max().unwrap_or_default()
    }

    async fn restart(&self) -> Reconciled {
        let restarts = self.restarts();
        let doublings = u32::try_from(restarts - 1).unwrap_or_default().min(16);
        let pause = (FIRST_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF);
        if let Some(next) = self.remaining(&format!("backs off {restarts}"), pause) {
            return Ok(next);
        }
        let mut container_statuses = self.status();
        let is_ready = self.plan.ready_after.is_zero() && self.may_be_ready();
        container_statuses.run(is_ready);
        self.write(container_statuses.finish()).await
    }

    /// Stops the containers of a deleted Pod, and then deletes the Pod.
    async fn stop(&self) -> Reconciled {
        let grace = number(self.pod, "/metadata/deletionGracePeriodSeconds").unwrap_or_default();
        if self.plan.behaviour == Behaviour::Hang && grace > 0 {
            return Ok(Next::Done);
        }
        let runs = !matches!(stage(self.pod), Stage::Finished);
        let grace_time = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        if runs {
            let lasts = self.plan.stop_after.min(grace_time);
            if let Some(next) = self.remaining("stops", lasts) {
                return Ok(next);
            }
            for container in list(self.pod, "/spec/containers") {
                let name = text(container, "/name");
                let field = format!("spec.containers{{{name}}}");
                let message = format!("Stopping container {name}");
                let events = &self.context.events;
                events.of_container(&self.by, self.pod, &field, "Killing", message);
            }
            let mut container_statuses = self.status();
            container_statuses.stop();
            self.context
                .set_status(&self.by, self.pod, container_statuses.finish())
                .await?;
        } else if grace == 0 {
            // It has finalizers.
            return Ok(Next::Done);
        }
        let deleted = self
            .context
            .api
            .delete(&self.by, self.pod.target(), Some(0))
            .await;
        ignore_not_found(deleted)?;
        Ok(Next::Done)
    }
}

/// Deletes a Pod whose node was deleted. A node that never existed may still be created.
pub(crate) async fn collect(context: &Context, path: &str) -> Reconciled {
    let Some(pod) = context.cache.at(Kind::Pod, path) else {
        return Ok(Next::Done);
    };
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() || context.cache.get(Kind::Node, "", node).is_some() {
        return Ok(Next::Done);
    }
    let ran = !text(&pod, "/status/startTime").is_empty();
    let quarantine = if ran { Duration::ZERO } else { QUARANTINE };
    let left = context
        .clocks
        .left(pod.uid(), "orphaned", quarantine, Instant::now());
    if !left.is_zero() {
        return Ok(Next::After(left));
    }
    fail_orphan(context, &pod).await?;
    if is_deleting(&pod) && number(&pod, "/metadata/deletionGracePeriodSeconds") == Some(0) {
        return Ok(Next::Done);
    }
    ignore_not_found(context.api.delete(&POD_GC, pod.target(), Some(0)).await)?;
    Ok(Next::Done)
}

/// UPSTREAM: kubernetes pkg/controller/podgc/gc_controller.go (markFailedAndDeletePodWithCondition)
async fn fail_orphan(context: &Context, pod: &Object) -> Result<(), Rejected> {
    if pod::is_finished(pod) {
        return Ok(());
    }
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    status["phase"] = "Failed".into();
    let mut conditions = crate::object::conditions(pod);
    let reason = "DeletionByPodGC";
    let message = "PodGC: node no longer exists";
    Condition::set(&mut conditions, "DisruptionTarget", "True", reason, message);
    status["conditions"] = conditions.into();
    context.set_status(&POD_GC, pod, status).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_the_stage() {
        assert_eq!(
            stage(&json!({"status": {"phase": "Pending"}})),
            Stage::Pending
        );
        assert_eq!(
            stage(&json!({"status": {"phase": "Failed"}})),
            Stage::Finished
        );
        let pod = json!({
            "spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"state": {"running": {}}}, {"state": {"running": {}}}]},
        });
        assert_eq!(stage(&pod), Stage::Initializing(1));
        let pod = json!({"status": {"phase": "Running", "containerStatuses": [
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        assert_eq!(stage(&pod), Stage::BackingOff);
        let pod = json!({"status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}});
        assert_eq!(stage(&pod), Stage::Running);
    }
}
