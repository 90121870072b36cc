//! The strategies of Pods: QoS class, grace period, and fields that subresources may change.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use lockgate_go::quantity::Quantity;

use crate::object::{Object, each, get, get_mut, is_empty, list, number, text};

use super::validation::drop_disabled_status;
use crate::checks::{copy_field, reset_metadata};
use crate::kind::Context;

/// The prefix of the annotations with containers' AppArmor profiles.
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

type Amounts = BTreeMap<String, Quantity>;

/// The QoS class of a Pod: `Guaranteed`, `Burstable` or `BestEffort`.
///
/// UPSTREAM: pkg/apis/core/helper/qos/qos.go.
#[must_use]
pub fn quality_of_service(pod: &Value) -> &'static str {
    let Some(spec) = pod.get("spec").and_then(Value::as_object) else {
        return "BestEffort";
    };
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut guaranteed = true;
    if let Some(resources) = get(spec, "resources") {
        add(&mut requests, resources, "requests");
        let found = add(&mut limits, resources, "limits");
        guaranteed = is_empty(resources, "limits") || found == 2;
    } else {
        let containers = list(spec, "containers").iter();
        for container in containers.chain(list(spec, "initContainers")) {
            let resources = container.get("resources").and_then(Value::as_object);
            let found = resources.map_or(0, |resources| {
                add(&mut requests, resources, "requests");
                add(&mut limits, resources, "limits")
            });
            guaranteed &= found == 2;
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let matches = requests.iter().all(|(name, request)| {
        let limit = limits.get(name);
        limit.is_some_and(|limit| limit.compare(request) == Ordering::Equal)
    });
    if guaranteed && matches && requests.len() == limits.len() {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Adds the positive quantities of CPU and memory, and returns how many of the two are set.
fn add(total: &mut Amounts, resources: &Object, what: &str) -> usize {
    let mut found = 0;
    for name in ["cpu", "memory"] {
        let amount = get(resources, what).map_or("", |amounts| text(amounts, name));
        let Some(amount) = Quantity::parse(amount)
            .ok()
            .filter(|amount| amount.sign() > 0)
        else {
            continue;
        };
        found += 1;
        let sum = total.get(name).and_then(|sum| amount.add(sum).ok());
        total.insert(name.to_owned(), sum.unwrap_or(amount));
    }
    found
}

/// The grace period of a deletion, in seconds: the requested one, or the Pod's; zero for an unscheduled or terminated
/// Pod.
#[must_use]
pub fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let spec = pod.get("spec").and_then(Value::as_object);
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    let is_running = spec.is_some_and(|spec| !text(spec, "nodeName").is_empty())
        && !matches!(phase, Some("Failed" | "Succeeded"));
    if !is_running {
        return 0;
    }
    let own = spec.map_or(0, |spec| number(spec, "terminationGracePeriodSeconds"));
    match asked.unwrap_or(own) {
        period if period < 0 => 1,
        period => period,
    }
}

pub(super) fn prepare_create(pod: &mut Value, context: &Context<'_>) {
    // UPSTREAM: pkg/apis/core/helper/qos/qos.go (GetPodQOS): a QoS class in the client's status is kept.
    let sent = pod.pointer("/status/qosClass").and_then(Value::as_str);
    let class = match sent {
        None | Some("") => quality_of_service(pod).to_owned(),
        Some(sent) => sent.to_owned(),
    };
    let mut status = json!({"phase": "Pending", "qosClass": class});
    let is_gated = pod
        .pointer("/spec/schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|gates| !gates.is_empty());
    if is_gated {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": context.now.to_string(),
        }]);
    }
    pod["status"] = status;
    for noted in app_armor(pod) {
        let container = pod
            .get_mut("spec")
            .and_then(|spec| spec.get_mut(noted.list)?.get_mut(noted.index));
        if let (Some(profile), Some(container)) = (noted.profile, container) {
            if !container["securityContext"].is_object() {
                container["securityContext"] = json!({});
            }
            container["securityContext"]["appArmorProfile"] = profile;
        }
    }
}

/// The AppArmor annotation of a container without the field.
pub(super) struct AppArmorAnnotation {
    list: &'static str,
    index: usize,
    /// The key of the annotation.
    pub(super) key: String,
    /// The value of the field; `None` if the annotation is invalid.
    profile: Option<Value>,
}

