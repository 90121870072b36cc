//! A versioned key-value store with watch.
//!
//! The store handles bytes and revisions. It does not depend on their meaning, and neither authorizes nor admits
//! writes.
//!
//! # The contract
//!
//! Every backend has these guarantees; `contract` (feature `contract-tests`) has one test for each.
//!
//! - **One counter.** Every change has a greater revision than all previous ones, across all keys. An entry has
//!   the revision of its last change and that of its creation.
//! - **Compare and swap.** An update or delete has an expected revision, and otherwise fails with the current
//!   entry. Of several with the same expected revision, one succeeds.
//! - **No-op updates.** An update with the same bytes writes nothing and keeps the revision.
//! - **Snapshot reads.** A page of a list is a snapshot at one revision, which it returns; the next page can be
//!   read at the same one.
//! - **Reliable watches.** A watch after revision *r* returns every change of its prefix with a greater revision,
//!   once, in order, with the previous entry. A list, followed by a watch from the list's revision, misses
//!   nothing.
//! - **Bounded history.** Reading or watching compacted revisions fails as [`Compacted`]; the result is never
//!   partial. A slow watcher expires this way; it never blocks a writer.
//! - **Durability.** When a write returns, every later read returns it; on a durable backend it survives a crash.
//! - **Expiry.** An entry with a time to live is deleted after it, as by a writer.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lockgate_store::{Event, MemoryStore, Revision, Store};
//!
//! let store = MemoryStore::new();
//! let mut watch = store.watch("/pods/", Revision::START).await?;
//! let revision = store.create("/pods/a", "one".into(), None).await?;
//! store.update("/pods/a", revision, "two".into()).await?;
//!
//! assert!(matches!(watch.next().await?, Event::Put { previous: None, .. }));
//! let Event::Put { entry, previous } = watch.next().await? else { unreachable!() };
//! assert_eq!((entry.value, previous.unwrap().value), ("two".into(), "one".into()));
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod bloom;

mod template;

mod keys;

mod state;

mod published;

mod watch;

mod layout;

mod record;

mod snapshot;

mod disk;
#[cfg(feature = "etcd")]
mod etcd;
mod memory;

#[cfg(any(test, feature = "contract-tests"))]
pub mod history;

#[cfg(feature = "contract-tests")]
pub mod contract;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use bloom::Bloom;
pub use disk::{DiskStore, OpenError, RestoreError, RestoreOptions};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdError, EtcdOptions, EtcdStore};
pub use layout::{Layout, PlainLayout};
pub use memory::{MemoryOptions, MemoryStore};
pub use snapshot::{Snapshot, SnapshotBytes, SnapshotEntry, SnapshotError, SnapshotReader};

/// A revision in the history of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision before all changes.
    pub const START: Self = Self(0);
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key with its value. Clones share both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// The value.
    pub value: Bytes,
    /// The revision of its creation.
    pub created: Revision,
    /// The revision of its last change.
    pub revision: Revision,
}

/// The state of the store to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAt {
    /// The latest state: includes everything acknowledged before the read.
    Latest,
    /// Any state that is at least as new.
    NotOlderThan(Revision),
    /// Exactly this state.
    Exact(Revision),
}

/// A request to list keys.
#[derive(Debug, Clone, Copy)]
pub struct List<'l> {
    /// The key prefix.
    pub prefix: &'l str,
    /// The state to list.
    pub at: ReadAt,
    /// Only keys greater than this one, to continue after a page.
    pub after: Option<&'l str>,
    /// The maximum number of entries.
    pub limit: Option<usize>,
    /// Entries whose Bloom filter does not contain this one may be skipped. They count as read, not as listed.
    pub bloom: Bloom,
}

impl<'l> List<'l> {
    /// Lists everything under a prefix, in the latest state.
    #[must_use]
    pub fn all(prefix: &'l str) -> Self {
        Self {
            prefix,
            at: ReadAt::Latest,
            after: None,
            limit: None,
            bloom: Bloom::EMPTY,
        }
    }
}

/// A page of a list, ordered by key.
#[derive(Debug, Clone)]
pub struct Page {
    /// The entries, shared with the store: listing everything copies nothing.
    pub entries: Vec<Arc<Entry>>,
    /// The revision of the state.
    pub revision: Revision,
    /// The number of entries after the last one; with a Bloom filter, including those that may be skipped.
    pub remaining: usize,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A key was created or its value changed.
    Put {
        /// The new entry.
        entry: Entry,
        /// The previous entry; `None` if the key was created.
        previous: Option<Entry>,
    },
    /// A key was deleted.
    Delete {
        /// The revision of the deletion.
        revision: Revision,
        /// The deleted entry.
        previous: Entry,
    },
}

