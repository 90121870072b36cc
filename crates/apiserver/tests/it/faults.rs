//! Broken invariants: unreadable stored objects, and delayed effects. The server fails closed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lockgate_apiserver::{Controllers, Running, Settings, StartError};
use lockgate_store::{
    Entry, Filter, List, MemoryStore, Page, ReadAt, ReadError, Revision, Store, Unavailable,
    Watch as StoreWatch, WriteError,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::*;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMESPACES: &str = "/api/v1/namespaces";

async fn run(store: &Arc<impl Store + 'static>, controllers: Controllers) -> Running {
    let settings = Settings {
        secure_port: 0,
        controllers,
        ..Settings::default()
    };
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    Running::start(settings, store).await.unwrap()
}

#[tokio::test]
async fn stored_bytes_that_are_no_object_are_an_internal_error() {
    for bytes in ["", "{", "null", "{\"metadata\":{\"name\":\"bad\"},"] {
        let store = Arc::new(MemoryStore::new());
        let server = run(&store, Controllers::all(false)).await;
        let client = Client::admin(&server).await;
        let key = "/core/configmaps/default/bad";
        store.create(key, bytes.into(), None).await.unwrap();
        let path = format!("{CONFIG_MAPS}/bad");
        let object = json!({"metadata": {"name": "bad"}});
        let answers = [
            client.put(&path, &object).await,
            client
                .patch(&path, "merge", &json!({"data": {"a": "b"}}))
                .await,
            client.delete(&path).await,
            client.with("accept", "application/yaml").get(&path).await,
        ];
        for answer in answers {
            assert_eq!(answer.code, 500, "{bytes}: {}", answer.text());
        }
        let status = client.put(&path, &object).await.json();
        assert_eq!(status["reason"], "InternalError");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(key), "{message}");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_stored_webhook_configuration_that_does_not_decode_stops_the_start() {
    let key = "/admissionregistration.k8s.io/validatingwebhookconfigurations/guard";
    for bytes in ["{", "{\"metadata\":{\"name\":\"guard\"},\"webhooks\":7}"] {
        let store = Arc::new(MemoryStore::new());
        store.create(key, bytes.into(), None).await.unwrap();
        let settings = Settings {
            secure_port: 0,
            ..Settings::default()
        };
        let error = Running::start(settings, store).await.unwrap_err();
        assert!(matches!(error, StartError::Restore(_)), "{error}");
        assert!(error.to_string().contains("guard"), "{error}");
    }
}

#[tokio::test]
async fn an_owner_that_cannot_be_read_keeps_its_dependents() {
    let store = Arc::new(MemoryStore::new());
    let controllers = Controllers {
        garbage_collector: true,
        ..Controllers::all(false)
    };
    let server = run(&store, controllers).await;
    let client = Client::admin(&server).await;
    let key = "/core/secrets/default/owner";
    store.create(key, "{".into(), None).await.unwrap();
    let owned = |name: &str, owner: &str| {
        let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": "1"});
        json!({"metadata": {"name": name, "ownerReferences": [reference]}})
    };
    client.create(CONFIG_MAPS, owned("kept", "owner")).await;
    client
        .create(CONFIG_MAPS, owned("collected", "nobody"))
        .await;
    client.wait_until_gone(CONFIG_MAPS, "collected").await;
    client.get(&format!("{CONFIG_MAPS}/kept")).await.expect(200);
    server.stop().await;
}

/// A store that publishes creations of some keys before they return.
struct Late {
    store: MemoryStore,
    /// The key prefix.
    late: &'static str,
    /// One permit per creation.
    created: Semaphore,
    /// One permit per revision request, with which each controller begins its work.
    looked: Semaphore,
    released: Semaphore,
}

#[async_trait]
impl Store for Late {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let created = self.store.create(key, value, ttl).await;
        if key.starts_with(self.late) {
            self.created.add_permits(1);
            self.released.acquire().await.unwrap().forget();
        }
        created
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        self.store.update(key, expected, value).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.store.delete(key, expected).await
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        self.store.get(key, at).await
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        self.store.list(list).await
    }

    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn StoreWatch>, ReadError> {
        self.store.watch_if(prefix, after, filter).await
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        let revision = self.store.revision().await;
        self.looked.add_permits(1);
        revision
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        self.store.compact(oldest).await
    }
}

#[tokio::test]
async fn a_namespace_whose_event_comes_before_its_effect_gets_its_default_objects() {
    let store = Arc::new(Late {
        store: MemoryStore::new(),
        late: "/core/namespaces/shop",
        created: Semaphore::new(0),
        looked: Semaphore::new(0),
        released: Semaphore::new(0),
    });
    let controllers = Controllers {
        service_account: true,
        ..Controllers::all(false)
    };
    let server = run(&store, controllers).await;
    let client = Client::admin(&server).await;
    // Objects created at startup are processed too.
    within(store.looked.acquire_many(4)).await.unwrap().forget();
    store.looked.forget_permits(usize::MAX);
    let creator = client.clone();
    let creating = tokio::spawn(async move {
        let namespace = json!({"metadata": {"name": "shop"}});
        creator.create(NAMESPACES, namespace).await
    });
    within(store.looked.acquire()).await.unwrap().forget();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    store.released.add_permits(1);
    within(creating).await.unwrap();
    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    client.wait_until(accounts, "default", |_| true).await;
    server.stop().await;
}

/// On disk, all of them share one fsync.
#[tokio::test]
async fn writes_with_effects_do_not_wait_for_each_other() {
    const COUNT: u32 = 20;
    let store = Arc::new(Late {
        store: MemoryStore::new(),
        late: "/rbac.authorization.k8s.io/clusterroles/late-",
        created: Semaphore::new(0),
        looked: Semaphore::new(0),
        released: Semaphore::new(0),
    });
    let server = run(&store, Controllers::all(false)).await;
    let client = Client::admin(&server).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let creating: Vec<_> = (0..COUNT)
        .map(|number| {
            let client = client.clone();
            let role = json!({"metadata": {"name": format!("late-{number}")}, "rules": []});
            tokio::spawn(async move { client.create(roles, role).await })
        })
        .collect();
    // All are stored, and none of the requests has completed.
    within(store.created.acquire_many(COUNT))
        .await
        .unwrap()
        .forget();
    assert!(creating.iter().all(|task| !task.is_finished()));
    store.released.add_permits(usize::try_from(COUNT).unwrap());
    for task in creating {
        within(task).await.unwrap();
    }
    server.stop().await;
}
