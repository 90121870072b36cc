//! Stage 7: the bridge to the store.
//!
//! ```text
//!   insert, swap, remove
//!     ├─ most resources      the store alone
//!     ├─ with effects        prepare the effect ─► store ─► apply it, one at a time for each object
//!     └─ settled by a        the same, then wait until the controller has seen the write:
//!        controller          definitions are established, namespaces have their default objects
//! ```
//!
//! State derived from stored objects (webhook configurations, roles, namespaces, CustomResourceDefinitions, ...) has
//! changed when the write returns, in the order of the writes of an object. On a shared store, effects are applied
//! from a watch, and a write waits until the watch has returned it.

pub(crate) mod effects;
mod follow;
mod settled;

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
use settled::{Settled, Settling};

/// The longest wait of a new namespace for its default objects. Longer, and a slow webhook for
/// service accounts would hold up namespaces.
const NAMESPACE_PATIENCE: Duration = Duration::from_millis(500);
/// The longest wait of a definition for its status. kube-apiserver does not wait at all; clients
/// of a local server count on definitions that are served when they are created.
const DEFINITION_PATIENCE: Duration = Duration::from_secs(10);

/// Stored objects. Cloning it is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    shared: Arc<Shared>,
    /// Writes of clients wait for controllers; writes of controllers do not.
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
    /// Set if a controller makes default objects in every namespace.
    pub(crate) namespaces_settle: bool,
    pub(crate) settled: Settled,
    pub(crate) tasks: Tasks,
    /// The effects of writes that others make too.
    pub(crate) followed: Followed,
}

/// The failure of a write.
#[derive(Debug)]
pub(crate) enum PersistError {
    /// There is an object of that name.
    AlreadyExists(Box<Entry>),
    /// The object was changed meanwhile.
    Conflict,
    NotFound,
    Failed(Failure),
}

impl PersistError {
    /// The failure of a write of the object with this name.
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

/// The forms of an object that is written.
#[derive(Debug)]
pub(crate) struct Forms {
    /// The object in the version of the store, where that is another one.
    stored: Option<(Arc<Resource>, Value)>,
    /// The object as the client is shown it.
    pub(crate) shown: Value,
}

impl Forms {
    /// The object that is stored, and the resource of its version.
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

/// A write that was stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) revision: Revision,
    bytes: Bytes,
}

impl Stored {
    /// The object as a client of the resource is shown it: the stored bytes, where they are in its
    /// version. None where the object must be shown another way.
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

    /// The same for controllers, which others wait for.
    pub(crate) fn without_waiting(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            waits: false,
        }
    }

    /// The store itself, for reading.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns true if writes to a resource have effects beyond the store.
    pub(crate) fn has_effects(&self, resource: &Resource) -> bool {
        self.shared.effects.has_any(resource)
    }

    /// The writes that controllers have seen.
    pub(crate) fn settled(&self) -> &Settled {
        &self.shared.settled
    }

    /// The prefix of the keys of a resource, in a namespace or in all.
    pub(crate) fn prefix(&self, resource: &Resource, namespace: &str) -> String {
        resource.key_prefix(namespace)
    }

    /// The key of an object.
    pub(crate) fn key(&self, resource: &Resource, namespace: &str, name: &str) -> String {
        resource.key(namespace, name)
    }

    /// The parts of the server that are made from stored objects.
    pub(crate) fn effects(&self) -> &Effects {
        &self.shared.effects
    }

    /// The newest entry of a key.
    pub(crate) async fn entry(&self, key: &str) -> Outcome<Option<Entry>> {
        let found = self.shared.store.get(key, ReadAt::Latest).await;
        found
            .map(|(entry, _)| entry)
            .map_err(|error| read_failed(error, 0))
    }

    /// The newest state of an object.
    pub(crate) async fn get(&self, path: ObjectPath<'_>) -> Outcome<Value> {
        check_key(path.name)?;
        let key = self.key(path.resource, path.namespace, path.name);
        let entry = self.entry(&key).await?;
        let entry = entry.ok_or_else(|| path.resource.not_found(path.name))?;
        self.decode(&entry, path.resource).await
    }

    /// The object of an entry, in the version of a resource.
    pub(crate) async fn decode(&self, entry: &Entry, resource: &Resource) -> Outcome<Value> {
        self.shared.converter.decode(entry, resource).await
    }

    /// The object in another version of its resource.
    pub(crate) async fn convert(
        &self,
        object: Value,
        from: &Resource,
        to: &Resource,
    ) -> Outcome<Value> {
        self.shared.converter.convert(object, from, to).await
    }

    /// The bytes that are stored of an object.
    pub(crate) async fn encode(&self, object: &Value, resource: &Resource) -> Outcome<Bytes> {
        let (object, _) = self.to_storage(object, resource).await?;
        Ok(encoding::encode(&object))
    }

