//! Namespaces: lifecycle, deletion of their contents, and immortal namespaces.

use std::time::Duration;

use lockgate_apiserver::Settings;
use serde_json::json;

use crate::support::*;

const NAMESPACES: &str = "/api/v1/namespaces";

async fn quick() -> lockgate_apiserver::TestServer {
    start_with(Settings {
        namespace_grace: Duration::from_millis(1),
        ..settings()
    })
    .await
}

#[tokio::test]
async fn are_there_from_the_start() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let list = client.get(NAMESPACES).await.expect(200);
    assert_eq!(
        names(&list),
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
    for name in ["default", "kube-public", "kube-system"] {
        client
            .delete(&format!("{NAMESPACES}/{name}"))
            .await
            .refused(
                403,
                "Forbidden",
                &format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"),
            );
    }
    server.stop().await;
}

#[tokio::test]
async fn carry_their_name_and_a_phase() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    assert_eq!(
        made["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "shop"})
    );
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["status"]["phase"], "Active");
    let found = client
        .get(&format!("{NAMESPACES}?fieldSelector=status.phase%3DActive"))
        .await
        .expect(200);
    assert!(names(&found).contains(&"shop"));
    server.stop().await;
}

#[tokio::test]
async fn take_everything_with_them() {
    let server = quick().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    let here = |path: &str| path.replace("/default/", "/shop/");
    client.create(&here(CONFIG_MAPS), config_map("a")).await;
    client.create(&here(DEPLOYMENTS), deployment("d")).await;
    client.create(&here(PODS), pod("p")).await;
    client
        .create(
            "/apis/example.com/v1/namespaces/shop/widgets",
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}),
        )
        .await;
    client.create(CONFIG_MAPS, config_map("stays")).await;
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.create(&here(CONFIG_MAPS), held).await;

    let going = client
        .delete(&format!("{NAMESPACES}/shop"))
        .await
        .expect(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let status = client
        .post(&here(CONFIG_MAPS), &config_map("late"))
        .await
        .refused(
            403,
            "Forbidden",
            "configmaps \"late\" is forbidden: unable to create new content in namespace shop because it is being terminated",
        );
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );

    // Objects with finalizers keep the namespace terminating; all others are deleted.
    let mut watch = client.watch(&here(CONFIG_MAPS)).await;
    loop {
        let (kind, object) = watch.next().await;
        if object["metadata"]["name"] == "held"
            && object["metadata"]["deletionTimestamp"].is_string()
        {
            assert_ne!(kind, "DELETED");
            break;
        }
    }
    client.get(&format!("{NAMESPACES}/shop")).await.expect(200);
    let free = json!({"metadata": {"finalizers": null}});
    client
        .patch(&format!("{}/held", here(CONFIG_MAPS)), "merge", &free)
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, "shop").await;
    for path in [
        here(CONFIG_MAPS),
        here(DEPLOYMENTS),
        here(PODS),
        String::from("/apis/example.com/v1/namespaces/shop/widgets"),
    ] {
        let list = client.get(&path).await.expect(200);
        assert_eq!(names(&list), Vec::<&str>::new(), "{path}");
    }
    client
        .get(&format!("{CONFIG_MAPS}/stays"))
        .await
        .expect(200);
    // The name can be used again.
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    client.create(&here(CONFIG_MAPS), config_map("a")).await;
    server.stop().await;
}

#[tokio::test]
async fn wait_for_their_own_finalizers() {
    let server = quick().await;
    let client = Client::admin(&server).await;
    client
        .create(
            NAMESPACES,
            json!({"metadata": {"name": "own"}, "spec": {"finalizers": ["example.com/mine", "kubernetes"]}}),
        )
        .await;
    let path = format!("{NAMESPACES}/own");
    client.delete(&path).await.expect(200);
    let mut watch = client
        .watch(&format!("{NAMESPACES}?fieldSelector=metadata.name%3Down"))
        .await;
    let last = loop {
        let (kind, object) = watch.next().await;
        assert_ne!(kind, "DELETED");
        if object["spec"]["finalizers"] == json!(["example.com/mine"]) {
            break object;
        }
    };
    let mut finalized = last;
    finalized["spec"]["finalizers"] = json!([]);
    client
        .put(&format!("{path}/finalize"), &finalized)
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, "own").await;
    server.stop().await;
}

fn condition<'c>(namespace: &'c serde_json::Value, kind: &str) -> &'c serde_json::Value {
    let conditions = namespace["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.unwrap_or(&serde_json::Value::Null)
}

