//! Concurrent clients that create and delete namespaces, CustomResourceDefinitions with changing storage versions and
//! conversion, owners and dependents, with watches; and a final check of the invariants, before and after a restart.
//!
//! A few seconds by default. `LOCKGATE_SOAK_SECONDS=600` runs longer, `LOCKGATE_SOAK_SEED=7` with another random seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockgate_testkit::WebhookServer;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::durable::Kept;
use crate::support::*;
use crate::versions::{converted_by, strict, webhook};

const NAMESPACES: &str = "/api/v1/namespaces";
const CLIENTS: u64 = 20;
/// Clients that work with CustomResourceDefinitions; the others work with namespaces.
const DEFINERS: u64 = 6;
/// The number of namespaces or CustomResourceDefinitions that a client keeps before it deletes the oldest.
const KEPT: usize = 3;
/// Watched from start to end.
const WATCHED: [&str; 5] = [
    NAMESPACES,
    "/api/v1/configmaps",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    DEFINITIONS,
];

fn setting(name: &str, otherwise: u64) -> u64 {
    let told = std::env::var(name).ok();
    told.map_or(otherwise, |text| text.parse().expect(name))
}

/// A client: its steps, and the objects that must exist afterwards.
struct Soaker {
    client: Client,
    dice: Dice,
    number: u64,
    until: Instant,
    steps: Arc<AtomicU64>,
    /// ConfigMaps and Services, by path.
    made: BTreeSet<String>,
}

fn owner(object: &Value, is_controller: bool) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "blockOwnerDeletion": true,
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        "controller": is_controller,
    })
}

fn owned(name: &str, owners: &[Value]) -> Value {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = owners.into();
    object
}

impl Soaker {
    fn is_over(&self) -> bool {
        Instant::now() > self.until
    }

    fn chance(&self) -> bool {
        self.dice.below(2) == 0
    }

    async fn delete(&self, path: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        self.client.delete_with(path, &options).await.expect(200);
    }

    async fn map(&self, here: &str, name: &str, owners: &[Value]) -> Value {
        self.client.create(here, owned(name, owners)).await
    }

    /// Creates an owner and its dependents, and deletes the owner.
    async fn owners(&mut self, here: &str, id: u64) {
        let policy = ["Background", "Foreground", "Orphan"][self.dice.below(3) as usize];
        let top = self.map(here, &format!("owner-{id}"), &[]).await;
        for index in 0..=self.dice.below(3) {
            let name = format!("dependent-{id}-{index}");
            let middle = self.map(here, &name, &[owner(&top, true)]).await;
            if policy == "Orphan" {
                self.made.insert(format!("{here}/{name}"));
            } else if self.chance() {
                let name = format!("leaf-{id}-{index}");
                self.map(here, &name, &[owner(&middle, true)]).await;
            }
        }
        self.delete(&format!("{here}/owner-{id}"), policy).await;
    }

    /// Two objects that own each other.
    async fn circle(&mut self, here: &str, id: u64) {
        let one = self.map(here, &format!("one-{id}"), &[]).await;
        let other = self
            .map(here, &format!("other-{id}"), &[owner(&one, false)])
            .await;
        let path = format!("{here}/one-{id}");
        let patch = json!({"metadata": {"ownerReferences": [owner(&other, false)]}});
        self.client.patch(&path, "merge", &patch).await.expect(200);
        let policy = ["Background", "Foreground"][self.dice.below(2) as usize];
        self.delete(&path, policy).await;
    }

    /// A dependent with two owners, one of which is deleted, keeps the other reference.
    async fn two_owners(&mut self, here: &str, id: u64) {
        let goes = self.map(here, &format!("goes-{id}"), &[]).await;
        let stays = self.map(here, &format!("stays-{id}"), &[]).await;
        let owners = [owner(&goes, false), owner(&stays, false)];
        self.map(here, &format!("of-two-{id}"), &owners).await;
        self.made.insert(format!("{here}/stays-{id}"));
        self.made.insert(format!("{here}/of-two-{id}"));
        let policy = ["Background", "Foreground"][self.dice.below(2) as usize];
        self.delete(&format!("{here}/goes-{id}"), policy).await;
    }

