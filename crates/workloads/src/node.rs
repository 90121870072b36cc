//! Simulated nodes: registered at startup, ready, with a renewed Lease.
//!
//! Nodes with the annotation `lockgate.dev/simulated: "true"` are simulated, whether created here or by users.
//!
//! UPSTREAM: kubernetes pkg/kubelet/kubelet_node_status.go, pkg/controller/nodelifecycle

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Author, Rejected, Target};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{
    Object, annotation, flag, is_condition_true, is_deleting, list, now_text, set_condition, text,
};
use crate::queue::Next;
use crate::volumes::provide_class;

const SIMULATED: &str = "lockgate.dev/simulated";
/// The namespace of node Leases, the heartbeats of nodes.
const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i64 = 40;
/// UPSTREAM: kubernetes pkg/kubelet (a quarter of the Lease duration)
const RENEWAL: Duration = Duration::from_secs(10);
/// The pause before a rejected registration is retried.
const REGISTRATION_RETRY_DELAY: Duration = Duration::from_secs(1);

const LIFECYCLE: Author = Author::Controller {
    account: "node-controller",
    component: "node-controller",
};

pub(crate) fn is_simulated(node: &Value) -> bool {
    annotation(node, SIMULATED) == Some("true")
}

/// The InternalIP of a node.
pub(crate) fn address(node: &Value) -> String {
    let mut addresses = list(node, "/status/addresses");
    let found = addresses.find(|address| text(address, "/type") == "InternalIP");
    found.map_or_else(String::new, |address| text(address, "/address").to_owned())
}

/// Registers the nodes, and renews their Leases until dropped.
pub(crate) async fn renew_leases(context: Arc<Context>) {
    while let Err(refused) = provide_class(&context).await {
        tracing::warn!(
            error = refused.message(),
            "storage class not created, retrying"
        );
        tokio::time::sleep(REGISTRATION_RETRY_DELAY).await;
    }
    for (number, name) in context.settings.node_names().iter().enumerate() {
        while let Err(refused) = register(&context, name, number).await {
            tracing::warn!(
                node = name.as_str(),
                error = refused.message(),
                "node not registered, retrying"
            );
            tokio::time::sleep(REGISTRATION_RETRY_DELAY).await;
        }
    }
    loop {
        for node in context.cache.all(Kind::Node) {
            if is_simulated(&node)
                && let Err(refused) = renew(&context, &node).await
            {
                tracing::debug!(
                    node = node.name(),
                    error = refused.message(),
                    "lease not renewed"
                );
            }
        }
        tokio::time::sleep(RENEWAL).await;
    }
}

async fn register(context: &Context, name: &str, number: usize) -> Result<(), Rejected> {
    let by = Author::Kubelet(name.to_owned());
    let address = format!("172.18.{}.{}", number / 250, number % 250 + 2);
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
            },
            "annotations": {SIMULATED: "true"},
        },
        "spec": {},
        "status": {"addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ]},
    });
    context.create_missing(&by, Kind::Node, node).await?;
    Ok(())
}

async fn renew(context: &Context, node: &Object) -> Result<(), Rejected> {
    let by = Author::Kubelet(node.name().to_owned());
    let at = Target {
        kind: Kind::Lease,
        namespace: LEASE_NAMESPACE,
        name: node.name(),
        uid: "",
        subresource: "",
    };
    let now = format!("{}.000000Z", now_text().trim_end_matches('Z'));
    let edit = |lease: &mut Value| lease["spec"]["renewTime"] = now.as_str().into();
    match context.api.edit(&by, at, &edit).await {
        Err(refused) if refused.is_not_found() => {}
        other => return other.map(drop),
    }
    let mut owner = node.as_owner();
    if let Some(members) = owner.as_object_mut() {
        members.remove("controller");
        members.remove("blockOwnerDeletion");
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node.name(), "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": node.name(),
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        },
    });
    context.create_missing(&by, Kind::Lease, lease).await?;
    Ok(())
}