#[tokio::test]
async fn pods_go_first_and_conditions_tell_what_holds() {
    let server = quick().await;
    let client = Client::admin(&server).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    let here = |path: &str| path.replace("/default/", "/shop/");
    let hold = json!(["example.com/hold"]);
    let mut held_pod = pod("p");
    held_pod["metadata"]["finalizers"] = hold.clone();
    client.create(&here(PODS), held_pod).await;
    let mut held_map = config_map("held");
    held_map["metadata"]["finalizers"] = hold;
    client.create(&here(CONFIG_MAPS), held_map).await;
    client.create(&here(CONFIG_MAPS), config_map("free")).await;
    client
        .delete(&format!("{NAMESPACES}/shop"))
        .await
        .expect(200);
    let shop = client
        .wait_until(NAMESPACES, "shop", |shop| {
            condition(shop, "NamespaceDeletionContentFailure").is_object()
        })
        .await;
    // While there are Pods, other resources are neither deleted nor counted.
    let told: Vec<(&str, &str, &str)> = shop["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| {
            let text = |name: &str| condition[name].as_str().unwrap();
            (text("type"), text("status"), text("reason"))
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered"
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions"
            ),
            ("NamespaceDeletionContentFailure", "False", "ContentDeleted"),
            ("NamespaceContentRemaining", "False", "ContentRemoved"),
            (
                "NamespaceFinalizersRemaining",
                "False",
                "ContentHasNoFinalizers"
            ),
        ]
    );
    client
        .get(&here(&format!("{CONFIG_MAPS}/free")))
        .await
        .expect(200);
    let free = json!({"metadata": {"finalizers": null}});
    client
        .patch(&here(&format!("{PODS}/p")), "merge", &free)
        .await
        .expect(200);
    let shop = client
        .wait_until(NAMESPACES, "shop", |shop| {
            condition(shop, "NamespaceContentRemaining")["status"] == "True"
        })
        .await;
    let message = |kind: &str| condition(&shop, kind)["message"].as_str().unwrap();
    assert_eq!(
        message("NamespaceContentRemaining"),
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        message("NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    assert_eq!(
        message("NamespaceDeletionContentFailure"),
        "All content successfully deleted, may be waiting on finalization"
    );
    client
        .patch(&here(&format!("{CONFIG_MAPS}/held")), "merge", &free)
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, "shop").await;
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_holds_content_is_told_in_a_condition() {
    let server = quick().await;
    let client = Client::admin(&server).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    let here = |path: &str| path.replace("/default/", "/shop/");
    client.create(&here(CONFIG_MAPS), config_map("a")).await;
    let mut refusing = hook(
        "ValidatingWebhookConfiguration",
        "dead",
        "https://127.0.0.1:1/",
        "",
    );
    refusing["webhooks"][0]["clientConfig"] = json!({"url": "https://127.0.0.1:1/"});
    refusing["webhooks"][0]["rules"][0]["operations"] = json!(["DELETE"]);
    client.create(VALIDATING, refusing).await;
    client
        .delete(&format!("{NAMESPACES}/shop"))
        .await
        .expect(200);
    let shop = client
        .wait_until(NAMESPACES, "shop", |shop| {
            condition(shop, "NamespaceDeletionContentFailure")["status"] == "True"
        })
        .await;
    let failure = condition(&shop, "NamespaceDeletionContentFailure");
    assert_eq!(failure["reason"], "ContentDeletionFailed");
    let message = failure["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "Failed to delete all resource types, 1 remaining: Internal error occurred: failed calling webhook \"dead.example.com\""
        ),
        "{message}"
    );
    client
        .delete(&format!("{VALIDATING}/dead"))
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, "shop").await;
    server.stop().await;
}

#[tokio::test]
async fn take_custom_objects_along_whose_storage_version_is_not_served() {
    let server = quick().await;
    let client = Client::admin(&server).await;
    let mut hidden = open_version("v1", true);
    hidden["served"] = false.into();
    client
        .create(
            DEFINITIONS,
            definition(json!([hidden, open_version("v2", false)])),
        )
        .await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    let widgets = "/apis/example.com/v2/namespaces/shop/widgets";
    let widget = json!({
        "apiVersion": "example.com/v2", "kind": "Widget",
        "metadata": {"name": "w", "finalizers": ["example.com/hold"]},
    });
    client.create(widgets, widget).await;
    client
        .delete(&format!("{NAMESPACES}/shop"))
        .await
        .expect(200);
    let shop = client
        .wait_until(NAMESPACES, "shop", |shop| {
            condition(shop, "NamespaceContentRemaining")["status"] == "True"
        })
        .await;
    assert_eq!(
        condition(&shop, "NamespaceContentRemaining")["message"],
        "Some resources are remaining: widgets.example.com has 1 resource instances"
    );
    let free = json!({"metadata": {"finalizers": null}});
    client
        .patch(&format!("{widgets}/w"), "merge", &free)
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, "shop").await;
    server.stop().await;
}