    /// An object with a finalizer is deleted, and removed when the finalizer is.
    async fn finalizer(&mut self, here: &str, id: u64) {
        let path = format!("{here}/held-{id}");
        let mut object = config_map(&format!("held-{id}"));
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        self.client.create(here, object).await;
        self.client.delete(&path).await.expect(200);
        let patch = json!({"metadata": {"finalizers": null}});
        self.client.patch(&path, "merge", &patch).await.expect(200);
    }

    async fn collection(&mut self, here: &str, id: u64) {
        let group = format!("group-{id}");
        for index in 0..3 {
            let object = labelled(&format!("{group}-{index}"), "group", &group);
            self.client.create(here, object).await;
        }
        let path = format!("{here}?labelSelector=group%3D{group}");
        self.client.delete(&path).await.expect(200);
    }

    /// Writes to one object, by update, patch and apply.
    async fn writes(&mut self, here: &str, id: u64) {
        let path = format!("{here}/written-{id}");
        let applied = format!("{path}?fieldManager=soak&force=true");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("written-{id}")},
            "data": {"applied": "1"}});
        self.client
            .patch(&applied, "apply", &object)
            .await
            .expect(201);
        for turn in 0..=self.dice.below(4) {
            let patch = json!({"data": {"patched": turn.to_string()}});
            self.client.patch(&path, "merge", &patch).await.expect(200);
        }
        let mut object = self.client.get(&path).await.expect(200);
        object["data"]["updated"] = "1".into();
        self.client.put(&path, &object).await.expect(200);
        self.made.insert(path);
    }

    async fn service(&mut self, namespace: &str, id: u64) {
        let here = format!("{NAMESPACES}/{namespace}/services");
        let kind = ["ClusterIP", "NodePort"][self.dice.below(2) as usize];
        let object = json!({"metadata": {"name": format!("service-{id}")},
            "spec": {"type": kind, "ports": [{"port": 80}]}});
        self.client.create(&here, object).await;
        let path = format!("{here}/service-{id}");
        if self.chance() {
            self.client.delete(&path).await.expect(200);
        } else {
            self.made.insert(path);
        }
    }

    /// Deletes a namespace while an object in it has a finalizer, and other objects are still being created in it.
    async fn end_namespace(&mut self, name: &str) {
        let path = format!("{NAMESPACES}/{name}");
        let here = format!("{path}/configmaps");
        let mut held = config_map("held");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        self.client.create(&here, held).await;
        self.client.delete(&path).await.expect(200);
        let late = self.client.post(&here, &config_map("late")).await;
        assert!(matches!(late.code, 201 | 403), "{}", late.text());
        let patch = json!({"metadata": {"finalizers": null}});
        self.client
            .patch(&format!("{here}/held"), "merge", &patch)
            .await
            .expect(200);
        let inside = format!("{path}/");
        self.made.retain(|path| !path.starts_with(&inside));
    }

    /// Creates and deletes namespaces in sequence.
    async fn live(mut self) -> Self {
        let mut kept = VecDeque::new();
        for round in 0.. {
            if self.is_over() {
                break;
            }
            let name = format!("soak-{}-{round}", self.number);
            let namespace = json!({"metadata": {"name": name}});
            self.client.create(NAMESPACES, namespace).await;
            let here = format!("{NAMESPACES}/{name}/configmaps");
            for id in 0..=self.dice.below(6) {
                match self.dice.below(7) {
                    0 => self.owners(&here, id).await,
                    1 => self.circle(&here, id).await,
                    2 => self.two_owners(&here, id).await,
                    3 => self.finalizer(&here, id).await,
                    4 => self.collection(&here, id).await,
                    5 => self.writes(&here, id).await,
                    _ => self.service(&name, id).await,
                }
                self.steps.fetch_add(1, Ordering::Relaxed);
            }
            kept.push_back(name);
            if kept.len() > KEPT || self.chance() {
                let oldest = kept.pop_front().unwrap();
                self.end_namespace(&oldest).await;
            }
        }
        self
    }

    /// Creates CustomResourceDefinitions whose storage version changes while objects are written in both versions.
    /// Returns the objects that must exist, with their numbers, by resource.
    async fn define(
        mut self,
        hooks: Arc<WebhookServer>,
    ) -> (Self, BTreeMap<String, BTreeMap<String, u64>>) {
        let mut kept = BTreeMap::new();
        let mut order = VecDeque::new();
        for round in 0.. {
            if self.is_over() {
                break;
            }
            let definition = Definition::new(self.number, round, self.chance());
            self.client
                .create(DEFINITIONS, definition.object(&hooks))
                .await;
            let watches = ["v1", "v2"]
                .map(|version| Follower::start(self.client.clone(), &definition.path(version)));
            let mut objects = BTreeMap::new();
            for id in 0..6 + self.dice.below(12) {
                self.write_custom(&definition, &mut objects, id).await;
                self.steps.fetch_add(1, Ordering::Relaxed);
            }
            for watch in watches {
                watch.arrive(&self.client).await;
            }
            order.push_back(definition.plural.clone());
            kept.insert(definition.plural, objects);
            if order.len() > KEPT || self.chance() {
                let oldest = order.pop_front().unwrap();
                let path = format!("{DEFINITIONS}/{oldest}.example.com");
                self.client.delete(&path).await.expect(200);
                kept.remove(&oldest);
                let inside = format!("{CONFIG_MAPS}/{oldest}-");
                self.made.retain(|path| !path.starts_with(&inside));
            }
        }
        (self, kept)
    }

    async fn write_custom(
        &mut self,
        definition: &Definition,
        objects: &mut BTreeMap<String, u64>,
        id: u64,
    ) {
        let version = ["v1", "v2"][self.dice.below(2) as usize];
        let here = definition.path(version);
        let any = (self.dice.below(8) as usize).min(objects.len().saturating_sub(1));
        let name = objects.keys().nth(any).cloned();
        let number = self.dice.below(1000);
        match (self.dice.below(6), name) {
            (0, _) => {
                let patch = json!([
                    {"op": "replace", "path": "/spec/versions/0/storage", "value": version == "v1"},
                    {"op": "replace", "path": "/spec/versions/1/storage", "value": version == "v2"},
                ]);
                let path = format!("{DEFINITIONS}/{}.example.com", definition.plural);
                self.client.patch(&path, "json", &patch).await.expect(200);
            }
            (1, Some(name)) => {
                let object = definition.object_of(version, &name, number);
                let patch = json!({"spec": object["spec"]});
                let path = format!("{here}/{name}");
                self.client.patch(&path, "merge", &patch).await.expect(200);
                objects.insert(name, number);
            }
            (2, Some(name)) => {
                let object = definition.object_of(version, &name, number);
                let path = format!("{here}/{name}?fieldManager=soak-{version}&force=true");
                self.client.patch(&path, "apply", &object).await.expect(200);
                objects.insert(name, number);
            }
            (3, Some(name)) => {
                self.delete(&format!("{here}/{name}"), "Background").await;
                objects.remove(&name);
                self.made
                    .remove(&format!("{CONFIG_MAPS}/{}-{name}", definition.plural));
            }
            _ => {
                let name = format!("object-{id:02}");
                let object = definition.object_of(version, &name, number);
                let object = self.client.create(&here, object).await;
                let dependent = format!("{}-{name}", definition.plural);
                self.map(CONFIG_MAPS, &dependent, &[owner(&object, true)])
                    .await;
                self.made.insert(format!("{CONFIG_MAPS}/{dependent}"));
                objects.insert(name, number);
            }
        }
    }
}

