//! The status of ValidatingAdmissionPolicies: type checking with the schemas of the matched resources, and the
//! validation of status updates.

use lockgate_apiserver::{Controllers, Settings};
use serde_json::{Value, json};

use crate::support::*;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn checking() -> Settings {
    Settings {
        secure_port: 0,
        controllers: Controllers {
            policy_status: true,
            ..Controllers::all(false)
        },
        ..settings()
    }
}

fn rule(group: &str, version: &str, resources: &[&str]) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": [version], "operations": ["*"], "resources": resources,
    })
}

fn policy(name: &str, rules: Value, validations: Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations},
    })
}

/// The type checking warnings of a policy, as field and message.
async fn warnings(client: &Client, name: &str) -> Vec<(String, String)> {
    let is_checked =
        |policy: &Value| policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
    within(client.wait_until(POLICIES, name, is_checked)).await;
    let path = format!("{POLICIES}/{name}");
    let policy = client.get(&path).await.expect(200);
    let warnings = policy["status"]["typeChecking"]["expressionWarnings"].as_array();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    warnings
        .into_iter()
        .flatten()
        .map(|warning| (text(&warning["fieldRef"]), text(&warning["warning"])))
        .collect()
}

#[tokio::test]
async fn warns_of_expressions_that_confuse_types_of_built_in_kinds() {
    let server = start_with(checking()).await;
    let client = Client::admin(&server).await;
    let deployments = json!([rule("apps", "v1", &["deployments"])]);
    let right = json!([{"expression": "object.spec.replicas > 1"}]);
    client
        .create(POLICIES, policy("right", deployments.clone(), right))
        .await;
    assert_eq!(warnings(&client, "right").await, []);
    let confused = json!([{
        "expression": "object.spec.replicas > '1'",
        "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas",
    }]);
    client
        .create(POLICIES, policy("confused", deployments.clone(), confused))
        .await;
    assert_eq!(
        warnings(&client, "confused").await,
        [
            (
                "spec.validations[0].expression".to_owned(),
                "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' \
                 applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"
                    .to_owned()
            ),
            (
                "spec.validations[0].messageExpression".to_owned(),
                "apps/v1, Kind=Deployment: ERROR: <input>:1:28: found no matching overload for '_+_' \
                 applied to '(string, int)'\n | 'wants replicas > 1, got ' + object.spec.replicas\n | \
                 ...........................^\n"
                    .to_owned()
            ),
        ]
    );
    // An update is type-checked again.
    let mended = json!({"spec": {"validations": [{"expression": "object.spec.replicas > 2"}]}});
    client
        .patch(&format!("{POLICIES}/confused"), "merge", &mended)
        .await
        .expect(200);
    assert_eq!(warnings(&client, "confused").await, []);
}

#[tokio::test]
async fn checks_each_kind_with_variables_and_params() {
    let server = start_with(checking()).await;
    let client = Client::admin(&server).await;
    let rules = json!([
        rule("", "v1", &["pods", "services", "pods/status", "nopes"]),
        rule("*", "v1", &["configmaps"]),
    ]);
    let mut both = policy(
        "both",
        rules,
        json!([
            {"expression": "variables.name.size() > 1 && object.spec.nope == 1"},
            {"expression": "has(params.data.x) && params.data.x > 1"},
            // These have no type, or any type.
            {"expression": "object.spec.containers.all(c, c.ports.all(p, p.containerPort > 1))"},
        ]),
    );
    both["spec"]["variables"] = json!([{"name": "name", "expression": "object.metadata.name"}]);
    both["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    client.create(POLICIES, both).await;
    let found = warnings(&client, "both").await;
    let brief: Vec<String> = found
        .iter()
        .map(|(field, warning)| {
            let lines = warning.lines().filter(|line| line.contains("Kind="));
            format!("{field} {}", lines.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(
        brief,
        [
            "spec.validations[0].expression v1, Kind=Pod: ERROR: <input>:1:41: undefined field 'nope' \
             v1, Kind=Service: ERROR: <input>:1:41: undefined field 'nope'",
            "spec.validations[1].expression v1, Kind=Pod: ERROR: <input>:1:37: found no matching \
             overload for '_>_' applied to '(string, int)' v1, Kind=Service: ERROR: <input>:1:37: found \
             no matching overload for '_>_' applied to '(string, int)'",
            "spec.validations[2].expression v1, Kind=Service: ERROR: <input>:1:12: undefined field \
             'containers'",
        ]
    );
}

#[tokio::test]
async fn warns_of_fields_that_a_definition_does_not_have() {
    let server = start_with(checking()).await;
    let client = Client::admin(&server).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "crontabs.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {
                    "replicas": {"type": "integer"}, "cronSpec": {"type": "string"},
                }}},
            }}}],
        },
    });
    client.create(DEFINITIONS, definition).await;
    let validations = json!([
        {"expression": "object.spec.replicas > '1'"},
        {"expression": "object.spec.maxRetries < 10"},
        {"expression": "object.spec.cronSpec != '' && object.metadata.namespace != ''"},
    ]);
    let rules = json!([rule("example.com", "v1", &["crontabs"])]);
    client
        .create(POLICIES, policy("tabs", rules, validations))
        .await;
    let found = warnings(&client, "tabs").await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].1.contains("applied to '(int, string)'"));
    assert!(found[1].1.contains("undefined field 'maxRetries'"));
    assert_eq!(found[1].0, "spec.validations[1].expression");
}

#[tokio::test]
async fn refuses_a_status_that_refers_to_nothing() {
    let server = start_with(Settings {
        controllers: Controllers::all(false),
        ..checking()
    })
    .await;
    let client = Client::admin(&server).await;
    let rules = json!([rule("", "v1", &["pods"])]);
    let object = policy("p", rules, json!([{"expression": "true"}]));
    client.create(POLICIES, object).await;
    let status = json!({"status": {
        "typeChecking": {"expressionWarnings": [
            {"fieldRef": "spec.validations[0].expression", "warning": "w"},
            {"fieldRef": " ", "warning": ""},
            {"fieldRef": "spec[", "warning": "w"},
        ]},
        "conditions": [
            {"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "A", "status": "Maybe", "reason": "-", "message": "", "lastTransitionTime": null},
        ],
    }});
    let path = format!("{POLICIES}/p/status");
    let refused = client.patch(&path, "merge", &status).await.expect(422);
    let causes: Vec<&str> = refused["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        causes,
        [
            "status.typeChecking.expressionWarnings[1].warning",
            "status.typeChecking.expressionWarnings[1].fieldRef",
            "status.typeChecking.expressionWarnings[2].fieldRef",
            "status.conditions[1].type",
            "status.conditions[1].status",
            "status.conditions[1].lastTransitionTime",
            "status.conditions[1].reason",
        ]
    );
    let message = refused["message"].as_str().unwrap();
    assert!(
        message
            .contains(r#"fieldRef: Invalid value: "spec[": invalid JSONPath: unterminated array"#),
        "{message}"
    );
}
