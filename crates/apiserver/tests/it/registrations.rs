//! Webhook configurations in both versions over HTTP, and the matchConditions gate in every state.

use std::sync::Arc;

use lockgate_apiserver::{FeatureGates, Running, Settings};
use lockgate_store::MemoryStore;
use serde_json::{Value, json};

use crate::support::*;

const GROUP: &str = "/apis/admissionregistration.k8s.io";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A webhook with only the required fields of v1beta1.
fn bare() -> Value {
    json!({
        "name": "hook.lockgate.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"operations": ["CREATE"], "apiGroups": ["none"], "apiVersions": ["v1"], "resources": ["none"]}],
    })
}

/// The fields that only defaulting sets.
fn defaults(webhook: &Value) -> Value {
    let mut shown = json!({});
    for member in [
        "failurePolicy",
        "matchPolicy",
        "sideEffects",
        "timeoutSeconds",
        "admissionReviewVersions",
    ] {
        shown[member] = webhook[member].clone();
    }
    shown
}

#[tokio::test]
async fn both_versions_are_one_object_to_every_verb() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (plural, kind) in [
        (
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
        ),
        (
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
        ),
    ] {
        let [v1, beta] = ["v1", "v1beta1"].map(|version| format!("{GROUP}/{version}/{plural}"));
        let newest = client.get(&v1).await.expect(200)["metadata"]["resourceVersion"].clone();
        let since = format!("?resourceVersion={}", newest.as_str().unwrap());
        let mut watches = [
            ("v1", client.watch(&format!("{v1}{since}")).await),
            ("v1beta1", client.watch(&format!("{beta}{since}")).await),
        ];
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": kind,
            "metadata": {"name": "a"}, "webhooks": [bare()],
        });
        // v1 requires what v1beta1 defaults.
        let mut strict = object.clone();
        strict["apiVersion"] = "admissionregistration.k8s.io/v1".into();
        client.post(&v1, &strict).await.expect(422);
        let made = client.post(&beta, &object).await;
        let warning = format!(
            "admissionregistration.k8s.io/v1beta1 {kind} is deprecated in v1.16+, unavailable in v1.22+; use admissionregistration.k8s.io/v1 {kind}"
        );
        assert_eq!(made.warnings(), [warning]);
        let made = made.expect(201);
        let own = json!({
            "failurePolicy": "Ignore", "matchPolicy": "Exact", "sideEffects": "Unknown",
            "timeoutSeconds": 30, "admissionReviewVersions": ["v1beta1"],
        });
        assert_eq!(defaults(&made["webhooks"][0]), own);

        // get and list: the same object, in the requested version.
        for (path, version) in [(&v1, "v1"), (&beta, "v1beta1")] {
            let api_version = format!("admissionregistration.k8s.io/{version}");
            let mut got = client.get(&format!("{path}/a")).await.expect(200);
            assert_eq!(got["apiVersion"], *api_version);
            assert_eq!(defaults(&got["webhooks"][0]), own, "{path}");
            let listed = client.get(path).await.expect(200);
            assert_eq!(listed["apiVersion"], *api_version);
            assert_eq!(listed["items"].as_array().unwrap().len(), 1);
            got["apiVersion"] = made["apiVersion"].clone();
            assert_eq!(got, made, "{path}");
        }

        // update in v1beta1 of an object that v1 would reject, patches in both.
        let mut changed = client.get(&format!("{beta}/a")).await.expect(200);
        changed["webhooks"][0]["timeoutSeconds"] = 7.into();
        let put = client.put(&format!("{beta}/a"), &changed).await.expect(200);
        assert_eq!(put["metadata"]["generation"], 2);
        for (path, patch_type, patch) in [
            (
                &v1,
                "json",
                json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 8}]),
            ),
            (
                &beta,
                "merge",
                json!({"metadata": {"labels": {"by": "merge"}}}),
            ),
            (
                &v1,
                "strategic",
                json!({"webhooks": [{"name": "hook.lockgate.test", "failurePolicy": "Fail"}]}),
            ),
            (
                &beta,
                "strategic",
                json!({"webhooks": [{"name": "hook.lockgate.test", "matchPolicy": "Equivalent"}]}),
            ),
        ] {
            client
                .patch(&format!("{path}/a"), patch_type, &patch)
                .await
                .expect(200);
        }
        let applied = json!({
            "apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": kind,
            "metadata": {"name": "a"},
            "webhooks": [{"name": "hook.lockgate.test", "sideEffects": "None",
                "clientConfig": {"url": "https://127.0.0.1:1/"}, "admissionReviewVersions": ["v1", "v1beta1"]}],
        });
        let path = format!("{beta}/a?fieldManager=test&force=true");
        let applied = client.patch(&path, "apply", &applied).await.expect(200);
        assert_eq!(
            defaults(&applied["webhooks"][0]),
            json!({
                "failurePolicy": "Fail", "matchPolicy": "Equivalent", "sideEffects": "None",
                "timeoutSeconds": 8, "admissionReviewVersions": ["v1", "v1beta1"],
            })
        );
        // Now it is valid in v1, too.
        let whole = client.get(&format!("{v1}/a")).await.expect(200);
        client.put(&format!("{v1}/a"), &whole).await.expect(200);

        client.delete(&format!("{beta}/a")).await.expect(200);
        client.create(&beta, object.clone()).await;
        client.delete(&beta).await.expect(200);
        assert_eq!(client.get(&v1).await.expect(200)["items"], json!([]));

        // Both watches received all events, each in its version.
        let events = [
            "ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED",
            "DELETED", "ADDED", "DELETED",
        ];
        for (version, watch) in &mut watches {
            for event in events {
                let (kind, object) = watch.next().await;
                assert_eq!(kind, event, "{version}");
                assert_eq!(
                    object["apiVersion"],
                    format!("admissionregistration.k8s.io/{version}")
                );
            }
        }
    }
    server.stop().await;
}

