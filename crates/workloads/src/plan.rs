//! The simulated lifecycle of a Pod, from settings and annotations.
//!
//! ```text
//!   scheduled ─ start-after ─► running ─ ready-after ─► ready ─ complete-after ─► succeeded or failed
//! ```

use std::time::Duration;

use serde_json::Value;

use crate::object::{annotation, list, text};
use crate::settings::Settings;

/// The annotation with the behaviour of a Pod.
const SIMULATE: &str = "lockgate.dev/simulate";

/// The behaviour of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// According to its spec.
    Plain,
    /// Its containers run until it is deleted, regardless of the restart policy.
    Run,
    /// Its containers exit with this code.
    Fail(i64),
    /// It runs and is not ready.
    NotReady,
    /// Its images cannot be pulled.
    ImagePullError,
    /// No node is eligible.
    Unschedulable,
    /// It is evicted once it runs.
    Evict,
    /// It does not stop when it is deleted.
    Hang,
}

/// The plan of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) behaviour: Behaviour,
    pub(crate) start_after: Duration,
    pub(crate) ready_after: Duration,
    pub(crate) complete_after: Duration,
    pub(crate) stop_after: Duration,
}

impl Plan {
    /// Reads the plan of a Pod.
    pub(crate) fn of(pod: &Value, settings: &Settings) -> Self {
        let probed = list(pod, "/spec/containers").any(|one| one.get("readinessProbe").is_some());
        let ready_after = if probed {
            settings.ready_after
        } else {
            Duration::ZERO
        };
        let lasts = |stage: &str, default: Duration| {
            let text = annotation(pod, &format!("lockgate.dev/{stage}"));
            let told = text.and_then(|text| lockgate_go::time::Duration::parse(text).ok());
            told.and_then(lockgate_go::time::Duration::to_std)
                .unwrap_or(default)
        };
        Self {
            behaviour: behaviour(annotation(pod, SIMULATE).unwrap_or_default()),
            start_after: lasts("start-after", settings.start_after),
            ready_after: lasts("ready-after", ready_after),
            complete_after: lasts("complete-after", settings.complete_after),
            stop_after: lasts("stop-after", settings.stop_after),
        }
    }

    /// The exit code of the containers of a Pod, if they end by themselves.
    pub(crate) fn exit_code(&self, pod: &Value) -> Option<i64> {
        match self.behaviour {
            Behaviour::Fail(code) => Some(code),
            Behaviour::Plain if text(pod, "/spec/restartPolicy") != "Always" => Some(0),
            _ => None,
        }
    }
}

/// Unknown values are ignored: a Pod from a third-party chart must not fail.
fn behaviour(text: &str) -> Behaviour {
    match text.split_once('=').unwrap_or((text, "")) {
        ("run", _) => Behaviour::Run,
        ("fail", code) => Behaviour::Fail(code.parse().ok().filter(|code| *code != 0).unwrap_or(1)),
        ("not-ready", _) => Behaviour::NotReady,
        ("image-pull-error", _) => Behaviour::ImagePullError,
        ("unschedulable", _) => Behaviour::Unschedulable,
        ("evict", _) => Behaviour::Evict,
        ("hang", _) => Behaviour::Hang,
        _ => Behaviour::Plain,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_change_the_plan() {
        let settings = Settings::default();
        let plain = Plan::of(&json!({"spec": {"restartPolicy": "Always"}}), &settings);
        assert_eq!(plain.behaviour, Behaviour::Plain);
        assert_eq!(plain.ready_after, Duration::ZERO, "nothing probes it");
        let pod = json!({
            "metadata": {"annotations": {
                "lockgate.dev/simulate": "fail=3", "lockgate.dev/start-after": "2s",
                "lockgate.dev/ready-after": "soon"}},
            "spec": {"restartPolicy": "Never", "containers": [{"readinessProbe": {}}]},
        });
        let plan = Plan::of(&pod, &settings);
        assert_eq!(plan.start_after, Duration::from_secs(2));
        assert_eq!(plan.ready_after, settings.ready_after);
        assert_eq!(plan.exit_code(&pod), Some(3));
        assert_eq!(behaviour("fail"), Behaviour::Fail(1));
        assert_eq!(behaviour("fail=0"), Behaviour::Fail(1));
        assert_eq!(behaviour("dance"), Behaviour::Plain);
    }

    #[test]
    fn containers_end_unless_they_are_restarted() {
        let plan = |annotation: &str, policy: &str| {
            let pod = json!({"metadata": {"annotations": {SIMULATE: annotation}}, "spec": {"restartPolicy": policy}});
            Plan::of(&pod, &Settings::default()).exit_code(&pod)
        };
        assert_eq!(plan("", "Never"), Some(0));
        assert_eq!(plan("", "OnFailure"), Some(0));
        assert_eq!(plan("", "Always"), None);
        assert_eq!(plan("run", "Never"), None);
        assert_eq!(plan("fail", "Always"), Some(1));
    }
}
