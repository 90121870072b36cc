//! The store at one revision: its keys, and the changes that led there.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, Vector};
use tokio::time::Instant;

use crate::{Compacted, Entry, Event, MemoryOptions, Revision, WriteError};

pub(crate) type Keys = OrdMap<Arc<str>, Entry>;

/// A revision of the store. INVARIANT: `history` has every change after `oldest` and up to `revision`, in
/// order. Where others share the counter there are revisions without a change, and a revision may have several.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    pub(crate) keys: Keys,
    /// The oldest revision whose keys are known.
    oldest: Revision,
    history: Vector<Arc<Change>>,
    /// The bytes of all changes in `history`.
    history_bytes: usize,
}

#[derive(Debug)]
struct Change {
    event: Event,
    /// The size of the superseded value that the change keeps in memory.
    bytes: usize,
    at: Instant,
    /// The keys before the change, at some changes only: what they do not share with those after it is
    /// more than the change.
    keys_before: Option<Keys>,
}

/// Most changes that are undone to find the keys of an earlier revision.
const CHECKPOINT: u64 = 64;

impl Default for Revision {
    fn default() -> Self {
        Self::START
    }
}

impl State {
    /// A state without history: nothing before it can be read.
    pub(crate) fn new(revision: Revision, keys: Keys) -> Self {
        Self {
            revision,
            keys,
            oldest: revision,
            history: Vector::new(),
            history_bytes: 0,
        }
    }