/// A server on a store that survives it.
async fn with_gate(store: &Arc<MemoryStore>, match_conditions: bool) -> Running {
    let settings = Settings {
        secure_port: 0,
        feature_gates: FeatureGates {
            match_conditions,
            ..FeatureGates::default()
        },
        ..settings()
    };
    Running::start(settings, Arc::clone(store) as _)
        .await
        .unwrap()
}

fn guard(name: &str, conditions: Option<Value>) -> Value {
    let mut webhook = json!({
        "name": "never.lockgate.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    if let Some(conditions) = conditions {
        webhook["matchConditions"] = conditions;
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [webhook],
    })
}

/// 201 if no webhook is called, 500 if one is called, as it is unreachable.
async fn outcome(client: &Client) -> u16 {
    let secret = json!({"metadata": {"generateName": "s-"}});
    client.post(SECRETS, &secret).await.code
}

#[tokio::test]
async fn stored_conditions_outlive_a_gate_that_is_off() {
    let store = Arc::new(MemoryStore::new());
    let path = format!("{GROUP}/v1/validatingwebhookconfigurations");
    let object = format!("{path}/guard");
    let conditions = json!([{"name": "no", "expression": "false"}]);

    // On: the condition excludes the Secret.
    let server = with_gate(&store, true).await;
    let client = Client::admin(&server).await;
    client
        .create(&path, guard("guard", Some(conditions.clone())))
        .await;
    assert_eq!(outcome(&client).await, 201);
    server.stop().await;

    // Off: it is ignored but kept, also on update; new ones are dropped.
    let server = with_gate(&store, false).await;
    let client = Client::admin(&server).await;
    assert_eq!(outcome(&client).await, 500);
    let mut stored = client.get(&object).await.expect(200);
    assert_eq!(stored["webhooks"][0]["matchConditions"], conditions);
    stored["webhooks"][0]["timeoutSeconds"] = 3.into();
    let updated = client.put(&object, &stored).await.expect(200);
    assert_eq!(updated["webhooks"][0]["matchConditions"], conditions);
    let bare = client
        .create(&path, guard("bare", Some(conditions.clone())))
        .await;
    assert_eq!(bare["webhooks"][0].get("matchConditions"), None);
    let mut added = bare.clone();
    added["webhooks"][0]["matchConditions"] = conditions.clone();
    let added = client
        .put(&format!("{path}/bare"), &added)
        .await
        .expect(200);
    assert_eq!(added["webhooks"][0].get("matchConditions"), None);
    client.delete(&format!("{path}/bare")).await.expect(200);
    server.stop().await;

    // On again: it is evaluated again.
    let server = with_gate(&store, true).await;
    let client = Client::admin(&server).await;
    assert_eq!(outcome(&client).await, 201);
    let stored = client.get(&object).await.expect(200);
    assert_eq!(stored["webhooks"][0]["matchConditions"], conditions);
    assert_eq!(stored["webhooks"][0]["timeoutSeconds"], 3);
    server.stop().await;
}

#[tokio::test]
async fn the_gate_changes_nothing_without_conditions() {
    let store = Arc::new(MemoryStore::new());
    let path = format!("{GROUP}/v1/validatingwebhookconfigurations");
    let server = with_gate(&store, true).await;
    let client = Client::admin(&server).await;
    client.create(&path, guard("guard", None)).await;
    assert_eq!(outcome(&client).await, 500);
    let before = client.get(&format!("{path}/guard")).await.expect(200);
    server.stop().await;
    for gate in [false, true] {
        let server = with_gate(&store, gate).await;
        let client = Client::admin(&server).await;
        assert_eq!(outcome(&client).await, 500);
        let after = client.get(&format!("{path}/guard")).await.expect(200);
        assert_eq!(after, before);
        let put = client
            .put(&format!("{path}/guard"), &after)
            .await
            .expect(200);
        assert_eq!(
            put["metadata"]["generation"],
            before["metadata"]["generation"]
        );
        server.stop().await;
    }
}

