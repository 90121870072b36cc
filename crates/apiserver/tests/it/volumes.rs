//! Volumes, claims and classes that are deleted while in use.

use lockgate_apiserver::{Controllers, Settings, TestServer};
use serde_json::{Value, json};

use crate::support::*;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

async fn protecting() -> TestServer {
    start_with(Settings {
        controllers: Controllers {
            claim_protection: true,
            volume_protection: true,
            attributes_class_protection: true,
            ..Controllers::all(false)
        },
        ..settings()
    })
    .await
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp"},
        },
    })
}

#[tokio::test]
async fn a_claim_goes_when_no_pod_uses_it() {
    let server = protecting().await;
    let client = Client::admin(&server).await;
    for name in ["used", "free"] {
        let made = client.create(CLAIMS, claim(name)).await;
        assert_eq!(
            made["metadata"]["finalizers"],
            json!(["kubernetes.io/pvc-protection"])
        );
    }
    let mut user = pod("user");
    user["spec"]["nodeName"] = "node".into();
    user["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "used"}}]);
    client.create(PODS, user).await;
    for name in ["used", "free"] {
        client.delete(&format!("{CLAIMS}/{name}")).await.expect(200);
    }
    client.wait_until_gone(CLAIMS, "free").await;
    let kept = client.get(&format!("{CLAIMS}/used")).await.expect(200);
    assert!(kept["metadata"]["deletionTimestamp"].is_string());
    client
        .delete(&format!("{PODS}/user?gracePeriodSeconds=0"))
        .await
        .expect(200);
    client.wait_until_gone(CLAIMS, "used").await;
    server.stop().await;
}

#[tokio::test]
async fn a_volume_goes_when_it_is_not_bound() {
    let server = protecting().await;
    let client = Client::admin(&server).await;
    for name in ["bound", "free"] {
        client.create(VOLUMES, volume(name)).await;
    }
    let status = json!({"status": {"phase": "Bound"}});
    let path = format!("{VOLUMES}/bound");
    client
        .patch(&format!("{path}/status"), "merge", &status)
        .await
        .expect(200);
    for name in ["bound", "free"] {
        client
            .delete(&format!("{VOLUMES}/{name}"))
            .await
            .expect(200);
    }
    client.wait_until_gone(VOLUMES, "free").await;
    client.get(&path).await.expect(200);
    let status = json!({"status": {"phase": "Released"}});
    client
        .patch(&format!("{path}/status"), "merge", &status)
        .await
        .expect(200);
    client.wait_until_gone(VOLUMES, "bound").await;
    server.stop().await;
}

#[tokio::test]
async fn a_class_goes_when_nobody_uses_it() {
    let server = protecting().await;
    let client = Client::admin(&server).await;
    for name in ["gold", "lead"] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": name}, "driverName": "d.example.com", "parameters": {"iops": "1"},
        });
        client.create(CLASSES, class).await;
    }
    let mut user = claim("user");
    user["spec"]["volumeAttributesClassName"] = "gold".into();
    client.create(CLAIMS, user).await;
    for name in ["gold", "lead"] {
        client
            .delete(&format!("{CLASSES}/{name}"))
            .await
            .expect(200);
    }
    client.wait_until_gone(CLASSES, "lead").await;
    client.get(&format!("{CLASSES}/gold")).await.expect(200);
    client.delete(&format!("{CLAIMS}/user")).await.expect(200);
    client.wait_until_gone(CLASSES, "gold").await;
    server.stop().await;
}

#[tokio::test]
async fn a_claim_without_its_finalizer_gets_it() {
    let server = protecting().await;
    let client = Client::admin(&server).await;
    client.create(CLAIMS, claim("a")).await;
    let free = json!({"metadata": {"finalizers": null}});
    client
        .patch(&format!("{CLAIMS}/a"), "merge", &free)
        .await
        .expect(200);
    client
        .wait_until(CLAIMS, "a", |claim| {
            claim["metadata"]["finalizers"] == json!(["kubernetes.io/pvc-protection"])
        })
        .await;
    server.stop().await;
}
