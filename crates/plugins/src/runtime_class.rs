//! `RuntimeClass`: applies the overhead and scheduling constraints of a Pod's runtime class.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/runtimeclass/admission.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use lockgate_api::meta::names::check_path_segment;
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::amounts::{amounts, same_amounts};
use crate::fields::{at, items, list_mut, map_mut, texts};
use crate::lookup::{Lookup, RUNTIME_CLASSES};
use crate::rules::{About, CREATE, NEW_PODS, Refusal, Rules, Verdict, object};
use crate::tolerations::merge;

const OTHER_OVERHEAD: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Applies the runtime class of Pods.
#[derive(Debug, Clone)]
pub struct RuntimeClass {
    lookup: Arc<dyn Lookup>,
}

impl RuntimeClass {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }

    /// The runtime class of a Pod, if any.
    async fn class(&self, pod: &Value) -> Result<Option<Arc<Value>>, Refusal> {
        let name = at(pod, &["spec", "runtimeClassName"]).and_then(Value::as_str);
        let Some(name) = name else {
            return Ok(None);
        };
        if let Some(problem) = invalid_name_error(name) {
            return Err(Refusal::Plain(problem));
        }
        let found = self.lookup.get(RUNTIME_CLASSES, "", name).await?;
        let missing = || format!("pod rejected: RuntimeClass {} not found", quote(name));
        found.map(Some).ok_or_else(|| Refusal::forbidden(missing()))
    }
}

/// The error for a name that is an invalid path segment.
///
/// UPSTREAM: client-go rest/request.go: the plugin requests an invalid class name, which its client rejects.
fn invalid_name_error(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some(String::from("resource name may not be empty"));
    }
    let problems = check_path_segment(name);
    (!problems.is_empty()).then(|| {
        let problems = problems.join(" ");
        format!("invalid resource name {}: [{problems}]", quote(name))
    })
}

fn has_overhead_of(pod: &Value, class: &Value) -> Result<bool, Refusal> {
    let own = amounts(pod, &["spec", "overhead"])?;
    Ok(same_amounts(
        &own,
        &amounts(class, &["overhead", "podFixed"])?,
    ))
}

fn set_overhead(pod: &mut Value, class: &Value) -> Verdict {
    if at(class, &["overhead"]).is_none() {
        return Ok(());
    }
    if at(pod, &["spec", "overhead"]).is_some() {
        if has_overhead_of(pod, class)? {
            return Ok(());
        }
        return Err(Refusal::forbidden(OTHER_OVERHEAD));
    }
    if let Some(overhead) = at(class, &["overhead", "podFixed"]) {
        map_mut(pod, &["spec"])?.insert(String::from("overhead"), overhead.clone());
    }
    Ok(())
}

fn set_scheduling(pod: &mut Value, class: &Value) -> Verdict {
    let Some(scheduling) = at(class, &["scheduling"]) else {
        return Ok(());
    };
    for (key, value) in texts(scheduling, &["nodeSelector"]) {
        let selector = map_mut(pod, &["spec", "nodeSelector"])?;
        match selector.get(key).and_then(Value::as_str) {
            Some(own) if own != value => {
                return Err(Refusal::forbidden(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; \
                     pod.spec.nodeSelector[{key}] = {own}"
                )));
            }
            _ => {
                selector.insert(key.to_owned(), value.into());
            }
        }
    }
    let more = items(scheduling, &["tolerations"]);
    if !more.is_empty() {
        let tolerations = list_mut(pod, &["spec", "tolerations"])?;
        let mut all = std::mem::take(tolerations);
        all.extend_from_slice(more);
        *tolerations = merge(all);
    }
    Ok(())
}

impl Rules for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    fn validates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    async fn mutate(&self, _: &mut Admission, pod: &mut Value) -> Verdict {
        let Some(class) = self.class(pod).await? else {
            return Ok(());
        };
        set_overhead(pod, &class)?;
        set_scheduling(pod, &class)
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let pod = object(ask.request());
        let class = self.class(pod).await?;
        let class = class.filter(|class| at(class, &["overhead"]).is_some());
        match class {
            Some(class) if !has_overhead_of(pod, &class)? => {
                Err(Refusal::forbidden(OTHER_OVERHEAD))
            }
            None if !amounts(pod, &["spec", "overhead"])?.is_empty() => Err(Refusal::forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}
