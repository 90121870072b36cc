//! `DefaultTolerationSeconds`: pods tolerate a node that is away for a while.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/defaulttolerationseconds/admission.go

use serde_json::{Value, json};

use super::pod::{self, is_about_pods, items, text};
use crate::decision::Decision;
use crate::host::BoxFuture;
use crate::plugin::{Admission, Plugin};
use crate::request::Operation;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Adds tolerations for nodes that are not ready or not reachable, unless the pod has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultTolerationSeconds {
    /// How long a pod stays on a node that is not ready.
    pub not_ready_seconds: i64,
    /// How long a pod stays on a node that is not reachable.
    pub unreachable_seconds: i64,
}

impl Default for DefaultTolerationSeconds {
    fn default() -> Self {
        Self {
            not_ready_seconds: 300,
            unreachable_seconds: 300,
        }
    }
}

impl DefaultTolerationSeconds {
    /// The tolerations a pod lacks.
    fn missing(&self, pod: &Value) -> Vec<Value> {
        let tolerations = items(pod, "tolerations");
        let tolerates = |taint: &str| {
            tolerations.iter().any(|toleration| {
                let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
                (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
            })
        };
        [
            (NOT_READY, self.not_ready_seconds),
            (UNREACHABLE, self.unreachable_seconds),
        ]
        .into_iter()
        .filter(|(taint, _)| !tolerates(taint))
        .map(|(taint, seconds)| {
            json!({
                "key": taint,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": seconds,
            })
        })
        .collect()
    }

    /// Adds the tolerations a pod lacks, and says whether there were any.
    pub fn add_missing(&self, pod: &mut Value) -> bool {
        let missing = self.missing(pod);
        if missing.is_empty() {
            return false;
        }
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
            return false;
        };
        let list = spec.entry("tolerations").or_insert(Value::Null);
        if list.is_null() {
            *list = json!([]);
        }
        let Some(list) = list.as_array_mut() else {
            return false;
        };
        list.extend(missing);
        true
    }

    fn decide(&self, admission: &mut Admission) -> Decision {
        if !is_about_pods(admission.request()) {
            return Decision::Allow;
        }
        let pod = match pod::pod_of(admission.request()) {
            Ok(pod) => pod,
            Err(refused) => return refused,
        };
        if self.missing(pod).is_empty() {
            return Decision::Allow;
        }
        let mut pod = pod.clone();
        if self.add_missing(&mut pod) {
            admission.set_object(pod);
        }
        Decision::Allow
    }
}

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn admits(&self) -> bool {
        true
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async move { self.decide(admission) })
    }
}