/// Fields of unreleased designs: a CA by reference, credentials of API servers, and exclusion rules instead of match
/// conditions.
#[tokio::test]
async fn fields_that_were_never_shipped_are_unknown() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let path = format!("{GROUP}/v1/validatingwebhookconfigurations");
    for (index, (field, value)) in [
        (
            "clientConfig.caBundleFrom",
            json!({"secretKeyRef": {"name": "ca", "key": "ca.crt"}}),
        ),
        (
            "clientConfig.authentication",
            json!({"secretRef": {"name": "apiserver"}}),
        ),
        (
            "excludeConditions",
            json!([{"name": "leases", "expression": "true"}]),
        ),
        ("excludeResources", json!([{"resources": ["leases"]}])),
    ]
    .into_iter()
    .enumerate()
    {
        let mut object = guard(&format!("other-{index}"), None);
        let (parent, member) = field.split_once('.').unwrap_or(("", field));
        let webhook = &mut object["webhooks"][0];
        match parent {
            "" => webhook[member] = value,
            parent => webhook[parent][member] = value,
        }
        let strict = format!("{path}?fieldValidation=Strict");
        let refused = client.post(&strict, &object).await.expect(400);
        let unknown = format!("unknown field \"webhooks[0].{field}\"");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&unknown), "{message}");
        // Otherwise it is dropped with a warning, as in kube-apiserver.
        let made = client.post(&path, &object).await;
        assert_eq!(made.warnings(), [unknown]);
        let stored = made.expect(201);
        let webhook = &stored["webhooks"][0];
        let holder = match parent {
            "" => webhook,
            parent => &webhook[parent],
        };
        assert_eq!(holder.get(member), None, "{stored}");
    }
    server.stop().await;
}

/// Certificates of Services are issued by a controller, not by admission.
#[tokio::test]
async fn admission_gives_services_no_certificates() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let secrets = client.get(SECRETS).await.expect(200)["items"].clone();
    let annotations = json!({"service.beta.openshift.io/serving-cert-secret-name": "web-tls"});
    let service = json!({
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"ports": [{"port": 443}]},
    });
    let made = client
        .create("/api/v1/namespaces/default/services", service)
        .await;
    assert_eq!(made["metadata"]["annotations"], annotations);
    assert_eq!(client.get(SECRETS).await.expect(200)["items"], secrets);
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: webhook configurations are patched, applied and compared as all built-in kinds
/// are.
#[tokio::test]
async fn registrations_are_converted_as_other_kinds_are() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let webhook = |more: Value| {
        let mut webhook = bare();
        webhook["sideEffects"] = "None".into();
        webhook["admissionReviewVersions"] = json!(["v1"]);
        webhook
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "m"}, "webhooks": [webhook],
        })
    };
    let path = format!("{MUTATING}/m");
    client.create(MUTATING, webhook(json!({}))).await;
    for (patch, why) in [
        (
            json!({"webhooks": 1}),
            "\"map[webhooks:1]\": cannot restore slice from int64",
        ),
        (
            json!({"webhooks": [{"name": "hook.lockgate.test", "clientConfig": {"service": true}}]}),
            "\"map[webhooks:[map[clientConfig:map[service:true] name:hook.lockgate.test]]]\": cannot restore struct \
             from: bool",
        ),
    ] {
        let message = format!(" \"\" is invalid: patch: Invalid value: {why}");
        let answer = client.patch(&path, "strategic", &patch).await;
        answer.refused(422, "Invalid", &message);
    }
    // An integer that is too large loses its upper bits.
    let large = json!({"service": {"namespace": "n", "name": "s", "port": 2_147_483_648_i64}});
    let mut large = webhook(json!({"clientConfig": large}));
    large["metadata"]["name"] = "large".into();
    let applied = format!("{MUTATING}/large?fieldManager=m");
    let answer = client.patch(&applied, "apply", &large).await;
    let told = answer.json()["details"]["causes"][0]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        told.starts_with("Invalid value: -2147483648: port is not valid"),
        "{}",
        answer.text()
    );
    // An empty list differs from an absent one, and is not stored.
    let empty = json!({"namespaceSelector": {"matchExpressions": []}});
    for kind in ["merge", "strategic"] {
        let dry = format!("{path}?dryRun=All");
        let patched = client
            .patch(&dry, kind, &webhook(empty.clone()))
            .await
            .expect(200);
        assert_eq!(patched["metadata"]["generation"], 2, "{kind}");
        assert_eq!(
            patched["webhooks"][0]["namespaceSelector"],
            json!({}),
            "{kind}"
        );
        let same = client
            .patch(&dry, kind, &webhook(json!({})))
            .await
            .expect(200);
        assert_eq!(same["metadata"]["generation"], 1, "{kind}");
    }
    server.stop().await;
}