/// A CustomResourceDefinition with two versions, converted by a webhook or with strategy `None`.
struct Definition {
    plural: String,
    kind: String,
    is_converted: bool,
}

impl Definition {
    fn new(number: u64, round: u64, is_converted: bool) -> Self {
        let part = if is_converted { "converted" } else { "alike" };
        Self {
            plural: format!("{part}{number}r{round}"),
            kind: format!("{}{number}r{round}", part.to_uppercase()),
            is_converted,
        }
    }

    fn object(&self, hooks: &WebhookServer) -> Value {
        let mut object = if self.is_converted {
            converted_by(hooks, json!([strict("v1", true), strict("v2", false)]))
        } else {
            definition(json!([open_version("v1", true), open_version("v2", false)]))
        };
        object["metadata"]["name"] = format!("{}.example.com", self.plural).into();
        object["spec"]["names"] = json!({"plural": self.plural, "kind": self.kind});
        object
    }

    fn path(&self, version: &str) -> String {
        path_of(&self.plural, version)
    }

    fn object_of(&self, version: &str, name: &str, number: u64) -> Value {
        json!({
            "apiVersion": format!("example.com/{version}"), "kind": self.kind,
            "metadata": {"name": name}, "spec": {field_of(&self.plural, version): number},
        })
    }
}

