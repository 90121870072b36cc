//! Lookups of other objects that a decision depends on.

#[cfg(feature = "kube")]
mod live;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_admission::host::BoxFuture;
use lockgate_admission::status::namespace_not_found;
use lockgate_api::meta::status::Status;
use serde_json::Value;

use crate::fields::text_at;
use crate::rules::Refusal;

#[cfg(feature = "kube")]
pub use live::LiveLookup;

/// A resource for lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural name.
    pub plural: &'static str,
    /// The kind.
    pub kind: &'static str,
}

impl Resource {
    const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            plural,
            kind,
        }
    }
}

/// Namespaces.
pub const NAMESPACES: Resource = Resource::new("", "v1", "namespaces", "Namespace");

/// Pods.
pub const PODS: Resource = Resource::new("", "v1", "pods", "Pod");

/// Nodes.
pub const NODES: Resource = Resource::new("", "v1", "nodes", "Node");

/// PersistentVolumeClaims.
pub const CLAIMS: Resource =
    Resource::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");

/// PersistentVolumes.
pub const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes", "PersistentVolume");

/// CSIDrivers.
pub const CSI_DRIVERS: Resource = Resource::new("storage.k8s.io", "v1", "csidrivers", "CSIDriver");

/// Limit ranges.
pub const LIMIT_RANGES: Resource = Resource::new("", "v1", "limitranges", "LimitRange");

/// Resource quotas.
pub const RESOURCE_QUOTAS: Resource = Resource::new("", "v1", "resourcequotas", "ResourceQuota");

/// Service accounts.
pub const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");

/// Storage classes.
pub const STORAGE_CLASSES: Resource =
    Resource::new("storage.k8s.io", "v1", "storageclasses", "StorageClass");

/// Priority classes.
pub const PRIORITY_CLASSES: Resource = Resource::new(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
);

/// Runtime classes.
pub const RUNTIME_CLASSES: Resource =
    Resource::new("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass");

/// Ingress classes.
pub const INGRESS_CLASSES: Resource =
    Resource::new("networking.k8s.io", "v1", "ingressclasses", "IngressClass");

/// Device classes.
pub const DEVICE_CLASSES: Resource =
    Resource::new("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");

/// ResourceClaims.
pub const RESOURCE_CLAIMS: Resource =
    Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");

/// Workloads.
pub const WORKLOADS: Resource =
    Resource::new("scheduling.k8s.io", "v1alpha2", "workloads", "Workload");

/// Pod groups.
pub const POD_GROUPS: Resource =
    Resource::new("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup");

/// Pod presets, a custom resource since Kubernetes 1.20.
pub const POD_PRESETS: Resource =
    Resource::new("settings.k8s.io", "v1alpha1", "podpresets", "PodPreset");

/// A failed lookup. A missing object is not an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(pub String);

impl From<LookupError> for Refusal {
    fn from(error: LookupError) -> Self {
        Self::Fault(error.to_string())
    }
}

/// The future result of a lookup.
pub type Found<'f, T> = BoxFuture<'f, Result<T, LookupError>>;

/// Access to other objects: a cache, or an API server.
pub trait Lookup: Send + Sync + 'static {
    /// An object, if it exists. The namespace of cluster-scoped resources is empty.
    fn get<'f>(
        &'f self,
        resource: Resource,
        namespace: &'f str,
        name: &'f str,
    ) -> Found<'f, Option<Arc<Value>>>;

    /// All objects of a namespace; an empty namespace means all.
    fn list<'f>(&'f self, resource: Resource, namespace: &'f str) -> Found<'f, Vec<Arc<Value>>>;
}

impl<L: Lookup + ?Sized> Lookup for Arc<L> {
    fn get<'f>(
        &'f self,
        resource: Resource,
        namespace: &'f str,
        name: &'f str,
    ) -> Found<'f, Option<Arc<Value>>> {
        (**self).get(resource, namespace, name)
    }

    fn list<'f>(&'f self, resource: Resource, namespace: &'f str) -> Found<'f, Vec<Arc<Value>>> {
        (**self).list(resource, namespace)
    }
}

