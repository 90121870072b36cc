//! The scheduler: binds Pods to ready nodes, and reports why a Pod is unschedulable.
//!
//! Resource requests are ignored: simulated nodes have unlimited capacity.
//!
//! UPSTREAM: kubernetes pkg/scheduler

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled, ignore_not_found};
use crate::kind::Kind;
use crate::object::{
    Object, annotation, flag, is_condition_true, is_deleting, is_met, label, list, set_annotation,
    set_condition, text,
};
use crate::plan::{Behaviour, Plan};
use crate::pod;
use crate::queue::Next;

/// The annotation of a claim with `WaitForFirstConsumer`: the selected node of its Pod.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Returns true if a Pod is not scheduled yet.
pub(crate) fn is_waiting(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && pod::is_active(pod)
        && list(pod, "/spec/schedulingGates").next().is_none()
        && matches!(text(pod, "/spec/schedulerName"), "" | "default-scheduler")
}

/// Binds a Pod to a node.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(pod) = context.cache.at(Kind::Pod, path) else {
        return Ok(Next::Done);
    };
    if !is_waiting(&pod) {
        return Ok(Next::Done);
    }
    if Plan::of(&pod, &context.settings).behaviour == Behaviour::Unschedulable {
        return refuse(context, &pod, "the Pod is simulated as unschedulable").await;
    }
    let node = match choose(context, &pod) {
        Ok(node) => node,
        Err(why) => return refuse(context, &pod, &why).await,
    };
    match claims_are_bound(context, &pod, node.name()).await? {
        Claims::Bound => {}
        Claims::Waiting => return Ok(Next::Done),
        Claims::Missing(why) => return refuse(context, &pod, &why).await,
    }
    let bound = context.api.bind(pod.target(), node.name()).await;
    if bound.is_ok() {
        let message = format!(
            "Successfully assigned {}/{} to {}",
            pod.namespace(),
            pod.name(),
            node.name()
        );
        context
            .events
            .normal(&Author::Scheduler, &pod, "Scheduled", message);
    }
    ignore_not_found(bound)?;
    Ok(Next::Done)
}

/// Sets the condition `PodScheduled` to false, with the reason.
async fn refuse(context: &Context, pod: &Object, why: &str) -> Reconciled {
    let by = Author::Scheduler;
    let mut conditions = crate::object::conditions(pod);
    if set_condition(
        &mut conditions,
        "PodScheduled",
        "False",
        "Unschedulable",
        why,
    ) {
        let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
        status["conditions"] = conditions.into();
        context.set_status(&by, pod, status).await?;
        context
            .events
            .warning(&by, pod, "FailedScheduling", why.to_owned());
    }
    // Changes of nodes and claims trigger another attempt.
    Ok(Next::Done)
}

/// The node for a Pod: of the eligible nodes, the one with the fewest Pods.
fn choose(context: &Context, pod: &Value) -> Result<Arc<Object>, String> {
    let nodes = context.cache.all(Kind::Node);
    let total = nodes.len();
    let mut reasons: Vec<(String, usize)> = Vec::new();
    let mut fitting = Vec::new();
    for node in nodes {
        match ineligibility(pod, &node) {
            None => fitting.push(node),
            Some(reason) => match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            },
        }
    }
    if fitting.is_empty() {
        if total == 0 {
            return Err(String::from("no nodes available to schedule pods"));
        }
        reasons.sort();
        let reasons = reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"));
        let reasons: Vec<_> = reasons.collect();
        return Err(format!(
            "0/{total} nodes are available: {}.",
            reasons.join(", ")
        ));
    }
    if fitting.len() > 1 {
        let pods = context.cache.all(Kind::Pod);
        fitting.sort_by_cached_key(|node| {
            let on_it = |pod: &&Arc<Object>| {
                text(pod, "/spec/nodeName") == node.name() && pod::is_active(pod)
            };
            pods.iter().filter(on_it).count()
        });
    }
    fitting.into_iter().next().ok_or_else(String::new)
}

/// The reason why a node is not eligible for a Pod.
fn ineligibility(pod: &Value, node: &Object) -> Option<String> {
    if is_deleting(node) {
        return Some(String::from("node(s) are being deleted"));
    }
    if flag(node, "/spec/unschedulable") && !tolerates(pod, &unschedulable()) {
        return Some(String::from("node(s) were unschedulable"));
    }
    let blocking = list(node, "/spec/taints").find(|taint| {
        matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute") && !tolerates(pod, taint)
    });
    if let Some(taint) = blocking {
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        return Some(format!(
            "node(s) had untolerated taint(s) {{{key}: {value}}}"
        ));
    }
    if !is_condition_true(node, "Ready") {
        return Some(String::from("node(s) were not ready"));
    }
    (!is_selected(pod, node))
        .then(|| String::from("node(s) didn't match Pod's node affinity/selector"))
}

fn unschedulable() -> Value {
    json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
}

/// UPSTREAM: core/v1 toleration.go (ToleratesTaint)
pub(crate) fn tolerates(pod: &Value, taint: &Value) -> bool {
    list(pod, "/spec/tolerations").any(|toleration| {
        let (effect, key) = (text(toleration, "/effect"), text(toleration, "/key"));
        if !effect.is_empty() && effect != text(taint, "/effect") {
            return false;
        }
        if !key.is_empty() && key != text(taint, "/key") {
            return false;
        }
        match text(toleration, "/operator") {
            "Exists" => true,
            _ => !key.is_empty() && text(toleration, "/value") == text(taint, "/value"),
        }
    })
}

