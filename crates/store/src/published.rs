//! The latest state: readers load it without locking, watchers wait for matching changes.
//!
//! A change only wakes watchers whose prefix and filter match, regardless of the number of others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::keys::{Keys, Stored};
use crate::state::State;
use crate::{Entry, Event, Filter, List, Page, ReadAt, ReadError, Revision};

/// The latest state. One writer at a time replaces it.
#[derive(Debug)]
pub(crate) struct Published {
    state: ArcSwap<State>,
    /// Locked while a state is published, so that new subscribers miss no change.
    subscribers: Mutex<Subscribers>,
    pages: Mutex<Pages>,
}

/// The number of remembered pages.
const PAGES: usize = 1_000;

/// The last pages that were read, with the number of entries after them: the next page needs it again, and counting is
/// linear in the number of entries.
#[derive(Debug, Default)]
struct Pages {
    remaining: HashMap<PageEnd, usize>,
    /// Oldest first.
    order: VecDeque<PageEnd>,
}

/// The prefix, the revision and the last key of a page.
type PageEnd = (Arc<str>, Revision, Arc<str>);

impl Pages {
    fn remaining(&self, prefix: &str, revision: Revision, last: &str) -> Option<usize> {
        let end = (prefix.into(), revision, last.into());
        self.remaining.get(&end).copied()
    }

    fn remember(&mut self, prefix: &str, revision: Revision, last: Arc<str>, remaining: usize) {
        let end: PageEnd = (prefix.into(), revision, last);
        if self.remaining.insert(end.clone(), remaining).is_none() {
            self.order.push_back(end);
        }
        if self.order.len() > PAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.remaining.remove(&oldest);
        }
    }
}

/// Subscribers by prefix length, then by prefix: a key is looked up once per length.
#[derive(Debug, Default)]
struct Subscribers {
    by_length: BTreeMap<usize, HashMap<String, BTreeMap<u64, Arc<Subscriber>>>>,
    next_id: u64,
}

/// A watcher with its pending changes.
pub(crate) struct Subscriber {
    id: u64,
    prefix: String,
    filter: Option<Filter>,
    unseen: Mutex<Unseen>,
    woken: Notify,
}

/// INVARIANT: every matching change that the subscriber has not seen has a revision between `first` and `last`,
/// inclusive.
#[derive(Debug)]
struct Unseen {
    first: Option<Revision>,
    last: Revision,
}

impl Subscribers {
    /// The subscribers that match a change.
    fn of<'s>(&'s self, event: &Event) -> impl Iterator<Item = &'s Arc<Subscriber>> {
        let key: &str = event.key();
        let prefixes = self.by_length.range(..=key.len());
        prefixes
            .filter_map(|(length, prefixes)| prefixes.get(key.get(..*length)?))
            .flat_map(BTreeMap::values)
            .filter(|subscriber| subscriber.matches(event))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Subscriber>> {
        let prefixes = self.by_length.values().flat_map(HashMap::values);
        prefixes.flat_map(BTreeMap::values)
    }

    fn remove(&mut self, subscriber: &Subscriber) {
        let Some(prefixes) = self.by_length.get_mut(&subscriber.prefix.len()) else {
            return;
        };
        if let Some(found) = prefixes.get_mut(&subscriber.prefix) {
            found.remove(&subscriber.id);
            if found.is_empty() {
                prefixes.remove(&subscriber.prefix);
            }
        }
        if prefixes.is_empty() {
            self.by_length.remove(&subscriber.prefix.len());
        }
    }
}

impl Subscriber {
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns true if a change matches its prefix and filter.
    pub(crate) fn matches(&self, event: &Event) -> bool {
        event.key().starts_with(&self.prefix)
            && self.filter.as_ref().is_none_or(|filter| filter(event))
    }

    /// The first unseen revision up to `newest`; `None` if all are seen.
    pub(crate) fn first_unseen(&self, newest: Revision) -> Option<Revision> {
        self.unseen().first.filter(|first| *first <= newest)
    }

    /// Marks all changes up to a revision as seen.
    pub(crate) fn seen(&self, revision: Revision) {
        let mut unseen = self.unseen();
        let more = unseen.last > revision;
        unseen.first = more.then_some(Revision(revision.0 + 1));
    }

    /// Waits for a matching change.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    fn mark(&self, revision: Revision) {
        let mut unseen = self.unseen();
        unseen.first.get_or_insert(revision);
        unseen.last = revision;
    }

    fn unseen(&self) -> MutexGuard<'_, Unseen> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("prefix", &self.prefix)
            .field("unseen", &self.unseen)
            .finish_non_exhaustive()
    }
}

