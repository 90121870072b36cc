//! Stage 7: the bridge to the store.
//!
//! ```text
//!   insert, swap, remove
//!     ├─ most resources      the store only
//!     ├─ with effects        prepare the effect ─► store ─► apply it, serialised per object
//!     └─ settled by a        the same, then wait until the controller has processed the write:
//!        controller          CustomResourceDefinitions are established, namespaces have default objects
//! ```
//!
//! State derived from stored objects (webhook configurations, roles, namespaces, CustomResourceDefinitions, ...) has
//! changed when the write returns, in the order of the writes of an object. On a shared store, effects are applied
//! from a watch, and a write waits until the watch has returned it.

pub(crate) mod effects;
mod follow;
mod reconciled;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lockgate_store::{Entry, List, ReadAt, Revision, Store, Unavailable, WriteError};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::conversion::Converter;
use crate::encoding;
use crate::error::{Failure, Outcome, check_key, internal, plain, read_failed};
use crate::http::limits;
use crate::in_order::InOrder;
use crate::registry::{Resource, Snapshot};
use crate::request::ObjectPath;
use crate::tasks::Tasks;
use effects::{Effect, Effects};
use follow::{Followed, Follower};
use reconciled::{PendingReconcile, Reconciled};

/// The maximum wait of a new namespace for its default objects. With a longer one, a slow webhook for ServiceAccounts
/// would block namespaces.
const NAMESPACE_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum wait of a CustomResourceDefinition for its status. kube-apiserver does not wait at all; clients of a
/// local server rely on CustomResourceDefinitions being served when their creation returns.
const DEFINITION_TIMEOUT: Duration = Duration::from_secs(10);

/// Stored objects. Cloning it is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    shared: Arc<Shared>,
    /// True for clients, whose writes wait for controllers.
    waits: bool,
}

/// The parts of [`Storage`].
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) converter: Arc<Converter>,
    pub(crate) effects: Effects,
    /// The writes with effects in progress, which serialise effects per object.
    pub(crate) order: Arc<InOrder>,
    /// Held while an effect is applied.
    pub(crate) applying: Mutex<()>,
    /// True if a controller creates default objects in every namespace.
    pub(crate) namespaces_settle: bool,
    pub(crate) reconciled: Reconciled,
    pub(crate) tasks: Tasks,
    /// The effects of writes by other servers.
    pub(crate) followed: Followed,
}

/// A failed write.
#[derive(Debug)]
pub(crate) enum PersistError {
    /// The name exists.
    AlreadyExists(Box<Entry>),
    /// The object was changed concurrently.
    Conflict,
    NotFound,
    Failed(Failure),
}

impl PersistError {
    /// The failure for the object with this name.
    pub(crate) fn about(self, resource: &Resource, name: &str) -> Failure {
        match self {
            Self::AlreadyExists(_) => resource.already_exists(name),
            Self::Conflict => resource.modified(name),
            Self::NotFound => resource.not_found(name),
            Self::Failed(failure) => failure,
        }
    }
}

impl From<Failure> for PersistError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<WriteError> for PersistError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::AlreadyExists(entry) => Self::AlreadyExists(entry),
            WriteError::Conflict(_) => Self::Conflict,
            WriteError::NotFound => Self::NotFound,
            WriteError::Unavailable(error) => Self::Failed(error.into()),
            WriteError::TooLarge => Self::Failed(plain(error.to_string())),
            other => Self::Failed(internal(&other.to_string())),
        }
    }
}

/// A write to the store.
#[derive(Debug, Clone, Copy)]
enum Change {
    Insert(Option<Duration>),
    Swap(Revision),
}

/// The forms of an object to write.
#[derive(Debug)]
pub(crate) struct Forms {
    /// The object in the storage version, if it differs.
    stored: Option<(Arc<Resource>, Value)>,
    /// The object as returned to the client.
    pub(crate) shown: Value,
}

impl Forms {
    /// The object to store, and the resource of its version.
    pub(crate) fn stored<'f>(
        &'f self,
        resource: &'f Arc<Resource>,
    ) -> (&'f Arc<Resource>, &'f Value) {
        match &self.stored {
            Some((stored, object)) => (stored, object),
            None => (resource, &self.shown),
        }
    }
}

/// A stored write.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) revision: Revision,
    bytes: Bytes,
}