fn path_of(plural: &str, version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/{plural}")
}

fn field_of(plural: &str, version: &str) -> &'static str {
    if version == "v1" || plural.starts_with("alike") {
        "size"
    } else {
        "length"
    }
}

fn key_of(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// A watch of all objects of a resource, and the state according to its events.
struct Follower {
    path: String,
    seen: Arc<Mutex<BTreeMap<String, Value>>>,
    task: JoinHandle<()>,
}

impl Follower {
    fn start(client: Client, path: &str) -> Self {
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        Self {
            path: path.to_owned(),
            seen: Arc::clone(&seen),
            task: tokio::spawn(follow(client, path.to_owned(), seen)),
        }
    }

    /// Waits until the state of the watch equals the list.
    async fn arrive(self, client: &Client) {
        let list = listed(&client.get(&self.path).await.expect(200));
        let is_there = || *self.seen.lock().unwrap() == list;
        let arrived = async {
            while !is_there() && !self.task.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(DEADLINE, arrived).await;
        if self.task.is_finished() {
            self.task.await.unwrap();
            return;
        }
        self.task.abort();
        assert_eq!(*self.seen.lock().unwrap(), list, "{}", self.path);
    }
}

async fn follow(client: Client, path: String, seen: Arc<Mutex<BTreeMap<String, Value>>>) {
    let mut last = String::new();
    loop {
        let from = match last.as_str() {
            "" => path.clone(),
            version => format!("{path}?resourceVersion={version}"),
        };
        let mut watch = client.watch(&from).await;
        // Watches of custom resources end when their CustomResourceDefinition changes, and are resumed.
        while let Some((kind, object)) = watch.whenever().await {
            let key = key_of(&object);
            let version = object["metadata"]["resourceVersion"].as_str().unwrap();
            version.clone_into(&mut last);
            let mut seen = seen.lock().unwrap();
            if kind == "DELETED" {
                assert!(seen.remove(&key).is_some(), "{path} {key} was never there");
            } else {
                let told = seen.insert(key.clone(), object);
                assert_eq!(told.is_none(), kind == "ADDED", "{kind} {path} {key}");
            }
        }
    }
}

/// The items of a list, in the form of watch events.
fn listed(list: &Value) -> BTreeMap<String, Value> {
    let kind = list["kind"].as_str().unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let mut item = item.clone();
            item["apiVersion"] = list["apiVersion"].clone();
            item["kind"] = kind.trim_end_matches("List").into();
            (key_of(&item), item)
        })
        .collect()
}

/// Lists all objects of these resources, by path.
async fn lists(client: &Client) -> BTreeMap<&'static str, BTreeMap<String, Value>> {
    let mut lists = BTreeMap::new();
    for path in WATCHED {
        lists.insert(path, listed(&client.get(path).await.expect(200)));
    }
    lists
}

/// The first violated invariant, if any.
fn fault(
    lists: &BTreeMap<&'static str, BTreeMap<String, Value>>,
    made: &BTreeSet<String>,
    definitions: &BTreeSet<String>,
) -> Option<String> {
    let namespaces = &lists[NAMESPACES];
    let mut uids = BTreeSet::new();
    for object in lists.values().flat_map(BTreeMap::values) {
        let metadata = &object["metadata"];
        if metadata.get("deletionTimestamp").is_some() {
            return Some(format!("on its way out: {object}"));
        }
        if let Some(namespace) = metadata["namespace"].as_str()
            && !namespaces.contains_key(&format!("/{namespace}"))
        {
            return Some(format!("without a namespace: {object}"));
        }
        uids.insert(metadata["uid"].as_str());
    }
    for name in namespaces.keys() {
        let name = name.trim_start_matches('/');
        for (path, object) in [
            ("/api/v1/serviceaccounts", "default"),
            ("/api/v1/configmaps", "kube-root-ca.crt"),
        ] {
            if !lists[path].contains_key(&format!("{name}/{object}")) {
                return Some(format!("namespace {name} has no {object}"));
            }
        }
    }
    let mut there = BTreeSet::new();
    for (path, plural) in [
        ("/api/v1/configmaps", "configmaps"),
        ("/api/v1/services", "services"),
    ] {
        for (key, object) in &lists[path] {
            let (namespace, name) = key.split_once('/').unwrap();
            let owners = object["metadata"]["ownerReferences"].as_array();
            for owner in owners.into_iter().flatten() {
                if owner["kind"] == "ConfigMap" && !uids.contains(&owner["uid"].as_str()) {
                    return Some(format!("its owner is gone: {object}"));
                }
            }
            if !matches!(name, "kube-root-ca.crt" | "kubernetes") && namespace != "kube-system" {
                there.insert(format!("{NAMESPACES}/{namespace}/{plural}/{name}"));
            }
        }
    }
    if let Some(path) = made.symmetric_difference(&there).next() {
        let is_there = there.contains(path);
        return Some(format!("{path} is there: {is_there}"));
    }
    let defined: BTreeSet<String> = (lists[DEFINITIONS].keys())
        .map(|key| key.trim_start_matches('/').to_owned())
        .collect();
    (defined != *definitions).then(|| format!("{defined:?} are defined"))
}

