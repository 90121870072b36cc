//! Which fields a selector may name, and how each is read from an object.

use serde_json::Value;

use super::Resource;

/// A field that selectors may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSelector {
    /// The label as clients write it.
    pub label: &'static str,
    read: Read,
}

/// How a field becomes the text that selectors compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// The text at a path; empty when absent.
    Text(&'static [&'static str]),
    /// The boolean at a path; `false` when absent.
    Flag(&'static [&'static str]),
    /// The number at a path; `0` when absent.
    Number(&'static [&'static str]),
    /// The first of these texts that is not empty.
    FirstOf(&'static [&'static [&'static str]]),
    /// Supported in name only: it is in no object's set of fields.
    Absent,
}

impl FieldSelector {
    /// The text that selectors compare, for one object.
    #[must_use]
    pub fn read(&self, object: &Value) -> String {
        match self.read {
            Read::Text(path) => text(object, path).to_owned(),
            Read::Flag(path) => at(object, path)
                .and_then(Value::as_bool)
                .unwrap_or_default()
                .to_string(),
            Read::Number(path) => at(object, path)
                .and_then(Value::as_i64)
                .unwrap_or_default()
                .to_string(),
            Read::FirstOf(paths) => paths
                .iter()
                .map(|path| text(object, path))
                .find(|text| !text.is_empty())
                .unwrap_or_default()
                .to_owned(),
            Read::Absent => String::new(),
        }
    }
}

fn at<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, segment| match value {
        Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
        _ => value.get(segment),
    })
}

fn text<'v>(object: &'v Value, path: &[&str]) -> &'v str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

const fn select(label: &'static str, path: &'static [&'static str]) -> FieldSelector {
    FieldSelector {
        label,
        read: Read::Text(path),
    }
}

const NAME: FieldSelector = select("metadata.name", &["metadata", "name"]);
const NAMESPACE: FieldSelector = select("metadata.namespace", &["metadata", "namespace"]);

const POD: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("spec.nodeName", &["spec", "nodeName"]),
    // What clients of the first beta wrote.
    select("spec.host", &["spec", "nodeName"]),
    select("spec.restartPolicy", &["spec", "restartPolicy"]),
    select("spec.schedulerName", &["spec", "schedulerName"]),
    select("spec.serviceAccountName", &["spec", "serviceAccountName"]),
    FieldSelector {
        label: "spec.hostNetwork",
        read: Read::Flag(&["spec", "hostNetwork"]),
    },
    select("status.phase", &["status", "phase"]),
    FieldSelector {
        label: "status.podIP",
        read: Read::FirstOf(&[&["status", "podIPs", "0", "ip"], &["status", "podIP"]]),
    },
    FieldSelector {
        label: "status.podIPs",
        read: Read::Absent,
    },
    select("status.nominatedNodeName", &["status", "nominatedNodeName"]),
];

const NODE: &[FieldSelector] = &[
    NAME,
    FieldSelector {
        label: "spec.unschedulable",
        read: Read::Flag(&["spec", "unschedulable"]),
    },
];

const REPLICATION_CONTROLLER: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    FieldSelector {
        label: "status.replicas",
        read: Read::Number(&["status", "replicas"]),
    },
];

/// Labels of the core event; each is read in either version's spelling.
const EVENT: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("involvedObject.kind", &["involvedObject", "kind"]),
    select("involvedObject.namespace", &["involvedObject", "namespace"]),
    select("involvedObject.name", &["involvedObject", "name"]),
    select("involvedObject.uid", &["involvedObject", "uid"]),
    select(
        "involvedObject.apiVersion",
        &["involvedObject", "apiVersion"],
    ),
    select(
        "involvedObject.resourceVersion",
        &["involvedObject", "resourceVersion"],
    ),
    select("involvedObject.fieldPath", &["involvedObject", "fieldPath"]),
    select("reason", &["reason"]),
    select("reportingComponent", &["reportingComponent"]),
    FieldSelector {
        label: "source",
        read: Read::FirstOf(&[&["source", "component"], &["reportingComponent"]]),
    },
    select("type", &["type"]),
];

const NEW_EVENT: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("regarding.kind", &["regarding", "kind"]),
    select("regarding.namespace", &["regarding", "namespace"]),
    select("regarding.name", &["regarding", "name"]),
    select("regarding.uid", &["regarding", "uid"]),
    select("regarding.apiVersion", &["regarding", "apiVersion"]),
    select(
        "regarding.resourceVersion",
        &["regarding", "resourceVersion"],
    ),
    select("regarding.fieldPath", &["regarding", "fieldPath"]),
    select("reason", &["reason"]),
    select("reportingController", &["reportingController"]),
    select("type", &["type"]),
];

