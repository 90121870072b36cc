//! `LimitPodHardAntiAffinityTopology`: a pod may keep others off its node, but not off a zone.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/antiaffinity/admission.go

use lockgate_webhook::{Context, Denial, Object, Validator, Verdict};
use serde_json::Value;

use crate::fields::{items, text};
use crate::ready::{Hook, PODS, ReadyMade, validates};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Refuses required anti-affinity over anything larger than a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitPodHardAntiAffinityTopology;

impl ReadyMade for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn webhooks(&self) -> Vec<Hook> {
        vec![validates(
            "limit-pod-hard-anti-affinity-topology",
            *self,
            &[PODS],
        )]
    }
}

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
        Some(key) => Err(Denial::forbidden(format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key \
             {HOSTNAME} is allowed"
        ))
        .into()),
    }
}

impl Validator<Value> for LimitPodHardAntiAffinityTopology {
    async fn create(&self, _: &Context, pod: &Object<Value>) -> Verdict {
        check(pod)
    }

    async fn update(&self, _: &Context, _: &Object<Value>, pod: &Object<Value>) -> Verdict {
        check(pod)
    }
}
