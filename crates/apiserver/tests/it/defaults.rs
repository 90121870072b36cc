//! The initial objects of every namespace.

use std::time::Duration;

use lockgate_apiserver::{Controllers, Settings};
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::json;

use crate::support::*;

const NAMESPACES: &str = "/api/v1/namespaces";

fn accounts(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/serviceaccounts")
}

fn config_maps(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/configmaps")
}

#[tokio::test]
async fn are_there_when_the_namespace_is() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    for namespace in ["shop", "default", "kube-system", "kube-public"] {
        let account = client
            .get(&format!("{}/default", accounts(namespace)))
            .await
            .expect(200);
        assert!(account["metadata"]["uid"].is_string());
        let authority = client
            .get(&format!("{}/kube-root-ca.crt", config_maps(namespace)))
            .await
            .expect(200);
        assert_eq!(authority["data"], json!({"ca.crt": server.ca_pem()}));
        let described = &authority["metadata"]["annotations"]["kubernetes.io/description"];
        assert!(described.is_string());
    }
    // By create, update or apply.
    let applied = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "applied"}});
    let answer = client
        .patch(
            &format!("{NAMESPACES}/applied?fieldManager=me"),
            "apply",
            &applied,
        )
        .await;
    answer.expect(201);
    client
        .get(&format!("{}/default", accounts("applied")))
        .await
        .expect(200);
    server.stop().await;
}

#[tokio::test]
async fn come_back_when_somebody_takes_them_away() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    let (accounts, maps) = (accounts("default"), config_maps("default"));
    let before = client
        .delete(&format!("{accounts}/default"))
        .await
        .expect(200);
    let after = client.wait_until(&accounts, "default", |_| true).await;
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    client
        .delete(&format!("{maps}/kube-root-ca.crt"))
        .await
        .expect(200);
    client.wait_until(&maps, "kube-root-ca.crt", |_| true).await;

    // Any authorized user can change the ServiceAccount, but not the certificate.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let path = format!("{accounts}/default");
    client.patch(&path, "merge", &labels).await.expect(200);
    let wrong = json!({"data": {"ca.crt": "mine", "more": "x"}});
    let path = format!("{maps}/kube-root-ca.crt");
    client.patch(&path, "merge", &wrong).await.expect(200);
    let right = json!({"ca.crt": server.ca_pem()});
    client
        .wait_until(&maps, "kube-root-ca.crt", |map| map["data"] == right)
        .await;
    let account = client.get(&format!("{accounts}/default")).await.expect(200);
    assert_eq!(account["metadata"]["labels"], json!({"a": "b"}));
    server.stop().await;
}

#[tokio::test]
async fn go_with_their_namespace_for_good() {
    let server = start_with(Settings {
        namespace_grace: Duration::from_millis(1),
        ..Settings::default()
    })
    .await;
    let client = Client::admin(&server).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.create(&config_maps("shop"), held).await;
    client
        .delete(&format!("{NAMESPACES}/shop"))
        .await
        .expect(200);
    client.wait_until_gone(&accounts("shop"), "default").await;
    client
        .wait_until_gone(&config_maps("shop"), "kube-root-ca.crt")
        .await;
    let since = client.get(&accounts("shop")).await.expect(200);
    let version = since["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = client
        .watch(&format!(
            "{}?resourceVersion={version}&timeoutSeconds=1",
            accounts("shop")
        ))
        .await;
    let free = json!({"metadata": {"finalizers": null}});
    client
        .patch(&format!("{}/held", config_maps("shop")), "merge", &free)
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, "shop").await;
    assert_eq!(
        watch.rest().await,
        [],
        "nothing is made in a namespace that goes"
    );
    server.stop().await;
}

#[tokio::test]
async fn pass_admission_like_everything() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    hooks.script("/", [Script::deny("not now"), Script::allow()]);
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "hook",
        &hooks.url("/"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["serviceaccounts"]);
    client.create(VALIDATING, configuration).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    client
        .wait_until(&accounts("shop"), "default", |_| true)
        .await;
    let reviews = hooks.requests();
    assert_eq!(reviews.len(), 2);
    let request = reviews[0].json()["request"].clone();
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(
        request["userInfo"]["username"],
        "system:serviceaccount:kube-system:service-account-controller"
    );
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn can_be_switched_off() {
    let server = start_with(Settings {
        controllers: Controllers::all(false),
        ..Settings::default()
    })
    .await;
    let client = Client::admin(&server).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    for namespace in ["shop", "default"] {
        for path in [accounts(namespace), config_maps(namespace)] {
            assert_eq!(client.get(&path).await.expect(200)["items"], json!([]));
        }
    }
    server.stop().await;
}
