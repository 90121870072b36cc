//! The row of an object: which function knows a kind, and the kinds whose cells are plain members.

use lockgate_api::meta::time::Time;
use serde_json::{Value, json};

use crate::conversion;
use crate::resource::Resource;

use super::duration::since;
use super::read::{count, integer, is_true, items, members, text, text_or};
use super::{cluster, networking, pod, storage, workload};

/// The cells of an object, and what else is said about the row.
pub(super) struct Row {
    cells: Vec<Value>,
    conditions: Option<Value>,
}

impl Row {
    pub(super) fn of(cells: Vec<Value>) -> Self {
        Self {
            cells,
            conditions: None,
        }
    }

    /// A row about something that has come to its end.
    pub(super) fn with_conditions(cells: Vec<Value>, conditions: Option<Value>) -> Self {
        Self { cells, conditions }
    }

    pub(super) fn into_json(self) -> Value {
        let mut row = json!({"cells": self.cells});
        if let Some(conditions) = self.conditions {
            row["conditions"] = conditions;
        }
        row
    }
}

/// A cell.
pub(super) fn cell(value: impl Into<Value>) -> Value {
    value.into()
}

/// The number of something.
pub(super) fn number(count: usize) -> Value {
    Value::from(count)
}

/// The name and the age, which nearly every row has.
pub(super) struct Common<'v> {
    pub(super) name: &'v str,
    pub(super) age: String,
}

impl<'v> Common<'v> {
    fn of(object: &'v Value, now: Time) -> Self {
        Self {
            name: text(object, "/metadata/name"),
            age: since(text(object, "/metadata/creationTimestamp"), now),
        }
    }
}

/// The row of an object.
pub(super) fn row(resource: &Resource, object: &Value, now: Time) -> Row {
    let (group, version, _) = resource.storage;
    if (group, version) != (resource.group, resource.version)
        && let Some(stored) = in_storage_version(resource, object)
    {
        return cells(resource, &stored, now);
    }
    cells(resource, object, now)
}

/// Cells are told from the version that knows everything about the object.
fn in_storage_version(resource: &Resource, object: &Value) -> Option<Value> {
    let mut object = object.clone();
    let typed = object.as_object_mut()?;
    typed.insert(String::from("apiVersion"), resource.api_version().into());
    typed.insert(String::from("kind"), resource.kind.into());
    conversion::convert(&object, resource.storage.0, resource.storage.1).ok()
}

