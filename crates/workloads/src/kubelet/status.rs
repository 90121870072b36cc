//! The status of a Pod in each stage.
//!
//! UPSTREAM: kubernetes pkg/kubelet/status/generate.go, pkg/kubelet/kubelet_pods.go

use serde_json::{Value, json};

use crate::object::{Fnv, Object, count, is_condition_true, list, now_text, set_condition, text};

/// A Pod condition, with its probe time.
pub(super) struct Condition;

impl Condition {
    pub(super) fn set(
        conditions: &mut Vec<Value>,
        of: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) {
        if set_condition(conditions, of, status, reason, message)
            && let Some(one) = conditions.iter_mut().find(|one| text(one, "/type") == of)
        {
            one["lastProbeTime"] = Value::Null;
        }
    }
}

/// Returns true if an init container is a sidecar.
pub(super) fn is_sidecar(pod: &Value, number: usize) -> bool {
    let policy = pod.pointer(&format!("/spec/initContainers/{number}/restartPolicy"));
    policy.and_then(Value::as_str) == Some("Always")
}

/// Returns true if all readiness gates are true.
pub(super) fn are_gates_open(pod: &Value) -> bool {
    list(pod, "/spec/readinessGates")
        .all(|gate| is_condition_true(pod, text(gate, "/conditionType")))
}

/// The containers of a Pod and their statuses.
pub(super) struct ContainerStatuses<'i> {
    pub(super) pod: &'i Object,
    pub(super) status: Value,
}

fn running() -> Value {
    json!({"running": {"startedAt": now_text()}})
}

fn terminated(status: &Value, code: i64) -> Value {
    let started = status.pointer("/state/running/startedAt");
    json!({"terminated": {
        "exitCode": code,
        "reason": if code == 0 { "Completed" } else { "Error" },
        "startedAt": started.cloned().unwrap_or_else(|| now_text().into()),
        "finishedAt": now_text(),
        "containerID": status["containerID"],
    }})
}

/// A stable container ID.
fn identifier(parts: &[&str]) -> String {
    let mut text = String::new();
    for round in 0..8_u8 {
        let mut hash = Fnv::new();
        hash.write(&[round]);
        for part in parts {
            hash.write(part.as_bytes());
        }
        text.push_str(&format!("{:08x}", hash.0));
    }
    text
}

