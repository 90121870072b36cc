//! The backend in memory.
//!
//! One immutable [`State`] holds the keys and the recent changes; readers take the current one without
//! waiting, and one writer at a time puts the next in its place. Keys and history are persistent
//! collections, so a state shares all but the change with the one before it.

mod expiry;
mod state;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    Entry, Event, List, Page, ReadAt, ReadError, Revision, Store, Unavailable, Watch, WriteError,
};
use expiry::Expiry;
use state::State;
use watch::MemoryWatch;

/// How much history to keep.
#[derive(Debug, Clone, Copy)]
pub struct MemoryOptions {
    /// At most so many changes, whatever their age.
    pub max_events: usize,
    /// Changes younger than this are kept while the number allows it.
    pub min_age: Duration,
}

impl Default for MemoryOptions {
    /// UPSTREAM: apiserver pkg/storage/cacher keeps events for 75 s and up to 100 Ki of them.
    fn default() -> Self {
        Self {
            max_events: 100 * 1024,
            min_age: Duration::from_secs(75),
        }
    }
}

/// A store that lives as long as the process. Clones are handles to the same store.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: ArcSwap<State>,
    /// Held while the next state is made and put in place.
    writer: Mutex<()>,
    /// Tells watchers that there is a new state.
    newest: tokio::sync::watch::Sender<Revision>,
    expiry: Expiry,
    options: MemoryOptions,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_options(MemoryOptions::default())
    }
}

impl MemoryStore {
    /// An empty store with the usual history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store.
    #[must_use]
    pub fn with_options(options: MemoryOptions) -> Self {
        let (newest, _) = tokio::sync::watch::channel(Revision::START);
        let shared = Shared {
            state: ArcSwap::from_pointee(State::default()),
            writer: Mutex::new(()),
            newest,
            expiry: Expiry::default(),
            options,
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Shared {
    /// Makes the next state from the current one. `change` decides what changes, knowing the
    /// revision the change will have; `None` leaves everything as it is.
    fn write<T>(
        &self,
        change: impl FnOnce(&State, Revision) -> Result<(Option<Event>, T), WriteError>,
    ) -> Result<T, WriteError> {
        // A writer that panicked left no half-made state behind: states are replaced as a whole.
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.state.load_full();
        let revision = Revision(current.revision.0 + 1);
        let (event, result) = change(&current, revision)?;
        if let Some(event) = event {
            self.state.store(Arc::new(current.after(
                event,
                Instant::now(),
                &self.options,
            )));
            self.newest.send_replace(revision);
        }
        Ok(result)
    }

    fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.write(|state, revision| {
            let previous = state.expect(key, expected)?;
            let event = Event::Delete {
                revision,
                previous: previous.clone(),
            };
            Ok((Some(event), (revision, previous)))
        })
    }

    fn read(&self, at: ReadAt) -> Result<ReadState, ReadError> {
        let state = self.state.load_full();
        let current = state.revision;
        match at {
            ReadAt::NotOlderThan(wanted) | ReadAt::Exact(wanted) if wanted > current => {
                Err(ReadError::Future { current })
            }
            ReadAt::Exact(wanted) if wanted < current => {
                let keys = state.keys_at(wanted)?;
                Ok(ReadState {
                    keys,
                    revision: wanted,
                })
            }
            _ => Ok(ReadState {
                keys: state.keys.clone(),
                revision: current,
            }),
        }
    }
}

/// The keys of one revision.
struct ReadState {
    keys: state::Keys,
    revision: Revision,
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let entry = self.shared.write(|state, revision| {
            if let Some(current) = state.keys.get(key) {
                return Err(WriteError::AlreadyExists(Box::new(current.clone())));
            }
            let entry = Entry {
                key: Arc::from(key),
                value,
                created: revision,
                revision,
            };
            Ok((
                Some(Event::Put {
                    entry: entry.clone(),
                    previous: None,
                }),
                entry,
            ))
        })?;
        if let Some(ttl) = ttl {
            self.shared
                .expiry
                .add(&self.shared, Instant::now() + ttl, &entry);
        }
        Ok(entry.revision)
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        self.shared.write(|state, revision| {
            let previous = state.expect(key, expected)?;
            if previous.value == value {
                return Ok((None, previous.revision));
            }
            let entry = Entry {
                value,
                revision,
                ..previous.clone()
            };
            Ok((
                Some(Event::Put {
                    entry,
                    previous: Some(previous),
                }),
                revision,
            ))
        })
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.shared.delete(key, expected)
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        let ReadState { keys, revision } = self.shared.read(at)?;
        Ok((keys.get(key).cloned(), revision))
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        let ReadState { keys, revision } = self.shared.read(list.at)?;
        let mut matching = state::range(&keys, list.prefix, list.after);
        let entries: Vec<Entry> = match list.limit {
            Some(limit) => matching.by_ref().take(limit).cloned().collect(),
            None => matching.by_ref().cloned().collect(),
        };
        let remaining = matching.count();
        Ok(Page {
            entries,
            revision,
            remaining,
        })
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, ReadError> {
        let state = self.shared.state.load();
        if after > state.revision {
            return Err(ReadError::Future {
                current: state.revision,
            });
        }
        state.check_history(after)?;
        let newest = self.shared.newest.subscribe();
        Ok(Box::new(MemoryWatch::new(
            Arc::clone(&self.shared),
            newest,
            prefix,
            after,
        )))
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        Ok(self.shared.state.load().revision)
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        let _writer = self
            .shared
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let current = self.shared.state.load_full();
        if oldest > current.revision {
            return Err(ReadError::Future {
                current: current.revision,
            });
        }
        self.shared.state.store(Arc::new(current.compacted(oldest)));
        Ok(())
    }
}
