//! Garbage collection: foreground, background and orphan deletion.

use std::sync::Arc;

use lockgate_apiserver::{Controllers, Running, Settings};
use lockgate_store::{MemoryOptions, MemoryStore};
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;

const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const NAMESPACES: &str = "/api/v1/namespaces";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// Settings of a server whose only controller is the garbage collector.
fn collecting() -> Settings {
    Settings {
        secure_port: 0,
        controllers: Controllers {
            garbage_collector: true,
            ..Controllers::all(false)
        },
        disable_plugins: vec![String::from("ServiceAccount")],
        ..Settings::default()
    }
}

fn path(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

/// An owner reference to a returned object.
fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    })
}

fn blocking(owner: &Value) -> Value {
    let mut reference = reference(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

fn owned(mut object: Value, owners: &[Value]) -> Value {
    object["metadata"]["ownerReferences"] = owners.into();
    object
}

fn held(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}})
}

fn cluster_role(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": [],
    })
}

fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

async fn free(client: &Client, path: &str) {
    let free = json!({"metadata": {"finalizers": null}});
    client.patch(path, "merge", &free).await.expect(200);
}

async fn delete(client: &Client, path: &str, policy: &str) -> Value {
    let options = json!({"propagationPolicy": policy});
    client.delete_with(path, &options).await.expect(200)
}

#[tokio::test]
async fn goes_after_its_owner_across_kinds() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let owner = client.create(CONFIG_MAPS, config_map("owner")).await;
    let other = client.create(CONFIG_MAPS, config_map("other")).await;
    let mine = [reference(&owner)];
    client.create(SECRETS, owned(secret("s"), &mine)).await;
    let custom = client.create(WIDGETS, owned(widget("w"), &mine)).await;
    let below = [reference(&custom)];
    client.create(PODS, owned(pod("p"), &below)).await;
    let both = [reference(&owner), reference(&other)];
    client
        .create(CONFIG_MAPS, owned(config_map("shared"), &both))
        .await;
    client.create(CONFIG_MAPS, config_map("free")).await;

    client.delete(&path(CONFIG_MAPS, "owner")).await.expect(200);
    client.wait_until_gone(SECRETS, "s").await;
    client.wait_until_gone(WIDGETS, "w").await;
    client.wait_until_gone(PODS, "p").await;
    // A dependent with another owner is kept, and loses the reference to the deleted one.
    let shared = client
        .wait_until(CONFIG_MAPS, "shared", |object| {
            object["metadata"]["ownerReferences"] == json!([reference(&other)])
        })
        .await;
    assert!(!is_going(&shared));
    let left = client.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(names(&left), ["free", "other", "shared"]);
    server.stop().await;
}

#[tokio::test]
async fn goes_when_its_owner_was_never_there() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    let elsewhere = CONFIG_MAPS.replace("/default/", "/shop/");
    let there = client.create(&elsewhere, config_map("owner")).await;
    let here = client.create(CONFIG_MAPS, config_map("owner")).await;
    let mut gone = reference(&here);
    gone["name"] = "nobody".into();
    let mut renewed = reference(&here);
    renewed["uid"] = "another".into();
    for (name, owner) in [
        ("of-nobody", gone),
        ("of-the-one-before", renewed),
        ("of-another-namespace", reference(&there)),
    ] {
        client
            .create(CONFIG_MAPS, owned(config_map(name), &[owner]))
            .await;
        client.wait_until_gone(CONFIG_MAPS, name).await;
    }
    // Owner references that are added later count as well.
    client.create(CONFIG_MAPS, config_map("late")).await;
    let patch = json!({"metadata": {"ownerReferences": [reference(&there)]}});
    client
        .patch(&path(CONFIG_MAPS, "late"), "merge", &patch)
        .await
        .expect(200);
    client.wait_until_gone(CONFIG_MAPS, "late").await;
    server.stop().await;
}

