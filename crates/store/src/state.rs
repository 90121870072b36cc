//! The store at one revision: its keys, and recent changes.

use std::sync::Arc;

use bytes::Bytes;
use imbl::Vector;
use tokio::time::Instant;

use crate::keys::{EntryEncoding, Keys, Stored};
use crate::{Compacted, Entry, Event, MemoryOptions, Revision, WriteError};

/// A revision of the store. INVARIANT: `history` contains every change after `oldest` and up to `revision`, in
/// order. If the counter is shared, there are revisions without a change, and a revision may have several.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    pub(crate) keys: Keys,
    /// The oldest revision that can be read.
    oldest: Revision,
    history: Vector<Arc<Change>>,
    /// The size of all changes in `history`, in bytes.
    history_bytes: usize,
    encoding: Arc<EntryEncoding>,
}

/// A change of a key.
#[derive(Debug)]
struct Change {
    revision: Revision,
    /// `None` for a deletion.
    now: Option<Stored>,
    /// `None` for a creation.
    before: Option<Stored>,
    at: Instant,
    /// A checkpoint of the keys before the change, at some changes only: it uses more memory than the change
    /// for the nodes that it does not share.
    keys_before: Option<Box<Keys>>,
}

impl Change {
    /// The memory size of the superseded value in bytes.
    fn bytes(&self) -> usize {
        self.before.as_ref().map_or(0, Stored::size)
    }

    fn is_under(&self, prefix: &str) -> bool {
        let stored = self.now.as_ref().or(self.before.as_ref());
        stored.is_some_and(|stored| stored.is_under(prefix))
    }

    /// The change as an event; `None` if there is neither a previous nor a new entry.
    fn event(&self) -> Option<Event> {
        let before = self.before.as_ref().map(Stored::entry);
        Some(match &self.now {
            Some(now) => Event::Put {
                entry: now.entry(),
                previous: before,
            },
            None => Event::Delete {
                revision: self.revision,
                previous: before?,
            },
        })
    }
}

/// A past change, with the replaced entry.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) key: Arc<str>,
    pub(crate) revision: Revision,
    /// `None` for a creation.
    pub(crate) before: Option<Entry>,
}

/// The maximum number of changes to undo for the keys of an earlier revision: this takes a fraction of a
/// millisecond, and checkpoints are rare enough that their unshared nodes are small compared with the changes.
const CHECKPOINT: u64 = 1024;

impl Default for Revision {
    fn default() -> Self {
        Self::START
    }
}

impl State {
    /// Creates a state without history: nothing earlier can be read.
    pub(crate) fn new(revision: Revision, keys: Keys, encoding: Arc<EntryEncoding>) -> Self {
        Self {
            revision,
            keys,
            oldest: revision,
            history: Vector::new(),
            history_bytes: 0,
            encoding,
        }
    }

    /// Creates a state with the changes up to it, as many as the options allow. `None` if they are not
    /// consistent: every revision must be one change, without gaps.
    pub(crate) fn with_history(
        mut self,
        changes: Vec<Undo>,
        now: Instant,
        options: &MemoryOptions,
    ) -> Option<Self> {
        let mut keys = self.keys.clone();
        let mut next = self.revision;
        for Undo {
            key,
            revision,
            before,
        } in changes.into_iter().rev()
        {
            let after = keys.get(&key).cloned();
            let follows = match &after {
                Some(after) => after.revision() == revision,
                None => before.is_some(),
            };
            if revision != next || !follows {
                return None;
            }
            next = Revision(revision.0.checked_sub(1)?);
            let before = before.map(|before| self.encoding.entry(before));
            match &before {
                Some(before) => keys.insert(before.clone()),
                None => keys.remove(&key),
            };
            let change = Change {
                revision,
                now: after,
                before,
                at: now,
                keys_before: (revision.0 / CHECKPOINT > next.0 / CHECKPOINT)
                    .then(|| Box::new(keys.clone())),
            };
            let bytes = self.history_bytes + change.bytes();
            if self.history.len() >= options.max_events || bytes > options.max_bytes {
                break;
            }
            self.history_bytes = bytes;
            self.history.push_front(Arc::new(change));
            self.oldest = next;
        }
        Some(self)
    }