impl fmt::Debug for dyn Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

/// A namespace. A missing one is a 404, as in the API server.
pub(crate) async fn namespace(lookup: &dyn Lookup, name: &str) -> Result<Arc<Value>, Refusal> {
    let found = lookup.get(NAMESPACES, "", name).await?;
    found.ok_or_else(|| Refusal::Status(Box::new(namespace_not_found(name))))
}

/// All objects of a namespace, sorted by name, so that every replica has the same result.
pub(crate) async fn sorted(
    lookup: &dyn Lookup,
    resource: Resource,
    namespace: &str,
) -> Result<Vec<Arc<Value>>, LookupError> {
    let mut all = lookup.list(resource, namespace).await?;
    all.sort_by(|one, other| name_of(one).cmp(name_of(other)));
    Ok(all)
}

pub(crate) fn name_of(object: &Value) -> &str {
    text_at(object, &["metadata", "name"])
}

/// The name of the newest object; of equally old objects, the first by name.
pub(crate) fn newest(objects: &[Arc<Value>]) -> Option<&str> {
    // RFC 3339 timestamps sort lexically.
    let age = |object: &Value| text_at(object, &["metadata", "creationTimestamp"]).to_owned();
    let newest = objects.iter().max_by(|one, other| {
        let by_name = name_of(other).cmp(name_of(one));
        age(one).cmp(&age(other)).then(by_name)
    });
    newest.map(|object| name_of(object))
}

/// Writes of plugins on their own, as the API server.
pub trait Writes: Send + Sync + 'static {
    /// Creates an object.
    fn create<'f>(
        &'f self,
        resource: Resource,
        namespace: &'f str,
        object: Value,
    ) -> BoxFuture<'f, Result<(), Box<Status>>>;

    /// Replaces the status of an object, if its resourceVersion has not changed. Returns the updated object.
    fn update_status<'f>(
        &'f self,
        resource: Resource,
        object: &'f Value,
    ) -> BoxFuture<'f, Result<Arc<Value>, Box<Status>>>;
}

impl fmt::Debug for dyn Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writes")
    }
}

/// The key of an object: its resource, namespace and name.
type Place = (Resource, String, String);

/// Objects in memory. Clones share them.
///
/// ```
/// use lockgate_plugins::lookup::{Memory, NAMESPACES};
/// use serde_json::json;
///
/// let memory = Memory::new();
/// memory.put(NAMESPACES, json!({"metadata": {"name": "shop"}}));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<RwLock<BTreeMap<Place, Arc<Value>>>>);

impl Memory {
    /// Creates an empty lookup.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object, or replaces the one of the same name.
    pub fn put(&self, resource: Resource, object: Value) {
        let place = place(resource, &object);
        let mut objects = self.0.write().unwrap_or_else(PoisonError::into_inner);
        objects.insert(place, Arc::new(object));
    }

    /// Removes an object.
    pub fn remove(&self, resource: Resource, namespace: &str, name: &str) {
        let mut objects = self.0.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(&(resource, namespace.to_owned(), name.to_owned()));
    }
}

fn place(resource: Resource, object: &Value) -> Place {
    let namespace = text_at(object, &["metadata", "namespace"]);
    (resource, namespace.to_owned(), name_of(object).to_owned())
}

impl Lookup for Memory {
    fn get<'f>(
        &'f self,
        resource: Resource,
        namespace: &'f str,
        name: &'f str,
    ) -> Found<'f, Option<Arc<Value>>> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = objects.get(&(resource, namespace.to_owned(), name.to_owned()));
        let found = found.cloned();
        Box::pin(async move { Ok(found) })
    }

    fn list<'f>(&'f self, resource: Resource, namespace: &'f str) -> Found<'f, Vec<Arc<Value>>> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_there =
            |place: &&Place| place.0 == resource && (namespace.is_empty() || place.1 == namespace);
        let found = objects.iter().filter(|(place, _)| is_there(place));
        let found = found.map(|(_, object)| Arc::clone(object)).collect();
        Box::pin(async move { Ok(found) })
    }
}
