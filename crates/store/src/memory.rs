//! The in-memory backend.
//!
//! One immutable [`State`] contains the keys and the recent changes; readers load the current one without
//! locking, and one writer at a time replaces it. Keys and history are persistent collections, so
//! consecutive states share everything but the change.

mod expiry;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use crate::published::Published;
use crate::state::State;
use crate::watch::Cursor;
use crate::{
    Bloom, Entry, Event, Filter, List, Page, ReadAt, ReadError, Revision, Store, Unavailable,
    Watch, WriteError,
};
use expiry::Expiry;

/// How much history to keep, and how to store values.
#[derive(Debug, Clone, Copy)]
pub struct MemoryOptions {
    /// The maximum number of changes, regardless of age.
    pub max_events: usize,
    /// The maximum size in bytes of values that only occur in the history, regardless of age.
    pub max_bytes: usize,
    /// Changes younger than this are kept within the maximum number.
    pub min_age: Duration,
    /// Key prefixes of similar values, which are compressed against a template: this uses a fraction of the
    /// memory, and reads are somewhat slower.
    pub compressed_prefixes: &'static [&'static str],
    /// Computes the Bloom filter of a value when it is stored.
    pub bloom: fn(&[u8]) -> Bloom,
}

impl Default for MemoryOptions {
    /// UPSTREAM: apiserver pkg/storage/cacher keeps events for 75 s and up to 100 Ki of them.
    fn default() -> Self {
        Self {
            max_events: 100 * 1024,
            max_bytes: 64 << 20,
            min_age: Duration::from_secs(75),
            compressed_prefixes: &[],
            bloom: |_| Bloom::FULL,
        }
    }
}

/// A store that is not persisted. Clones are handles to the same store.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    published: Arc<Published>,
    /// Locked while the next state is computed and published.
    writer: Mutex<()>,
    expiry: Expiry,
    options: MemoryOptions,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_options(MemoryOptions::default())
    }
}

impl MemoryStore {
    /// Creates an empty store with the default history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty store.
    #[must_use]
    pub fn with_options(options: MemoryOptions) -> Self {
        let shared = Shared {
            published: Arc::new(Published::new(State::empty(&options))),
            writer: Mutex::new(()),
            expiry: Expiry::default(),
            options,
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Shared {
    /// Computes the next state from the current one. `decide` returns the change; `None` keeps the current
    /// state.
    fn write<T>(
        &self,
        decide: impl FnOnce(&State) -> Result<(Option<Event>, T), WriteError>,
    ) -> Result<T, WriteError> {
        // A panic of a writer leaves a consistent state: states are replaced atomically.
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.published.current();
        let (event, result) = decide(&current)?;
        if let Some(event) = event {
            let next = current.after(event, Instant::now(), &self.options);
            self.published.publish(next);
        }
        Ok(result)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let created = self.shared.write(|state| {
            let event = state.create(key, value)?;
            let created = event.revision();
            Ok((Some(event), created))
        })?;
        if let Some(ttl) = ttl {
            self.shared
                .expiry
                .add(&self.shared, Instant::now() + ttl, key, created);
        }
        Ok(created)
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        self.shared.write(|state| {
            let event = state.update(key, expected, value)?;
            let revision = event.as_ref().map_or(expected, Event::revision);
            Ok((event, revision))
        })
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.shared.write(|state| {
            let previous = state.expect(key, expected)?;
            let event = state.delete(previous.clone());
            let revision = event.revision();
            Ok((Some(event), (revision, previous)))
        })
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        self.shared.published.get(key, at)
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        self.shared.published.list(list)
    }

    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError> {
        Cursor::open(&self.shared.published, prefix, after, filter)
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        Ok(self.shared.published.revision())
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        let _writer = self
            .shared
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.shared.published.compact(oldest)
    }
}