/// Matches a node against the node selector and the required node affinity of a Pod.
pub(crate) fn is_selected(pod: &Value, node: &Object) -> bool {
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    let mut selector = selector.into_iter().flatten();
    if !selector.all(|(key, value)| label(node, key) == value.as_str()) {
        return false;
    }
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let Some(required) = pod.pointer(required) else {
        return true;
    };
    list(required, "/nodeSelectorTerms").any(|term| {
        let mut parts = list(term, "/matchExpressions").chain(list(term, "/matchFields"));
        parts.next().is_some()
            && list(term, "/matchExpressions")
                .all(|one| is_met(one, label(node, text(one, "/key"))))
            && list(term, "/matchFields").all(|one| is_met(one, Some(node.name())))
    })
}

enum Claims {
    Bound,
    /// An unbound claim; the Pod is queued again once it is bound.
    Waiting,
    Missing(String),
}

/// The claim of a Pod's volume.
pub(crate) fn claim_name(pod: &Value, volume: &Value) -> Option<String> {
    if volume.get("ephemeral").is_some() {
        let (pod, volume) = (text(pod, "/metadata/name"), text(volume, "/name"));
        return Some(format!("{pod}-{volume}"));
    }
    let name = text(volume, "/persistentVolumeClaim/claimName");
    (!name.is_empty()).then(|| name.to_owned())
}

async fn claims_are_bound(context: &Context, pod: &Object, node: &str) -> Result<Claims, Rejected> {
    let mut waits = false;
    for volume in list(pod, "/spec/volumes") {
        let Some(name) = claim_name(pod, volume) else {
            continue;
        };
        if let Some(template) = volume.pointer("/ephemeral/volumeClaimTemplate") {
            make_ephemeral(context, pod, &name, template).await?;
        }
        let Some(claim) = context
            .cache
            .get(Kind::PersistentVolumeClaim, pod.namespace(), &name)
        else {
            let why = format!("persistentvolumeclaim \"{name}\" not found");
            return Ok(Claims::Missing(why));
        };
        if is_deleting(&claim) {
            let why = format!("persistentvolumeclaim \"{name}\" is being deleted");
            return Ok(Claims::Missing(why));
        }
        if text(&claim, "/status/phase") == "Bound" {
            continue;
        }
        let class = text(&claim, "/spec/storageClassName");
        let class = context.cache.get(Kind::StorageClass, "", class);
        let waits_for_pod =
            class.is_some_and(|class| text(&class, "/volumeBindingMode") == "WaitForFirstConsumer");
        if !waits_for_pod {
            let why = String::from("pod has unbound immediate PersistentVolumeClaims");
            return Ok(Claims::Missing(why));
        }
        waits = true;
        if annotation(&claim, SELECTED_NODE).is_none() {
            let edit = |claim: &mut Value| set_annotation(claim, SELECTED_NODE, node);
            context.edit(&Author::Scheduler, &claim, &edit).await?;
        }
    }
    Ok(if waits {
        Claims::Waiting
    } else {
        Claims::Bound
    })
}

/// Creates the claim of a generic ephemeral volume.
///
/// UPSTREAM: kubernetes pkg/controller/volume/ephemeral/controller.go
async fn make_ephemeral(
    context: &Context,
    pod: &Object,
    name: &str,
    template: &Value,
) -> Result<(), Rejected> {
    let kind = Kind::PersistentVolumeClaim;
    if context.cache.get(kind, pod.namespace(), name).is_some() {
        return Ok(());
    }
    let mut metadata = json!({
        "name": name,
        "namespace": pod.namespace(),
        "ownerReferences": [pod.as_owner()],
    });
    for member in ["labels", "annotations"] {
        if let Some(found) = template.pointer(&format!("/metadata/{member}")) {
            metadata[member] = found.clone();
        }
    }
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template["spec"],
    });
    let by = Author::Controller {
        account: "ephemeral-volume-controller",
        component: "ephemeral_volume",
    };
    context.create_missing(&by, kind, claim).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Object {
        let mut value = value;
        value["metadata"]["name"] = "n".into();
        Object {
            kind: Kind::Node,
            key: "/core/nodes/n".into(),
            created: 1,
            value,
        }
    }

    #[test]
    fn a_node_takes_pods_that_tolerate_and_select_it() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let plain =
            node(json!({"metadata": {"labels": {"zone": "a"}}, "status": {"conditions": ready}}));
        let pod = json!({"spec": {}});
        assert_eq!(ineligibility(&pod, &plain), None);
        assert!(ineligibility(&json!({"spec": {"nodeSelector": {"zone": "b"}}}), &plain).is_some());
        let affinity = |term: Value| {
            json!({"spec": {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}})
        };
        let by_name = |name: &str| {
            affinity(
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}),
            )
        };
        assert!(is_selected(&by_name("n"), &plain));
        assert!(!is_selected(&by_name("m"), &plain));
        assert!(
            !is_selected(&affinity(json!({})), &plain),
            "an empty term selects nothing"
        );
        assert!(
            ineligibility(&pod, &node(json!({}))).is_some(),
            "it is not ready"
        );
        let tainted = node(json!({
            "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {"conditions": ready}}));
        assert!(ineligibility(&pod, &tainted).unwrap().contains("{k: v}"));
        let tolerant = json!({"spec": {"tolerations": [{"key": "k", "value": "v"}]}});
        assert_eq!(ineligibility(&tolerant, &tainted), None);
        let everything = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        assert_eq!(ineligibility(&everything, &tainted), None);
    }
}