const NAMESPACE_KIND: &[FieldSelector] = &[NAME, select("status.phase", &["status", "phase"])];
const SECRET: &[FieldSelector] = &[NAME, NAMESPACE, select("type", &["type"])];
const SERVICE: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("spec.clusterIP", &["spec", "clusterIP"]),
    select("spec.type", &["spec", "type"]),
];
const JOB: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    FieldSelector {
        label: "status.successful",
        read: Read::Number(&["status", "succeeded"]),
    },
];
const SIGNING_REQUEST: &[FieldSelector] =
    &[NAME, select("spec.signerName", &["spec", "signerName"])];
const RESOURCE_SLICE: &[FieldSelector] = &[
    NAME,
    select("spec.nodeName", &["spec", "nodeName"]),
    select("spec.driver", &["spec", "driver"]),
];
const OTHERS: &[FieldSelector] = &[NAME, NAMESPACE];

/// The fields that selectors on this resource may name.
///
/// UPSTREAM: pkg/apis/*/conversion.go (`AddFieldLabelConversionFunc`) for the labels,
/// pkg/registry/*/strategy.go (`ToSelectableFields`) for what they read.
#[must_use]
pub fn field_selectors(resource: &Resource) -> &'static [FieldSelector] {
    specific(resource).unwrap_or(OTHERS)
}

/// The field with this label, if selectors on this resource may name it.
#[must_use]
pub fn field_selector(resource: &Resource, label: &str) -> Option<&'static FieldSelector> {
    field_selectors(resource)
        .iter()
        .find(|field| field.label == label)
}

/// What a client is told whose selector names a field that is not supported.
#[must_use]
pub fn unsupported_field_label(resource: &Resource, label: &str) -> String {
    let quoted = lockgate_go::quote::quote(label);
    match (resource.group, resource.plural) {
        ("batch", "jobs") => format!("field label {quoted} not supported for Job"),
        ("resource.k8s.io", "resourceslices") => {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
        }
        _ if specific(resource).is_some() => format!("field label not supported: {label}"),
        _ => format!(
            "{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
    }
}

fn specific(resource: &Resource) -> Option<&'static [FieldSelector]> {
    Some(match (resource.group, resource.plural) {
        ("", "pods") => POD,
        ("", "nodes") => NODE,
        ("", "replicationcontrollers") => REPLICATION_CONTROLLER,
        ("", "events") => EVENT,
        ("events.k8s.io", "events") => NEW_EVENT,
        ("", "namespaces") => NAMESPACE_KIND,
        ("", "secrets") => SECRET,
        ("", "services") => SERVICE,
        ("batch", "jobs") => JOB,
        ("certificates.k8s.io", "certificatesigningrequests") => SIGNING_REQUEST,
        ("resource.k8s.io", "resourceslices") => RESOURCE_SLICE,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::find;
    use super::*;

    #[test]
    fn reads_fields_of_pods() {
        let pods = find("", "v1", "pods").unwrap();
        let pod = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"nodeName": "w", "hostNetwork": true},
            "status": {"podIPs": [{"ip": "10.0.0.1"}]},
        });
        for (label, want) in [
            ("metadata.name", "a"),
            ("spec.host", "w"),
            ("spec.hostNetwork", "true"),
            ("status.podIP", "10.0.0.1"),
            ("status.phase", ""),
        ] {
            assert_eq!(
                field_selector(pods, label).unwrap().read(&pod),
                want,
                "{label}"
            );
        }
        assert_eq!(
            field_selector(pods, "spec.hostNetwork")
                .unwrap()
                .read(&json!({})),
            "false"
        );
    }

    #[test]
    fn refuses_other_labels_in_the_words_of_the_kind() {
        let pods = find("", "v1", "pods").unwrap();
        assert!(field_selector(pods, "spec.foo").is_none());
        assert_eq!(
            unsupported_field_label(pods, "spec.foo"),
            "field label not supported: spec.foo"
        );
        assert_eq!(
            unsupported_field_label(find("", "v1", "configmaps").unwrap(), "spec.foo"),
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
    }

    #[test]
    fn events_answer_in_both_spellings() {
        let core = find("", "v1", "events").unwrap();
        let event = json!({"source": {"component": "kubelet"}, "involvedObject": {"name": "p"}});
        assert_eq!(
            field_selector(core, "source").unwrap().read(&event),
            "kubelet"
        );
        let new = find("events.k8s.io", "v1", "events").unwrap();
        assert!(field_selector(new, "involvedObject.name").is_none());
        assert!(field_selector(new, "regarding.name").is_some());
    }
}