    /// The object in the version in which it is stored, and the resource of that version if it is
    /// another one.
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

    /// The failure of bringing a custom resource into the version of the store if its metadata cannot be read.
    /// In the version of the request nothing minds it: what cannot be read is dropped.
    pub(crate) fn spoiled_metadata(&self, object: &Value, resource: &Resource) -> Option<Failure> {
        if resource.is_storage_version() {
            return None;
        }
        let mut part = serde_json::json!({"metadata": object.get("metadata")?});
        let error = resource.shape.coerce(&mut part).err()?;
        Some(plain(error.to_string()))
    }

    /// The two forms of an object that is about to be written. A custom resource that is not stored in the
    /// version of the request is answered as it comes back from the store.
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

    /// Stores a changed object in place of the one with this revision.
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
        let settling = self.settling(resource, key, is_new_namespace);
        let resource = stored.as_ref().unwrap_or(resource);
        let effect = effects::prepare_write(resource, object.into_owned())?;
        if self.shared.store.is_shared() {
            let revision = self.shared.write(key, change, bytes.clone()).await?;
            self.shared.followed.wait(revision).await;
            self.settle(settling, revision).await;
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
        self.settle(settling, revision).await;
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
        let settling = self.settling(resource, key, false);
        if self.shared.store.is_shared() {
            let (revision, _) = self.shared.store.delete(key, expected).await?;
            self.shared.followed.wait(revision).await;
            self.settle(settling, revision).await;
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
        self.settle(settling, revision).await;
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
        self.shared.tasks.spawn_to_end(async move {
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

    /// Gives the objects below a prefix keys below another one. Returns how many there were.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> Outcome<usize> {
        let store = &self.shared.store;
        let page = store.list(List::all(from)).await;
        let page = page.map_err(|error| read_failed(error, 0))?;
        for entry in &page.entries {
            let rest = entry.key.strip_prefix(from).unwrap_or_default();
            let key = format!("{to}{rest}");
            match store.create(&key, entry.value.clone(), None).await {
                // Renamed by a server that ended before it removed the old one.
                Ok(_) | Err(WriteError::AlreadyExists(_)) => {}
                Err(error) => return Err(internal(&error.to_string())),
            }
            self.discard(entry).await?;
        }
        Ok(page.entries.len())
    }

    /// Removes an entry as it is, without effects.
    pub(crate) async fn discard(&self, entry: &Entry) -> Outcome<()> {
        match self.shared.store.delete(&entry.key, entry.revision).await {
            Ok(_) | Err(WriteError::Conflict(_) | WriteError::NotFound) => Ok(()),
            Err(error) => Err(internal(&error.to_string())),
        }
    }

    /// Replaces the bytes of an entry by others that say the same, without effects.
    pub(crate) async fn rewrite(&self, entry: &Entry, bytes: Bytes) -> Outcome<()> {
        let Entry { key, revision, .. } = entry;
        match self.shared.store.update(key, *revision, bytes).await {
            // Who was faster has written the newer form.
            Ok(_) | Err(WriteError::Conflict(_) | WriteError::NotFound) => Ok(()),
            Err(error) => Err(internal(&error.to_string())),
        }
    }

    /// Stores an object as it is, without waiting. For objects that exist from the start.
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

    /// Applies the effects of an object that is stored already.
    pub(crate) fn restore(&self, resource: &Arc<Resource>, object: Value) -> Outcome<()> {
        let effect = effects::prepare_write(resource, object)?;
        self.shared.apply(effect);
        Ok(())
    }

    /// Waits until the effects of everything that can be read or watched now are applied.
    pub(crate) async fn effects_applied(&self) -> Outcome<()> {
        if self.shared.store.is_shared() {
            return Ok(self.shared.followed.catch_up(&*self.shared.store).await?);
        }
        self.shared.order.settled().await;
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

    /// The controller to wait for after a write, told of before the write so that it cannot be missed.
    fn settling(
        &self,
        resource: &Resource,
        key: &str,
        creates_namespace: bool,
    ) -> Option<Settling<'_>> {
        let patience = if resource.is_definition() {
            DEFINITION_PATIENCE
        } else if creates_namespace && self.shared.namespaces_settle {
            NAMESPACE_PATIENCE
        } else {
            return None;
        };
        self.waits
            .then(|| self.shared.settled.expect(key, patience))
    }

    async fn settle(&self, settling: Option<Settling<'_>>, revision: Revision) {
        if let Some(settling) = settling {
            tokio::select! {
                () = settling.wait(revision) => {}
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
    /// Applies an effect. Those of several objects come at once, and the parts they change are read and replaced.
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
