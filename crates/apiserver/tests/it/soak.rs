//! Many clients that create and delete namespaces, definitions with changing storage versions, owners and
//! dependents, with watches; and at the end a checker of what must hold.
//!
//! A few seconds in the tests; `LOCKGATE_SOAK_SECONDS=600` for longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockgate_apiserver::Settings;
use serde_json::{Value, json};

use crate::support::*;

const NAMESPACES: &str = "/api/v1/namespaces";
const CLIENTS: usize = 20;
/// Clients that change definitions; the others have namespaces.
const DEFINERS: usize = 4;

fn seconds() -> u64 {
    let told = std::env::var("LOCKGATE_SOAK_SECONDS").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(5)
}

fn owned(name: &str, owner: &Value) -> Value {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
    object
}

/// Namespaces with owners and dependents, one after the other; every second one stays.
async fn live(client: Client, number: usize, until: Instant) {
    for round in 0.. {
        if Instant::now() > until {
            return;
        }
        let name = format!("soak-{number}-{round}");
        client
            .create(NAMESPACES, json!({"metadata": {"name": name}}))
            .await;
        let here = format!("{NAMESPACES}/{name}/configmaps");
        let policies = ["Background", "Foreground", "Orphan"];
        for (index, policy) in policies.into_iter().enumerate() {
            let owner = client
                .create(&here, config_map(&format!("owner-{index}")))
                .await;
            let dependent = format!("{}-{index}", policy.to_lowercase());
            client.create(&here, owned(&dependent, &owner)).await;
            let path = format!("{here}/owner-{index}");
            let options = json!({"propagationPolicy": policy});
            client.delete_with(&path, &options).await.expect(200);
        }
        if round % 2 == 0 {
            client
                .delete(&format!("{NAMESPACES}/{name}"))
                .await
                .expect(200);
        }
    }
}

/// A definition of its own whose storage version changes while objects are written; every second one is
/// deleted.
async fn define(client: Client, number: usize, until: Instant) {
    for round in 0.. {
        if Instant::now() > until {
            return;
        }
        let plural = format!("soaks{number}r{round}");
        let name = format!("{plural}.example.com");
        let mut object = definition(json!([open_version("v1", true), open_version("v2", false)]));
        object["metadata"]["name"] = name.as_str().into();
        object["spec"]["names"] =
            json!({"plural": plural, "kind": format!("Soak{number}r{round}")});
        client.create(DEFINITIONS, object).await;
        for (index, version) in ["v1", "v2", "v1"].into_iter().enumerate() {
            let here = format!("/apis/example.com/{version}/namespaces/default/{plural}");
            let object = json!({
                "apiVersion": format!("example.com/{version}"), "kind": format!("Soak{number}r{round}"),
                "metadata": {"name": format!("o{index}")}, "spec": {"number": index},
            });
            client.create(&here, object).await;
            let patch = json!([
                {"op": "replace", "path": "/spec/versions/0/storage", "value": index % 2 == 1},
                {"op": "replace", "path": "/spec/versions/1/storage", "value": index % 2 == 0},
            ]);
            client
                .patch(&format!("{DEFINITIONS}/{name}"), "json", &patch)
                .await
                .expect(200);
        }
        if round % 2 == 0 {
            client
                .delete(&format!("{DEFINITIONS}/{name}"))
                .await
                .expect(200);
        }
    }
}

/// What a watch of everything of a resource has told, by namespace and name.
async fn follow(
    client: Client,
    path: &'static str,
    stop: Arc<AtomicBool>,
) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut watch = client.watch(path).await;
    loop {
        let (kind, object) = watch.next().await;
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let key = format!("{}/{}", text("namespace"), text("name"));
        if kind == "DELETED" {
            assert!(seen.remove(&key).is_some(), "{key} was never there");
        } else {
            let told = seen.insert(key.clone(), text("resourceVersion").to_owned());
            assert_eq!(told.is_none(), kind == "ADDED", "{kind} {key}");
        }
        if stop.load(Ordering::SeqCst) && text("name") == "the-end" && kind == "ADDED" {
            return seen;
        }
    }
}

