//! The namespaces for admission. Writes of namespaces update them before they return.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_admission::host::{BoxFuture, Namespace, NamespaceError, Namespaces};
use lockgate_store::{ReadAt, Store};
use serde_json::Value;

use crate::in_order::InOrder;
use crate::{encoding, metadata};

/// The namespaces by name.
pub(crate) struct NamespaceCache {
    known: RwLock<HashMap<String, Arc<Namespace>>>,
    /// The writes in progress: a namespace may be stored and not yet in the cache.
    order: Arc<InOrder>,
    /// Looks up unknown namespaces, if other servers may create some.
    shared: Option<Arc<dyn Store>>,
}

impl fmt::Debug for NamespaceCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceCache")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl NamespaceCache {
    pub(crate) fn new(order: Arc<InOrder>, store: &Arc<dyn Store>) -> Self {
        Self {
            known: RwLock::default(),
            order,
            shared: store.is_shared().then(|| Arc::clone(store)),
        }
    }

    /// Adds or replaces a namespace.
    pub(crate) fn set(&self, name: &str, object: &Value) {
        let namespace = Arc::new(read(object));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), namespace);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.known
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

fn read(object: &Value) -> Namespace {
    let labels = metadata::of(object)
        .and_then(|metadata| metadata.get("labels"))
        .and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    Namespace {
        labels: labels
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        terminating: metadata::is_deleting(object)
            || object.pointer("/status/phase").and_then(Value::as_str) == Some("Terminating"),
    }
}

impl Namespaces for NamespaceCache {
    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move {
            // The store may already contain a namespace whose write is not complete.
            self.order.idle().await;
            if let Some(known) = self.cached(name) {
                return Ok(known);
            }
            // Another server may have created it a moment ago.
            let key = format!("{}{name}", encoding::prefix("", "namespaces", None));
            let found = match &self.shared {
                Some(store) => store.get(&key, ReadAt::Latest).await.ok(),
                None => None,
            };
            let object = found
                .and_then(|(entry, _)| entry)
                .and_then(|entry| encoding::tree(&entry.value));
            object
                .map(|object| Arc::new(read(&object)))
                .ok_or_else(|| NamespaceError::not_found(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn waits_for_a_write_that_is_under_way() {
        let order = Arc::new(InOrder::default());
        let store: Arc<dyn Store> = Arc::new(lockgate_store::MemoryStore::new());
        let cache = NamespaceCache::new(Arc::clone(&order), &store);
        let writing = order.turn("/core/namespaces/shop").await;
        let mut fetching = cache.fetch("shop");
        assert!(futures_util::poll!(fetching.as_mut()).is_pending());
        cache.set("shop", &json!({"metadata": {"name": "shop"}}));
        drop(writing);
        assert!(!fetching.await.unwrap().terminating);
        assert!(cache.fetch("other").await.is_err());
    }
}
