//! Server restarts, on a store on disk and on a failing store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use lockgate_apiserver::{Running, Settings};
use lockgate_store::{
    DiskStore, Entry, Filter, List, MemoryStore, Page, ReadAt, ReadError, Revision, Store,
    Unavailable, Watch as StoreWatch, WriteError,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::*;

const NAMESPACES: &str = "/api/v1/namespaces";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A server with its state in a folder.
pub(crate) struct Kept {
    pub(crate) running: Running,
    store: DiskStore,
}

impl Kept {
    pub(crate) async fn start(folder: &Path) -> Self {
        let store = DiskStore::open(folder).unwrap();
        let settings = Settings {
            secure_port: 0,
            cert_dir: Some(folder.join("certs")),
            namespace_grace: Duration::from_millis(1),
            ..Settings::default()
        };
        let running = Running::start(settings, Arc::new(store.clone()))
            .await
            .unwrap();
        Self { running, store }
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await;
        self.store.close().await;
    }
}

/// A webhook configuration without a listener at its URL.
fn dead_hook(resource: &str) -> Value {
    let mut hook = hook(
        "ValidatingWebhookConfiguration",
        "dead",
        "https://127.0.0.1:1/",
        "",
    );
    hook["webhooks"][0]["clientConfig"] = json!({"url": "https://127.0.0.1:1/"});
    hook["webhooks"][0]["rules"][0]["resources"] = json!([resource]);
    hook
}

#[tokio::test]
async fn a_restart_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let server = Kept::start(folder.path()).await;
    let client = Client::admin(&server.running).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    client.create(WIDGETS, widget).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    client.create(VALIDATING, dead_hook("secrets")).await;
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "type": "NodePort"}});
    let first = client.create(SERVICES, service("first")).await;
    let account = json!({"metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    client.create(accounts, account).await;
    let token = client
        .post(&format!("{accounts}/robot/token"), &json!({}))
        .await
        .expect(201);
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let everything = [
        NAMESPACES,
        SERVICES,
        WIDGETS,
        CONFIG_MAPS,
        VALIDATING,
        DEFINITIONS,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
    ];
    let mut before = Vec::new();
    for path in everything {
        before.push(client.get(path).await.expect(200)["items"].take());
    }
    let credentials = admin(&server.running);
    let ca = server.running.ca_pem().to_owned();
    server.stop().await;

    let server = Kept::start(folder.path()).await;
    assert_eq!(server.running.ca_pem(), ca);
    // With the kubeconfig and token from before the restart.
    let client = Client::connect(&server.running, credentials).await;
    for (path, before) in everything.iter().zip(before) {
        // UIDs and versions are the same; nothing is created again. The list's own version changes with writes of
        // controllers.
        let items = client.get(path).await.expect(200)["items"].take();
        assert_eq!(items, before, "{path}");
    }
    let robot = Client::with_token(&server.running, &token).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = robot
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await
        .expect(201);
    assert_eq!(
        who["status"]["userInfo"]["username"],
        "system:serviceaccount:default:robot"
    );
    // The webhook is in effect, and allocated addresses remain allocated.
    let secret = json!({"metadata": {"name": "s"}});
    let refused = client
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(500);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("failed calling webhook"), "{message}");
    let second = client.create(SERVICES, service("second")).await;
    for field in ["/spec/clusterIP", "/spec/ports/0/nodePort"] {
        assert_ne!(second.pointer(field), first.pointer(field), "{field}");
    }
    assert_eq!(second["spec"]["clusterIP"], "10.96.0.3");
    server.stop().await;
}