/// The keys of one revision.
struct ReadState {
    keys: Keys,
    revision: Revision,
}

impl Published {
    pub(crate) fn new(state: State) -> Self {
        Self {
            state: ArcSwap::from_pointee(state),
            subscribers: Mutex::default(),
            pages: Mutex::default(),
        }
    }

    /// The latest state.
    pub(crate) fn current(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Publishes the next state and wakes the watchers of its changes.
    pub(crate) fn publish(&self, state: State) {
        let subscribers = self.subscribers();
        let before = self.revision();
        let mut concerned = Vec::new();
        if state.check_history(before).is_err() {
            // A change was too large for the history. Its watchers are unknown, so all of them expire.
            for subscriber in subscribers.all() {
                subscriber.mark(Revision(before.0 + 1));
                concerned.push(subscriber);
            }
        }
        for event in state.events_after(before, "") {
            for subscriber in subscribers.of(&event) {
                // Before the state is published: a watcher without a mark has seen everything in the state.
                subscriber.mark(event.revision());
                concerned.push(subscriber);
            }
        }
        self.state.store(Arc::new(state));
        for subscriber in concerned {
            subscriber.woken.notify_one();
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        let pages = self.pages.lock();
        pages.unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        let subscribers = self.subscribers.lock();
        subscribers.unwrap_or_else(PoisonError::into_inner)
    }

    /// Compacts history before a revision. Must not run concurrently with a write.
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
        Ok((keys.get(key).map(Stored::entry), revision))
    }

    pub(crate) fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        let ReadState { keys, revision } = self.read(list.at)?;
        let mut under = keys.range(list.prefix, list.after);
        let mut read = 0;
        let listed = under
            .by_ref()
            .inspect(|_| read += 1)
            .filter(|stored| stored.bloom().may_contain(list.bloom));
        let entries: Vec<Arc<Entry>> = match list.limit {
            Some(limit) => listed.take(limit).map(Stored::shared).collect(),
            None => listed.map(Stored::shared).collect(),
        };
        let is_whole = list.limit.is_none_or(|limit| entries.len() < limit);
        let before = match list.after {
            _ if is_whole => Some(read),
            None => keys.count(list.prefix),
            Some(after) => self.pages().remaining(list.prefix, revision, after),
        };
        let remaining = match before {
            Some(before) => before.saturating_sub(read),
            None => under.count(),
        };
        if let Some(last) = entries.last().filter(|_| remaining > 0) {
            let last = Arc::clone(&last.key);
            self.pages()
                .remember(list.prefix, revision, last, remaining);
        }
        Ok(Page {
            entries,
            revision,
            remaining,
        })
    }

    /// Subscribes to changes after a revision, if its history is available.
    pub(crate) fn subscribe(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Arc<Subscriber>, ReadError> {
        let mut subscribers = self.subscribers();
        let state = self.state.load();
        if after > state.revision {
            return Err(ReadError::Future {
                current: state.revision,
            });
        }
        state.check_history(after)?;
        let id = subscribers.next_id;
        subscribers.next_id += 1;
        let subscriber = Arc::new(Subscriber {
            id,
            prefix: prefix.to_owned(),
            filter,
            unseen: Mutex::new(Unseen {
                first: (after < state.revision).then_some(Revision(after.0 + 1)),
                last: state.revision,
            }),
            woken: Notify::new(),
        });
        let prefixes = subscribers.by_length.entry(prefix.len()).or_default();
        let found = prefixes.entry(prefix.to_owned()).or_default();
        found.insert(id, Arc::clone(&subscriber));
        Ok(subscriber)
    }

    pub(crate) fn unsubscribe(&self, subscriber: &Subscriber) {
        self.subscribers().remove(subscriber);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_newest_pages() {
        let mut pages = Pages::default();
        for number in 0..PAGES + 10 {
            let last = number.to_string().as_str().into();
            pages.remember("/p/", Revision(7), last, number);
        }
        assert_eq!(pages.order.len(), PAGES);
        assert_eq!(pages.remaining.len(), PAGES);
        let remaining = |revision, last| pages.remaining("/p/", Revision(revision), last);
        assert_eq!(remaining(7, "9"), None);
        assert_eq!(remaining(7, "10"), Some(10));
        assert_eq!(remaining(8, "10"), None);
        assert_eq!(pages.remaining("/", Revision(7), "10"), None);
    }
}
