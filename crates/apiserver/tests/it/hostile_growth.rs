//! Processing time grows linearly with input size: each of these requests took minutes, or all memory, when some part
//! of it was compared with every other or copied for every other. They complete within the client's timeout.

use http::Method;
use serde_json::{Map, Value, json};

use crate::support::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

fn managers(count: usize, operation: &str) -> Value {
    let manager = |number| {
        json!({
            "manager": format!("m{number}"), "operation": operation, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "time": "2020-01-01T00:00:00Z",
            "fieldsV1": {"f:data": {format!("f:{number}"): {}}},
        })
    };
    (0..count).map(manager).collect()
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (name, value) in spec.as_object().unwrap() {
        pod["spec"][name] = value.clone();
    }
    pod
}

fn policy(variables: impl IntoIterator<Item = String>) -> Value {
    let variables: Vec<Value> = variables
        .into_iter()
        .enumerate()
        .map(|(number, text)| json!({"name": format!("v{number}"), "expression": text}))
        .collect();
    json!({
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
            ]},
            "variables": variables,
            "validations": [{"expression": "true"}],
        },
    })
}

/// A chain of variables, each referring to the previous one.
fn chain(first: &str, count: usize, next: impl Fn(&str) -> String) -> Vec<String> {
    let following = (0..count).map(|number| next(&format!("variables.v{number}")));
    std::iter::once(first.to_owned()).chain(following).collect()
}

fn definition_of_rules(count: usize) -> Value {
    let rule = "self.matches('^[a-z\\\\pL]{1,900}$')";
    let property = json!({
        "type": "string", "maxLength": 100, "x-kubernetes-validations": [{"rule": rule}],
    });
    let properties: Map<String, Value> = (0..count)
        .map(|number| (format!("p{number}"), property.clone()))
        .collect();
    json!({
        "metadata": {"name": "ws.growth.test"},
        "spec": {
            "group": "growth.test", "scope": "Namespaced",
            "names": {"plural": "ws", "singular": "w", "kind": "W", "listKind": "WList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_are_answered_in_time() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut updated = config_map("updated");
    updated["metadata"]["managedFields"] = managers(12_000, "Update");
    let mut applied = config_map("applied");
    applied["metadata"]["managedFields"] = managers(12_000, "Apply");
    let spread: Value = (0..10_000)
        .map(|number| json!({"maxSkew": 1, "topologyKey": format!("k{number}"), "whenUnsatisfiable": "DoNotSchedule"}))
        .collect();
    let keys = |prefix: &str| -> Value {
        (0..20_000)
            .map(|number| format!("{prefix}{number}"))
            .collect()
    };
    let expressions: Value = (0..10_000)
        .map(|number| json!({"key": format!("e{number}"), "operator": "Exists"}))
        .collect();
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "zone", "labelSelector": {"matchExpressions": expressions},
        "matchLabelKeys": keys("a"), "mismatchLabelKeys": keys("b"),
    }]}});
    let requests = [
        ("12,000 updaters", CONFIG_MAPS, updated),
        ("12,000 appliers", CONFIG_MAPS, applied),
        (
            "10,000 constraints",
            PODS,
            pod(json!({"topologySpreadConstraints": spread})),
        ),
        (
            "20,000 keys of labels",
            PODS,
            pod(json!({"affinity": affinity})),
        ),
        ("patterns in rules", DEFINITIONS, definition_of_rules(200)),
        (
            "3,000 variables",
            POLICIES,
            policy(chain("1", 3000, |last| format!("{last} + {last}"))),
        ),
        (
            "types inside types",
            POLICIES,
            policy(chain("[1]", 3000, |last| format!("[{last}]"))),
        ),
        (
            "types that double",
            POLICIES,
            policy(chain("{1: 1}", 60, |last| format!("{{{last}: {last}}}"))),
        ),
    ];
    for (what, path, object) in requests {
        let path = format!("{path}?dryRun=All");
        let kind = [("content-type", "application/json")];
        let answer = client
            .request(Method::POST, &path, &kind, object.to_string())
            .await;
        assert_eq!(answer.code, 201, "{what}: {}", answer.text());
    }
    server.stop().await;
}

/// Each mutation reads the result of the previous one: an object would double with each.
#[tokio::test]
async fn mutations_do_not_grow_an_object_without_end() {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
    const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
    let server = start().await;
    let client = Client::admin(&server).await;
    let patch = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    let double =
        patch("[JSONPatch{op: 'add', path: '/data/a', value: object.data.a + object.data.a}]");
    let copies = patch(
        "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20].map(i, \
         JSONPatch{op: 'add', path: '/data/k' + string(i), value: object.data.a})",
    );
    let each = (0..20).map(|nth| {
        let path = format!("/data/k{nth}");
        patch(&format!(
            "[JSONPatch{{op: 'add', path: '{path}', value: object.data.a}}]"
        ))
    });
    // 26 GB, of which an expression holds one copy.
    let repeated = "lists.range(20000).map(i, object.data.a)";
    let finalizers = format!("Object{{metadata: Object.metadata{{finalizers: {repeated}}}}}");
    let configuration = json!({
        "patchType": "ApplyConfiguration", "applyConfiguration": {"expression": finalizers},
    });
    let operation = patch(&format!(
        "[JSONPatch{{op: 'add', path: '/metadata/finalizers', value: {repeated}}}]"
    ));
    // Ten bytes doubled 17 times are 1.3 MB.
    let cases = [
        (
            17,
            vec![configuration],
            "the mutated object exceeds 16777216 bytes",
        ),
        (
            17,
            vec![operation],
            "the mutated object exceeds 16777216 bytes",
        ),
        (40, Vec::new(), "actual cost limit exceeded"),
        (
            17,
            vec![copies],
            "the mutated object exceeds 16777216 bytes",
        ),
        (
            17,
            each.collect(),
            "the mutated object exceeds 16777216 bytes",
        ),
    ];
    let meta = json!({"name": "grow"});
    let version = "admissionregistration.k8s.io/v1";
    let binding = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": meta,
        "spec": {"policyName": "grow"},
    });
    client.create(BINDINGS, binding).await;
    for (doubled, more, why) in cases {
        let mutations: Vec<Value> = vec![double.clone(); doubled]
            .into_iter()
            .chain(more)
            .collect();
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"],
        });
        let policy = json!({
            "apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": meta,
            "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": mutations,
                "matchConstraints": {"resourceRules": [rule]},
            },
        });
        client.create(POLICIES, policy).await;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"},
            "data": {"a": "0123456789"},
        });
        let answer = client
            .post("/api/v1/namespaces/default/configmaps", &map)
            .await;
        assert_eq!(answer.code, 403, "{why}");
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(why), "{message}");
        client.delete(&format!("{POLICIES}/grow")).await.expect(200);
    }
    server.stop().await;
}
