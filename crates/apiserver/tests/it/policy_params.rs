//! Policy parameters that are custom resources: cached in parsed form, and never stale.

use serde_json::{Value, json};

use crate::support::*;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LIMITS: &str = "/apis/example.com/v1/limits";

fn definition(default: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "limits.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "limits", "singular": "limit", "kind": "Limit"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "max": {"type": "integer"},
                    "message": {"type": "string", "default": default},
                },
            }}}],
        },
    })
}

/// The rejection of a ConfigMap with this many entries.
async fn refused(client: &Client, entries: usize) -> Option<String> {
    let data = (0..entries).map(|n| (n.to_string(), Value::from("x")));
    let mut object = config_map("c");
    object["data"] = data.collect::<serde_json::Map<_, _>>().into();
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    let answer = client.post(&path, &object).await;
    match answer.code {
        201 => None,
        _ => {
            let status = answer.expect(422);
            let message = status["message"].as_str().unwrap();
            let (_, message) = message.split_once("denied request: ").unwrap();
            Some(message.to_owned())
        }
    }
}

#[tokio::test]
async fn a_policy_sees_every_change_of_its_parameters() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(DEFINITIONS, definition("too many")).await;
    let limit = json!({
        "apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "max": 1,
    });
    client.create(LIMITS, limit).await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"],
            }]},
            "validations": [{
                "expression": "object.data.size() <= params.max",
                "messageExpression": "string(params.message)",
            }],
        },
    });
    client
        .create(&format!("{GROUP}/validatingadmissionpolicies"), policy)
        .await;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {
            "policyName": "p", "validationActions": ["Deny"],
            "paramRef": {"name": "l", "parameterNotFoundAction": "Deny"},
        },
    });
    client
        .create(
            &format!("{GROUP}/validatingadmissionpolicybindings"),
            binding,
        )
        .await;
    for _ in 0..2 {
        assert_eq!(refused(&client, 1).await, None);
        assert_eq!(refused(&client, 2).await.as_deref(), Some("too many"));
    }
    let more = json!({"max": 2});
    client
        .patch(&format!("{LIMITS}/l"), "merge", &more)
        .await
        .expect(200);
    assert_eq!(refused(&client, 2).await, None);
    assert_eq!(refused(&client, 3).await.as_deref(), Some("too many"));
    // The object is unchanged, but its converted form is not; the message was cached before.
    let fresh = json!({
        "apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "max": 1,
    });
    client.delete(&format!("{LIMITS}/l")).await.expect(200);
    client.create(LIMITS, fresh).await;
    assert_eq!(refused(&client, 2).await.as_deref(), Some("too many"));
    let schema = json!([{
        "op": "remove",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/message",
    }]);
    client
        .patch(
            &format!("{DEFINITIONS}/limits.example.com"),
            "json",
            &schema,
        )
        .await
        .expect(200);
    // A field that the CustomResourceDefinition no longer has is absent.
    assert_eq!(
        refused(&client, 2).await.as_deref(),
        Some("failed expression: object.data.size() <= params.max")
    );
}