#[tokio::test]
async fn objects_of_the_cluster_have_owners_of_the_cluster() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    let namespaced = client.create(CONFIG_MAPS, config_map("owner")).await;
    client.delete(&path(CONFIG_MAPS, "owner")).await.expect(200);
    client
        .create(
            CLUSTER_ROLES,
            owned(cluster_role("stays"), &[reference(&namespaced)]),
        )
        .await;
    let owner = client.create(CLUSTER_ROLES, cluster_role("owner")).await;
    let mine = [reference(&owner)];
    client
        .create(CLUSTER_ROLES, owned(cluster_role("goes"), &mine))
        .await;
    client
        .create(CONFIG_MAPS, owned(config_map("goes"), &mine))
        .await;
    client
        .delete(&path(CLUSTER_ROLES, "owner"))
        .await
        .expect(200);
    client.wait_until_gone(CLUSTER_ROLES, "goes").await;
    client.wait_until_gone(CONFIG_MAPS, "goes").await;
    client.get(&path(CLUSTER_ROLES, "stays")).await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn stays_while_the_kind_of_its_owner_is_unknown() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    let unknown = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "nobody's",
    });
    client
        .create(CONFIG_MAPS, owned(config_map("waits"), &[unknown]))
        .await;
    let owner = client.create(CONFIG_MAPS, config_map("owner")).await;
    client
        .create(CONFIG_MAPS, owned(config_map("goes"), &[reference(&owner)]))
        .await;
    client.delete(&path(CONFIG_MAPS, "owner")).await.expect(200);
    client.wait_until_gone(CONFIG_MAPS, "goes").await;
    client.get(&path(CONFIG_MAPS, "waits")).await.expect(200);
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    client.wait_until_gone(CONFIG_MAPS, "waits").await;
    server.stop().await;
}

#[tokio::test]
async fn goes_with_a_definition_that_takes_its_owner() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let owner = client.create(WIDGETS, widget("w")).await;
    client
        .create(CONFIG_MAPS, owned(config_map("a"), &[reference(&owner)]))
        .await;
    client
        .delete(&path(DEFINITIONS, "widgets.example.com"))
        .await
        .expect(200);
    client.wait_until_gone(CONFIG_MAPS, "a").await;
    server.stop().await;
}

