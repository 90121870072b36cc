//! `DefaultTolerationSeconds`: Pods tolerate temporarily unavailable nodes.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/defaulttolerationseconds/admission.go

use lockgate_admission::plugin::Admission;
use serde_json::{Value, json};

use crate::fields::{at, items, list_mut, text};
use crate::rules::{About, PODS, Rules, Verdict};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Adds tolerations for not-ready and unreachable nodes, unless the Pod has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultTolerationSeconds {
    /// The tolerationSeconds for nodes that are not ready.
    pub not_ready_seconds: i64,
    /// The tolerationSeconds for unreachable nodes.
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
        let tolerations = items(pod, &["spec", "tolerations"]);
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
}

impl Rules for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn mutates(&self) -> &'static [About] {
        &[PODS]
    }

    async fn mutate(&self, _: &mut Admission, pod: &mut Value) -> Verdict {
        let missing = self.missing(pod);
        if !missing.is_empty() && at(pod, &["spec"]).is_some() {
            list_mut(pod, &["spec", "tolerations"])?.extend(missing);
        }
        Ok(())
    }
}
