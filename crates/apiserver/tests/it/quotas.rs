//! Quotas hold under concurrent writers and are recalculated after failures; plugin rejections are enforced.

use std::sync::Arc;

use lockgate_apiserver::{Controllers, Running, Settings};
use lockgate_store::{DiskStore, MemoryStore, Store};
use serde_json::{Value, json};

use crate::support::*;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn counting() -> Settings {
    Settings {
        secure_port: 0,
        controllers: Controllers {
            namespace: true,
            resource_quota: true,
            ..Controllers::all(false)
        },
        ..settings()
    }
}

fn quota(name: &str, hard: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard},
    })
}

async fn used(client: &Client, name: &str, resource: &str, want: &str) {
    let is_used = |quota: &Value| quota["status"]["used"][resource] == want;
    within(client.wait_until(QUOTAS, name, is_used)).await;
}

/// Creates a ConfigMap from each of this many concurrent writers; returns the number of successes.
async fn race(client: &Client, prefix: &str, writers: usize) -> usize {
    let racing: Vec<_> = (0..writers)
        .map(|n| {
            let client = client.clone();
            let object = config_map(&format!("{prefix}-{n}"));
            tokio::spawn(async move { client.post(CONFIG_MAPS, &object).await })
        })
        .collect();
    let mut stored = 0;
    for writer in racing {
        let answer = writer.await.unwrap();
        match answer.code {
            201 => stored += 1,
            403 => assert!(
                answer.text().contains("exceeded quota: q"),
                "{}",
                answer.text()
            ),
            code => panic!("{code} {}", answer.text()),
        }
    }
    stored
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_writers_never_exceed_a_quota() {
    let server = start_with(counting()).await;
    let client = Client::admin(&server).await;
    let name = "count/configmaps";
    client.create(QUOTAS, quota("q", json!({name: "37"}))).await;
    used(&client, "q", name, "0").await;
    assert_eq!(race(&client, "a", 100).await, 37);
    let list = client.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(names(&list).len(), 37);
    used(&client, "q", name, "37").await;
    // Released usage can be used again, but not more.
    for name in names(&list).into_iter().take(10) {
        client
            .delete(&format!("{CONFIG_MAPS}/{name}"))
            .await
            .expect(200);
    }
    used(&client, "q", name, "27").await;
    assert_eq!(race(&client, "b", 100).await, 10);
    used(&client, "q", name, "37").await;
    // A dry run is not charged, but rejected by the quota nevertheless.
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    let refused = client.post(&dry, &config_map("dry")).await;
    assert_eq!(refused.code, 403);
    // A raised limit is in effect immediately.
    let patch = json!({"spec": {"hard": {name: "38"}}});
    client
        .patch(&format!("{QUOTAS}/q"), "merge", &patch)
        .await
        .expect(200);
    let has_room = |quota: &Value| quota["status"]["hard"][name] == "38";
    within(client.wait_until(QUOTAS, "q", has_room)).await;
    client.post(&dry, &config_map("dry")).await.expect(201);
    assert_eq!(race(&client, "c", 20).await, 1);
    server.stop().await;
}

#[tokio::test]
async fn usage_is_right_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let name = "count/configmaps";
    let store = DiskStore::open(folder.path()).unwrap();
    let server = Running::start(counting(), Arc::new(store.clone()))
        .await
        .unwrap();
    let client = Client::admin(&server).await;
    client.create(QUOTAS, quota("q", json!({name: "5"}))).await;
    used(&client, "q", name, "0").await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    used(&client, "q", name, "1").await;
    // As if the process had crashed between the charge and the write.
    let mut leaked = client.get(&format!("{QUOTAS}/q")).await.expect(200);
    leaked["status"]["used"][name] = json!("4");
    client
        .put(&format!("{QUOTAS}/q/status"), &leaked)
        .await
        .expect(200);
    server.stop().await;
    store.close().await;
    let store = DiskStore::open(folder.path()).unwrap();
    let server = Running::start(counting(), Arc::new(store.clone()))
        .await
        .unwrap();
    let client = Client::admin(&server).await;
    used(&client, "q", name, "1").await;
    assert_eq!(race(&client, "b", 10).await, 4);
    server.stop().await;
    store.close().await;
}

/// The default plugins, without any flag.
#[tokio::test]
async fn what_is_accepted_is_enforced() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let settings = Settings {
        secure_port: 0,
        ..Settings::default()
    };
    let server = Running::start(settings, store).await.unwrap();
    let client = Client::admin(&server).await;
    let label = "pod-security.kubernetes.io/enforce";
    let strict = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "strict", "labels": {label: "restricted"}},
    });
    client.create("/api/v1/namespaces", strict).await;
    let refused = client
        .post("/api/v1/namespaces/strict/pods", &pod("p"))
        .await;
    assert!(
        refused.text().contains("violates PodSecurity"),
        "{}",
        refused.text()
    );
    let plain = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plain"}});
    client.create("/api/v1/namespaces", plain).await;
    let limits = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
    });
    client
        .create("/api/v1/namespaces/plain/limitranges", limits)
        .await;
    let pods = "/api/v1/namespaces/plain/pods";
    let made = client.create(pods, pod("p")).await;
    let spec = &made["spec"];
    assert_eq!(spec["containers"][0]["resources"]["limits"]["cpu"], "1");
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    let configz = client.get("/configz").await.expect(200);
    let loaded = configz["lockgate"]["validatingPlugins"].as_array().unwrap();
    assert_eq!(loaded.last().unwrap(), "ResourceQuota");
    assert!(loaded.contains(&json!("PodSecurity")));
    server.stop().await;
}