#[tokio::test]
async fn goes_before_its_owner_in_the_foreground() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    let owner = client.create(CONFIG_MAPS, config_map("owner")).await;
    let child = client
        .create(SECRETS, owned(secret("child"), &[blocking(&owner)]))
        .await;
    let below = [blocking(&child)];
    client
        .create(CONFIG_MAPS, held(owned(config_map("below"), &below)))
        .await;
    client
        .create(
            CONFIG_MAPS,
            held(owned(config_map("loose"), &[reference(&owner)])),
        )
        .await;

    let going = delete(&client, &path(CONFIG_MAPS, "owner"), "Foreground").await;
    assert_eq!(
        going["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    // All dependents are being deleted, and blocked by the held object.
    client.wait_until(CONFIG_MAPS, "below", is_going).await;
    client.wait_until(CONFIG_MAPS, "loose", is_going).await;
    let child = client.wait_until(SECRETS, "child", is_going).await;
    assert_eq!(
        child["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    client.get(&path(CONFIG_MAPS, "owner")).await.expect(200);

    // A reference without `blockOwnerDeletion` blocks no owner.
    free(&client, &path(CONFIG_MAPS, "below")).await;
    client.wait_until_gone(SECRETS, "child").await;
    client.wait_until_gone(CONFIG_MAPS, "owner").await;
    client.get(&path(CONFIG_MAPS, "loose")).await.expect(200);
    free(&client, &path(CONFIG_MAPS, "loose")).await;
    client.wait_until_gone(CONFIG_MAPS, "loose").await;
    server.stop().await;
}

#[tokio::test]
async fn an_owner_goes_when_its_dependents_let_go_of_it() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    for (name, references) in [("unblocked", None), ("freed", Some(json!([])))] {
        let owner = client.create(CONFIG_MAPS, config_map(name)).await;
        let child = held(owned(secret(name), &[blocking(&owner)]));
        client.create(SECRETS, child).await;
        delete(&client, &path(CONFIG_MAPS, name), "Foreground").await;
        client.wait_until(SECRETS, name, is_going).await;
        client.get(&path(CONFIG_MAPS, name)).await.expect(200);
        let references = references.unwrap_or_else(|| json!([reference(&owner)]));
        let patch = json!({"metadata": {"ownerReferences": references}});
        client
            .patch(&path(SECRETS, name), "merge", &patch)
            .await
            .expect(200);
        client.wait_until_gone(CONFIG_MAPS, name).await;
        client.get(&path(SECRETS, name)).await.expect(200);
    }
    server.stop().await;
}

#[tokio::test]
async fn circles_of_owners_go() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    for policy in ["Foreground", "Background"] {
        let a = client.create(CONFIG_MAPS, config_map("a")).await;
        let mine = [blocking(&a)];
        let b = client
            .create(CONFIG_MAPS, owned(config_map("b"), &mine))
            .await;
        let patch = json!({"metadata": {"ownerReferences": [blocking(&b)]}});
        client
            .patch(&path(CONFIG_MAPS, "a"), "merge", &patch)
            .await
            .expect(200);
        delete(&client, &path(CONFIG_MAPS, "a"), policy).await;
        client.wait_until_gone(CONFIG_MAPS, "a").await;
        client.wait_until_gone(CONFIG_MAPS, "b").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn orphans_stay_and_are_free() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    let owner = client.create(CONFIG_MAPS, config_map("owner")).await;
    let other = client.create(CONFIG_MAPS, config_map("other")).await;
    let both = [reference(&owner), reference(&other)];
    client.create(SECRETS, owned(secret("both"), &both)).await;
    client
        .create(SECRETS, owned(secret("one"), &[blocking(&owner)]))
        .await;
    let going = delete(&client, &path(CONFIG_MAPS, "owner"), "Orphan").await;
    assert_eq!(going["metadata"]["finalizers"], json!(["orphan"]));
    client.wait_until_gone(CONFIG_MAPS, "owner").await;
    // Its dependents are orphaned before it is removed.
    let one = client.get(&path(SECRETS, "one")).await.expect(200);
    assert_eq!(one["metadata"].get("ownerReferences"), None);
    let both = client.get(&path(SECRETS, "both")).await.expect(200);
    assert_eq!(
        both["metadata"]["ownerReferences"],
        json!([reference(&other)])
    );
    let managers: Vec<&str> = one["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    assert!(!managers.contains(&COLLECTOR));
    server.stop().await;
}

#[tokio::test]
async fn webhooks_are_asked_and_asked_again() {
    let server = start_with(collecting()).await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    hooks.script(
        "/",
        [
            Script::deny("not now"),
            Script::deny("not yet"),
            Script::allow(),
        ],
    );
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "hook",
        &hooks.url("/"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["secrets"]);
    configuration["webhooks"][0]["rules"][0]["operations"] = json!(["DELETE", "UPDATE"]);
    client.create(VALIDATING, configuration).await;
    let owner = client.create(CONFIG_MAPS, config_map("owner")).await;
    client
        .create(SECRETS, owned(secret("a"), &[reference(&owner)]))
        .await;
    client.delete(&path(CONFIG_MAPS, "owner")).await.expect(200);
    client.wait_until_gone(SECRETS, "a").await;
    let reviews = hooks.requests();
    assert_eq!(reviews.len(), 3);
    for review in &reviews {
        let request = review.json()["request"].clone();
        assert_eq!(request["operation"], "DELETE");
        assert_eq!(
            (&request["name"], &request["namespace"]),
            (&json!("a"), &json!("default"))
        );
        assert_eq!(request["userInfo"]["username"], COLLECTOR);
        assert_eq!(request["oldObject"]["metadata"]["name"], "a");
        assert_eq!(request["options"]["propagationPolicy"], "Background");
    }

    // Orphaning is an ordinary update.
    let owner = client.create(CONFIG_MAPS, config_map("second")).await;
    client
        .create(SECRETS, owned(secret("b"), &[reference(&owner)]))
        .await;
    delete(&client, &path(CONFIG_MAPS, "second"), "Orphan").await;
    client.wait_until_gone(CONFIG_MAPS, "second").await;
    let last = hooks.requests().last().unwrap().json()["request"].clone();
    assert_eq!(last["operation"], "UPDATE");
    assert_eq!(last["userInfo"]["username"], COLLECTOR);
    assert_eq!(last["object"]["metadata"].get("ownerReferences"), None);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn what_was_left_is_collected_after_a_restart() {
    let store = MemoryStore::new();
    let off = Settings {
        controllers: Controllers::all(false),
        ..collecting()
    };
    let server = Running::start(off, Arc::new(store.clone())).await.unwrap();
    let client = Client::admin(&server).await;
    for name in ["background", "foreground", "orphan"] {
        let owner = client.create(CONFIG_MAPS, config_map(name)).await;
        client
            .create(SECRETS, owned(secret(name), &[blocking(&owner)]))
            .await;
    }
    delete(&client, &path(CONFIG_MAPS, "background"), "Background").await;
    delete(&client, &path(CONFIG_MAPS, "foreground"), "Foreground").await;
    delete(&client, &path(CONFIG_MAPS, "orphan"), "Orphan").await;
    server.stop().await;

    let server = Running::start(collecting(), Arc::new(store)).await.unwrap();
    let client = Client::admin(&server).await;
    client.wait_until_gone(SECRETS, "background").await;
    client.wait_until_gone(CONFIG_MAPS, "foreground").await;
    client.wait_until_gone(CONFIG_MAPS, "orphan").await;
    let left = client.get(SECRETS).await.expect(200);
    assert_eq!(names(&left), ["orphan"]);
    server.stop().await;
}

#[tokio::test]
async fn keeps_up_with_a_store_that_forgets() {
    let store = MemoryStore::with_options(MemoryOptions {
        max_events: 10,
        min_age: std::time::Duration::ZERO,
        ..MemoryOptions::default()
    });
    let server = Running::start(collecting(), Arc::new(store)).await.unwrap();
    let client = Client::admin(&server).await;
    let owner = client.create(CONFIG_MAPS, config_map("owner")).await;
    let mut creates = tokio::task::JoinSet::new();
    for number in 0..300 {
        let secret = owned(secret(&format!("s{number}")), &[reference(&owner)]);
        let client = client.clone();
        creates.spawn(async move { client.create(SECRETS, secret).await });
    }
    creates.join_all().await;
    client.delete(&path(CONFIG_MAPS, "owner")).await.expect(200);
    for number in 0..300 {
        let name = format!("s{number}");
        within(async {
            while client.get(&path(SECRETS, &name)).await.code != 404 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    server.stop().await;
}

#[tokio::test]
async fn can_be_switched_off() {
    let server = start_with(Settings {
        controllers: Controllers {
            garbage_collector: false,
            ..Controllers::default()
        },
        ..Settings::default()
    })
    .await;
    let client = Client::admin(&server).await;
    let owner = client.create(CONFIG_MAPS, config_map("owner")).await;
    client
        .create(SECRETS, owned(secret("a"), &[reference(&owner)]))
        .await;
    client.delete(&path(CONFIG_MAPS, "owner")).await.expect(200);
    // Once the namespace has its default objects, the other controllers have processed all changes so far.
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    client.get(&path(SECRETS, "a")).await.expect(200);
    server.stop().await;
}
