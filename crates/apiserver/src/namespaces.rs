//! What admission knows of namespaces. It is always up to date: writes to namespaces change it before
//! they return.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_admission::host::{BoxFuture, Namespace, NamespaceError, Namespaces};
use serde_json::Value;

use crate::metadata;

/// The namespaces there are.
#[derive(Debug, Default)]
pub(crate) struct NamespaceCache(RwLock<HashMap<String, Arc<Namespace>>>);

impl NamespaceCache {
    /// Learns of a namespace.
    pub(crate) fn set(&self, name: &str, object: &Value) {
        let labels = metadata::of(object)
            .and_then(|metadata| metadata.get("labels"))
            .and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let namespace = Namespace {
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            terminating: metadata::is_deleting(object)
                || object.pointer("/status/phase").and_then(Value::as_str) == Some("Terminating"),
        };
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), Arc::new(namespace));
    }

    /// Forgets a namespace.
    pub(crate) fn remove(&self, name: &str) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

impl Namespaces for NamespaceCache {
    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move {
            self.cached(name)
                .ok_or_else(|| NamespaceError::not_found(name))
        })
    }
}