fn cells(resource: &Resource, object: &Value, now: Time) -> Row {
    let common = Common::of(object, now);
    let Common { name, age } = &common;
    let plain = |middle: &[Value]| {
        let first = std::iter::once(cell(*name));
        let cells = first.chain(middle.iter().cloned());
        Row::of(cells.chain([cell(age.as_str())]).collect())
    };
    match (resource.group, resource.plural) {
        ("", "pods") => pod::row(object, &common, now),
        ("", "podtemplates") => workload::pod_template(object),
        ("", "replicationcontrollers") | ("apps", "replicasets") => {
            workload::replicas(object, &common)
        }
        ("apps", "deployments") => workload::deployment(object, &common),
        ("apps", "statefulsets") => workload::stateful_set(object, &common),
        ("apps", "daemonsets") => workload::daemon_set(object, &common),
        ("apps", "controllerrevisions") => workload::controller_revision(object, &common),
        ("batch", "jobs") => workload::job(object, &common, now),
        ("batch", "cronjobs") => workload::cron_job(object, &common, now),
        ("autoscaling", "horizontalpodautoscalers") => workload::autoscaler(object, &common),
        ("policy", "poddisruptionbudgets") => workload::disruption_budget(object, &common),
        ("", "services") => networking::service(object, &common),
        ("", "endpoints") => networking::endpoints(object, &common),
        ("discovery.k8s.io", "endpointslices") => networking::endpoint_slice(object, &common),
        ("networking.k8s.io", "ingresses") => networking::ingress(object, &common),
        ("networking.k8s.io", "ingressclasses") => networking::ingress_class(object, &common),
        ("networking.k8s.io", "networkpolicies") => networking::network_policy(object, &common),
        ("networking.k8s.io", "ipaddresses") => networking::ip_address(object, &common),
        ("networking.k8s.io", "servicecidrs") => networking::service_cidr(object, &common),
        ("", "persistentvolumes") => storage::volume(object, &common),
        ("", "persistentvolumeclaims") => storage::claim(object, &common),
        ("storage.k8s.io", "storageclasses") => storage::class(object, &common),
        ("storage.k8s.io", "csidrivers") => storage::driver(object, &common),
        ("storage.k8s.io", "volumeattachments") => storage::attachment(object, &common),
        ("", "nodes") => cluster::node(object, &common),
        ("" | "events.k8s.io", "events") => cluster::event(object, now),
        ("", "componentstatuses") => cluster::component_status(object),
        ("", "resourcequotas") => cluster::quota(object, &common),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            cluster::role_binding(object, &common)
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            cluster::certificate_request(object, &common)
        }
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => cluster::flow_schema(object, &common),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => {
            cluster::priority_level(object, &common)
        }
        ("resource.k8s.io", "resourceclaims") => cluster::resource_claim(object, &common),
        ("apiregistration.k8s.io", "apiservices") => cluster::api_service(object, &common),
        ("", "configmaps") => plain(&[number(
            count(object, "/data") + count(object, "/binaryData"),
        )]),
        ("", "secrets") => plain(&[cell(text(object, "/type")), number(count(object, "/data"))]),
        ("", "namespaces") => plain(&[cell(text(object, "/status/phase"))]),
        ("", "serviceaccounts")
        | ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => plain(&[]),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => plain(&[number(count(object, "/webhooks"))]),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => plain(&[
            number(count(object, "/spec/validations")),
            parameters(object),
        ]),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => {
            plain(&[number(count(object, "/spec/mutations")), parameters(object)])
        }
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings",
        ) => plain(&[
            cell(text(object, "/spec/policyName")),
            parameter_reference(object),
        ]),
        ("coordination.k8s.io", "leases") => plain(&[cell(text(object, "/spec/holderIdentity"))]),
        ("node.k8s.io", "runtimeclasses") => plain(&[cell(text(object, "/handler"))]),
        ("storage.k8s.io", "csinodes") => plain(&[number(count(object, "/spec/drivers"))]),
        ("storage.k8s.io", "volumeattributesclasses") => {
            plain(&[cell(text(object, "/driverName"))])
        }
        ("resource.k8s.io", "resourceslices") => plain(&[
            cell(text(object, "/spec/nodeName")),
            cell(text(object, "/spec/driver")),
            cell(text(object, "/spec/pool/name")),
        ]),
        ("scheduling.k8s.io", "priorityclasses") => Row::of(vec![
            cell(*name),
            cell(integer(object, "/value")),
            cell(is_true(object, "/globalDefault")),
            cell(age.as_str()),
            cell(text(object, "/preemptionPolicy")),
        ]),
        _ => Row::of(vec![cell(*name), cell(created_at(object))]),
    }
}

/// When an object was made, for kinds without columns of their own.
fn created_at(object: &Value) -> String {
    text_or(
        object,
        "/metadata/creationTimestamp",
        "0001-01-01T00:00:00Z",
    )
}

/// What kind of parameters a policy takes.
fn parameters(object: &Value) -> Value {
    match object.pointer("/spec/paramKind") {
        Some(kind) if kind.is_object() => cell(format!(
            "{}/{}",
            text(kind, "/apiVersion"),
            text(kind, "/kind")
        )),
        _ => cell("<unset>"),
    }
}

/// Which parameters a binding gives its policy.
fn parameter_reference(object: &Value) -> Value {
    let Some(reference) = object.pointer("/spec/paramRef") else {
        return cell("<unset>");
    };
    match (text(reference, "/namespace"), text(reference, "/name")) {
        (_, "") => match reference.get("selector") {
            Some(selector) if selector.is_object() => cell(go_selector(selector)),
            _ => cell("<unset>"),
        },
        ("", name) => cell(format!("*/{name}")),
        (namespace, name) => cell(format!("{namespace}/{name}")),
    }
}

/// A selector as Go prints the message.
fn go_selector(selector: &Value) -> String {
    let labels: String = members(selector, "/matchLabels")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions: String = items(selector, "/matchExpressions")
        .iter()
        .map(|requirement| {
            let values: Vec<&str> = items(requirement, "/values")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(requirement, "/key"),
                text(requirement, "/operator"),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
