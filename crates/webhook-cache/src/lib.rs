//! Objects of a cluster for webhooks that look things up: listed once, watched, indexed, shared.
//!
//! ```text
//!   API server ──list, watch──► Cache ◄── validators and mutators, as many as there are
//!                                 │
//!                        ready check, metrics
//! ```
//!
//! A lookup in a [`Cache`] sends no request. The cache lags behind by the latency of the watch, so critical
//! invariants must be checked again where the objects are used. Before the first list, a lookup is an error instead
//! of an empty result, and the server is not ready.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Service;
//! use kube::Api;
//! use lockgate_webhook::Webhooks;
//! use lockgate_webhook::server::Server;
//! use lockgate_webhook_cache::Cache;
//!
//! # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let services = Cache::of(Api::<Service>::all(client))
//!     .index("hostname", |service: &Service| {
//!         let annotations = service.metadata.annotations.iter().flatten();
//!         let hosts = annotations.filter(|(key, _)| *key == "example.com/hostname");
//!         hosts.map(|(_, host)| host.clone()).collect()
//!     })
//!     .start();
//! let mut taken = services.by_index("hostname", "shop.example.com");
//! let server = Server::new(Webhooks::new())
//!     .ready_check("services", services.ready_check())
//!     .register(|registry| services.register(registry));
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use lockgate_webhook::server::prometheus_client::metrics::counter::Counter;
use lockgate_webhook::server::prometheus_client::metrics::gauge::Gauge;
use lockgate_webhook::server::prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// A failed lookup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The first list is not complete.
    #[error("the cache of {0} has not synced yet")]
    NotSynced(String),
    /// The cache has no such index, which is a programming error.
    #[error("the cache of {kind} has no index `{index}`")]
    NoIndex {
        /// The kind of the objects.
        kind: String,
        /// The name of the index.
        index: String,
    },
}

/// Computes the keys of an object in an index.
type Keys<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// A namespace, empty for cluster-scoped objects, and a name.
type Key = (String, String);

/// A cache that has not been started.
pub struct Builder<K> {
    api: Api<K>,
    config: watcher::Config,
    indexes: Vec<(&'static str, Keys<K>)>,
    kind: String,
}

/// Objects of one kind. Clones share them; the watch ends with the last.
pub struct Cache<K>(Arc<Shared<K>>);

struct Shared<K> {
    kind: String,
    state: RwLock<State<K>>,
    indexes: Vec<(&'static str, Keys<K>)>,
    synced: watch::Sender<bool>,
    metrics: Metrics,
    watching: std::sync::OnceLock<tokio::task::AbortHandle>,
}

#[derive(Debug, Clone, Default)]
struct Metrics {
    objects: Gauge,
    synced: Gauge,
    events: Counter,
    lists: Counter,
    errors: Counter,
}

struct State<K> {
    objects: HashMap<Key, Arc<K>>,
    /// The objects of each index by key.
    indexes: Vec<HashMap<String, BTreeSet<Key>>>,
}

impl<K> State<K> {
    fn new(indexes: usize) -> Self {
        Self {
            objects: HashMap::new(),
            indexes: std::iter::repeat_with(HashMap::new).take(indexes).collect(),
        }
    }