/// Checks that all objects of kept CustomResourceDefinitions are present in both versions, as last written.
async fn check_custom(client: &Client, kept: &BTreeMap<String, BTreeMap<String, u64>>) {
    for (plural, objects) in kept {
        for version in ["v1", "v2"] {
            let list = client.get(&path_of(plural, version)).await.expect(200);
            let items = list["items"].as_array().unwrap();
            let told: BTreeMap<String, u64> = items
                .iter()
                .map(|item| {
                    assert_eq!(item["apiVersion"], format!("example.com/{version}"));
                    let name = item["metadata"]["name"].as_str().unwrap().to_owned();
                    let number = item["spec"][field_of(plural, version)].as_u64();
                    (name, number.unwrap_or_else(|| panic!("{item}")))
                })
                .collect();
            assert_eq!(&told, objects, "{plural} {version}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_holds_after_many_clients() {
    let folder = tempfile::tempdir().unwrap();
    let server = Kept::start(folder.path()).await;
    let hooks = Arc::new(webhook().await);
    let steps = Arc::new(AtomicU64::new(0));
    let mut watches = Vec::new();
    for path in WATCHED {
        let client = Client::admin(&server.running).await;
        watches.push(Follower::start(client, path));
    }
    let seed = setting("LOCKGATE_SOAK_SEED", 1);
    let until = Instant::now() + Duration::from_secs(setting("LOCKGATE_SOAK_SECONDS", 5));
    let mut living = Vec::new();
    let mut defining = Vec::new();
    for number in 0..CLIENTS {
        let soaker = Soaker {
            client: Client::admin(&server.running).await,
            dice: Dice::new(seed * CLIENTS + number + 1),
            number,
            until,
            steps: Arc::clone(&steps),
            made: BTreeSet::new(),
        };
        if number < DEFINERS {
            defining.push(tokio::spawn(soaker.define(Arc::clone(&hooks))));
        } else {
            living.push(tokio::spawn(soaker.live()));
        }
    }
    let mut made = BTreeSet::new();
    let mut kept = BTreeMap::new();
    for soaker in living {
        made.extend(soaker.await.unwrap().made);
    }
    for soaker in defining {
        let (soaker, objects) = soaker.await.unwrap();
        made.extend(soaker.made);
        kept.extend(objects);
    }
    let definitions: BTreeSet<String> = (kept.keys())
        .map(|plural| format!("{plural}.example.com"))
        .collect();

    // Controllers finish their work. An idle connection would be closed by now.
    let client = Client::admin(&server.running).await;
    let mut last = None;
    let holds = async {
        loop {
            last = fault(&lists(&client).await, &made, &definitions);
            if last.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(DEADLINE * 2, holds).await.is_ok();
    assert!(in_time, "{last:?}");
    check_custom(&client, &kept).await;

    // The state of each watch equals the list.
    for watch in watches {
        watch.arrive(&client).await;
    }
    let before = lists(&client).await;
    server.stop().await;
    let server = Kept::start(folder.path()).await;
    let client = Client::admin(&server.running).await;
    let after = lists(&client).await;
    for (path, list) in &before {
        assert_eq!(&after[path], list, "{path} after a restart");
    }
    check_custom(&client, &kept).await;
    server.stop().await;
    println!("{} steps, seed {seed}", steps.load(Ordering::Relaxed));
}
