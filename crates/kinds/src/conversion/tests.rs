//! Conversions between versions, compared with a Go program that uses upstream's scheme.

use serde_json::{Value, json};

use crate::defaults::apply;
use crate::resource::find;
use crate::typed::type_of;

use super::*;

fn load(api_version: &str, kind: &str, mut members: Value) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    members["apiVersion"] = json!(api_version);
    members["kind"] = json!(kind);
    let mut value = type_of(group, version, kind)
        .unwrap()
        .decode_value(&members)
        .unwrap()
        .value;
    apply(group, version, kind, &mut value);
    value
}

#[test]
fn autoscalers_keep_their_target() {
    let v1 = load(
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        json!({"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}),
    );
    let v2 = convert(&v1, "autoscaling", "v2").unwrap();
    assert_eq!(
        v2["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}])
    );
    assert_eq!(convert(&v2, "autoscaling", "v1").unwrap(), v1);
    let unset = load("autoscaling/v1", "HorizontalPodAutoscaler", json!({}));
    assert_eq!(unset["spec"]["targetCPUUtilizationPercentage"], 80);
}

#[test]
fn autoscalers_carry_the_rest_in_annotations() {
    let reference = json!({"kind": "Service", "name": "s"});
    let object = json!({"type": "Object", "object": {"describedObject": reference, "target": {"type": "Value", "value": "2"}, "metric": {"name": "m"}}});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "3"}}});
    let container = json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let external = json!({"type": "External", "external": {"metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "4"}}});
    let v2 = load(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        json!({"metadata": {"annotations": {"own": "x"}},
            "spec": {"metrics": [object, pods, container, external], "behavior": {"scaleDown": {"selectPolicy": "Min"}}},
            "status": {"conditions": [{"type": "AbleToScale", "status": "True", "reason": "r"}],
                "currentMetrics": [{"type": "Pods", "pods": {"metric": {"name": "p"}, "current": {"averageValue": "3"}}}]}}),
    );
    let v1 = convert(&v2, "autoscaling", "v1").unwrap();
    let annotation = |name: &str| {
        v1["metadata"]["annotations"][format!("autoscaling.alpha.kubernetes.io/{name}")]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        annotation("metrics"),
        r#"[{"type":"Object","object":{"target":{"kind":"Service","name":"s"},"metricName":"m","targetValue":"2"}},{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"3"}},{"type":"ContainerResource","containerResource":{"name":"memory","targetAverageValue":"1Gi","container":"c"}},{"type":"External","external":{"metricName":"q","metricSelector":{"matchLabels":{"a":"b"}},"targetAverageValue":"4"}}]"#
    );
    assert_eq!(
        annotation("conditions"),
        r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"reason":"r"}]"#
    );
    assert!(annotation("behavior").ends_with(
        r#""ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Min","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}"#
    ));
    assert_eq!(convert(&v1, "autoscaling", "v2").unwrap(), v2);
}

#[test]
fn annotations_that_cannot_be_read_are_dropped() {
    for text in [
        "{",
        "3",
        &"[".repeat(9_000),
        &format!("{}{}", "[".repeat(9_000), "]".repeat(9_000)),
    ] {
        let mut value = json!({"spec": {"maxReplicas": 1}, "metadata": {"annotations": {}}});
        for name in ["metrics", "current-metrics", "conditions", "behavior"] {
            value["metadata"]["annotations"][format!("autoscaling.alpha.kubernetes.io/{name}")] =
                json!(text);
        }
        let v1 = load("autoscaling/v1", "HorizontalPodAutoscaler", value);
        assert_eq!(v1["metadata"].get("annotations"), None);
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 80);
    }
}

#[test]
fn events_change_their_words() {
    let core = load(
        "v1",
        "Event",
        json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "message": "m",
            "source": {"component": "kubelet"}, "count": 2, "firstTimestamp": "2024-01-02T03:04:05Z", "reportingComponent": "k"}),
    );
    let new = convert(&core, "events.k8s.io", "v1").unwrap();
    assert_eq!(new["regarding"], json!({"kind": "Pod", "name": "p"}));
    assert_eq!(
        (&new["note"], &new["deprecatedCount"]),
        (&json!("m"), &json!(2))
    );
    assert_eq!(new["reportingController"], "k");
    assert_eq!(new["deprecatedSource"], json!({"component": "kubelet"}));
    assert_eq!(convert(&new, "", "v1").unwrap(), core);
}

#[test]
fn like_versions_change_their_name_only() {
    let v1 = load(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        json!({"webhooks": [{"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://a"}}]}),
    );
    let older = convert(&v1, "admissionregistration.k8s.io", "v1beta1").unwrap();
    assert_eq!(older["apiVersion"], "admissionregistration.k8s.io/v1beta1");
    assert_eq!(older["webhooks"], v1["webhooks"]);
}

#[test]
fn refuses_versions_that_do_not_go_together() {
    let pod = load("v1", "Pod", json!({}));
    assert_eq!(
        convert(&pod, "apps", "v1").unwrap_err().to_string(),
        "no conversion of Pod from `v1` to `apps/v1`"
    );
    assert_eq!(convert(&pod, "", "v1").as_ref(), Ok(&pod));
}

#[test]
fn equivalents_share_their_storage() {
    let names = |group: &str, version: &str, plural: &str| -> Vec<String> {
        equivalents(find(group, version, plural).unwrap())
            .map(Resource::api_version)
            .collect()
    };
    assert_eq!(names("", "v1", "events"), ["events.k8s.io/v1"]);
    assert_eq!(
        names("autoscaling", "v2", "horizontalpodautoscalers"),
        ["autoscaling/v1"]
    );
    assert_eq!(names("", "v1", "pods"), Vec::<String>::new());
}