#[tokio::test]
async fn versions_only_grow_and_watches_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Kept::start(folder.path()).await;
    let client = Client::admin(&server.running).await;
    let old = version_of(&client.create(CONFIG_MAPS, config_map("a")).await);
    client.create(CONFIG_MAPS, config_map("b")).await;
    let list = client.get(CONFIG_MAPS).await.expect(200);
    server.stop().await;

    let server = Kept::start(folder.path()).await;
    let client = Client::admin(&server.running).await;
    let now = version_of(&list);
    let mut watch = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={now}"))
        .await;
    let made = client.create(CONFIG_MAPS, config_map("c")).await;
    assert!(version_of(&made) > now);
    assert_eq!(watch.line().await, "ADDED c");
    // A watch also resumes from before the restart: no event is lost.
    let mut resumed = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={old}"))
        .await;
    assert_eq!(resumed.line().await, "ADDED b");
    assert_eq!(resumed.line().await, "ADDED c");
    server.stop().await;
}

#[tokio::test]
async fn what_was_begun_is_finished_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Kept::start(folder.path()).await;
    let client = Client::admin(&server.running).await;
    client
        .create(NAMESPACES, json!({"metadata": {"name": "shop"}}))
        .await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widgets = "/apis/example.com/v1/namespaces/shop/widgets";
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "finalizers": ["example.com/wait"]},
    });
    client.create(widgets, widget).await;
    client
        .delete(&format!("{NAMESPACES}/shop"))
        .await
        .expect(200);
    server.stop().await;
    // A CustomResourceDefinition that was stored but not established before the server stopped.
    {
        let store = DiskStore::open(folder.path()).unwrap();
        let prefix = "/apiextensions.k8s.io/customresourcedefinitions/";
        let page = store.list(List::all(prefix)).await.unwrap();
        let text = String::from_utf8(page.entries[0].value.to_vec()).unwrap();
        let mut value: Value =
            serde_json::from_str(&text.replace("widget", "gadget").replace("Widget", "Gadget"))
                .unwrap();
        value.as_object_mut().unwrap().remove("status");
        let key = page.entries[0].key.replace("widget", "gadget");
        store
            .create(&key, value.to_string().into(), None)
            .await
            .unwrap();
        store.close().await;
    }

    let server = Kept::start(folder.path()).await;
    let client = Client::admin(&server.running).await;
    // Only the finalizer blocks the deletion.
    client
        .patch(
            &format!("{widgets}/w"),
            "merge",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect(200);
    client.wait_until_gone(NAMESPACES, "shop").await;
    let path = format!("{DEFINITIONS}?fieldSelector=metadata.name%3Dgadgets.example.com");
    let mut watch = client.watch(&path).await;
    loop {
        let (_, object) = watch.next().await;
        let conditions = object["status"]["conditions"].as_array().cloned();
        let established = json!("Established");
        if conditions.is_some_and(|all| all.iter().any(|one| one["type"] == established)) {
            break;
        }
    }
    server.stop().await;
}

/// A store that delays writes, or fails them.
#[derive(Debug)]
struct Faulty {
    store: MemoryStore,
    failed: AtomicBool,
    /// One permit per write that may proceed.
    allowed: Semaphore,
    /// One permit per write that arrived.
    came: Semaphore,
    held: AtomicBool,
}

