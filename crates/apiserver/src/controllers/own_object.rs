//! The server's own objects: Leases and endpoints. They are written without admission, so that no webhook can block
//! the coordination of servers.

use std::sync::Arc;

use lockgate_api::admission::UserInfo;
use lockgate_store::Revision;
use serde_json::Value;

use crate::encoding;
use crate::error::{Outcome, internal, plain};
use crate::metadata;
use crate::persist::PersistError;
use crate::registry::Resource;
use crate::write::{Writer, strategy};

/// The location of an object.
#[derive(Debug)]
pub(super) struct OwnObject<'o> {
    writer: &'o Writer,
    resource: Arc<Resource>,
    key: String,
}

impl<'o> OwnObject<'o> {
    pub(super) fn new(
        writer: &'o Writer,
        (group, plural): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> Outcome<Self> {
        let snapshot = writer.registry.snapshot();
        let resource = snapshot.find(group, "v1", plural);
        let resource = resource.ok_or_else(|| internal(&format!("{plural} are not served")))?;
        Ok(Self {
            key: writer.storage.key(resource, namespace, name),
            resource: Arc::clone(resource),
            writer,
        })
    }

    /// The object, and the revision of its last change.
    pub(super) async fn read(&self) -> Outcome<Option<(Value, Revision)>> {
        let Some(entry) = self.writer.storage.entry(&self.key).await? else {
            return Ok(None);
        };
        let object = encoding::parse_entry(&entry, self.resource.type_meta())?;
        Ok(Some((object, entry.revision)))
    }

    /// Creates the object. Returns false on a conflict.
    pub(super) async fn create(&self, mut object: Value) -> Outcome<bool> {
        self.resource.shape.apply_defaults(&mut object);
        metadata::fill(&mut object);
        let nobody = UserInfo::default();
        strategy::prepare_create(&self.resource, &mut object, &nobody, self.writer.gates);
        strategy::canonicalize(&self.resource, &mut object);
        let completed = self.resource.shape.complete(&mut object);
        completed.map_err(|error| plain(error.to_string()))?;
        let storage = &self.writer.storage;
        let stored = storage.insert(&self.resource, &self.key, &object, None);
        self.is_done(stored.await.map(|_| ()))
    }

    /// Replaces the object at the read revision. Returns false on a conflict.
    pub(super) async fn replace(&self, object: &Value, read: Revision) -> Outcome<bool> {
        let storage = &self.writer.storage;
        let stored = storage.swap(&self.resource, &self.key, read, object);
        self.is_done(stored.await.map(|_| ()))
    }

    /// Deletes the object at the read revision. Returns false on a conflict.
    pub(super) async fn remove(&self, read: Revision) -> Outcome<bool> {
        let removed = self.writer.storage.remove(&self.resource, &self.key, read);
        self.is_done(removed.await.map(|_| ()))
    }

    fn is_done(&self, written: Result<(), PersistError>) -> Outcome<bool> {
        match written {
            Ok(()) => Ok(true),
            Err(PersistError::Failed(failure)) => Err(failure),
            Err(_) => Ok(false),
        }
    }
}
