//! `TaintNodesByCondition` and `PodTopologyLabels`: initial taints of Nodes, and topology labels of Pods.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/{nodetaint,podtopologylabels}/admission.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use serde_json::{Value, json};

use crate::fields::{items, label, list_mut, map_mut, text, text_at};
use crate::lookup::{Lookup, NODES};
use crate::rules::{About, CREATE, Rules, Verdict};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints new Nodes as not ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaintNodesByCondition;

impl Rules for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        const { &[About::core(CREATE, &["nodes"])] }
    }

    async fn mutate(&self, _: &mut Admission, node: &mut Value) -> Verdict {
        let mut taints = items(node, &["spec", "taints"]).iter();
        let is_there = taints
            .any(|taint| text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule");
        if !is_there {
            let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
            list_mut(node, &["spec", "taints"])?.push(taint);
        }
        Ok(())
    }
}

/// Labels of a Node that are copied to its Pods.
const TOPOLOGY: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// Copies topology labels of the node to Pods.
#[derive(Debug, Clone)]
pub struct PodTopologyLabels {
    lookup: Arc<dyn Lookup>,
}

impl PodTopologyLabels {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }
}

impl Rules for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        const { &[About::core(CREATE, &["pods", "pods/binding"])] }
    }

    async fn mutate(&self, ask: &mut Admission, object: &mut Value) -> Verdict {
        let node = if ask.request().subresource.is_empty() {
            text_at(object, &["spec", "nodeName"])
        } else if text_at(object, &["target", "kind"]) == "Node" {
            text_at(object, &["target", "name"])
        } else {
            ""
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = self.lookup.get(NODES, "", node).await? else {
            return Ok(());
        };
        for key in TOPOLOGY {
            if let Some(value) = label(&node, key) {
                let labels = map_mut(object, &["metadata", "labels"])?;
                labels.insert(key.to_owned(), json!(value));
            }
        }
        Ok(())
    }
}