    fn put(&mut self, key: Key, object: K, indexes: &[(&'static str, Keys<K>)]) {
        self.remove(&key, indexes);
        for ((_, keys), index) in indexes.iter().zip(&mut self.indexes) {
            for value in keys(&object) {
                index.entry(value).or_default().insert(key.clone());
            }
        }
        self.objects.insert(key, Arc::new(object));
    }

    fn remove(&mut self, key: &Key, indexes: &[(&'static str, Keys<K>)]) {
        let Some(object) = self.objects.remove(key) else {
            return;
        };
        for ((_, keys), index) in indexes.iter().zip(&mut self.indexes) {
            for value in keys(&object) {
                if let Some(objects) = index.get_mut(&value) {
                    objects.remove(key);
                    if objects.is_empty() {
                        index.remove(&value);
                    }
                }
            }
        }
    }
}

impl<K> Cache<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    /// A cache of the objects that an API lists.
    #[must_use]
    pub fn of(api: Api<K>) -> Builder<K> {
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        Builder {
            api,
            config: watcher::Config::default(),
            indexes: Vec::new(),
            kind,
        }
    }
}

impl<K> Builder<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    /// Caches only objects with matching labels.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Adds an index: the keys under which an object is found.
    #[must_use]
    pub fn index(
        mut self,
        name: &'static str,
        keys: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.indexes.push((name, Box::new(keys)));
        self
    }

    /// Starts the list and watch. Failures are retried with backoff.
    #[must_use]
    pub fn start(self) -> Cache<K> {
        let Self {
            api,
            config,
            indexes,
            kind,
        } = self;
        let shared = Arc::new(Shared {
            kind,
            state: RwLock::new(State::new(indexes.len())),
            indexes,
            synced: watch::Sender::new(false),
            metrics: Metrics::default(),
            watching: std::sync::OnceLock::new(),
        });
        let weak = Arc::downgrade(&shared);
        let task = tokio::spawn(async move {
            let mut events = watcher(api, config).default_backoff().boxed();
            let mut listed = None;
            loop {
                let event = events.try_next().await;
                let Some(shared) = weak.upgrade() else {
                    return;
                };
                match event {
                    Ok(Some(event)) => shared.observe(event, &mut listed),
                    Ok(None) => return,
                    Err(error) => {
                        shared.metrics.errors.inc();
                        tracing::warn!(kind = shared.kind, %error, "watch failed, retrying");
                    }
                }
            }
        });
        // It is set only here.
        let _ = shared.watching.set(task.abort_handle());
        Cache(shared)
    }
}

impl<K: Resource> Shared<K> {
    fn observe(&self, event: Event<K>, listed: &mut Option<State<K>>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        self.metrics.events.inc();
        match event {
            // The previous objects are kept until the new list is complete.
            Event::Init => *listed = Some(State::new(self.indexes.len())),
            Event::InitApply(object) => {
                let state = listed.get_or_insert_with(|| State::new(self.indexes.len()));
                state.put(key(&object), object, &self.indexes);
            }
            Event::InitDone => {
                if let Some(all) = listed.take() {
                    *self.write() = all;
                }
                self.metrics.lists.inc();
                self.metrics.synced.set(1);
                self.synced.send_replace(true);
            }
            Event::Apply(object) => self.write().put(key(&object), object, &self.indexes),
            Event::Delete(object) => self.write().remove(&key(&object), &self.indexes),
        }
        let count = self.read().objects.len();
        self.metrics
            .objects
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

impl<K> Shared<K> {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, State<K>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State<K>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.get() {
            watching.abort();
        }
    }
}

impl<K> Cache<K> {
    /// An object by namespace, empty for cluster-scoped ones, and name.
    ///
    /// # Errors
    ///
    /// Fails before the first list is complete.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, CacheError> {
        self.check()?;
        let key = (namespace.to_owned(), name.to_owned());
        Ok(self.0.read().objects.get(&key).cloned())
    }

    /// The objects under a key of an index, by namespace and name.
    ///
    /// # Errors
    ///
    /// Fails before the first list is complete, or if there is no such index.
    pub fn by_index(&self, index: &str, key: &str) -> Result<Vec<Arc<K>>, CacheError> {
        self.check()?;
        let place = self.0.indexes.iter().position(|(name, _)| *name == index);
        let place = place.ok_or_else(|| CacheError::NoIndex {
            kind: self.0.kind.clone(),
            index: index.to_owned(),
        })?;
        let state = self.0.read();
        let found = state.indexes.get(place).and_then(|index| index.get(key));
        let found = found.into_iter().flatten();
        Ok(found
            .filter_map(|key| state.objects.get(key).cloned())
            .collect())
    }

    /// All objects.
    ///
    /// # Errors
    ///
    /// Fails before the first list is complete.
    pub fn all(&self) -> Result<Vec<Arc<K>>, CacheError> {
        self.check()?;
        Ok(self.0.read().objects.values().cloned().collect())
    }

    /// Returns `true` once the first list is complete.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn until_synced(&self) {
        let mut synced = self.0.synced.subscribe();
        // The sender outlives this call.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    fn check(&self) -> Result<(), CacheError> {
        match self.is_synced() {
            true => Ok(()),
            false => Err(CacheError::NotSynced(self.0.kind.clone())),
        }
    }

    /// A readiness check for [`Server::ready_check`](lockgate_webhook::server::Server::ready_check): the
    /// server is not ready before the cache is synced.
    pub fn ready_check(
        &self,
    ) -> impl Fn() -> std::future::Ready<Result<(), CacheError>> + Send + Sync + 'static + use<K>
    where
        K: Send + Sync + 'static,
    {
        let cache = self.clone();
        move || std::future::ready(cache.check())
    }

    /// Adds the metrics of the cache to those of a server.
    pub fn register(&self, registry: &mut Registry) {
        let kind = std::borrow::Cow::Owned(self.0.kind.clone());
        let labels = [(std::borrow::Cow::Borrowed("kind"), kind)];
        let registry = registry.sub_registry_with_labels(labels.into_iter());
        let metrics = &self.0.metrics;
        registry.register(
            "webhook_cache_objects",
            "Objects in the cache",
            metrics.objects.clone(),
        );
        registry.register(
            "webhook_cache_synced",
            "1 once all objects were listed",
            metrics.synced.clone(),
        );
        registry.register(
            "webhook_cache_events",
            "Events of the watch",
            metrics.events.clone(),
        );
        registry.register(
            "webhook_cache_lists",
            "Complete lists",
            metrics.lists.clone(),
        );
        registry.register(
            "webhook_cache_errors",
            "Failures of the watch",
            metrics.errors.clone(),
        );
    }
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("kind", &self.0.kind)
            .finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for Builder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
