//! A versioned key-value store with watch.
//!
//! The store knows bytes and revisions. What the bytes mean, who may write them and what an admission
//! decision is are not its business.
//!
//! # The contract
//!
//! Every backend keeps these promises; `contract` (feature `contract-tests`) has one test for each.
//!
//! - **One counter.** Every change gets a revision greater than all before it, across all keys. An
//!   entry carries the revision of its last change and that of its creation.
//! - **Compare and swap.** An update or delete names the revision it expects and fails with the
//!   current entry otherwise. Of several that expect the same revision, one succeeds.
//! - **Nothing for nothing.** An update to the same bytes writes nothing and keeps the revision.
//! - **Reads are snapshots.** A page of a list shows the store at one revision, which it names; the
//!   next page can be read at the same one.
//! - **Watches miss nothing.** A watch after revision *r* returns every change of its prefix with a
//!   greater revision, once, in order, with the entry before the change. A list and a watch after the
//!   list's revision together see everything.
//! - **History is bounded.** Reading or watching what was compacted fails as [`Compacted`]; it never
//!   returns a part. A slow watcher is cut off so; it never holds up a writer.
//! - **Acknowledged is kept.** When a write returns, every later read sees it; on a durable backend it
//!   survives a crash.
//! - **Entries may expire.** One created with a time to live is deleted after it, as by a writer.
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

mod form;

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

/// A point in the history of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Before every change.
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
    /// The revision the key was created at.
    pub created: Revision,
    /// The revision the value was last changed at.
    pub revision: Revision,
}

/// The state of the store to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAt {
    /// The newest: everything acknowledged before the read.
    Latest,
    /// Any state at least this new.
    NotOlderThan(Revision),
    /// This very state.
    Exact(Revision),
}

/// A request to list keys.
#[derive(Debug, Clone, Copy)]
pub struct List<'l> {
    /// Keys that start with this.
    pub prefix: &'l str,
    /// The state to list.
    pub at: ReadAt,
    /// Only keys greater than this one, to go on after a page.
    pub after: Option<&'l str>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Entries whose Bloom filter lacks any of this may be left out. They count as read, not as listed.
    pub bloom: Bloom,
}

impl<'l> List<'l> {
    /// Everything under a prefix, in its newest state.
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

/// A part of a list, in the order of keys.
#[derive(Debug, Clone)]
pub struct Page {
    /// The entries, shared with the store: a list of everything copies none.
    pub entries: Vec<Arc<Entry>>,
    /// The state they are from.
    pub revision: Revision,
    /// The number of further entries after the last one; with a Bloom filter, those included that may be left out.
    pub remaining: usize,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A key was created or its value changed.
    Put {
        /// The new entry.
        entry: Entry,
        /// The one before; none if the key was created.
        previous: Option<Entry>,
    },
    /// A key was deleted.
    Delete {
        /// The revision of the deletion.
        revision: Revision,
        /// The entry until then.
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

    /// The entry that was there before.
    pub(crate) fn previous(&self) -> Option<&Entry> {
        match self {
            Self::Put { previous, .. } => previous.as_ref(),
            Self::Delete { previous, .. } => Some(previous),
        }
    }

    /// The key that changed.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { entry, .. } => &entry.key,
            Self::Delete { previous, .. } => &previous.key,
        }
    }
}

/// The store cannot be reached, or cannot keep its promises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("storage is unavailable: {0}")]
pub struct Unavailable(pub String);

/// History up to some revision is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("revisions before {oldest} are compacted")]
pub struct Compacted {
    /// The oldest revision that can still be read.
    pub oldest: Revision,
}

/// A write that did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The key to create exists.
    #[error("`{}` already exists", .0.key)]
    AlreadyExists(Box<Entry>),
    /// The entry is not at the expected revision.
    #[error("`{}` is at revision {}, not at the expected revision", .0.key, .0.revision)]
    Conflict(Box<Entry>),
    /// There is no such key.
    #[error("key not found")]
    NotFound,
    /// The value is larger than is stored.
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// The backend failed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A read that did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The state is gone.
    #[error(transparent)]
    Compacted(#[from] Compacted),
    /// The state is not there yet.
    #[error("revision is ahead of the store's revision {current}")]
    Future {
        /// The newest revision.
        current: Revision,
    },
    /// The backend failed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a key, which lives for `ttl` at most if given.
    ///
    /// # Errors
    ///
    /// The key exists.
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError>;

    /// Changes the value of a key that is at `expected`. The same bytes change nothing. A time to
    /// live given at creation stays as it is.
    ///
    /// # Errors
    ///
    /// The key is at another revision, or gone.
    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError>;

    /// Deletes a key that is at `expected`; returns when, and what it was.
    ///
    /// # Errors
    ///
    /// The key is at another revision, or gone.
    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError>;

    /// Reads a key; also says which state was read.
    ///
    /// # Errors
    ///
    /// The state is gone or not there yet.
    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError>;

    /// Lists keys in their order.
    ///
    /// # Errors
    ///
    /// The state is gone or not there yet.
    async fn list(&self, list: List<'_>) -> Result<Page, ReadError>;

    /// Watches the changes of a prefix after a revision.
    ///
    /// # Errors
    ///
    /// The revision is gone or not there yet.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, ReadError> {
        self.watch_if(prefix, after, None).await
    }

    /// Watches some changes of a prefix after a revision. The others do not even wake the watcher.
    ///
    /// # Errors
    ///
    /// The revision is gone or not there yet.
    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError>;

    /// The newest revision: that of the last acknowledged change.
    ///
    /// # Errors
    ///
    /// The backend failed.
    async fn revision(&self) -> Result<Revision, Unavailable>;

    /// Forgets history: states and changes before `oldest` cannot be read any more.
    ///
    /// # Errors
    ///
    /// The revision is not there yet.
    async fn compact(&self, oldest: Revision) -> Result<(), ReadError>;

    /// Takes everything at the newest revision, for a backup. Writes go on meanwhile. Where times to live are not
    /// known, entries have none.
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

    /// Returns true if other processes write to the same store.
    fn is_shared(&self) -> bool {
        false
    }

    /// The error after which nothing can be written any more, if there was one. Reads go on.
    fn failure(&self) -> Option<Unavailable> {
        None
    }
}

/// Says which changes to watch. Runs whenever something is written, so it is to be quick.
pub type Filter = Arc<dyn Fn(&Event) -> bool + Send + Sync>;

/// A running watch. Dropping it ends it.
#[async_trait]
pub trait Watch: Send {
    /// Waits for the next change. May be dropped while it waits, and nothing is lost.
    ///
    /// # Errors
    ///
    /// The watch fell behind what history keeps, or the backend failed. The watch is over.
    async fn next(&mut self) -> Result<Event, ReadError>;

    /// A revision up to which every change of the prefix was returned.
    fn progress(&self) -> Revision;
}
