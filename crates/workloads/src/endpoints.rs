//! Endpoints and EndpointSlices: the Pods behind a Service.
//!
//! UPSTREAM: kubernetes pkg/controller/endpoint, pkg/controller/endpointslice

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Author;
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{Object, flag, is_deleting, label, list, map_selects, now_text, number, text};
use crate::pod;
use crate::queue::Next;

const ENDPOINTS: Author = Author::Controller {
    account: "endpoint-controller",
    component: "endpoint-controller",
};
const SLICES: Author = Author::Controller {
    account: "endpointslice-controller",
    component: "endpoint-slice-controller",
};

const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const ENDPOINTS_TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const HEADLESS: &str = "service.kubernetes.io/headless";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";
/// The maximum number of addresses of an Endpoints object.
const ADDRESSES_MAX: usize = 1000;
/// The maximum number of endpoints of an EndpointSlice.
const SLICE_MAX: usize = 100;

/// A Service with a selector.
fn selecting(context: &Context, path: &str) -> Option<Arc<Object>> {
    let service = context.cache.at(Kind::Service, path)?;
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    let selects = selector.is_some_and(|selector| !selector.is_empty());
    (selects && text(&service, "/spec/type") != "ExternalName").then_some(service)
}

/// The selected Pods that have addresses.
fn pods(context: &Context, service: &Object) -> Vec<Arc<Object>> {
    let selector = service.pointer("/spec/selector");
    let mut pods = context.cache.in_namespace(Kind::Pod, service.namespace());
    pods.retain(|pod| {
        map_selects(selector, pod)
            && !pod::is_finished(pod)
            && !text(pod, "/status/podIP").is_empty()
    });
    pods.sort_by_key(|pod| pod.created);
    pods
}

/// The ports of a Service for one of its Pods; named ports that the Pod does not have are omitted.
fn ports(service: &Value, pod: &Value) -> Vec<Value> {
    list(service, "/spec/ports")
        .filter_map(|port| {
            let protocol = match text(port, "/protocol") {
                "" => "TCP",
                protocol => protocol,
            };
            let target = port.get("targetPort").unwrap_or(&Value::Null);
            let at = match target {
                Value::String(name) => named_port(pod, name, protocol)?,
                Value::Number(number) => number.as_i64()?,
                _ => number(port, "/port")?,
            };
            let mut found = json!({"port": at, "protocol": protocol});
            if let Some(name) = port.get("name").filter(|name| name.as_str() != Some("")) {
                found["name"] = name.clone();
            }
            if let Some(application) = port.get("appProtocol") {
                found["appProtocol"] = application.clone();
            }
            Some(found)
        })
        .collect()
}

fn named_port(pod: &Value, name: &str, protocol: &str) -> Option<i64> {
    let containers = list(pod, "/spec/containers").chain(list(pod, "/spec/initContainers"));
    let mut all = containers.flat_map(|container| list(container, "/ports"));
    let found = all.find(|port| {
        let of = match text(port, "/protocol") {
            "" => "TCP",
            of => of,
        };
        text(port, "/name") == name && of == protocol
    });
    number(found?, "/containerPort")
}

fn is_headless(service: &Value) -> bool {
    text(service, "/spec/clusterIP") == "None"
}

fn labels_of(service: &Value) -> Value {
    let mut labels = service
        .pointer("/metadata/labels")
        .cloned()
        .unwrap_or_else(|| json!({}));
    if is_headless(service) {
        labels[HEADLESS] = "".into();
    }
    labels
}