impl Faulty {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            store: MemoryStore::new(),
            failed: AtomicBool::new(false),
            allowed: Semaphore::new(0),
            came: Semaphore::new(0),
            held: AtomicBool::new(false),
        })
    }

    async fn pass(&self) -> Result<(), WriteError> {
        if let Some(failure) = self.failure() {
            return Err(failure.into());
        }
        if self.held.load(Ordering::SeqCst) {
            self.came.add_permits(1);
            self.allowed.acquire().await.unwrap().forget();
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Faulty {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        self.pass().await?;
        self.store.create(key, value, ttl).await
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        self.pass().await?;
        self.store.update(key, expected, value).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.pass().await?;
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
        self.store.revision().await
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        self.store.compact(oldest).await
    }

    fn failure(&self) -> Option<Unavailable> {
        let failed = self.failed.load(Ordering::SeqCst);
        failed.then(|| Unavailable(String::from("the disk is full")))
    }
}

async fn start_on(store: &Arc<Faulty>) -> Running {
    let settings = Settings {
        secure_port: 0,
        ..Settings::default()
    };
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    Running::start(settings, store).await.unwrap()
}

#[tokio::test]
async fn a_store_that_fails_is_told_to_writers_and_probes() {
    let store = Faulty::new();
    let server = start_on(&store).await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(client.get("/readyz").await.text(), "ok");
    store.failed.store(true, Ordering::SeqCst);
    let why = "Internal error occurred: storage is unavailable: the disk is full";
    let path = format!("{CONFIG_MAPS}/a");
    client
        .post(CONFIG_MAPS, &config_map("b"))
        .await
        .refused(500, "InternalError", why);
    client
        .post(NAMESPACES, &json!({"metadata": {"name": "shop"}}))
        .await
        .refused(500, "InternalError", why);
    client
        .patch(&path, "merge", &json!({"data": {"a": "2"}}))
        .await
        .refused(500, "InternalError", why);
    client
        .delete(&path)
        .await
        .refused(500, "InternalError", why);
    // Reads still succeed.
    let list = client.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(names(&list), ["a", "kube-root-ca.crt"]);
    for probe in ["readyz", "livez", "healthz"] {
        let answer = client.get(&format!("/{probe}")).await;
        let (code, text) = (answer.code, answer.text());
        assert_eq!(code, 500, "{text}");
        assert!(text.starts_with("[+]ping ok\n[+]log ok\n"), "{text}");
        assert!(text.contains("[-]etcd failed: reason withheld\n"), "{text}");
        let end = format!("{probe} check failed\n");
        assert!(text.ends_with(&end), "{text}");
        let without = "exclude=etcd&exclude=etcd-readiness&exclude=poststarthook/storage-readiness";
        let answer = client.get(&format!("/{probe}?{without}")).await;
        assert_eq!(answer.code, 200, "{}", answer.text());
    }
    let answer = client.get("/readyz/etcd").await;
    assert_eq!(answer.code, 500);
    assert_eq!(client.get("/readyz/ping").await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn what_is_stored_is_in_force_though_the_client_is_gone() {
    let store = Faulty::new();
    let server = start_on(&store).await;
    let client = Client::admin(&server).await;
    store.held.store(true, Ordering::SeqCst);
    let bodies = [
        (VALIDATING, dead_hook("secrets")),
        (DEFINITIONS, definition(json!([open_version("v1", true)]))),
    ];
    for (path, object) in bodies {
        let leaver = Client::admin(&server).await;
        let json = [("content-type", "application/json")];
        let sending = leaver.send(&Method::POST, path, &json, body(object.to_string()));
        // The client disconnects during the store's write.
        tokio::select! {
            _ = sending => panic!("answered before it was stored"),
            came = within(store.came.acquire()) => came.unwrap().forget(),
        }
        drop(leaver);
        store.allowed.add_permits(1);
    }
    store.held.store(false, Ordering::SeqCst);
    store.allowed.add_permits(1000);
    // Waits until the stored CustomResourceDefinition is established.
    let mut watch = client.watch(DEFINITIONS).await;
    loop {
        let (_, object) = watch.next().await;
        if object["status"]["conditions"]
            .as_array()
            .is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Established" && one["status"] == "True")
            })
        {
            break;
        }
    }
    let secret = json!({"metadata": {"name": "s"}});
    let refused = client
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(500);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("failed calling webhook"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn certificates_that_were_half_made_are_made_whole() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let server = Kept::start(folder.path()).await;
    let ca = server.running.ca_pem().to_owned();
    server.stop().await;
    // A crash between writing a key and its certificate leaves only the key.
    std::fs::remove_file(certs.join("apiserver.crt")).unwrap();
    let server = Kept::start(folder.path()).await;
    assert_eq!(server.running.ca_pem(), ca);
    server.stop().await;
    for file in ["ca.crt", "apiserver.crt", "apiserver.key"] {
        std::fs::remove_file(certs.join(file)).unwrap();
    }
    let key = std::fs::read(certs.join("ca.key")).unwrap();
    let server = Kept::start(folder.path()).await;
    let client = Client::admin(&server.running).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(std::fs::read(certs.join("ca.key")).unwrap(), key);
    server.stop().await;
}