fn listed(list: &Value) -> BTreeMap<String, String> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let text = |name: &str| item["metadata"][name].as_str().unwrap_or_default();
            (
                format!("{}/{}", text("namespace"), text("name")),
                text("resourceVersion").to_owned(),
            )
        })
        .collect()
}

/// Waits until nothing is on its way out, and every dependent has its owner.
async fn settled(client: &Client) {
    let quiet = async {
        loop {
            let mut waits = false;
            for path in [NAMESPACES, "/api/v1/configmaps", DEFINITIONS] {
                let list = client.get(path).await.expect(200);
                let items = list["items"].as_array().unwrap();
                waits |= items.iter().any(|item| {
                    let name = item["metadata"]["name"].as_str().unwrap();
                    let collected = ["background-", "foreground-"];
                    let is_left = collected.iter().any(|part| name.starts_with(part));
                    let is_held = name.starts_with("orphan-")
                        && item["metadata"].get("ownerReferences").is_some();
                    item["metadata"].get("deletionTimestamp").is_some() || is_left || is_held
                });
            }
            if !waits {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE * 2, quiet)
        .await
        .expect("something is stuck");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_holds_after_many_clients() {
    let server = start_with(Settings {
        namespace_grace: Duration::from_millis(1),
        ..Settings::default()
    })
    .await;
    let client = Client::admin(&server).await;
    let stop = Arc::new(AtomicBool::new(false));
    let watched = ["/api/v1/configmaps", "/api/v1/serviceaccounts"];
    let mut watches = Vec::new();
    for path in watched {
        let client = Client::admin(&server).await;
        watches.push(tokio::spawn(follow(client, path, Arc::clone(&stop))));
    }
    let until = Instant::now() + Duration::from_secs(seconds());
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = Client::admin(&server).await;
        clients.push(if number < DEFINERS {
            tokio::spawn(define(client, number, until))
        } else {
            tokio::spawn(live(client, number, until))
        });
    }
    for client in clients {
        client.await.unwrap();
    }
    settled(&client).await;

    // No namespace lacks its defaults.
    let namespaces = client.get(NAMESPACES).await.expect(200);
    assert!(names(&namespaces).len() > 4, "some stay");
    for name in names(&namespaces) {
        for (plural, object) in [
            ("serviceaccounts", "default"),
            ("configmaps", "kube-root-ca.crt"),
        ] {
            let path = format!("{NAMESPACES}/{name}/{plural}/{object}");
            assert_eq!(client.get(&path).await.code, 200, "{path}");
        }
    }
    // What is left is in a namespace that is there.
    let maps = client.get("/api/v1/configmaps").await.expect(200);
    for item in maps["items"].as_array().unwrap() {
        let namespace = item["metadata"]["namespace"].as_str().unwrap();
        assert!(names(&namespaces).contains(&namespace), "{item}");
    }
    // Definitions that stayed have all of their objects, in both versions.
    let definitions = client.get(DEFINITIONS).await.expect(200);
    for item in definitions["items"].as_array().unwrap() {
        let plural = item["spec"]["names"]["plural"].as_str().unwrap();
        for version in ["v1", "v2"] {
            let path = format!("/apis/example.com/{version}/namespaces/default/{plural}");
            let list = client.get(&path).await.expect(200);
            let objects = list["items"].as_array().unwrap();
            for (index, object) in objects.iter().enumerate() {
                assert_eq!(object["spec"]["number"], index, "{object}");
                assert_eq!(object["apiVersion"], format!("example.com/{version}"));
            }
            assert_eq!(objects.len(), 3, "{path}");
        }
    }
    // The histories of the watches end where the lists are.
    stop.store(true, Ordering::SeqCst);
    for (path, watch) in watched.into_iter().zip(watches) {
        let plural = path.rsplit('/').next().unwrap();
        let here = format!("{NAMESPACES}/default/{plural}");
        client
            .create(&here, json!({"metadata": {"name": "the-end"}}))
            .await;
        let told = watch.await.unwrap();
        let list = client.get(path).await.expect(200);
        assert_eq!(told, listed(&list), "{path}");
    }
    server.stop().await;
}
