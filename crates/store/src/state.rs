//! The store at one revision: its keys, and the changes that led there.

use std::sync::Arc;

use bytes::Bytes;
use imbl::Vector;
use tokio::time::Instant;

use crate::keys::{Keep, Keys, Stored};
use crate::{Compacted, Entry, Event, MemoryOptions, Revision, WriteError};

/// A revision of the store. INVARIANT: `history` has every change after `oldest` and up to `revision`, in
/// order. Where others share the counter there are revisions without a change, and a revision may have several.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    pub(crate) keys: Keys,
    /// The oldest revision whose keys are known.
    oldest: Revision,
    history: Vector<Arc<Change>>,
    /// The bytes of all changes in `history`.
    history_bytes: usize,
    keep: Arc<Keep>,
}

/// A change of a key.
#[derive(Debug)]
struct Change {
    revision: Revision,
    /// None for a deletion.
    now: Option<Stored>,
    /// None for a creation.
    before: Option<Stored>,
    at: Instant,
    /// The keys before the change, at some changes only: what they do not share with those after it is
    /// more than the change.
    keys_before: Option<Box<Keys>>,
}

impl Change {
    /// The size of the superseded value that the change keeps in memory.
    fn bytes(&self) -> usize {
        self.before.as_ref().map_or(0, Stored::size)
    }

    fn is_under(&self, prefix: &str) -> bool {
        let stored = self.now.as_ref().or(self.before.as_ref());
        stored.is_some_and(|stored| stored.is_under(prefix))
    }

    /// The change as others are told of it; none for what cannot be: neither before nor after.
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

/// A change of the past, by what it replaced.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) key: Arc<str>,
    pub(crate) revision: Revision,
    /// None for a creation.
    pub(crate) before: Option<Entry>,
}

/// Most changes that are undone to find the keys of an earlier revision: as long as a fraction of a
/// millisecond takes, and rare enough that what checkpoints do not share is little beside the changes.
const CHECKPOINT: u64 = 1024;

impl Default for Revision {
    fn default() -> Self {
        Self::START
    }
}

impl State {
    /// A state without history: nothing before it can be read.
    pub(crate) fn new(revision: Revision, keys: Keys, keep: Arc<Keep>) -> Self {
        Self {
            revision,
            keys,
            oldest: revision,
            history: Vector::new(),
            history_bytes: 0,
            keep,
        }
    }

    /// The state with the changes that led to it, as much of them as the options ask for. None if they did not:
    /// every revision is one change, and each is followed by the next.
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
            let before = before.map(|before| self.keep.entry(before));
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

    /// Nothing yet.
    pub(crate) fn empty(options: &MemoryOptions) -> Self {
        Self::new(Revision::START, Keys::new(), Keep::new(options))
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

    /// The change that creates a key.
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
        (previous.created() == created).then(|| self.delete(previous.entry()))
    }

    /// The state after a change, with as much history as the options ask for.
    pub(crate) fn after(&self, event: Event, now: Instant, options: &MemoryOptions) -> Self {
        let mut keys = self.keys.clone();
        let revision = event.revision();
        let (stored, before) = match event {
            Event::Put { entry, .. } => {
                let stored = self.keep.entry(entry);
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
            keep: Arc::clone(&self.keep),
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
        let stored = self.keys.get(key).ok_or(WriteError::NotFound)?;
        let entry = stored.entry();
        match entry.revision == expected {
            true => Ok(entry),
            false => Err(WriteError::Conflict(Box::new(entry))),
        }
    }

    /// The keys as they were at an earlier revision.
    pub(crate) fn keys_at(&self, revision: Revision) -> Result<Keys, Compacted> {
        self.check_history(revision)?;
        let first = self.index_after(revision);
        let later = || (first..self.history.len()).filter_map(|index| self.history.get(index));
        let checkpoint = later().position(|change| change.keys_before.is_some());
        let mut keys = checkpoint
            .and_then(|index| later().nth(index)?.keys_before.as_deref().cloned())
            .unwrap_or_else(|| self.keys.clone());
        // From there back to the wanted revision, the last change first.
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

    /// Checks that every change after `revision` is still there.
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

    /// The wanted changes of keys under a prefix, of the first revision after `after` that has any. One, unless
    /// several keys were changed at once.
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

    /// The oldest revision whose keys are known.
    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// The index of the first change after `revision` in the history.
    fn index_after(&self, revision: Revision) -> usize {
        let is_later = |index: usize| Some(self.history.get(index)?.revision > revision);
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