/// The deprecated annotations that the fields replaced.
///
/// UPSTREAM: pkg/registry/core/pod/strategy.go (applyAppArmorVersionSkew)
pub(super) fn app_armor(pod: &Value) -> Vec<AppArmorAnnotation> {
    let mut noted = Vec::new();
    let annotations = pod.pointer("/metadata/annotations");
    let (Some(annotations), Some(spec)) = (annotations, pod.get("spec")) else {
        return noted;
    };
    if spec.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
        return noted;
    }
    let of_pod = spec.pointer("/securityContext/appArmorProfile");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = spec.get(list).and_then(Value::as_array);
        for (index, container) in containers.into_iter().flatten().enumerate() {
            let name = container.get("name").and_then(Value::as_str);
            let key = format!("{APP_ARMOR}{}", name.unwrap_or_default());
            let own = container.pointer("/securityContext/appArmorProfile");
            let Some(text) = annotations.get(&key).and_then(Value::as_str) else {
                continue;
            };
            let profile = profile_of(text);
            let is_told = profile.is_some() && profile.as_ref() == of_pod;
            if own.is_none_or(Value::is_null) && !is_told {
                noted.push(AppArmorAnnotation {
                    list,
                    index,
                    key,
                    profile,
                });
            }
        }
    }
    noted
}

fn profile_of(annotation: &str) -> Option<Value> {
    const PROFILE_MAX: usize = 4095;
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let profile = other.strip_prefix("localhost/")?;
            let is_valid =
                !profile.is_empty() && profile.trim() == profile && profile.len() <= PROFILE_MAX;
            is_valid.then(|| json!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}

pub(super) fn prepare_status_update(pod: &mut Object, old: &Object) {
    copy_field(pod, old, "spec");
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("deletionTimestamp");
        if let Some(old) = get(old, "metadata") {
            copy_field(metadata, old, "ownerReferences");
        }
    }
    let none = Object::new();
    let former = get(old, "status").unwrap_or(&none);
    if let Some(status) = get_mut(pod, "status") {
        keep_observed_generations(status, former);
        drop_disabled_status(status, former);
    }
    let class = text(former, "qosClass").to_owned();
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut)
        && text(status, "qosClass").is_empty()
        && !class.is_empty()
    {
        status.insert("qosClass".to_owned(), Value::from(class));
    }
}

/// Keeps the observed generations if the client does not set them.
///
/// UPSTREAM: pkg/registry/core/pod/strategy.go (preserveOldObservedGeneration)
fn keep_observed_generations(status: &mut Object, old: &Object) {
    const GENERATION: &str = "observedGeneration";
    if number(status, GENERATION) == 0 && number(old, GENERATION) != 0 {
        copy_field(status, old, GENERATION);
    }
    let mut former: Vec<&Object> = list(old, "conditions")
        .iter()
        .filter_map(Value::as_object)
        .collect();
    each(status, "conditions", |condition| {
        let kind = text(condition, "type");
        let Some(place) = former.iter().position(|old| text(old, "type") == kind) else {
            return;
        };
        let old = former.remove(place);
        if number(condition, GENERATION) == 0 && number(old, GENERATION) != 0 {
            copy_field(condition, old, GENERATION);
        }
    });
}

/// Keeps everything except ephemeral containers.
pub(super) fn prepare_ephemeral_containers(pod: &mut Object, old: &Object) {
    let containers = pod
        .get_mut("spec")
        .and_then(Value::as_object_mut)
        .and_then(|spec| spec.remove("ephemeralContainers"));
    copy_field(pod, old, "spec");
    copy_field(pod, old, "status");
    reset_metadata(pod, old);
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("ephemeralContainers");
        if let Some(containers) = containers {
            spec.insert("ephemeralContainers".to_owned(), containers);
        }
    }
}

/// Keeps everything except resources and resize policies, unless containers are renamed or reordered, which
/// validation rejects.
pub(super) fn prepare_resize(pod: &mut Object, old: &Object) {
    let (Some(spec), Some(old_spec)) = (get(pod, "spec"), get(old, "spec")) else {
        return;
    };
    let mut merged = old_spec.clone();
    for key in ["containers", "initContainers"] {
        let (new, current) = (list(spec, key), list(old_spec, key));
        if new.len() != current.len() {
            return;
        }
        let same = new
            .iter()
            .zip(current)
            .all(|(new, current)| new.get("name") == current.get("name"));
        let containers: Vec<Value> = if same {
            new.iter()
                .zip(current)
                .map(|(new, current)| resized(new, current))
                .collect()
        } else {
            new.to_vec()
        };
        if !containers.is_empty() {
            merged.insert(key.to_owned(), Value::Array(containers));
        }
    }
    copy_field(&mut merged, spec, "resources");
    pod.insert("spec".to_owned(), Value::Object(merged));
    copy_field(pod, old, "status");
    reset_metadata(pod, old);
}

fn resized(new: &Value, current: &Value) -> Value {
    let mut merged = current.clone();
    if let (Some(merged), Some(new)) = (merged.as_object_mut(), new.as_object()) {
        copy_field(merged, new, "resources");
        copy_field(merged, new, "resizePolicy");
    }
    merged
}
