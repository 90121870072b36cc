//! Lookups through a live API server.

use std::sync::Arc;

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::{Found, Lookup, LookupError, Resource};

/// Reads from an API server each time, so that no decision uses stale data.
#[derive(Clone)]
pub struct LiveLookup {
    client: kube::Client,
}

impl LiveLookup {
    /// Reads from the client's API server.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self { client }
    }

    fn api(&self, resource: Resource, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(resource.group, resource.version, resource.kind);
        let kind = ApiResource::from_gvk_with_plural(&kind, resource.plural);
        let client = self.client.clone();
        if namespace.is_empty() {
            Api::all_with(client, &kind)
        } else {
            Api::namespaced_with(client, namespace, &kind)
        }
    }
}

impl std::fmt::Debug for LiveLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LiveLookup")
    }
}

impl Lookup for LiveLookup {
    fn get<'f>(
        &'f self,
        resource: Resource,
        namespace: &'f str,
        name: &'f str,
    ) -> Found<'f, Option<Arc<Value>>> {
        Box::pin(async move {
            let found = self.api(resource, namespace).get_opt(name).await;
            found.map_err(unknown)?.map(into_value).transpose()
        })
    }

    fn list<'f>(&'f self, resource: Resource, namespace: &'f str) -> Found<'f, Vec<Arc<Value>>> {
        Box::pin(async move {
            let all = ListParams::default();
            let found = self.api(resource, namespace).list(&all).await;
            found
                .map_err(unknown)?
                .into_iter()
                .map(into_value)
                .collect()
        })
    }
}

fn into_value(object: DynamicObject) -> Result<Arc<Value>, LookupError> {
    serde_json::to_value(object)
        .map(Arc::new)
        .map_err(|error| LookupError(error.to_string()))
}

fn unknown(error: kube::Error) -> LookupError {
    LookupError(error.to_string())
}
