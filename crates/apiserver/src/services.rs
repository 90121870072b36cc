//! The services that webhook calls are resolved with. Writes to services change them before they
//! return.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_admission::https::{Service, ServicePort, Services};
use serde_json::Value;

/// The services by namespace and name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceCache(Arc<RwLock<HashMap<(String, String), Service>>>);

impl ServiceCache {
    /// Adds or replaces a service.
    pub(crate) fn set(&self, namespace: &str, name: &str, object: &Value) {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let ports = object
            .pointer("/spec/ports")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let ports = ports
            .filter_map(|item| item.get("port")?.as_i64())
            .filter_map(|port| i32::try_from(port).ok());
        let service = Service {
            cluster_ip: text("/spec/clusterIP"),
            external_name: (text("/spec/type") == "ExternalName")
                .then(|| text("/spec/externalName")),
            ports: ports
                .map(|port| ServicePort {
                    port,
                    endpoints: Vec::new(),
                })
                .collect(),
        };
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert((namespace.to_owned(), name.to_owned()), service);
    }

    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.remove(&(namespace.to_owned(), name.to_owned()));
    }
}

impl Services for ServiceCache {
    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }
}