    /// The revision of the next change.
    fn next_revision(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    /// The change that creates a key.
    pub(crate) fn create(&self, key: &str, value: Bytes) -> Result<Event, WriteError> {
        if let Some(current) = self.keys.get(key) {
            return Err(WriteError::AlreadyExists(Box::new(current.clone())));
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

    /// The change that gives a key another value; none if it has that value already.
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

    /// The change that deletes an entry.
    pub(crate) fn delete(&self, previous: Entry) -> Event {
        Event::Delete {
            revision: self.next_revision(),
            previous,
        }
    }

    /// The change that deletes a key whose time is over; none if it is gone, or made anew since.
    pub(crate) fn expire(&self, key: &str, created: Revision) -> Option<Event> {
        let previous = self.keys.get(key)?;
        (previous.created == created).then(|| self.delete(previous.clone()))
    }

    /// The state after a change, with as much history as the options ask for.
    pub(crate) fn after(&self, event: Event, now: Instant, options: &MemoryOptions) -> Self {
        let mut keys = self.keys.clone();
        match &event {
            Event::Put { entry, .. } => {
                keys.insert(Arc::clone(&entry.key), entry.clone());
            }
            Event::Delete { previous, .. } => {
                keys.remove(&previous.key);
            }
        }
        let mut history = self.history.clone();
        let revision = event.revision();
        let bytes = event.previous().map_or(0, |entry| entry.value.len());
        let mut history_bytes = self.history_bytes + bytes;
        history.push_back(Arc::new(Change {
            event,
            bytes,
            at: now,
            keys_before: (revision.0 / CHECKPOINT > self.revision.0 / CHECKPOINT)
                .then(|| self.keys.clone()),
        }));
        let mut first = self.oldest;
        // Old changes go in twos at most, so that no single write pays for all of them; only a large
        // one makes room for itself.
        let mut freed = 0;
        while let Some(oldest) = history.front() {
            let too_large = history_bytes > options.max_bytes && history.len() > 1;
            let too_many = history.len() > options.max_events;
            let too_old = now.duration_since(oldest.at) > options.min_age && history.len() > 1;
            if !(too_large || freed < 2 && (too_many || too_old)) {
                break;
            }
            history_bytes = history_bytes.saturating_sub(oldest.bytes);
            first = oldest.event.revision();
            history.pop_front();
            freed += 1;
        }
        Self {
            revision,
            keys,
            oldest: first,
            history,
            history_bytes,
        }
    }

    /// The same state at a later revision, up to which nothing changed.
    #[cfg(feature = "etcd")]
    pub(crate) fn advanced(&self, revision: Revision) -> Self {
        Self {
            revision,
            ..self.clone()
        }
    }

    /// The entry of a key, if it is at the expected revision.
    pub(crate) fn expect(&self, key: &str, expected: Revision) -> Result<Entry, WriteError> {
        match self.keys.get(key) {
            None => Err(WriteError::NotFound),
            Some(entry) if entry.revision != expected => {
                Err(WriteError::Conflict(Box::new(entry.clone())))
            }
            Some(entry) => Ok(entry.clone()),
        }
    }

    /// The keys as they were at an earlier revision.
    pub(crate) fn keys_at(&self, revision: Revision) -> Result<Keys, Compacted> {
        self.check_history(revision)?;
        let first = self.index_after(revision);
        let later = || (first..self.history.len()).filter_map(|index| self.history.get(index));
        let checkpoint = later().position(|change| change.keys_before.is_some());
        let mut keys = checkpoint
            .and_then(|index| later().nth(index)?.keys_before.clone())
            .unwrap_or_else(|| self.keys.clone());
        // From there back to the wanted revision, the last change first.
        let changes: Vec<_> = later()
            .take(checkpoint.unwrap_or(self.history.len()))
            .collect();
        for change in changes.into_iter().rev() {
            match &change.event {
                Event::Put {
                    previous: Some(previous),
                    ..
                }
                | Event::Delete { previous, .. } => {
                    keys.insert(Arc::clone(&previous.key), previous.clone());
                }
                Event::Put { entry, .. } => {
                    keys.remove(&entry.key);
                }
            }
        }
        Ok(keys)
    }

    /// Checks that every change after `revision` is still there.
    pub(crate) fn check_history(&self, revision: Revision) -> Result<(), Compacted> {
        let oldest = self.oldest();
        if revision < oldest {
            Err(Compacted { oldest })
        } else {
            Ok(())
        }
    }

    /// The changes after a revision, in order.
    pub(crate) fn events_after(&self, revision: Revision) -> impl Iterator<Item = &Event> {
        let first = self.index_after(revision);
        (first..self.history.len())
            .filter_map(|index| self.history.get(index))
            .map(|change| &change.event)
    }

    /// The wanted changes of the first revision after `after` that has any. One, unless several keys were
    /// changed at once.
    pub(crate) fn next_events(
        &self,
        after: Revision,
        is_wanted: impl Fn(&Event) -> bool,
    ) -> impl Iterator<Item = &Event> {
        let mut events = self.events_after(after);
        let first = events.find(|event| is_wanted(event));
        let revision = first.map(Event::revision);
        let others = events.take_while(move |event| Some(event.revision()) == revision);
        first
            .into_iter()
            .chain(others.filter(move |event| is_wanted(event)))
    }

    /// The state without history before `oldest`.
    pub(crate) fn compacted(&self, oldest: Revision) -> Self {
        let mut state = self.clone();
        while let Some(change) = state.history.front()
            && change.event.revision() <= oldest
        {
            state.history_bytes = state.history_bytes.saturating_sub(change.bytes);
            state.history.pop_front();
        }
        state.oldest = state.oldest.max(oldest);
        state
    }

    /// The oldest revision whose keys are known.
    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// The index of the first change after `revision` in the history.
    fn index_after(&self, revision: Revision) -> usize {
        let is_later = |index: usize| Some(self.history.get(index)?.event.revision() > revision);
        // Right where every revision is a change, which it mostly is.
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

/// The entries under a prefix and after a key, in order.
pub(crate) fn range<'k>(
    keys: &'k Keys,
    prefix: &'k str,
    after: Option<&str>,
) -> impl Iterator<Item = &'k Entry> {
    let start = match after {
        Some(after) if after >= prefix => Bound::Excluded(Arc::from(after)),
        _ => Bound::Included(Arc::from(prefix)),
    };
    keys.range::<_, Arc<str>>((start, Bound::Unbounded))
        .map(|(_, entry)| entry)
        .take_while(move |entry| entry.key.starts_with(prefix))
}