impl ContainerStatuses<'_> {
    /// The status, with the Pod's generation as observed.
    pub(super) fn finish(mut self) -> Value {
        let generation = count(self.pod, "/metadata/generation");
        if generation > 0 {
            self.status["observedGeneration"] = generation.into();
            if let Some(conditions) = self.status["conditions"].as_array_mut() {
                for condition in conditions {
                    condition["observedGeneration"] = generation.into();
                }
            }
        }
        self.status
    }

    pub(super) fn accept(&mut self, host: &str, address: &str) {
        let status = &mut self.status;
        status["hostIP"] = host.into();
        status["hostIPs"] = json!([{"ip": host}]);
        status["podIP"] = address.into();
        status["podIPs"] = json!([{"ip": address}]);
        if status.get("startTime").is_none() {
            status["startTime"] = now_text().into();
        }
        status["phase"] = "Pending".into();
        self.condition("PodReadyToStartContainers", "True", "", "");
    }

    fn condition(&mut self, of: &str, to: &str, reason: &str, message: &str) {
        let mut conditions: Vec<Value> = list(&self.status, "/conditions").cloned().collect();
        Condition::set(&mut conditions, of, to, reason, message);
        self.status["conditions"] = conditions.into();
    }

    fn names(&self, of: &str) -> Vec<String> {
        let containers = list(self.pod, &format!("/spec/{of}"));
        containers
            .map(|one| text(one, "/name").to_owned())
            .collect()
    }

    /// The status of a container, or a new one.
    fn container(&self, of: &str, statuses: &str, number: usize) -> Value {
        let spec = &self.pod["spec"][of][number];
        let (name, image) = (text(spec, "/name"), text(spec, "/image"));
        let known =
            list(&self.status, &format!("/{statuses}")).find(|one| text(one, "/name") == name);
        let mut status = known.cloned().unwrap_or_else(|| {
            json!({"name": name, "restartCount": 0, "lastState": {}, "state": {}, "imageID": ""})
        });
        status["image"] = image.into();
        status
    }

    /// Updates the statuses of all containers.
    fn containers(&mut self, change: impl Fn(&mut Value)) {
        let many = list(self.pod, "/spec/containers").count();
        let statuses: Vec<Value> = (0..many)
            .map(|number| {
                let mut status = self.container("containers", "containerStatuses", number);
                change(&mut status);
                status
            })
            .collect();
        self.status["containerStatuses"] = statuses.into();
    }

    fn start(&self, status: &mut Value) {
        let restarts = count(status, "/restartCount").to_string();
        let (name, image) = (
            text(status, "/name").to_owned(),
            text(status, "/image").to_owned(),
        );
        let id = identifier(&[self.pod.uid(), &name, &restarts]);
        status["containerID"] = format!("lockgate://{id}").into();
        let image = format!("{image}@sha256:{}", identifier(&[&image]));
        status["imageID"] = image.into();
        status["state"] = running();
        status["started"] = true.into();
    }

    fn change_init(&mut self, number: usize, change: impl Fn(&Self, &mut Value)) {
        let many = list(self.pod, "/spec/initContainers").count();
        let statuses: Vec<Value> = (0..many)
            .map(|place| {
                let mut status = self.container("initContainers", "initContainerStatuses", place);
                if place == number {
                    change(self, &mut status);
                } else if status["state"] == json!({}) {
                    status["state"] = json!({"waiting": {"reason": "PodInitializing"}});
                    status["ready"] = false.into();
                    status["started"] = false.into();
                }
                status
            })
            .collect();
        self.status["initContainerStatuses"] = statuses.into();
    }

    pub(super) fn run_init(&mut self, number: usize) {
        let is_ready = is_sidecar(self.pod, number);
        self.change_init(number, |container_statuses, status| {
            container_statuses.start(status);
            status["ready"] = is_ready.into();
        });
    }

    pub(super) fn end_init(&mut self, number: usize) {
        self.change_init(number, |_, status| {
            status["state"] = terminated(status, 0);
            status["ready"] = true.into();
            status["started"] = false.into();
        });
    }

    /// Sets the containers to waiting for init containers.
    pub(super) fn set_uninitialized(&mut self) {
        self.containers(|status| {
            status["state"] = json!({"waiting": {"reason": "PodInitializing"}});
            status["ready"] = false.into();
            status["started"] = false.into();
        });
        let waiting: Vec<String> = list(&self.status, "/initContainerStatuses")
            .enumerate()
            .filter(|(number, status)| {
                !is_sidecar(self.pod, *number) && status.pointer("/state/terminated").is_none()
            })
            .map(|(_, status)| text(status, "/name").to_owned())
            .collect();
        let message = format!("containers with incomplete status: [{}]", waiting.join(" "));
        self.condition("Initialized", "False", "ContainersNotInitialized", &message);
        self.set_unready();
    }

    fn set_unready(&mut self) {
        let names = self.names("containers").join(" ");
        let message = format!("containers with unready status: [{names}]");
        for of in ["Ready", "ContainersReady"] {
            self.condition(of, "False", "ContainersNotReady", &message);
        }
    }

    /// Sets the condition `Ready`, which depends on readiness gates.
    pub(super) fn set_ready_condition(&mut self) {
        if are_gates_open(self.pod) {
            self.condition("Ready", "True", "", "");
        } else {
            let gates = list(self.pod, "/spec/readinessGates");
            let closed = gates.map(|gate| text(gate, "/conditionType"));
            let closed = closed.filter(|of| !is_condition_true(self.pod, of));
            let closed: Vec<String> = closed
                .map(|of| {
                    format!(
                        "corresponding condition of pod readiness gate \"{of}\" does not exist."
                    )
                })
                .collect();
            self.condition(
                "Ready",
                "False",
                "ReadinessGatesNotReady",
                &closed.join(", "),
            );
        }
    }

    /// Sets the containers to running, ready or not.
    pub(super) fn run(&mut self, is_ready: bool) {
        self.status["phase"] = "Running".into();
        let many = list(self.pod, "/spec/containers").count();
        let statuses: Vec<Value> = (0..many)
            .map(|number| {
                let mut status = self.container("containers", "containerStatuses", number);
                if status.pointer("/state/running").is_none() {
                    self.start(&mut status);
                }
                status["ready"] = is_ready.into();
                status
            })
            .collect();
        self.status["containerStatuses"] = statuses.into();
        self.condition("Initialized", "True", "", "");
        if is_ready {
            self.condition("ContainersReady", "True", "", "");
            self.set_ready_condition();
        } else {
            self.set_unready();
        }
    }

    pub(super) fn fail_to_pull(&mut self) {
        self.condition("Initialized", "True", "", "");
        self.containers(|status| {
            let image = text(status, "/image");
            let message = format!("Back-off pulling image \"{image}\"");
            status["state"] =
                json!({"waiting": {"reason": "ImagePullBackOff", "message": message}});
            status["ready"] = false.into();
            status["started"] = false.into();
        });
        self.set_unready();
    }

    fn end_containers(&mut self, code: i64) {
        self.containers(|status| {
            if status.pointer("/state/terminated").is_none() {
                status["state"] = terminated(status, code);
            }
            status["ready"] = false.into();
            status["started"] = false.into();
        });
    }

    /// Sets the containers to terminated.
    pub(super) fn complete(&mut self, code: i64) {
        self.end_containers(code);
        self.end_sidecars();
        self.status["phase"] = if code == 0 { "Succeeded" } else { "Failed" }.into();
        self.condition("PodReadyToStartContainers", "False", "", "");
        let reason = if code == 0 {
            "PodCompleted"
        } else {
            "PodFailed"
        };
        self.condition(
            "Initialized",
            "True",
            if code == 0 { reason } else { "" },
            "",
        );
        for of in ["Ready", "ContainersReady"] {
            self.condition(of, "False", reason, "");
        }
    }

    fn end_sidecars(&mut self) {
        let many = list(self.pod, "/spec/initContainers").count();
        for number in (0..many).filter(|number| is_sidecar(self.pod, *number)) {
            self.change_init(number, |_, status| {
                status["state"] = terminated(status, 0);
                status["ready"] = false.into();
                status["started"] = false.into();
            });
        }
    }

    /// Sets the containers to failed and in backoff.
    pub(super) fn back_off(&mut self, code: i64) {
        self.containers(|status| {
            status["lastState"] = terminated(status, code);
            let message = "back-off 10s restarting failed container";
            status["state"] =
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
            status["restartCount"] = (count(status, "/restartCount") + 1).into();
            status["ready"] = false.into();
            status["started"] = false.into();
        });
        self.set_unready();
    }

    pub(super) fn evict(&mut self) {
        self.end_containers(137);
        self.status["phase"] = "Failed".into();
        self.status["reason"] = "Evicted".into();
        self.status["message"] = "The node was low on resource: memory. ".into();
        let message = "The node was low on resource: memory. ";
        self.condition("DisruptionTarget", "True", "TerminationByKubelet", message);
        self.set_unready();
    }

    /// Sets the containers to terminated by the deletion, with exit code 0 for the restart policy `Always`, or else
    /// 143 (SIGTERM).
    pub(super) fn stop(&mut self) {
        let ends_well = text(self.pod, "/spec/restartPolicy") == "Always";
        self.complete(if ends_well { 0 } else { 143 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::object::condition;

    fn pod(spec: Value) -> Object {
        Object {
            kind: Kind::Pod,
            key: "/core/pods/n/a".into(),
            created: 1,
            value: json!({"metadata": {"name": "a", "uid": "u", "generation": 1}, "spec": spec}),
        }
    }

    fn container_statuses(pod: &Object) -> ContainerStatuses<'_> {
        ContainerStatuses {
            pod,
            status: json!({"phase": "Pending"}),
        }
    }

    #[test]
    fn a_pod_that_runs_is_ready() {
        let pod =
            pod(json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"}));
        let mut container_statuses = container_statuses(&pod);
        container_statuses.accept("1.1.1.1", "2.2.2.2");
        container_statuses.run(true);
        let status = json!({"status": container_statuses.finish()});
        assert_eq!(text(&status, "/status/phase"), "Running");
        for of in [
            "PodReadyToStartContainers",
            "Initialized",
            "ContainersReady",
            "Ready",
        ] {
            assert!(is_condition_true(&status, of), "{of}");
        }
        let container = &status["status"]["containerStatuses"][0];
        assert_eq!(container["ready"], true);
        assert!(container["state"]["running"]["startedAt"].is_string());
        assert_eq!(
            text(container, "/containerID").len(),
            "lockgate://".len() + 64
        );
        assert_eq!(status["status"]["observedGeneration"], 1);
    }

    #[test]
    fn init_containers_come_first() {
        let pod = pod(json!({
            "initContainers": [{"name": "one", "image": "i"}, {"name": "two", "image": "i"}],
            "containers": [{"name": "c", "image": "i"}],
        }));
        let mut container_statuses = container_statuses(&pod);
        container_statuses.accept("1.1.1.1", "2.2.2.2");
        container_statuses.run_init(0);
        container_statuses.set_uninitialized();
        let status = json!({"status": container_statuses.status});
        let initialized = condition(&status, "Initialized").unwrap();
        assert_eq!(
            text(initialized, "/message"),
            "containers with incomplete status: [one two]"
        );
        assert_eq!(
            text(
                &status,
                "/status/initContainerStatuses/1/state/waiting/reason"
            ),
            "PodInitializing"
        );
        assert_eq!(
            text(&status, "/status/containerStatuses/0/state/waiting/reason"),
            "PodInitializing"
        );
    }

    #[test]
    fn a_failed_container_is_counted_and_restarted() {
        let pod =
            pod(json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "OnFailure"}));
        let mut container_statuses = container_statuses(&pod);
        container_statuses.run(true);
        container_statuses.back_off(3);
        let status = &container_statuses.status;
        assert_eq!(count(status, "/containerStatuses/0/restartCount"), 1);
        assert_eq!(
            count(status, "/containerStatuses/0/lastState/terminated/exitCode"),
            3
        );
        container_statuses.run(true);
        let status = &container_statuses.status;
        assert!(
            status
                .pointer("/containerStatuses/0/state/running")
                .is_some()
        );
        container_statuses.stop();
        assert_eq!(text(&container_statuses.status, "/phase"), "Failed");
    }

    #[test]
    fn readiness_gates_hold_the_condition_ready() {
        let mut pod = pod(json!({
            "containers": [{"name": "c", "image": "i"}],
            "readinessGates": [{"conditionType": "lb"}],
        }));
        let mut held = container_statuses(&pod);
        held.run(true);
        let status = json!({"status": held.status});
        assert!(is_condition_true(&status, "ContainersReady"));
        assert!(!is_condition_true(&status, "Ready"));
        pod.value["status"] = json!({"conditions": [{"type": "lb", "status": "True"}]});
        let mut open = container_statuses(&pod);
        open.run(true);
        assert!(is_condition_true(&json!({"status": open.status}), "Ready"));
    }
}