/// Sets a simulated node ready, and reconciles its taints with its spec.
pub(crate) async fn reconcile(context: &Context, name: &str) -> Reconciled {
    let Some(node) = context.cache.at(Kind::Node, name) else {
        return Ok(Next::Done);
    };
    if !is_simulated(&node) || is_deleting(&node) {
        return Ok(Next::Done);
    }
    if !is_condition_true(&node, "Ready") {
        let by = Author::Kubelet(name.to_owned());
        context.set_status(&by, &node, ready_status(&node)).await?;
        let message = format!("Node {name} status is now: NodeReady");
        context.events.normal(&by, &node, "NodeReady", message);
        return Ok(Next::Done);
    }
    let wanted = taints(&node);
    if wanted != list(&node, "/spec/taints").cloned().collect::<Vec<_>>() {
        let edit = |node: &mut Value| {
            let taints = taints(node);
            let spec = crate::object::entry(node, "spec");
            if taints.is_empty() {
                spec.remove("taints");
            } else {
                spec.insert(String::from("taints"), taints.into());
            }
        };
        context.edit(&LIFECYCLE, &node, &edit).await?;
    }
    Ok(Next::Done)
}

/// The taints of a ready node: taints of the node lifecycle controller follow the spec, others are kept.
fn taints(node: &Value) -> Vec<Value> {
    const OWN: [&str; 3] = [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    ];
    let is_cordoned = flag(node, "/spec/unschedulable");
    let mut taints: Vec<Value> = list(node, "/spec/taints")
        .filter(|taint| {
            let key = text(taint, "/key");
            !OWN.contains(&key) || is_cordoned && key == OWN[2]
        })
        .cloned()
        .collect();
    if is_cordoned && !taints.iter().any(|taint| text(taint, "/key") == OWN[2]) {
        taints.push(json!({"key": OWN[2], "effect": "NoSchedule", "timeAdded": now_text()}));
    }
    taints
}

fn ready_status(node: &Object) -> Value {
    let mut status = node.get("status").cloned().unwrap_or_else(|| json!({}));
    if status.get("addresses").is_none() {
        status["addresses"] = json!([
            {"type": "InternalIP", "address": "172.18.255.1"},
            {"type": "Hostname", "address": node.name()},
        ]);
    }
    let resources = json!({
        "cpu": "256", "memory": "1Ti", "ephemeral-storage": "10Ti", "pods": "10k",
        "hugepages-1Gi": "0", "hugepages-2Mi": "0",
    });
    for member in ["capacity", "allocatable"] {
        if status
            .get(member)
            .and_then(Value::as_object)
            .is_none_or(serde_json::Map::is_empty)
        {
            status[member] = resources.clone();
        }
    }
    status["nodeInfo"] = json!({
        "architecture": "amd64",
        "bootID": node.uid(),
        "containerRuntimeVersion": "lockgate://simulated",
        "kernelVersion": "simulated",
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.36.4",
        "machineID": node.uid(),
        "operatingSystem": "linux",
        "osImage": "Lockgate (simulated)",
        "systemUUID": node.uid(),
    });
    status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": 10250}});
    let mut conditions: Vec<Value> = list(&status, "/conditions").cloned().collect();
    for (of, reason, message) in [
        (
            "MemoryPressure",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
    ] {
        set_condition(&mut conditions, of, "False", reason, message);
    }
    let message = "kubelet is posting ready status";
    set_condition(&mut conditions, "Ready", "True", "KubeletReady", message);
    for condition in &mut conditions {
        condition["lastHeartbeatTime"] = now_text().into();
    }
    status["conditions"] = conditions.into();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_follow_the_spec() {
        let mut node = json!({"spec": {"taints": [
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            {"key": "dedicated", "effect": "NoSchedule"},
        ]}});
        let keys = |node: &Value| {
            let found = taints(node);
            found
                .iter()
                .map(|taint| text(taint, "/key").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&node), ["dedicated"]);
        node["spec"]["unschedulable"] = true.into();
        assert_eq!(
            keys(&node),
            ["dedicated", "node.kubernetes.io/unschedulable"]
        );
        node["spec"]["taints"] = taints(&node).into();
        assert_eq!(taints(&node).len(), 2, "added once");
        node["spec"]["unschedulable"] = false.into();
        assert_eq!(keys(&node), ["dedicated"]);
    }
}
