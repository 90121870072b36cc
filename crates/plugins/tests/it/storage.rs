//! Claims, their storage classes and sizes.

use lockgate_plugins::lookup::{Memory, STORAGE_CLASSES};
use lockgate_plugins::{DefaultStorageClass, PersistentVolumeClaimResize};
use serde_json::{Value, json};

use crate::kit::{Asked, forbidden, mutate, validate};

fn class(name: &str, created: &str, annotations: Value) -> Value {
    json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}})
}

#[tokio::test]
async fn claims_get_the_newest_default_class() {
    let stable = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let beta = json!({"storageclass.beta.kubernetes.io/is-default-class": "true"});
    let no = json!({"storageclass.kubernetes.io/is-default-class": "false"});
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    for (classes, want) in [
        (vec![], Value::Null),
        (
            vec![class("a", new, json!({})), class("b", new, no)],
            Value::Null,
        ),
        (
            vec![
                class("a", old, stable.clone()),
                class("b", new, beta.clone()),
            ],
            json!("b"),
        ),
        (
            vec![class("b", new, stable.clone()), class("a", new, beta)],
            json!("a"),
        ),
    ] {
        let memory = Memory::new();
        for class in classes {
            memory.put(STORAGE_CLASSES, class);
        }
        let plugin = DefaultStorageClass::new(memory);
        let claim = Asked::new("CREATE", "persistentvolumeclaims", "PersistentVolumeClaim")
            .object(json!({"metadata": {"name": "c"}, "spec": {}}));
        let got = mutate(&plugin, &claim).await.unwrap();
        assert_eq!(got["spec"]["storageClassName"], want);
    }
    let memory = Memory::new();
    memory.put(STORAGE_CLASSES, class("a", old, stable));
    let plugin = DefaultStorageClass::new(memory);
    for claim in [
        json!({"spec": {"storageClassName": ""}}),
        json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}, "spec": {}}),
    ] {
        let asked = Asked::new("CREATE", "persistentvolumeclaims", "PersistentVolumeClaim");
        let got = mutate(&plugin, &asked.object(claim.clone())).await.unwrap();
        assert_eq!(got, claim);
    }
}

#[tokio::test]
async fn claims_grow_where_their_class_can() {
    let memory = Memory::new();
    let mut grows = class("grows", "", json!({}));
    grows["allowVolumeExpansion"] = json!(true);
    memory.put(STORAGE_CLASSES, grows);
    memory.put(STORAGE_CLASSES, class("stays", "", json!({})));
    let plugin = PersistentVolumeClaimResize::new(memory);
    let claim = |class: &str, size: &str, phase: &str| {
        json!({
            "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}},
            "status": {"phase": phase},
        })
    };
    let unbound = Err(forbidden(
        "Only bound persistent volume claims can be expanded",
    ));
    let fixed = Err(forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
         must support resize",
    ));
    for (old, new, want) in [
        (
            claim("grows", "1Gi", "Bound"),
            claim("grows", "2Gi", "Bound"),
            Ok(()),
        ),
        (
            claim("grows", "1Gi", "Pending"),
            claim("grows", "1024Mi", "Bound"),
            Ok(()),
        ),
        (
            claim("grows", "1Gi", "Pending"),
            claim("grows", "2Gi", "Bound"),
            unbound,
        ),
        (
            claim("stays", "1Gi", "Bound"),
            claim("stays", "2Gi", "Bound"),
            fixed.clone(),
        ),
        (
            claim("gone", "1Gi", "Bound"),
            claim("gone", "2Gi", "Bound"),
            fixed.clone(),
        ),
        (
            claim("", "1Gi", "Bound"),
            claim("", "2Gi", "Bound"),
            fixed.clone(),
        ),
        (
            claim("stays", "1Gi", "Bound"),
            claim("grows", "2Gi", "Bound"),
            fixed,
        ),
    ] {
        let asked = Asked::new("UPDATE", "persistentvolumeclaims", "PersistentVolumeClaim");
        let asked = asked.object(new).old(old);
        assert_eq!(validate(&plugin, &asked).await, want);
    }
}
