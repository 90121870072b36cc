//! Controllers receive events late, in any order and during other writes. Every interleaving converges to the same
//! state.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lockgate_apiserver::{Running, Settings};
use lockgate_store::{
    Entry, Event, Filter, List, MemoryStore, Page, ReadAt, ReadError, Revision, Store, Unavailable,
    Watch as StoreWatch, WriteError,
};
use serde_json::{Value, json};

use crate::support::*;

const NAMESPACES: &str = "/api/v1/namespaces";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// The prefixes that controllers watch.
const CONTROLLERS: [&str; 2] = ["/", "/apiextensions.k8s.io/customresourcedefinitions/"];

/// A store with delays, which delivers events to controllers in another order.
struct Shuffling {
    inner: MemoryStore,
    dice: Arc<Dice>,
}

/// Events of different resources arrive in any order, those of one resource in order: as from separate watches, which
/// are not synchronised with each other.
struct Shuffled {
    inner: Box<dyn StoreWatch>,
    held: Mutex<Vec<Event>>,
    dice: Arc<Dice>,
}

#[async_trait]
impl StoreWatch for Shuffled {
    async fn next(&mut self) -> Result<Event, ReadError> {
        loop {
            let wanted = 1 + self.dice.below(6);
            let held = u64::try_from(self.held.lock().unwrap().len()).unwrap();
            if held >= wanted {
                break;
            }
            let event = tokio::select! {
                biased;
                event = self.inner.next() => event?,
                () = self.dice.dawdle(), if held > 0 => break,
            };
            self.held.lock().unwrap().push(event);
        }
        self.dice.dawdle().await;
        let mut held = self.held.lock().unwrap();
        let count = u64::try_from(held.len()).unwrap();
        let drawn = usize::try_from(self.dice.below(count)).unwrap();
        let resource = |event: &Event| {
            let parts: Vec<&str> = event.key().split('/').take(3).collect();
            parts.join("/")
        };
        let drawn = resource(&held[drawn]);
        let first = held.iter().position(|event| resource(event) == drawn);
        let first = first.unwrap();
        Ok(held.remove(first))
    }

    fn progress(&self) -> Revision {
        self.inner.progress()
    }
}

#[async_trait]
impl Store for Shuffling {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        self.dice.dawdle().await;
        let result = self.inner.create(key, value, ttl).await;
        self.dice.dawdle().await;
        result
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        self.dice.dawdle().await;
        let result = self.inner.update(key, expected, value).await;
        self.dice.dawdle().await;
        result
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.dice.dawdle().await;
        let result = self.inner.delete(key, expected).await;
        self.dice.dawdle().await;
        result
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        self.dice.dawdle().await;
        self.inner.get(key, at).await
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        self.dice.dawdle().await;
        self.inner.list(list).await
    }

    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn StoreWatch>, ReadError> {
        let inner = self.inner.watch_if(prefix, after, filter).await?;
        if !CONTROLLERS.contains(&prefix) {
            return Ok(inner);
        }
        Ok(Box::new(Shuffled {
            inner,
            held: Mutex::default(),
            dice: Arc::clone(&self.dice),
        }))
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        self.inner.revision().await
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        self.inner.compact(oldest).await
    }
}

async fn start_shuffled(seed: u64) -> Running {
    let settings = Settings {
        secure_port: 0,
        namespace_grace: Duration::from_millis(1),
        ..Settings::default()
    };
    let store = Shuffling {
        inner: MemoryStore::new(),
        dice: Arc::new(Dice::new(seed)),
    };
    Running::start(settings, Arc::new(store)).await.unwrap()
}

fn in_namespace(namespace: &str, plural: &str) -> String {
    format!("{NAMESPACES}/{namespace}/{plural}")
}

fn owned_by(name: &str, owner: &Value) -> Value {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    }]);
    object
}

/// Deletes an owner with two dependents by one propagation policy, in a separate namespace.
async fn family(client: Client, namespace: String, policy: &'static str) {
    client
        .create(NAMESPACES, json!({"metadata": {"name": namespace}}))
        .await;
    let here = in_namespace(&namespace, "configmaps");
    let owner = client.create(&here, config_map("owner")).await;
    for name in ["one", "two"] {
        client.create(&here, owned_by(name, &owner)).await;
    }
    client
        .delete_with(
            &format!("{here}/owner"),
            &json!({"propagationPolicy": policy}),
        )
        .await
        .expect(200);
    client.wait_until_gone(&here, "owner").await;
    for name in ["one", "two"] {
        if policy == "Orphan" {
            let is_free = |object: &Value| object["metadata"].get("ownerReferences").is_none();
            client.wait_until(&here, name, is_free).await;
        } else {
            client.wait_until_gone(&here, name).await;
        }
    }
    for (plural, name) in [
        ("serviceaccounts", "default"),
        ("configmaps", "kube-root-ca.crt"),
    ] {
        let here = in_namespace(&namespace, plural);
        client.wait_until(&here, name, |_| true).await;
    }
}

