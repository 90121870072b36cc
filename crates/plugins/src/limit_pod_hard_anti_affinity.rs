//! `LimitPodHardAntiAffinityTopology`: required anti-affinity may only use the node topology.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/antiaffinity/admission.go

use lockgate_admission::plugin::Admission;
use serde_json::Value;

use crate::fields::{items, text};
use crate::rules::{About, PODS, Refusal, Rules, Verdict, object};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Denies required anti-affinity with a topology key other than the host name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitPodHardAntiAffinityTopology;

fn check(pod: &Value) -> Verdict {
    let path = [
        "spec",
        "affinity",
        "podAntiAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
    ];
    let mut keys = items(pod, &path)
        .iter()
        .map(|term| text(term, "topologyKey"));
    match keys.find(|key| *key != HOSTNAME) {
        None => Ok(()),
        Some(key) => Err(Refusal::forbidden(format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key \
             {HOSTNAME} is allowed"
        ))),
    }
}

impl Rules for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn validates(&self) -> &'static [About] {
        &[PODS]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        check(object(ask.request()))
    }
}
