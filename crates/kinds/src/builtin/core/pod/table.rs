//! Tables of Pods: the column Status summarizes the containers' states.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cells::read::{holds, integer, is_deleted, is_true, items, text, text_or};
use crate::cells::since;
use crate::cells::{Common, Row, cell};

/// The summary of a Pod's containers.
struct StatusSummary {
    word: String,
    ready: usize,
    restarts: i64,
    /// The latest termination of a container.
    last_restart: Option<String>,
}

impl StatusSummary {
    /// Counts the restarts of a container.
    fn add_restarts(&mut self, status: &Value) {
        self.restarts += integer(status, "/restartCount");
        let finished = text(status, "/lastState/terminated/finishedAt");
        // UTC times in the same format compare as strings.
        if !finished.is_empty()
            && self
                .last_restart
                .as_deref()
                .is_none_or(|last| last < finished)
        {
            self.last_restart = Some(finished.to_owned());
        }
    }
}

/// The row of a pod.
pub(super) fn row(pod: &Value, common: &Common<'_>) -> Row {
    let init: BTreeMap<&str, &Value> = items(pod, "/spec/initContainers")
        .iter()
        .map(|container| (text(container, "/name"), container))
        .collect();
    let sidecars = items(pod, "/spec/initContainers")
        .iter()
        .filter(|container| is_sidecar(container))
        .count();
    let total = items(pod, "/spec/containers").len() + sidecars;
    let summary = summarize(pod, &init);
    let restarts = match &summary.last_restart {
        Some(time) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, since(time, common.now))
        }
        _ => summary.restarts.to_string(),
    };
    let address = match text(pod, "/status/podIPs/0/ip") {
        "" => text_or(pod, "/status/podIP", "<none>"),
        address => address.to_owned(),
    };
    let cells = vec![
        cell(common.name),
        cell(format!("{}/{total}", summary.ready)),
        cell(summary.word),
        cell(restarts),
        cell(common.age.as_str()),
        cell(address),
        cell(text_or(pod, "/spec/nodeName", "<none>")),
        cell(text_or(pod, "/status/nominatedNodeName", "<none>")),
        cell(readiness_gates(pod)),
    ];
    Row::with_conditions(cells, completed(pod))
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

fn summarize(pod: &Value, init: &BTreeMap<&str, &Value>) -> StatusSummary {
    let phase = text(pod, "/status/phase");
    let mut summary = StatusSummary {
        word: text_or(pod, "/status/reason", phase),
        ready: 0,
        restarts: 0,
        last_restart: None,
    };
    let gated = items(pod, "/status/conditions").iter().any(|condition| {
        text(condition, "/type") == "PodScheduled"
            && text(condition, "/reason") == "SchedulingGated"
    });
    if gated {
        summary.word = String::from("SchedulingGated");
    }
    let mut sidecars = StatusSummary {
        word: String::new(),
        ready: 0,
        restarts: 0,
        last_restart: None,
    };
    let initializing = summarize_init(pod, init, &mut summary, &mut sidecars);
    if !initializing || holds(pod, "Initialized") {
        summary.restarts = sidecars.restarts;
        summary.last_restart = sidecars.last_restart;
        summarize_containers(pod, &mut summary);
    }
    if is_deleted(pod) {
        if text(pod, "/status/reason") == "NodeLost" {
            summary.word = String::from("Unknown");
        } else if !matches!(phase, "Failed" | "Succeeded") {
            summary.word = String::from("Terminating");
        }
    }
    summary
}

/// Summarizes init containers; returns true if one is not finished.
fn summarize_init(
    pod: &Value,
    init: &BTreeMap<&str, &Value>,
    summary: &mut StatusSummary,
    sidecars: &mut StatusSummary,
) -> bool {
    for (index, status) in items(pod, "/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        summary.add_restarts(status);
        let is_sidecar = init
            .get(text(status, "/name"))
            .is_some_and(|container| is_sidecar(container));
        if is_sidecar {
            sidecars.add_restarts(status);
        }
        let terminated = status
            .pointer("/state/terminated")
            .filter(|end| end.is_object());
        let waits_for = text(status, "/state/waiting/reason");
        match terminated {
            Some(end) if integer(end, "/exitCode") == 0 => continue,
            _ if is_sidecar && is_true(status, "/started") => {
                if is_true(status, "/ready") {
                    summary.ready += 1;
                }
                continue;
            }
            Some(end) => summary.word = format!("Init:{}", termination_reason(end)),
            None if !waits_for.is_empty() && waits_for != "PodInitializing" => {
                summary.word = format!("Init:{waits_for}");
            }
            None => {
                let all = items(pod, "/spec/initContainers").len();
                summary.word = format!("Init:{index}/{all}");
            }
        }
        return true;
    }
    false
}

/// The reason of a termination.
fn termination_reason(end: &Value) -> String {
    match (text(end, "/reason"), integer(end, "/signal")) {
        ("", 0) => format!("ExitCode:{}", integer(end, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn summarize_containers(pod: &Value, summary: &mut StatusSummary) {
    let mut runs = false;
    let mut error = String::new();
    for status in items(pod, "/status/containerStatuses").iter().rev() {
        summary.add_restarts(status);
        let waits_for = text(status, "/state/waiting/reason");
        let end = status
            .pointer("/state/terminated")
            .filter(|end| end.is_object());
        let runs_now = status
            .pointer("/state/running")
            .is_some_and(Value::is_object);
        if !waits_for.is_empty() {
            summary.word = waits_for.to_owned();
        } else if let Some(end) = end {
            summary.word = termination_reason(end);
            if integer(end, "/exitCode") != 0 {
                error.clone_from(&summary.word);
            }
        } else if is_true(status, "/ready") && runs_now {
            runs = true;
            summary.ready += 1;
        }
    }
    // A Pod with a running container is not completed.
    if summary.word == "Completed" {
        if runs && holds_any(pod, "Ready") {
            summary.word = String::from("Running");
        } else if !error.is_empty() {
            summary.word = error;
        } else if runs {
            summary.word = String::from("NotReady");
        }
    }
}

/// Returns true if any condition of this type is true.
fn holds_any(pod: &Value, kind: &str) -> bool {
    items(pod, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return String::from("<none>");
    }
    let open = gates
        .iter()
        .filter(|gate| holds(pod, text(gate, "/conditionType")))
        .count();
    format!("{open}/{}", gates.len())
}

/// The row condition `Completed`, by which clients hide rows.
fn completed(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}
