//! `PodResizeValidator` and `NodeDeclaredFeatureValidator`: check that a Pod's node supports an update.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/{podresize,nodedeclaredfeatures}/admission.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use lockgate_api::meta::status::StatusCause;
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::amounts::{amounts, of_pod};
use crate::fields::{at, items, label, text, text_at};
use crate::lookup::{Lookup, NODES};
use crate::rules::{About, Refusal, Rules, UPDATE, Verdict, object, old_object};

const OS: &str = "kubernetes.io/os";

/// The node of a pod.
async fn node(lookup: &dyn Lookup, name: &str) -> Result<Arc<Value>, Refusal> {
    let found = lookup.get(NODES, "", name).await?;
    found.ok_or_else(|| Refusal::forbidden(format!("node {} not found", quote(name))))
}

fn because(reason: &str) -> Vec<StatusCause> {
    vec![StatusCause {
        reason: reason.to_owned(),
        ..StatusCause::default()
    }]
}

/// Denies resizing if the node does not support it, or has insufficient resources.
#[derive(Debug, Clone)]
pub struct PodResizeValidator {
    lookup: Arc<dyn Lookup>,
}

impl PodResizeValidator {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }
}

/// The resources for which a Pod's requests exceed the node's allocatable ones.
fn shortages(pod: &Value, node: &Value) -> Result<Vec<String>, Refusal> {
    let requested = of_pod(pod, "requests")?;
    let allocatable = amounts(node, &["status", "allocatable"])?;
    // CPU in millicores, memory in bytes.
    let mut short = Vec::new();
    for (name, places) in [("cpu", 3), ("memory", 0)] {
        let requested = requested
            .get(name)
            .map_or(0, |amount| amount.rounded_up(places));
        let available = allocatable
            .get(name)
            .map_or(0, |amount| amount.rounded_up(places));
        if requested > available {
            short.push(format!(
                "{name}, requested: {requested}, allocatable: {available}"
            ));
        }
    }
    Ok(short)
}

impl Rules for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn operations(&self) -> &'static [Operation] {
        UPDATE
    }

    fn validates(&self) -> &'static [About] {
        const { &[About::core(UPDATE, &["pods/resize"])] }
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let (old, pod) = (old_object(ask.request()), object(ask.request()));
        let name = text_at(pod, &["spec", "nodeName"]);
        let generation = ["metadata", "generation"];
        if name.is_empty() || at(old, &generation) == at(pod, &generation) {
            return Ok(());
        }
        let node = node(&*self.lookup, name).await?;
        if let Some(os) = label(&node, OS).filter(|os| *os != "linux") {
            let why = format!(
                "pod resize is only supported on linux nodes, node {} is {}",
                quote(name),
                quote(os)
            );
            return Err(Refusal::Forbidden(why, because("UnsupportedPlatform")));
        }
        let short = shortages(pod, &node)?;
        if short.is_empty() {
            return Ok(());
        }
        let short = short.join("; ");
        let why = format!("node didn't have enough allocatable resources: {short}");
        Err(Refusal::Forbidden(why, because("NodeCapacity")))
    }
}

/// Denies updates that need features that the node does not declare.
#[derive(Debug, Clone)]
pub struct NodeDeclaredFeatureValidator {
    lookup: Arc<dyn Lookup>,
}

impl NodeDeclaredFeatureValidator {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }
}

/// The features required by an update, sorted.
fn needed(old: &Value, new: &Value) -> Vec<&'static str> {
    let mut features = Vec::new();
    let resources = ["spec", "resources"];
    if at(old, &resources) != at(new, &resources) {
        features.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let alone = |pod: &'_ Value| -> Vec<(String, Option<Value>)> {
        let containers = items(pod, &["spec", "initContainers"]).iter();
        containers
            .filter(|container| text(container, "restartPolicy") != "Always")
            .map(|container| {
                let resources = at(container, &["resources"]).cloned();
                (text(container, "name").to_owned(), resources)
            })
            .collect()
    };
    if alone(old) != alone(new) {
        features.push("InPlacePodVerticalScalingInitContainers");
    }
    features
}

impl Rules for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn operations(&self) -> &'static [Operation] {
        UPDATE
    }

    fn validates(&self) -> &'static [About] {
        const { &[About::core(UPDATE, &["pods", "pods/resize"])] }
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let (old, pod) = (old_object(ask.request()), object(ask.request()));
        let name = text_at(pod, &["spec", "nodeName"]);
        let needed = needed(old, pod);
        if name.is_empty() || needed.is_empty() {
            return Ok(());
        }
        let node = node(&*self.lookup, name).await?;
        let declared = items(&node, &["status", "declaredFeatures"]);
        let mut missing = needed;
        missing.retain(|feature| !declared.iter().any(|declared| declared == feature));
        if missing.is_empty() {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "pod update requires features {} which are not available on node {}",
            missing.join(", "),
            quote(name)
        )))
    }
}