fn reference(pod: &Object) -> Value {
    json!({"kind": "Pod", "namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid()})
}

/// Reconciles the Endpoints of a Service.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let current = context.cache.at(Kind::Endpoints, path);
    let Some(service) = selecting(context, path).filter(|service| !is_deleting(service)) else {
        let is_gone = context.cache.at(Kind::Service, path).is_none();
        let own = current.filter(|one| label(one, ENDPOINTS_MANAGED_BY).is_some());
        if let Some(own) = own.filter(|_| is_gone) {
            context.delete(&ENDPOINTS, &own).await?;
        }
        return Ok(Next::Done);
    };
    let subsets = subsets(&service, &pods(context, &service));
    let mut labels = labels_of(&service);
    labels[ENDPOINTS_MANAGED_BY] = "endpoint-controller".into();
    let Some(current) = current else {
        let mut endpoints = json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": service.name(),
                "namespace": service.namespace(),
                "labels": labels,
                "annotations": {ENDPOINTS_TRIGGER: now_text()},
            },
        });
        if !subsets.is_empty() {
            endpoints["subsets"] = subsets.into();
        }
        let created = context
            .create_missing(&ENDPOINTS, Kind::Endpoints, endpoints)
            .await;
        return done_unless_terminating(created.map(drop));
    };
    let same = list(&current, "/subsets").eq(subsets.iter())
        && current.pointer("/metadata/labels") == Some(&labels);
    if !same {
        let edit = |endpoints: &mut Value| {
            if subsets.is_empty() {
                if let Some(members) = endpoints.as_object_mut() {
                    members.remove("subsets");
                }
            } else {
                endpoints["subsets"] = subsets.clone().into();
            }
            endpoints["metadata"]["labels"] = labels.clone();
            crate::object::set_annotation(endpoints, ENDPOINTS_TRIGGER, &now_text());
        };
        context.edit(&ENDPOINTS, &current, &edit).await?;
    }
    Ok(Next::Done)
}

fn done_unless_terminating(result: Result<(), crate::api::Rejected>) -> Reconciled {
    match result {
        Err(refused) if !refused.is_namespace_terminating() => Err(refused),
        _ => Ok(Next::Done),
    }
}

/// The subsets of Endpoints: Pods grouped by ports, ready and not ready.
fn subsets(service: &Object, pods: &[Arc<Object>]) -> Vec<Value> {
    let publishes_all = flag(service, "/spec/publishNotReadyAddresses");
    let mut groups: BTreeMap<String, (Vec<Value>, [Vec<Value>; 2])> = BTreeMap::new();
    let alive = pods.iter().filter(|pod| publishes_all || !is_deleting(pod));
    for pod in alive.take(ADDRESSES_MAX) {
        let ports = ports(service, pod);
        if ports.is_empty() && list(service, "/spec/ports").next().is_some() {
            continue;
        }
        let mut address = json!({
            "ip": text(pod, "/status/podIP"),
            "nodeName": text(pod, "/spec/nodeName"),
            "targetRef": reference(pod),
        });
        let hostname = text(pod, "/spec/hostname");
        if !hostname.is_empty() && text(pod, "/spec/subdomain") == service.name() {
            address["hostname"] = hostname.into();
        }
        let is_ready = publishes_all || pod::is_ready(pod);
        let group = groups
            .entry(Value::from(ports.clone()).to_string())
            .or_insert_with(|| (ports, [Vec::new(), Vec::new()]));
        group.1[usize::from(!is_ready)].push(address);
    }
    let mut subsets = Vec::new();
    for (ports, [mut ready, mut waiting]) in groups.into_values() {
        let mut subset = json!({});
        for (member, addresses) in [
            ("addresses", &mut ready),
            ("notReadyAddresses", &mut waiting),
        ] {
            if !addresses.is_empty() {
                addresses.sort_by(|one, other| text(one, "/ip").cmp(text(other, "/ip")));
                subset[member] = std::mem::take(addresses).into();
            }
        }
        if !ports.is_empty() {
            subset["ports"] = ports.into();
        }
        subsets.push(subset);
    }
    subsets
}

/// Reconciles the EndpointSlices of a Service.
pub(crate) async fn reconcile_slices(context: &Context, path: &str) -> Reconciled {
    // Slices of a deleted Service are garbage collected.
    let Some(service) = selecting(context, path).filter(|service| !is_deleting(service)) else {
        return Ok(Next::Done);
    };
    let mut current = context.cache.controlled(service.uid(), Kind::EndpointSlice);
    current.retain(|slice| {
        label(slice, SLICE_MANAGED_BY) == Some(SLICE_MANAGER) && !is_deleting(slice)
    });
    current.sort_by_key(|slice| slice.created);
    let mut current = current.into_iter();
    let mut labels = labels_of(&service);
    labels[SERVICE_NAME] = service.name().into();
    labels[SLICE_MANAGED_BY] = SLICE_MANAGER.into();
    for (ports, endpoints) in slices(&service, &pods(context, &service)) {
        let Some(slice) = current.next() else {
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "generateName": format!("{}-", service.name()),
                    "namespace": service.namespace(),
                    "labels": labels,
                    "annotations": {ENDPOINTS_TRIGGER: now_text()},
                    "ownerReferences": [service.as_owner()],
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": ports,
            });
            let created = context
                .api
                .create(&SLICES, Kind::EndpointSlice, slice)
                .await;
            done_unless_terminating(created.map(drop))?;
            continue;
        };
        let same = list(&slice, "/endpoints").eq(endpoints.iter())
            && list(&slice, "/ports").eq(ports.iter())
            && slice.pointer("/metadata/labels") == Some(&labels);
        if !same {
            let edit = |slice: &mut Value| {
                slice["endpoints"] = endpoints.clone().into();
                slice["ports"] = ports.clone().into();
                slice["metadata"]["labels"] = labels.clone();
                crate::object::set_annotation(slice, ENDPOINTS_TRIGGER, &now_text());
            };
            context.edit(&SLICES, &slice, &edit).await?;
        }
    }
    for surplus in current {
        context.delete(&SLICES, &surplus).await?;
    }
    Ok(Next::Done)
}