impl Stored {
    /// The object for a client of the resource: the stored bytes, if they are in its version. `None` if the object must
    /// be converted.
    pub(crate) fn text(&self, resource: &Resource) -> Option<String> {
        resource
            .is_shown_as_stored()
            .then(|| encoding::text_of(&self.bytes, self.revision, resource.type_meta()))
            .flatten()
    }
}

impl Storage {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            waits: true,
        }
    }

    /// The same for controllers, which do not wait for other controllers.
    pub(crate) fn without_waiting(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            waits: false,
        }
    }

    /// The underlying store, for reads.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns true if writes to a resource have effects beyond the store.
    pub(crate) fn has_effects(&self, resource: &Resource) -> bool {
        self.shared.effects.has_any(resource)
    }

    /// The writes that controllers have processed.
    pub(crate) fn reconciled(&self) -> &Reconciled {
        &self.shared.reconciled
    }

    /// The key prefix of a resource, in a namespace or in all.
    pub(crate) fn prefix(&self, resource: &Resource, namespace: &str) -> String {
        resource.key_prefix(namespace)
    }

    /// The key of an object.
    pub(crate) fn key(&self, resource: &Resource, namespace: &str, name: &str) -> String {
        resource.key(namespace, name)
    }

    /// The state derived from stored objects.
    pub(crate) fn effects(&self) -> &Effects {
        &self.shared.effects
    }

    /// The latest entry of a key.
    pub(crate) async fn entry(&self, key: &str) -> Outcome<Option<Entry>> {
        let found = self.shared.store.get(key, ReadAt::Latest).await;
        found
            .map(|(entry, _)| entry)
            .map_err(|error| read_failed(error, 0))
    }

    /// The latest state of an object.
    pub(crate) async fn get(&self, path: ObjectPath<'_>) -> Outcome<Value> {
        check_key(path.name)?;
        let key = self.key(path.resource, path.namespace, path.name);
        let entry = self.entry(&key).await?;
        let entry = entry.ok_or_else(|| path.resource.not_found(path.name))?;
        self.decode(&entry, path.resource).await
    }

    /// Decodes the object of an entry, in the version of a resource.
    pub(crate) async fn decode(&self, entry: &Entry, resource: &Resource) -> Outcome<Value> {
        self.shared.converter.decode(entry, resource).await
    }

    /// Converts an object to another version of its resource.
    pub(crate) async fn convert(
        &self,
        object: Value,
        from: &Resource,
        to: &Resource,
    ) -> Outcome<Value> {
        self.shared.converter.convert(object, from, to).await
    }

    /// Encodes an object for the store.
    pub(crate) async fn encode(&self, object: &Value, resource: &Resource) -> Outcome<Bytes> {
        let (object, _) = self.to_storage(object, resource).await?;
        Ok(encoding::encode(&object))
    }

    /// Converts an object to the storage version, and returns the resource of that version if it differs.
    async fn to_storage<'o>(
        &self,
        object: &'o Value,
        resource: &Resource,
    ) -> Outcome<(Cow<'o, Value>, Option<Arc<Resource>>)> {
        if resource.is_storage_version() {
            return Ok((Cow::Borrowed(object), None));
        }
        let converter = &self.shared.converter;
        let stored = converter.storage_resource(resource)?;
        let object = object.clone();
        let converted = converter.convert_stored(object, resource, &stored).await?;
        Ok((Cow::Owned(converted), Some(stored)))
    }

    /// The error of converting a custom resource with undecodable metadata to the storage version. In the request's
    /// version such metadata is dropped.
    pub(crate) fn metadata_conversion_failure(
        &self,
        object: &Value,
        resource: &Resource,
    ) -> Option<Failure> {
        if resource.is_storage_version() {
            return None;
        }
        let mut part = serde_json::json!({"metadata": object.get("metadata")?});
        let error = resource.shape.coerce(&mut part).err()?;
        Some(plain(error.to_string()))
    }

    /// The forms of an object to write. A custom resource in another version than the storage version is returned as it
    /// is read from the store.
    pub(crate) async fn forms(&self, object: Value, resource: &Arc<Resource>) -> Outcome<Forms> {
        if !resource.is_custom() || resource.is_storage_version() {
            return Ok(Forms {
                stored: None,
                shown: object,
            });
        }
        let converter = &self.shared.converter;
        let stored = converter.storage_resource(resource)?;
        let object = converter.convert_stored(object, resource, &stored).await?;
        let mut read = object.clone();
        stored.shape.read_stored(&mut read);
        Ok(Forms {
            shown: converter.convert_stored(read, &stored, resource).await?,
            stored: Some((stored, object)),
        })
    }

    /// Stores a new object.
    pub(crate) async fn insert(
        &self,
        resource: &Arc<Resource>,
        key: &str,
        object: &Value,
        ttl: Option<Duration>,
    ) -> Result<Stored, PersistError> {
        self.put(resource, key, object, Change::Insert(ttl)).await
    }

    /// Stores a changed object, replacing the one with this revision.
    pub(crate) async fn swap(
        &self,
        resource: &Arc<Resource>,
        key: &str,
        expected: Revision,
        object: &Value,
    ) -> Result<Stored, PersistError> {
        let change = Change::Swap(expected);
        self.put(resource, key, object, change).await
    }

    async fn put(
        &self,
        resource: &Arc<Resource>,
        key: &str,
        object: &Value,
        change: Change,
    ) -> Result<Stored, PersistError> {
        let (object, stored) = self.to_storage(object, resource).await?;
        let bytes = encoding::encode(&object);
        check_size(resource, &bytes)?;
        if !self.has_effects(resource) {
            let revision = self.shared.write(key, change, bytes.clone()).await?;
            return Ok(Stored { revision, bytes });
        }
        let is_new_namespace = resource.is_namespace() && matches!(change, Change::Insert(_));
        let pending = self.pending_reconcile(resource, key, is_new_namespace);
        let resource = stored.as_ref().unwrap_or(resource);
        let effect = effects::prepare_write(resource, object.into_owned())?;
        if self.shared.store.is_shared() {
            let revision = self.shared.write(key, change, bytes.clone()).await?;
            self.shared.followed.wait(revision).await;
            self.wait_until_reconciled(pending, revision).await;
            return Ok(Stored { revision, bytes });
        }
        let (written_key, written) = (key.to_owned(), bytes.clone());
        let revision = self
            .in_order(key, move |shared| async move {
                let revision = shared.write(&written_key, change, written).await?;
                shared.apply(effect);
                Ok(revision)
            })
            .await?;
        self.wait_until_reconciled(pending, revision).await;
        Ok(Stored { revision, bytes })
    }

    /// Removes the object with this revision.
    pub(crate) async fn remove(
        &self,
        resource: &Arc<Resource>,
        key: &str,
        expected: Revision,
    ) -> Result<Revision, PersistError> {
        if !self.has_effects(resource) {
            let (revision, _) = self.shared.store.delete(key, expected).await?;
            return Ok(revision);
        }
        let pending = self.pending_reconcile(resource, key, false);
        if self.shared.store.is_shared() {
            let (revision, _) = self.shared.store.delete(key, expected).await?;
            self.shared.followed.wait(revision).await;
            self.wait_until_reconciled(pending, revision).await;
            return Ok(revision);
        }
        let (removed_key, removed) = (key.to_owned(), Arc::clone(resource));
        let revision = self
            .in_order(key, move |shared| async move {
                let (revision, entry) = shared.store.delete(&removed_key, expected).await?;
                // The object is deleted, even if its last state cannot be decoded.
                if let Some(effect) = effects::prepare_removal(&removed, &entry.key) {
                    shared.apply(effect);
                }
                Ok(revision)
            })
            .await?;
        self.wait_until_reconciled(pending, revision).await;
        Ok(revision)
    }

    /// Runs a write with effects, serialised per object. It completes even if the client disconnects: stored objects
    /// must be in effect.
    async fn in_order<W>(
        &self,
        key: &str,
        write: impl FnOnce(Arc<Shared>) -> W,
    ) -> Result<Revision, PersistError>
    where
        W: Future<Output = Result<Revision, PersistError>> + Send + 'static,
    {
        let writing = write(Arc::clone(&self.shared));
        let (order, key) = (Arc::clone(&self.shared.order), key.to_owned());
        let (answer, answered) = oneshot::channel();
        self.shared.tasks.spawn_to_completion(async move {
            let turn = order.turn(&key).await;
            let written = writing.await;
            drop(turn);
            // The client may have disconnected.
            let _ = answer.send(written);
        });
        let stopped = |_| Unavailable(String::from("the server is stopping"));
        answered
            .await
            .map_err(|error| Failure::from(stopped(error)))?
    }

    /// Moves the objects below a key prefix to another one. Returns their number.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> Outcome<usize> {
        let store = &self.shared.store;
        let page = store.list(List::all(from)).await;
        let page = page.map_err(|error| read_failed(error, 0))?;
        for entry in &page.entries {
            let rest = entry.key.strip_prefix(from).unwrap_or_default();
            let key = format!("{to}{rest}");
            match store.create(&key, entry.value.clone(), None).await {
                // Copied before, by a server that stopped before it removed the old one.
                Ok(_) | Err(WriteError::AlreadyExists(_)) => {}
                Err(error) => return Err(internal(&error.to_string())),
            }
            self.discard(entry).await?;
        }
        Ok(page.entries.len())
    }

    /// Removes an entry without effects.
    pub(crate) async fn discard(&self, entry: &Entry) -> Outcome<()> {
        match self.shared.store.delete(&entry.key, entry.revision).await {
            Ok(_) | Err(WriteError::Conflict(_) | WriteError::NotFound) => Ok(()),
            Err(error) => Err(internal(&error.to_string())),
        }
    }

    /// Replaces the bytes of an entry by equivalent ones, without effects.
    pub(crate) async fn rewrite(&self, entry: &Entry, bytes: Bytes) -> Outcome<()> {
        let Entry { key, revision, .. } = entry;
        match self.shared.store.update(key, *revision, bytes).await {
            // Another server has written the current format already.
            Ok(_) | Err(WriteError::Conflict(_) | WriteError::NotFound) => Ok(()),
            Err(error) => Err(internal(&error.to_string())),
        }
    }

    /// Stores an initial object unchanged, without waiting.
    pub(crate) async fn bootstrap(
        &self,
        resource: &Arc<Resource>,
        key: &str,
        expected: Option<Revision>,
        object: Value,
    ) -> Result<(), PersistError> {
        let bytes = encoding::encode(&object);
        let change = expected.map_or(Change::Insert(None), Change::Swap);
        let effect = self
            .has_effects(resource)
            .then(|| effects::prepare_write(resource, object))
            .transpose()?;
        self.shared.write(key, change, bytes).await?;
        if let Some(effect) = effect {
            self.shared.apply(effect);
        }
        Ok(())
    }

    /// Applies the effects of a stored object.
    pub(crate) fn restore(&self, resource: &Arc<Resource>, object: Value) -> Outcome<()> {
        let effect = effects::prepare_write(resource, object)?;
        self.shared.apply(effect);
        Ok(())
    }

    /// Waits until the effects of everything that is visible now are applied.
    pub(crate) async fn effects_applied(&self) -> Outcome<()> {
        if self.shared.store.is_shared() {
            return Ok(self.shared.followed.catch_up(&*self.shared.store).await?);
        }
        self.shared.order.idle().await;
        Ok(())
    }

    /// Applies the effects of other servers' writes. Returns when the effects of all currently stored objects are
    /// applied.
    pub(crate) async fn follow(&self, snapshot: &Snapshot) -> Outcome<()> {
        if !self.shared.store.is_shared() {
            return Ok(());
        }
        let resources = snapshot.storage_versions().cloned();
        let resources = resources.filter(|resource| self.has_effects(resource));
        let follower = Follower::new(Arc::clone(&self.shared), resources);
        self.shared.tasks.spawn(follower.run());
        self.effects_applied().await
    }

    /// Registers for the controller to wait for, before the write so that it cannot be missed.
    fn pending_reconcile(
        &self,
        resource: &Resource,
        key: &str,
        creates_namespace: bool,
    ) -> Option<PendingReconcile<'_>> {
        let timeout = if resource.is_definition() {
            DEFINITION_TIMEOUT
        } else if creates_namespace && self.shared.namespaces_settle {
            NAMESPACE_TIMEOUT
        } else {
            return None;
        };
        self.waits
            .then(|| self.shared.reconciled.expect(key, timeout))
    }

    async fn wait_until_reconciled(
        &self,
        pending: Option<PendingReconcile<'_>>,
        revision: Revision,
    ) {
        if let Some(pending) = pending {
            tokio::select! {
                () = pending.wait(revision) => {}
                () = self.shared.tasks.stopped() => {}
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Applies an effect. Effects of different objects arrive concurrently, and each updates the derived state by
    /// read-modify-write.
    fn apply(&self, effect: Effect) {
        let _one = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        self.effects.apply(effect);
    }

    async fn write(&self, key: &str, change: Change, bytes: Bytes) -> Result<Revision, WriteError> {
        match change {
            Change::Insert(ttl) => self.store.create(key, bytes, ttl).await,
            Change::Swap(expected) => self.store.update(key, expected, bytes).await,
        }
    }
}

/// Rejects objects that are too large for etcd. Built-in kinds are larger here: JSON, not protobuf.
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
