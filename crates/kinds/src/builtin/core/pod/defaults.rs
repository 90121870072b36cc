//! Defaults of Pods and Pod templates.

use super::image;
use crate::amounts::{pod_level, request_limits, round_up, round_up_requirements};
use crate::builtin::core::persistent_volume as storage;
use crate::builtin::core::persistent_volume_claim::claim_spec_defaults;
use crate::object::{
    Object, at_mut, each, fill, fill_number, fill_text, flag, get_mut, has, is_empty, list, number,
    open, text,
};
use serde_json::{Value, json};

/// The defaults of a Pod, a superset of those of a template.
pub(in crate::builtin) fn pod(pod: &mut Object) {
    if let Some(spec) = get_mut(pod, "spec") {
        each(spec, "containers", request_limits);
        each(spec, "initContainers", request_limits);
        pod_level(spec);
        fill(spec, "enableServiceLinks", true);
        if flag(spec, "hostNetwork") {
            each(spec, "containers", host_ports);
            each(spec, "initContainers", host_ports);
        }
        // A negative grace period is kept in templates only.
        if number(spec, "terminationGracePeriodSeconds") < 0 {
            spec.insert("terminationGracePeriodSeconds".to_owned(), Value::from(1));
        }
        pod_spec(spec);
    }
    if let Some(metadata) = get_mut(pod, "metadata") {
        drop_init_container_annotations(metadata);
    }
    if let Some(status) = get_mut(pod, "status") {
        for key in [
            "initContainerStatuses",
            "containerStatuses",
            "ephemeralContainerStatuses",
        ] {
            each(status, key, |container| {
                round_up(container, "allocatedResources");
                round_up_requirements(container, "resources");
            });
        }
        round_up(status, "allocatedResources");
        round_up_requirements(status, "resources");
        addresses(status);
    }
}

/// Defaults the Pod template at `key`.
pub(in crate::builtin) fn template(object: &mut Object, key: &str) {
    let Some(template) = get_mut(object, key) else {
        return;
    };
    if let Some(spec) = get_mut(template, "spec") {
        pod_spec(spec);
    }
    if let Some(metadata) = get_mut(template, "metadata") {
        drop_init_container_annotations(metadata);
    }
}

fn pod_spec(spec: &mut Object) {
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill_text(spec, "schedulerName", "default-scheduler");
    each(spec, "volumes", volume);
    each(spec, "initContainers", container);
    each(spec, "containers", container);
    each(spec, "ephemeralContainers", container);
    round_up(spec, "overhead");
    round_up_requirements(spec, "resources");
    service_account(spec);
}

/// `serviceAccount` mirrors `serviceAccountName`.
fn service_account(spec: &mut Object) {
    let name = match (
        text(spec, "serviceAccountName"),
        text(spec, "serviceAccount"),
    ) {
        ("", "") => return,
        ("", older) => older.to_owned(),
        (name, _) => name.to_owned(),
    };
    spec.insert("serviceAccountName".to_owned(), Value::from(name.as_str()));
    spec.insert("serviceAccount".to_owned(), Value::from(name));
}

/// `podIP` is the first of `podIPs`; if they differ, `podIP` wins.
fn addresses(status: &mut Object) {
    let first = list(status, "podIPs")
        .first()
        .and_then(|ip| ip.get("ip"))
        .and_then(Value::as_str)
        .map(str::to_owned);
    let single = text(status, "podIP").to_owned();
    let is_listed = has(status, "podIPs") && !list(status, "podIPs").is_empty();
    if !single.is_empty() && first.as_deref() != Some(single.as_str()) {
        status.insert("podIPs".to_owned(), json!([{"ip": single}]));
    } else if single.is_empty() && is_listed {
        let first = first.unwrap_or_default();
        if !first.is_empty() {
            status.insert("podIP".to_owned(), Value::from(first));
        }
    }
}

/// Drops the annotations of old clusters that held init containers.
fn drop_init_container_annotations(metadata: &mut Object) {
    let Some(annotations) = get_mut(metadata, "annotations") else {
        return;
    };
    for name in [
        "pod.beta.kubernetes.io/init-containers",
        "pod.alpha.kubernetes.io/init-containers",
        "pod.beta.kubernetes.io/init-container-statuses",
        "pod.alpha.kubernetes.io/init-container-statuses",
    ] {
        annotations.remove(name);
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn host_ports(container: &mut Object) {
    each(container, "ports", |port| {
        let own = number(port, "containerPort");
        if own != 0 {
            fill_number(port, "hostPort", own);
        }
    });
}

fn container(container: &mut Object) {
    if text(container, "imagePullPolicy").is_empty() {
        let policy = pull_policy(text(container, "image"));
        container.insert("imagePullPolicy".to_owned(), Value::from(policy));
    }
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    each(container, "ports", |port| {
        fill_text(port, "protocol", "TCP")
    });
    each(container, "env", |variable| {
        if let Some(source) = get_mut(variable, "valueFrom") {
            field_reference(source);
            if let Some(reference) = get_mut(source, "fileKeyRef") {
                fill(reference, "optional", false);
            }
        }
    });
    round_up_requirements(container, "resources");
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = get_mut(container, key) {
            fill_number(probe, "timeoutSeconds", 1);
            fill_number(probe, "periodSeconds", 10);
            fill_number(probe, "successThreshold", 1);
            fill_number(probe, "failureThreshold", 3);
            http_get(probe);
            if let Some(grpc) = get_mut(probe, "grpc") {
                fill(grpc, "service", "");
            }
        }
    }
    for key in ["postStart", "preStop"] {
        if let Some(handler) = at_mut(container, &["lifecycle", key]) {
            http_get(handler);
        }
    }
}

fn pull_policy(image: &str) -> &'static str {
    if image::is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

fn http_get(handler: &mut Object) {
    if let Some(action) = get_mut(handler, "httpGet") {
        fill_text(action, "path", "/");
        fill_text(action, "scheme", "HTTP");
    }
}

fn field_reference(holder: &mut Object) {
    if let Some(reference) = get_mut(holder, "fieldRef") {
        fill_text(reference, "apiVersion", "v1");
    }
}

fn volume(volume: &mut Object) {
    // Every other key is a source.
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    storage::volume_source(volume);
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = get_mut(volume, key) {
            fill(source, "defaultMode", 0o644);
        }
    }
    if let Some(source) = get_mut(volume, "image")
        && text(source, "pullPolicy").is_empty()
    {
        let policy = pull_policy(text(source, "reference"));
        source.insert("pullPolicy".to_owned(), Value::from(policy));
    }
    if let Some(source) = get_mut(volume, "downwardAPI") {
        each(source, "items", field_reference);
    }
    if let Some(source) = get_mut(volume, "projected") {
        each(source, "sources", |projection| {
            if let Some(downward) = get_mut(projection, "downwardAPI") {
                each(downward, "items", field_reference);
            }
            if let Some(token) = get_mut(projection, "serviceAccountToken") {
                fill(token, "expirationSeconds", 3600);
            }
        });
    }
    if let Some(spec) = at_mut(volume, &["ephemeral", "volumeClaimTemplate", "spec"]) {
        claim_spec_defaults(spec);
    }
}

/// Defaults the labels of an object without labels.
pub(in crate::builtin) fn labels_default(object: &mut Object, labels: Object) {
    if let Some(metadata) = open(object, "metadata")
        && is_empty(metadata, "labels")
    {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
}