/// The EndpointSlices of a Service: Pods grouped by ports. There is one even without Pods.
fn slices(service: &Object, pods: &[Arc<Object>]) -> Vec<(Vec<Value>, Vec<Value>)> {
    let publishes_all = flag(service, "/spec/publishNotReadyAddresses");
    let mut groups: BTreeMap<String, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for pod in pods {
        let mut ports = ports(service, pod);
        for port in &mut ports {
            // Ports of an EndpointSlice always have a name, which may be empty.
            if port.get("name").is_none() {
                port["name"] = "".into();
            }
        }
        let (is_ready, terminates) = (pod::is_ready(pod), is_deleting(pod));
        let mut endpoint = json!({
            "addresses": [text(pod, "/status/podIP")],
            "conditions": {
                "ready": publishes_all || is_ready && !terminates,
                "serving": is_ready,
                "terminating": terminates,
            },
            "nodeName": text(pod, "/spec/nodeName"),
            "targetRef": reference(pod),
        });
        let hostname = text(pod, "/spec/hostname");
        if !hostname.is_empty() && text(pod, "/spec/subdomain") == service.name() {
            endpoint["hostname"] = hostname.into();
        }
        let group = groups
            .entry(Value::from(ports.clone()).to_string())
            .or_insert_with(|| (ports, Vec::new()));
        group.1.push(endpoint);
    }
    let mut slices = Vec::new();
    for (ports, endpoints) in groups.into_values() {
        for part in endpoints.chunks(SLICE_MAX) {
            slices.push((ports.clone(), part.to_vec()));
        }
    }
    if slices.is_empty() {
        slices.push((Vec::new(), Vec::new()));
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, value: Value) -> Object {
        Object {
            kind,
            key: kind.key("n", "a").into(),
            created: 1,
            value,
        }
    }

    fn ready_pod(name: &str, ip: &str, ready: &str) -> Arc<Object> {
        Arc::new(object(
            Kind::Pod,
            json!({
                "metadata": {"name": name, "namespace": "n"},
                "spec": {"nodeName": "node", "containers": [
                    {"ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}]},
                "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]},
            }),
        ))
    }

    #[test]
    fn pods_are_addresses_when_they_are_ready() {
        let service = object(
            Kind::Service,
            json!({"metadata": {"name": "web"}, "spec": {"ports": [
                {"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"}]}}),
        );
        let pods = [
            ready_pod("a", "10.0.0.1", "True"),
            ready_pod("b", "10.0.0.2", "False"),
        ];
        let found = subsets(&service, &pods);
        assert_eq!(text(&found[0], "/addresses/0/ip"), "10.0.0.1");
        assert_eq!(text(&found[0], "/notReadyAddresses/0/ip"), "10.0.0.2");
        assert_eq!(
            found[0]["ports"],
            json!([{"name": "web", "port": 8080, "protocol": "TCP"}])
        );
        let found = slices(&service, &pods);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1[1]["conditions"]["ready"], false);
        let mut all = service;
        all.value["spec"]["publishNotReadyAddresses"] = true.into();
        assert!(subsets(&all, &pods)[0].get("notReadyAddresses").is_none());
    }

    #[test]
    fn a_slice_has_a_hundred_endpoints_at_most() {
        let service = object(Kind::Service, json!({"spec": {"ports": [{"port": 80}]}}));
        let pods: Vec<_> = (0..250)
            .map(|number| ready_pod(&number.to_string(), "10.0.0.1", "True"))
            .collect();
        let sizes: Vec<_> = slices(&service, &pods)
            .iter()
            .map(|slice| slice.1.len())
            .collect();
        assert_eq!(sizes, [100, 100, 50]);
        assert_eq!(slices(&service, &[]).len(), 1);
    }
}
