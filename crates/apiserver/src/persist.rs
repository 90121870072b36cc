//! Stage 7: the bridge to the store. Every write that other parts of the server are made from changes
//! them too, before it returns.

pub(crate) mod effects;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lockgate_store::{Entry, Revision, Unavailable, WriteError};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::controllers;
use crate::encoding;
use crate::error::Outcome;
use crate::http::limits;
use crate::metadata;
use crate::registry::Resource;
use crate::server::Server;
use crate::write::strategy;

impl Server {
    /// The prefix of the keys of a resource, in a namespace or in all.
    pub(crate) fn prefix(&self, resource: &Resource, namespace: &str) -> String {
        let (group, plural) = &resource.storage;
        let within = resource.names.namespaced && !namespace.is_empty();
        encoding::prefix(group, plural, within.then_some(namespace))
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
            let mut object = encoding::parse_entry(entry, resource.type_meta());
            resource.shape.read_stored(&mut object);
            return Ok(object);
        }
        let kept = self.converter.storage_resource(resource)?;
        let object = encoding::parse_entry(entry, kept.type_meta());
        let mut object = self.converter.convert(object, &kept, resource).await?;
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
        let kept = self.converter.storage_resource(resource)?;
        let converted = self
            .converter
            .convert(object.clone(), resource, &kept)
            .await?;
        Ok(Cow::Owned(converted))
    }

    /// Stores a new object.
    pub(crate) async fn insert(
        &self,
        resource: &Resource,
        key: &str,
        object: &Value,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let bytes = encoding::encode(object);
        check_size(resource, &bytes)?;
        if !effects::has_any(self, resource) {
            return self.store.create(key, bytes, ttl).await;
        }
        let (key, object) = (key.to_owned(), object.clone());
        self.in_order(resource, move |server, resource| async move {
            let revision = server.store.create(&key, bytes, ttl).await?;
            effects::written(&server, &resource, &object);
            Ok((revision, object))
        })
        .await
    }

    /// Stores a changed object, if nobody else was faster.
    pub(crate) async fn swap(
        &self,
        resource: &Resource,
        key: &str,
        expected: Revision,
        object: &Value,
    ) -> Result<Revision, WriteError> {
        let bytes = encoding::encode(object);
        check_size(resource, &bytes)?;
        if !effects::has_any(self, resource) {
            return self.store.update(key, expected, bytes).await;
        }
        let (key, object) = (key.to_owned(), object.clone());
        self.in_order(resource, move |server, resource| async move {
            let revision = server.store.update(&key, expected, bytes).await?;
            effects::written(&server, &resource, &object);
            Ok((revision, object))
        })
        .await
    }

    /// Removes an object, if nobody else was faster.
    pub(crate) async fn remove(
        &self,
        resource: &Resource,
        key: &str,
        expected: Revision,
    ) -> Result<Revision, WriteError> {
        if !effects::has_any(self, resource) {
            return self
                .store
                .delete(key, expected)
                .await
                .map(|(revision, _)| revision);
        }
        let key = key.to_owned();
        self.in_order(resource, move |server, resource| async move {
            let (revision, entry) = server.store.delete(&key, expected).await?;
            let object = encoding::parse_entry(&entry, resource.type_meta());
            effects::removed(&server, &resource, &object);
            Ok((revision, object))
        })
        .await
    }

    /// Makes a write that other parts of the server are made from, one after the other. It goes on when
    /// nobody waits for it any more: what is stored must be in force.
    async fn in_order<W>(
        &self,
        resource: &Resource,
        write: impl FnOnce(Arc<Self>, Arc<Resource>) -> W,
    ) -> Result<Revision, WriteError>
    where
        W: Future<Output = Result<(Revision, Value), WriteError>> + Send + 'static,
    {
        let stops = || Unavailable(String::from("the server stops"));
        let server = self.shared().ok_or_else(stops)?;
        let snapshot = self.registry.snapshot();
        let found = snapshot.find(resource.group(), &resource.version, resource.plural());
        let resource = found.cloned().ok_or(WriteError::NotFound)?;
        let is_definition = strategy::is_definition(&resource);
        let writing = write(Arc::clone(&server), resource);
        let (answer, answered) = oneshot::channel();
        self.tasks.spawn(async move {
            let written = {
                let _ordered = server.effects.lock().await;
                writing.await
            };
            let (result, object) = match written {
                Ok((revision, object)) => (Ok(revision), object),
                Err(error) => (Err(error), Value::Null),
            };
            let stored = result.is_ok();
            // Who asked for a definition also sees to it that it is established; gone, they do not.
            if answer.send(result).is_err() && stored && is_definition {
                let name = metadata::text(&object, "name");
                controllers::settle_definition_later(&server, name);
            }
        });
        answered.await.unwrap_or_else(|_| Err(stops().into()))
    }
}

/// Refuses what etcd would not take. Built-in kinds are larger here than there: JSON, not protobuf.
///
/// UPSTREAM: etcd server/embed/config.go (DefaultMaxRequestBytes)
fn check_size(resource: &Resource, bytes: &[u8]) -> Result<(), WriteError> {
    let most = if resource.is_custom() {
        limits::STORED_BYTES
    } else {
        limits::STORED_BYTES * 2
    };
    if bytes.len() > most {
        return Err(WriteError::TooLarge);
    }
    Ok(())
}
