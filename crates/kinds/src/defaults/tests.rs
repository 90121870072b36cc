//! Defaults by kind, compared with a Go program that uses upstream's scheme.

use serde_json::{Value, json};

use lockgate_api::document::json::parse;
use lockgate_api::registration::codec;

use crate::typed::type_of;

use super::apply;

/// Decodes an object and applies its defaults.
fn defaulted(api_version: &str, kind: &str, object: Value) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let ty = type_of(group, version, kind).unwrap();
    let mut value = ty.decode_value(&object).unwrap().value;
    apply(group, version, kind, &mut value);
    // The result is in normal form, and defaulting is idempotent.
    assert_eq!(ty.decode_value(&value).unwrap().value, value);
    let mut again = value.clone();
    apply(group, version, kind, &mut again);
    assert_eq!(again, value);
    value
}

#[test]
fn fills_in_a_pod() {
    let pod = defaulted(
        "v1",
        "Pod",
        json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccount": "robot",
            "hostNetwork": true,
            "containers": [{
                "name": "a", "image": "nginx",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "100u"}},
                "livenessProbe": {"httpGet": {"port": 80}},
            }],
            "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/"}}],
        }}),
    );
    assert_eq!(
        pod["spec"],
        json!({
            "serviceAccount": "robot", "serviceAccountName": "robot",
            "hostNetwork": true, "enableServiceLinks": true,
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
            "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler",
            "containers": [{
                "name": "a", "image": "nginx", "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                "env": [{"name": "E", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "1m"}, "requests": {"cpu": "1m"}},
                "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            }],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
                {"name": "h", "hostPath": {"path": "/", "type": ""}}],
        })
    );
}

#[test]
fn a_template_gets_less_than_a_pod() {
    let deployment = defaulted(
        "apps/v1",
        "Deployment",
        json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "image": "nginx:1", "resources": {"limits": {"cpu": "1"}}}]}}}}),
    );
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(
        (
            &spec["revisionHistoryLimit"],
            &spec["progressDeadlineSeconds"]
        ),
        (&json!(10), &json!(600))
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod.get("enableServiceLinks"), None);
    assert_eq!(
        pod["containers"][0]["resources"],
        json!({"limits": {"cpu": "1"}})
    );
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "IfNotPresent");
}

#[test]
fn sums_up_containers_for_a_pod_with_limits() {
    let container =
        |request: &str| json!({"name": "c", "resources": {"requests": {"cpu": request}}});
    let sidecar =
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
    let pod = defaulted(
        "v1",
        "Pod",
        json!({"spec": {
            "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            "initContainers": [sidecar, container("300m")],
            "containers": [container("100m"), container("150m")],
        }}),
    );
    assert_eq!(
        pod["spec"]["resources"]["requests"],
        json!({"cpu": "400m", "memory": "1Gi"})
    );
}

#[test]
fn fills_in_other_workloads() {
    let set = defaulted(
        "apps/v1",
        "StatefulSet",
        json!({"spec": {"volumeClaimTemplates": [{}]}}),
    );
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    assert_eq!(
        set["spec"]["persistentVolumeClaimRetentionPolicy"],
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
    );
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0]["kind"],
        "PersistentVolumeClaim"
    );
    let daemons = defaulted("apps/v1", "DaemonSet", json!({}));
    assert_eq!(
        daemons["metadata"]["annotations"],
        json!({"deprecated.daemonset.template.generation": "0"})
    );
    assert_eq!(
        daemons["spec"]["updateStrategy"]["rollingUpdate"],
        json!({"maxUnavailable": 1, "maxSurge": 0})
    );
    let job = defaulted(
        "batch/v1",
        "Job",
        json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
    );
    assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    for (key, want) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ("manualSelector", json!(false)),
    ] {
        assert_eq!(job["spec"][key], want, "{key}");
    }
    let cron = defaulted("batch/v1", "CronJob", json!({}));
    assert_eq!(cron["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(
        cron["spec"]["jobTemplate"]["spec"].get("backoffLimit"),
        None
    );
    let scaler = defaulted(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        json!({"spec": {"behavior": {}}}),
    );
    assert_eq!(
        scaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        80
    );
    assert_eq!(
        scaler["spec"]["behavior"]["scaleDown"]["policies"][0]["type"],
        "Percent"
    );
}

#[test]
fn fills_in_the_core_group() {
    let service = defaulted(
        "v1",
        "Service",
        json!({"spec": {"ports": [{"port": 80}], "type": "NodePort"}}),
    );
    assert_eq!(
        service["spec"],
        json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "type": "NodePort",
            "sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster"})
    );
    let secret = defaulted(
        "v1",
        "Secret",
        json!({"stringData": {"a": "hi"}, "data": {"a": "eA==", "b": ""}}),
    );
    assert_eq!(
        secret,
        json!({"metadata": {}, "type": "Opaque", "data": {"a": "aGk=", "b": ""}})
    );
    let namespace = defaulted("v1", "Namespace", json!({"metadata": {"name": "n"}}));
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "n"})
    );
    assert_eq!(namespace["status"]["phase"], "Active");
    let range = defaulted(
        "v1",
        "LimitRange",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
    );
    assert_eq!(
        range["spec"]["limits"][0]["defaultRequest"],
        json!({"cpu": "2", "memory": "1Mi"})
    );
    let claim = defaulted("v1", "PersistentVolumeClaim", json!({}));
    assert_eq!(claim["status"]["phase"], "Pending");
    assert_eq!(claim["spec"]["volumeMode"], "Filesystem");
    let node = defaulted(
        "v1",
        "Node",
        json!({"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "1"}}}),
    );
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "1"}));
}

#[test]
fn fills_in_other_groups() {
    let binding = defaulted(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        json!({"subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
    );
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(
        binding["subjects"][0]["apiGroup"],
        "rbac.authorization.k8s.io"
    );
    assert_eq!(binding["subjects"][1].get("apiGroup"), None);
    let policy = defaulted(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        json!({"spec": {"egress": [{"ports": [{}]}]}}),
    );
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    let class = defaulted("storage.k8s.io/v1", "StorageClass", json!({}));
    assert_eq!(
        (&class["reclaimPolicy"], &class["volumeBindingMode"]),
        (&json!("Delete"), &json!("Immediate"))
    );
    let definition = defaulted(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        json!({"spec": {"names": {"kind": "Widget"}, "versions": [{"name": "v1", "storage": true}]}}),
    );
    assert_eq!(definition["spec"]["names"]["singular"], "widget");
    assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(
        definition["spec"]["conversion"],
        json!({"strategy": "None"})
    );
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let schema = defaulted("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", json!({}));
    assert_eq!(schema["spec"]["matchingPrecedence"], 1000);
}

#[test]
fn webhooks_get_what_the_registration_api_says() {
    let service =
        json!({"clientConfig": {"service": {"namespace": "n", "name": "s"}}, "name": "a.b.c"});
    let object = json!({"webhooks": [service, {"name": "d.e.f", "rules": [{"operations": ["*"]}], "timeoutSeconds": 3}]});
    for version in ["v1", "v1beta1"] {
        for kind in [
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
        ] {
            let api_version = format!("admissionregistration.k8s.io/{version}");
            let (known, known_version) = codec::identify(&api_version, kind).unwrap();
            let document = parse(object.to_string().as_bytes()).unwrap();
            let hub = codec::decode(document.root(), known, known_version)
                .unwrap()
                .value;
            assert_eq!(
                defaulted(&api_version, kind, object.clone())["webhooks"],
                codec::to_json(hub, known_version)["webhooks"],
                "{api_version} {kind}"
            );
        }
    }
}
