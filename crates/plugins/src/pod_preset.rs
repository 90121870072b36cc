//! `PodPreset`: injects data into the Pods that a preset selects.
//!
//! The kind was removed from Kubernetes in 1.20; here presets are custom resources with the same kind. A preset that
//! conflicts with the Pod, or with another preset, disables all of them for that Pod.

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use serde_json::Value;

use crate::fields::{
    CONTAINERS, annotate, annotation, at, is_mirror, items, items_mut, list_mut, text, text_at,
};
use crate::lookup::{Lookup, POD_PRESETS, name_of, sorted};
use crate::rules::{About, NEW_PODS, Refusal, Rules, Verdict};
use crate::selector::{Labels, selects};

const PREFIX: &str = "podpreset.admission.kubernetes.io";

/// Adds environment variables, mounts and volumes to Pods.
#[derive(Debug, Clone)]
pub struct PodPreset {
    lookup: Arc<dyn Lookup>,
}

impl PodPreset {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }

    /// The presets that match a Pod.
    async fn presets(&self, request: &Request, pod: &Value) -> Result<Vec<Arc<Value>>, Refusal> {
        let mut presets = sorted(&*self.lookup, POD_PRESETS, &request.namespace).await?;
        let mut problem = None;
        presets.retain(|preset| {
            let selector = at(preset, &["spec", "selector"]).cloned();
            let labels = selector.map_or_else(|| Ok(Labels::default()), serde_json::from_value);
            let compiled = labels
                .map_err(|error| error.to_string())
                .and_then(|labels| labels.compile().map_err(|error| error.to_string()));
            match compiled {
                Ok(selector) => selects(&selector, pod),
                Err(error) => {
                    problem = Some(format!("selector of {}: {error}", name_of(preset)));
                    false
                }
            }
        });
        match problem {
            None => Ok(presets),
            Some(problem) => Err(Refusal::Fault(problem)),
        }
    }
}

/// Two different items with the same name.
struct Conflict(String);

/// The identity of list elements.
#[derive(Clone, Copy)]
enum Identity {
    /// Elements with the same value of one of these fields.
    Members(&'static [&'static str]),
    /// Equal elements.
    Whole,
}

/// The lists of a container that presets add to.
const LISTS: [(&str, Identity); 3] = [
    ("env", Identity::Members(&["name"])),
    ("envFrom", Identity::Whole),
    ("volumeMounts", Identity::Members(&["name", "mountPath"])),
];

/// Adds the missing items to a list.
fn merge(
    list: &mut Vec<Value>,
    more: &[Value],
    identity: Identity,
    preset: &str,
) -> Result<(), Conflict> {
    for one in more {
        if list.contains(one) {
            continue;
        }
        if let Identity::Members(members) = identity {
            for member in members {
                let name = text(one, member);
                if list.iter().any(|known| text(known, member) == name) {
                    return Err(Conflict(format!(
                        "merging {preset} has a conflict on {member} {name}"
                    )));
                }
            }
        }
        list.push(one.clone());
    }
    Ok(())
}

/// The Pod with all presets applied.
fn apply(pod: &Value, presets: &[Arc<Value>]) -> Result<Result<Value, Conflict>, Refusal> {
    let mut pod = pod.clone();
    for preset in presets {
        let name = name_of(preset);
        for (member, identity) in LISTS {
            let more = items(preset, &["spec", member]);
            if more.is_empty() {
                continue;
            }
            for list in CONTAINERS {
                for container in items_mut(&mut pod, &["spec", list]) {
                    let known = list_mut(container, &[member])?;
                    if let Err(conflict) = merge(known, more, identity, name) {
                        return Ok(Err(conflict));
                    }
                }
            }
        }
        let more = items(preset, &["spec", "volumes"]);
        if !more.is_empty() {
            let known = list_mut(&mut pod, &["spec", "volumes"])?;
            if let Err(conflict) = merge(known, more, Identity::Members(&["name"]), name) {
                return Ok(Err(conflict));
            }
        }
        let version = text_at(preset, &["metadata", "resourceVersion"]);
        annotate(&mut pod, &format!("{PREFIX}/podpreset-{name}"), version)?;
    }
    Ok(Ok(pod))
}

impl Rules for PodPreset {
    fn name(&self) -> &'static str {
        "PodPreset"
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        let excluded = annotation(pod, &format!("{PREFIX}/exclude")) == Some("true");
        if is_mirror(pod) || excluded {
            return Ok(());
        }
        let presets = self.presets(ask.request(), pod).await?;
        match apply(pod, &presets)? {
            Ok(changed) => *pod = changed,
            Err(Conflict(why)) => ask.warn(format!("no pod preset was applied: {why}")),
        }
        Ok(())
    }
}