impl Event {
    /// The revision of the change.
    #[must_use]
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put { entry, .. } => entry.revision,
            Self::Delete { revision, .. } => *revision,
        }
    }

    /// The previous entry.
    pub(crate) fn previous(&self) -> Option<&Entry> {
        match self {
            Self::Put { previous, .. } => previous.as_ref(),
            Self::Delete { previous, .. } => Some(previous),
        }
    }

    /// The changed key.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { entry, .. } => &entry.key,
            Self::Delete { previous, .. } => &previous.key,
        }
    }
}

/// The store is unavailable, or cannot guarantee its contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("storage is unavailable: {0}")]
pub struct Unavailable(pub String);

/// History up to some revision is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("revisions before {oldest} are compacted")]
pub struct Compacted {
    /// The oldest revision that can be read.
    pub oldest: Revision,
}

/// A failed write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The key already exists.
    #[error("`{}` already exists", .0.key)]
    AlreadyExists(Box<Entry>),
    /// The entry is not at the expected revision.
    #[error("`{}` is at revision {}, not at the expected revision", .0.key, .0.revision)]
    Conflict(Box<Entry>),
    /// The key does not exist.
    #[error("key not found")]
    NotFound,
    /// The value exceeds the size limit.
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// The backend failed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A failed read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The revision is compacted.
    #[error(transparent)]
    Compacted(#[from] Compacted),
    /// The revision is in the future.
    #[error("revision is ahead of the store's revision {current}")]
    Future {
        /// The latest revision.
        current: Revision,
    },
    /// The backend failed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a key, optionally with a time to live `ttl`.
    ///
    /// # Errors
    ///
    /// The key already exists.
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError>;

    /// Updates the value of a key at revision `expected`. The same bytes are a no-op. A time to live given at
    /// creation does not change.
    ///
    /// # Errors
    ///
    /// The key is at another revision, or does not exist.
    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError>;

    /// Deletes a key at revision `expected`; returns the revision of the deletion and the deleted entry.
    ///
    /// # Errors
    ///
    /// The key is at another revision, or does not exist.
    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError>;

    /// Reads a key; also returns the revision of the state.
    ///
    /// # Errors
    ///
    /// The revision is compacted or in the future.
    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError>;

    /// Lists keys in order.
    ///
    /// # Errors
    ///
    /// The revision is compacted or in the future.
    async fn list(&self, list: List<'_>) -> Result<Page, ReadError>;

    /// Watches the changes of a prefix after a revision.
    ///
    /// # Errors
    ///
    /// The revision is compacted or in the future.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, ReadError> {
        self.watch_if(prefix, after, None).await
    }

    /// Watches the matching changes of a prefix after a revision. Other changes do not wake the watcher.
    ///
    /// # Errors
    ///
    /// The revision is compacted or in the future.
    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError>;

    /// The latest revision: that of the last acknowledged change.
    ///
    /// # Errors
    ///
    /// The backend failed.
    async fn revision(&self) -> Result<Revision, Unavailable>;

    /// Compacts history: states and changes before `oldest` can no longer be read.
    ///
    /// # Errors
    ///
    /// The revision is in the future.
    async fn compact(&self, oldest: Revision) -> Result<(), ReadError>;

    /// A snapshot of everything at the latest revision, for a backup. Does not block writes. If times to live are
    /// not known, entries have none.
    ///
    /// # Errors
    ///
    /// The backend failed.
    async fn snapshot(&self) -> Result<Snapshot, ReadError> {
        let page = self.list(List::all("")).await?;
        let entries = page.entries.into_iter();
        let entries = entries.map(|entry| (Arc::unwrap_or_clone(entry), 0));
        Ok(Snapshot::new(page.revision, entries))
    }

    /// Returns true if other processes share the store.
    fn is_shared(&self) -> bool {
        false
    }

    /// The error after which all writes fail, if any. Reads continue.
    fn failure(&self) -> Option<Unavailable> {
        None
    }
}

/// Selects the changes to watch. Called for every write, so it must be fast.
pub type Filter = Arc<dyn Fn(&Event) -> bool + Send + Sync>;

/// A watch, ended when dropped.
#[async_trait]
pub trait Watch: Send {
    /// Waits for the next change. Cancel-safe: dropping the future loses no event.
    ///
    /// # Errors
    ///
    /// The watch fell behind the history, or the backend failed. The watch has ended.
    async fn next(&mut self) -> Result<Event, ReadError>;

    /// The revision up to which all changes of the prefix were returned.
    fn progress(&self) -> Revision;
}