/// Deletes a namespace with an object of each kind.
async fn ending(client: Client, namespace: &'static str) {
    client
        .create(NAMESPACES, json!({"metadata": {"name": namespace}}))
        .await;
    let account = in_namespace(namespace, "serviceaccounts");
    client.wait_until(&account, "default", |_| true).await;
    client
        .create(&in_namespace(namespace, "pods"), pod("p"))
        .await;
    client
        .create(&in_namespace(namespace, "configmaps"), config_map("c"))
        .await;
    client
        .delete(&format!("{NAMESPACES}/{namespace}"))
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, namespace).await;
    let left = client.get(&in_namespace(namespace, "configmaps")).await;
    assert_eq!(names(&left.expect(200)), Vec::<&str>::new());
}

/// Checks that the usage of a quota converges to the number of objects.
async fn counted(client: Client) {
    let namespace = "counted";
    client
        .create(NAMESPACES, json!({"metadata": {"name": namespace}}))
        .await;
    let quotas = in_namespace(namespace, "resourcequotas");
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "10"}}});
    client.create(&quotas, quota).await;
    let secrets = in_namespace(namespace, "secrets");
    for name in ["a", "b", "c"] {
        let secret = json!({"metadata": {"name": name}});
        client.create(&secrets, secret).await;
    }
    client.delete(&format!("{secrets}/a")).await.expect(200);
    client
        .wait_until(&quotas, "q", |quota| {
            quota["status"]["used"]["secrets"] == "2"
        })
        .await;
}

/// A role that aggregates another one, which is created later and updated.
async fn aggregated(client: Client) {
    let whole = json!({
        "metadata": {"name": "whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]},
    });
    client.create(CLUSTER_ROLES, whole).await;
    let rule = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    let part = json!({
        "metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": rule("get"),
    });
    client.create(CLUSTER_ROLES, part).await;
    client
        .patch(
            &format!("{CLUSTER_ROLES}/part"),
            "merge",
            &json!({"rules": rule("list")}),
        )
        .await
        .expect(200);
    client
        .wait_until(CLUSTER_ROLES, "whole", |role| role["rules"] == rule("list"))
        .await;
}

/// A CustomResourceDefinition that is created, used and deleted twice.
async fn defined(client: Client) {
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    for _ in 0..2 {
        client
            .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
            .await;
        let is_served = |definition: &Value| {
            let conditions = definition["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "Established" && one["status"] == "True")
        };
        client
            .wait_until(DEFINITIONS, "widgets.example.com", is_served)
            .await;
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        });
        client.create(widgets, widget).await;
        client
            .delete(&format!("{DEFINITIONS}/widgets.example.com"))
            .await
            .expect(200);
        client
            .wait_until_gone(DEFINITIONS, "widgets.example.com")
            .await;
    }
}

/// A PersistentVolumeClaim that is deleted before the Pod that uses it.
async fn protected(client: Client) {
    let claims = in_namespace("default", "persistentvolumeclaims");
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    client.create(&claims, claim).await;
    let account = in_namespace("default", "serviceaccounts");
    client.wait_until(&account, "default", |_| true).await;
    let mut user = pod("user");
    user["spec"]["nodeName"] = "node".into();
    user["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    client.create(PODS, user).await;
    client.delete(&format!("{claims}/data")).await.expect(200);
    client
        .delete(&format!("{PODS}/user?gracePeriodSeconds=0"))
        .await
        .expect(200);
    client.wait_until_gone(&claims, "data").await;
}

#[tokio::test]
async fn every_controller_arrives_whatever_the_order_of_events() {
    for seed in 1..=6 {
        let server = start_shuffled(seed).await;
        let client = Client::admin(&server).await;
        let cases: [std::pin::Pin<Box<dyn Future<Output = ()> + Send>>; 8] = [
            Box::pin(family(client.clone(), "background".into(), "Background")),
            Box::pin(family(client.clone(), "foreground".into(), "Foreground")),
            Box::pin(family(client.clone(), "orphaning".into(), "Orphan")),
            Box::pin(ending(client.clone(), "ending")),
            Box::pin(counted(client.clone())),
            Box::pin(aggregated(client.clone())),
            Box::pin(defined(client.clone())),
            Box::pin(protected(client.clone())),
        ];
        let cases = cases.map(tokio::spawn);
        for (number, case) in cases.into_iter().enumerate() {
            let ended = case.await;
            assert!(ended.is_ok(), "seed {seed}, case {number}: {ended:?}");
        }
        server.stop().await;
    }
}