    /// Creates an empty state.
    pub(crate) fn empty(options: &MemoryOptions) -> Self {
        Self::new(Revision::START, Keys::new(), EntryEncoding::new(options))
    }

    /// The entry of a key.
    #[cfg(feature = "etcd")]
    pub(crate) fn entry(&self, key: &str) -> Option<Entry> {
        self.keys.get(key).map(Stored::entry)
    }

    /// The revision of the next change.
    fn next_revision(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    /// Creates a key.
    pub(crate) fn create(&self, key: &str, value: Bytes) -> Result<Event, WriteError> {
        if let Some(current) = self.keys.get(key) {
            return Err(WriteError::AlreadyExists(Box::new(current.entry())));
        }
        let revision = self.next_revision();
        let entry = Entry {
            key: Arc::from(key),
            value,
            created: revision,
            revision,
        };
        Ok(Event::Put {
            entry,
            previous: None,
        })
    }

    /// Updates the value of a key; `None` for a no-op.
    pub(crate) fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Option<Event>, WriteError> {
        let previous = self.expect(key, expected)?;
        if previous.value == value {
            return Ok(None);
        }
        let entry = Entry {
            value,
            revision: self.next_revision(),
            ..previous.clone()
        };
        Ok(Some(Event::Put {
            entry,
            previous: Some(previous),
        }))
    }

    /// Deletes an entry.
    pub(crate) fn delete(&self, previous: Entry) -> Event {
        Event::Delete {
            revision: self.next_revision(),
            previous,
        }
    }

    /// Deletes an expired key; `None` if it was deleted, or created again since.
    pub(crate) fn expire(&self, key: &str, created: Revision) -> Option<Event> {
        let previous = self.keys.get(key)?;
        (previous.created() == created).then(|| self.delete(previous.entry()))
    }

    /// The state after a change, with as much history as the options allow.
    pub(crate) fn after(&self, event: Event, now: Instant, options: &MemoryOptions) -> Self {
        let mut keys = self.keys.clone();
        let revision = event.revision();
        let (stored, before) = match event {
            Event::Put { entry, .. } => {
                let stored = self.encoding.entry(entry);
                let before = keys.insert(stored.clone());
                (Some(stored), before)
            }
            Event::Delete { previous, .. } => (None, keys.remove(&previous.key)),
        };
        let mut history = self.history.clone();
        let change = Change {
            revision,
            now: stored,
            before,
            at: now,
            keys_before: (revision.0 / CHECKPOINT > self.revision.0 / CHECKPOINT)
                .then(|| Box::new(self.keys.clone())),
        };
        let mut history_bytes = self.history_bytes + change.bytes();
        history.push_back(Arc::new(change));
        let mut first = self.oldest;
        // At most two old changes are dropped per write, so that no single write is slow; only a large change
        // drops as many as it needs.
        let mut freed = 0;
        while let Some(oldest) = history.front() {
            let too_large = history_bytes > options.max_bytes && history.len() > 1;
            let too_many = history.len() > options.max_events;
            let too_old = now.duration_since(oldest.at) > options.min_age && history.len() > 1;
            if !(too_large || freed < 2 && (too_many || too_old)) {
                break;
            }
            history_bytes = history_bytes.saturating_sub(oldest.bytes());
            first = oldest.revision;
            history.pop_front();
            freed += 1;
        }
        Self {
            revision,
            keys,
            oldest: first,
            history,
            history_bytes,
            encoding: Arc::clone(&self.encoding),
        }
    }

    /// The same state at a later revision, without changes in between.
    #[cfg(feature = "etcd")]
    pub(crate) fn advanced(&self, revision: Revision) -> Self {
        Self {
            revision,
            ..self.clone()
        }
    }

    /// The entry of a key, if it is at the expected revision.
    pub(crate) fn expect(&self, key: &str, expected: Revision) -> Result<Entry, WriteError> {
        let stored = self.keys.get(key).ok_or(WriteError::NotFound)?;
        let entry = stored.entry();
        match entry.revision == expected {
            true => Ok(entry),
            false => Err(WriteError::Conflict(Box::new(entry))),
        }
    }

    /// The keys at an earlier revision.
    pub(crate) fn keys_at(&self, revision: Revision) -> Result<Keys, Compacted> {
        self.check_history(revision)?;
        let first = self.index_after(revision);
        let later = || (first..self.history.len()).filter_map(|index| self.history.get(index));
        let checkpoint = later().position(|change| change.keys_before.is_some());
        let mut keys = checkpoint
            .and_then(|index| later().nth(index)?.keys_before.as_deref().cloned())
            .unwrap_or_else(|| self.keys.clone());
        // Undoes the changes from there to the requested revision, the last one first.
        let changes: Vec<_> = later()
            .take(checkpoint.unwrap_or(self.history.len()))
            .collect();
        for change in changes.into_iter().rev() {
            match (&change.before, &change.now) {
                (Some(before), _) => {
                    keys.insert(before.clone());
                }
                (None, Some(now)) => {
                    keys.remove(&now.entry().key);
                }
                (None, None) => {}
            }
        }
        Ok(keys)
    }

    /// Checks that every change after `revision` is in the history.
    pub(crate) fn check_history(&self, revision: Revision) -> Result<(), Compacted> {
        let oldest = self.oldest();
        if revision < oldest {
            Err(Compacted { oldest })
        } else {
            Ok(())
        }
    }

    /// The changes of keys under a prefix after a revision, in order.
    pub(crate) fn events_after(
        &self,
        revision: Revision,
        prefix: &str,
    ) -> impl Iterator<Item = Event> {
        let first = self.index_after(revision);
        (first..self.history.len())
            .filter_map(|index| self.history.get(index))
            .filter(move |change| change.is_under(prefix))
            .filter_map(|change| change.event())
    }

    /// The matching changes under a prefix of the first revision after `after` that has any. One, unless
    /// several keys changed at once.
    pub(crate) fn next_events(
        &self,
        after: Revision,
        prefix: &str,
        is_wanted: impl Fn(&Event) -> bool,
    ) -> impl Iterator<Item = Event> {
        let mut events = self.events_after(after, prefix);
        let first = events.find(|event| is_wanted(event));
        let revision = first.as_ref().map(Event::revision);
        let others = events.take_while(move |event| Some(event.revision()) == revision);
        first
            .into_iter()
            .chain(others.filter(move |event| is_wanted(event)))
    }

    /// The state without history before `oldest`.
    pub(crate) fn compacted(&self, oldest: Revision) -> Self {
        let mut state = self.clone();
        while let Some(change) = state.history.front()
            && change.revision <= oldest
        {
            state.history_bytes = state.history_bytes.saturating_sub(change.bytes());
            state.history.pop_front();
        }
        state.oldest = state.oldest.max(oldest);
        state
    }

    /// The oldest revision that can be read.
    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// The index of the first change after `revision` in the history.
    fn index_after(&self, revision: Revision) -> usize {
        let is_later = |index: usize| Some(self.history.get(index)?.revision > revision);
        // Exact if every revision is one change, which is usually the case.
        let guess = revision.0.saturating_sub(self.oldest.0);
        let guess = usize::try_from(guess).unwrap_or(usize::MAX);
        let guess = guess.min(self.history.len());
        let before = guess.checked_sub(1).and_then(is_later);
        if before != Some(true) && is_later(guess) != Some(false) {
            return guess;
        }
        let (mut low, mut high) = (0, self.history.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match is_later(middle) {
                Some(false) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}
