//! The newest state: readers take it without waiting, watchers wait for the next.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::state::{self, Keys, State};
use crate::{Entry, List, Page, ReadAt, ReadError, Revision};

/// The newest state. One writer at a time puts the next in its place.
#[derive(Debug)]
pub(crate) struct Published {
    state: ArcSwap<State>,
    /// Wakes watchers when there is a new state.
    newest: watch::Sender<Revision>,
}

/// The keys of one revision.
struct ReadState {
    keys: Keys,
    revision: Revision,
}

impl Published {
    pub(crate) fn new(state: State) -> Self {
        let (newest, _) = watch::channel(state.revision);
        Self {
            state: ArcSwap::from_pointee(state),
            newest,
        }
    }

    /// The newest state.
    pub(crate) fn current(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Puts the next state in place and wakes watchers.
    pub(crate) fn publish(&self, state: State) {
        let revision = state.revision;
        self.state.store(Arc::new(state));
        self.newest.send_replace(revision);
    }

    /// Forgets history before a revision. Not while something is written.
    pub(crate) fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        let current = self.current();
        if oldest > current.revision {
            return Err(ReadError::Future {
                current: current.revision,
            });
        }
        self.state.store(Arc::new(current.compacted(oldest)));
        Ok(())
    }

    pub(crate) fn revision(&self) -> Revision {
        self.state.load().revision
    }

    pub(crate) fn get(
        &self,
        key: &str,
        at: ReadAt,
    ) -> Result<(Option<Entry>, Revision), ReadError> {
        let ReadState { keys, revision } = self.read(at)?;
        Ok((keys.get(key).cloned(), revision))
    }

    pub(crate) fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        let ReadState { keys, revision } = self.read(list.at)?;
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

    /// Subscribes to states newer than a revision whose history is still there.
    pub(crate) fn subscribe(
        &self,
        after: Revision,
    ) -> Result<watch::Receiver<Revision>, ReadError> {
        let state = self.state.load();
        if after > state.revision {
            return Err(ReadError::Future {
                current: state.revision,
            });
        }
        state.check_history(after)?;
        Ok(self.newest.subscribe())
    }

    fn read(&self, at: ReadAt) -> Result<ReadState, ReadError> {
        let state = self.state.load();
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
