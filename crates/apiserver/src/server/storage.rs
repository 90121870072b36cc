//! Stage 7: the bridge to the store. Every write that other parts of the server are made from changes
//! them too, before it returns.

use std::borrow::Cow;
use std::time::Duration;

use lockgate_store::{Entry, Revision, WriteError};
use serde_json::Value;

use super::Server;
use crate::effects;
use crate::error::{Outcome, internal};
use crate::registry::{Resource, Shape};
use crate::stored;

impl Server {
    /// The prefix of the keys of a resource, in a namespace or in all.
    pub(crate) fn prefix(&self, resource: &Resource, namespace: &str) -> String {
        let (group, plural) = &resource.storage;
        let within = resource.names.namespaced && !namespace.is_empty();
        stored::prefix(group, plural, within.then_some(namespace))
    }

    /// The key of an object.
    pub(crate) fn key(&self, resource: &Resource, namespace: &str, name: &str) -> String {
        let mut key = self.prefix(resource, namespace);
        key.push_str(name);
        key
    }

    /// The object of an entry, in the version of a resource.
    pub(crate) async fn show(&self, entry: &Entry, resource: &Resource) -> Outcome<Value> {
        if resource.is_storage_version() {
            let mut object = stored::parse_entry(entry, resource.shown());
            resource.shape.read_stored(&mut object);
            return Ok(object);
        }
        let kept = self.kept_as(resource)?;
        let object = stored::parse_entry(entry, kept.shown());
        let mut object = self.convert(object, &kept, resource).await?;
        resource.shape.read_stored(&mut object);
        Ok(object)
    }

    /// The object as it is stored.
    pub(crate) async fn to_storage<'o>(
        &self,
        object: &'o Value,
        resource: &Resource,
    ) -> Outcome<Cow<'o, Value>> {
        if resource.is_storage_version() {
            return Ok(Cow::Borrowed(object));
        }
        let kept = self.kept_as(resource)?;
        let converted = self.convert(object.clone(), resource, &kept).await?;
        Ok(Cow::Owned(converted))
    }

    fn kept_as(&self, resource: &Resource) -> Outcome<std::sync::Arc<Resource>> {
        let (group, version) = &resource.storage_version;
        let snapshot = self.registry.snapshot();
        let kept = snapshot
            .find(group, version, &resource.storage.1)
            .or_else(|| snapshot.hidden(group, version, &resource.storage.1));
        kept.cloned()
            .ok_or_else(|| internal("the version objects are stored in is unknown"))
    }

    /// The object in another version.
    pub(crate) async fn convert(
        &self,
        object: Value,
        from: &Resource,
        to: &Resource,
    ) -> Outcome<Value> {
        if let (Shape::Custom(_), Shape::Custom(custom)) = (&from.shape, &to.shape) {
            let mut objects = custom.convert(self, vec![object], from, to).await?;
            return objects
                .pop()
                .ok_or_else(|| internal("the conversion returned nothing"));
        }
        from.shape
            .convert(&object, &to.shape)
            .map_err(|error| internal(&error))
    }

    /// Stores a new object.
    pub(crate) async fn insert(
        &self,
        resource: &Resource,
        key: &str,
        object: &Value,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let bytes = stored::encode(object);
        if !effects::has_any(resource) {
            return self.store.create(key, bytes, ttl).await;
        }
        let _ordered = self.effects.lock().await;
        let revision = self.store.create(key, bytes, ttl).await?;
        effects::written(self, resource, object);
        Ok(revision)
    }

    /// Stores a changed object, if nobody else was faster.
    pub(crate) async fn swap(
        &self,
        resource: &Resource,
        key: &str,
        expected: Revision,
        object: &Value,
    ) -> Result<Revision, WriteError> {
        let bytes = stored::encode(object);
        if !effects::has_any(resource) {
            return self.store.update(key, expected, bytes).await;
        }
        let _ordered = self.effects.lock().await;
        let revision = self.store.update(key, expected, bytes).await?;
        effects::written(self, resource, object);
        Ok(revision)
    }

    /// Removes an object, if nobody else was faster.
    pub(crate) async fn remove(
        &self,
        resource: &Resource,
        key: &str,
        expected: Revision,
    ) -> Result<Revision, WriteError> {
        if !effects::has_any(resource) {
            return self
                .store
                .delete(key, expected)
                .await
                .map(|(revision, _)| revision);
        }
        let _ordered = self.effects.lock().await;
        let (revision, entry) = self.store.delete(key, expected).await?;
        effects::removed(
            self,
            resource,
            &stored::parse_entry(&entry, resource.shown()),
        );
        Ok(revision)
    }
}
