//! A CustomResourceDefinition adds resources; it never replaces built-in resources or their objects.

use std::sync::Arc;

use lockgate_apiserver::Running;
use lockgate_store::{MemoryStore, Store as _};
use lockgate_testkit::WebhookServer;
use serde_json::{Value, json};

use crate::support::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A CustomResourceDefinition in a Kubernetes group, which requires the api-approved annotation.
fn intruder(group: &str, plural: &str, kind: &str, version: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
        },
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {
                "plural": plural, "singular": kind.to_ascii_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "versions": [open_version(version, true)],
        },
    })
}

#[tokio::test]
async fn deleting_a_definition_leaves_built_in_objects_alone() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let webhook = WebhookServer::start().await;
    let hook = hook(
        "ValidatingWebhookConfiguration",
        "gate",
        &webhook.url("/deny"),
        webhook.ca_pem(),
    );
    admin.create(VALIDATING, hook).await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    let before = admin.get(&bindings).await.expect(200);
    assert!(names(&before).len() > 10);
    for (group, plural, kind) in [
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            "Shadow",
        ),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "Shade"),
    ] {
        admin
            .create(DEFINITIONS, intruder(group, plural, kind, "v9"))
            .await;
        let v9 = format!("/apis/{group}/v9/{plural}");
        let list = admin.get(&v9).await.expect(200);
        assert_eq!(names(&list), [""; 0], "its objects are its own");
        let own = json!({
            "apiVersion": format!("{group}/v9"), "kind": kind, "metadata": {"name": "own"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": "mallory"}],
        });
        admin.create(&v9, own).await;
        let definition = format!("{DEFINITIONS}/{plural}.{group}");
        admin.delete(&definition).await.expect(200);
        admin
            .wait_until_gone(DEFINITIONS, &format!("{plural}.{group}"))
            .await;
    }
    // A custom resource named like a binding grants nothing.
    let mallory = admin.taken_for("mallory");
    assert_eq!(mallory.get("/api/v1/secrets").await.code, 403);
    let after = admin.get(&bindings).await.expect(200);
    assert_eq!(names(&after), names(&before));
    let hooks = admin.get(VALIDATING).await.expect(200);
    assert_eq!(names(&hooks), ["gate"]);
    server.stop().await;
}

#[tokio::test]
async fn a_definition_never_shadows_a_built_in_version() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let group = "admissionregistration.k8s.io";
    admin
        .create(
            DEFINITIONS,
            intruder(group, "mutatingwebhookconfigurations", "Shadow", "v1"),
        )
        .await;
    let junk = json!({
        "apiVersion": format!("{group}/v1"), "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "junk"}, "webhooks": [{"name": "nonsense"}],
    });
    let answer = admin.post(MUTATING, &junk).await;
    assert_eq!(answer.code, 422, "{}", answer.text());
    // Nor does it extend a built-in one.
    admin
        .create(DEFINITIONS, intruder(group, "gates", "Gate", "v1"))
        .await;
    let answer = admin.get(&format!("/apis/{group}/v1/gates")).await;
    assert_eq!(answer.code, 404, "{}", answer.text());
    server.stop().await;
}

#[tokio::test]
async fn the_objects_of_a_definition_go_as_any_object_goes() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    admin
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |name: &str, finalizers: Value| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": name, "finalizers": finalizers},
        })
    };
    admin.create(widgets, widget("free", json!([]))).await;
    admin
        .create(widgets, widget("held", json!(["example.com/hold"])))
        .await;
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    admin.delete(&definition).await.expect(200);
    // A finalizer on a custom resource blocks the deletion of the CustomResourceDefinition, and creates are rejected.
    let list = admin.get(widgets).await.expect(200);
    assert_eq!(names(&list), ["held"]);
    assert!(list["items"][0]["metadata"]["deletionTimestamp"].is_string());
    admin
        .post(widgets, &widget("late", json!([])))
        .await
        .refused(
            405,
            "MethodNotAllowed",
            "create not allowed while custom resource definition is terminating",
        );
    admin
        .patch(
            &format!("{widgets}/held"),
            "merge",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect(200);
    admin
        .wait_until_gone(DEFINITIONS, "widgets.example.com")
        .await;
    server.stop().await;
}

/// The layout of earlier versions: custom objects under the keys of built-in ones.
#[tokio::test]
async fn custom_objects_of_old_stores_are_found_again() {
    let store = Arc::new(MemoryStore::new());
    let first = Running::start(settings(), Arc::clone(&store) as _)
        .await
        .unwrap();
    let admin = Client::admin(&first).await;
    admin
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let made = admin
        .create(
            widgets,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}),
        )
        .await;
    first.stop().await;
    let key = "/custom:example.com/widgets/default/w";
    let (entry, _) = store
        .get(key, lockgate_store::ReadAt::Latest)
        .await
        .unwrap();
    let entry = entry.expect("it has a key of its own");
    store.delete(key, entry.revision).await.unwrap();
    store
        .create("/example.com/widgets/default/w", entry.value, None)
        .await
        .unwrap();

    let second = Running::start(settings(), Arc::clone(&store) as _)
        .await
        .unwrap();
    let admin = Client::admin(&second).await;
    let found = admin.get(&format!("{widgets}/w")).await.expect(200);
    assert_eq!(found["metadata"]["uid"], made["metadata"]["uid"]);
    let (old, _) = store
        .get(
            "/example.com/widgets/default/w",
            lockgate_store::ReadAt::Latest,
        )
        .await
        .unwrap();
    assert!(old.is_none());
    second.stop().await;
}
