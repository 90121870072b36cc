//! A store wrapper that records operations.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Before, Call, Change, History, OperationResult, Recorder, Seen, Time, Violation, check,
};
use crate::{
    Entry, Event, Filter, List, Page, ReadAt, ReadError, Revision, Store, Unavailable, Watch,
    WriteError,
};

/// A store with recorded operations. Clones are handles to the same store and history.
#[derive(Debug)]
pub struct Recorded<S> {
    store: Arc<S>,
    recorder: Recorder,
}

impl<S> Clone for Recorded<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            recorder: self.recorder.clone(),
        }
    }
}

impl<S: Store> Recorded<S> {
    /// Wraps a store with a new recorder.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self::with(Recorder::new(), store)
    }

    /// Wraps a store with a shared recorder.
    #[must_use]
    pub fn with(recorder: Recorder, store: S) -> Self {
        Self {
            store: Arc::new(store),
            recorder,
        }
    }

    /// The wrapped store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// The history so far.
    #[must_use]
    pub fn history(&self) -> History {
        self.recorder.history()
    }

    /// The violations so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        check(&self.history())
    }
}

#[async_trait]
impl<S: Store> Store for Recorded<S> {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let call = Call::Create {
            key: key.into(),
            value: value.clone(),
            expires: ttl.is_some(),
        };
        let pending = Pending::new(&self.recorder, call);
        let result = self.store.create(key, value, ttl).await;
        pending.end(result.as_ref().copied());
        result
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        let call = Call::Update {
            key: key.into(),
            expected,
            value: value.clone(),
        };
        let pending = Pending::new(&self.recorder, call);
        let result = self.store.update(key, expected, value).await;
        pending.end(result.as_ref().copied());
        result
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        let call = Call::Delete {
            key: key.into(),
            expected,
        };
        let pending = Pending::new(&self.recorder, call);
        let result = self.store.delete(key, expected).await;
        let revision = result.as_ref().map(|(revision, _)| *revision);
        pending.end(revision);
        result
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        let invoked = self.recorder.now();
        let result = self.store.get(key, at).await;
        if let Ok((entry, revision)) = &result {
            let key = key.into();
            let answer = OperationResult::Found(entry.clone(), *revision);
            self.recorder.record(invoked, Call::Get { key, at }, answer);
        }
        result
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        let invoked = self.recorder.now();
        let result = self.store.list(list).await;
        if let Ok(page) = &result {
            let call = Call::List {
                prefix: list.prefix.to_owned(),
                at: list.at,
                after: list.after.map(str::to_owned),
                limit: list.limit,
            };
            let answer =
                OperationResult::Listed(page.entries.clone(), page.revision, page.remaining);
            self.recorder.record(invoked, call, answer);
        }
        result
    }

    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError> {
        let is_filtered = filter.is_some();
        let watch = self.store.watch_if(prefix, after, filter).await?;
        Ok(Box::new(RecordedWatch {
            watch,
            number: self.recorder.watch(prefix, after, is_filtered),
            recorder: self.recorder.clone(),
        }))
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        self.store.revision().await
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        self.store.compact(oldest).await
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn failure(&self) -> Option<Unavailable> {
        self.store.failure()
    }
}

/// A write in progress. If it is dropped before it returns, its outcome is unknown.
struct Pending<'r> {
    recorder: &'r Recorder,
    invoked: Time,
    call: Call,
    answer: OperationResult,
}

impl<'r> Pending<'r> {
    fn new(recorder: &'r Recorder, call: Call) -> Self {
        Self {
            recorder,
            invoked: recorder.now(),
            call,
            answer: OperationResult::Unknown,
        }
    }

    fn end(mut self, result: Result<Revision, &WriteError>) {
        self.answer = match result {
            Ok(revision) => OperationResult::Written(revision),
            Err(WriteError::AlreadyExists(entry) | WriteError::Conflict(entry)) => {
                OperationResult::Conflict(Entry::clone(entry))
            }
            Err(WriteError::NotFound) => OperationResult::NotFound,
            Err(WriteError::TooLarge) => OperationResult::Rejected,
            Err(WriteError::Unavailable(_)) => OperationResult::Unknown,
        };
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.recorder
            .record(self.invoked, self.call.clone(), self.answer.clone());
    }
}

struct RecordedWatch {
    watch: Box<dyn Watch>,
    number: usize,
    recorder: Recorder,
}

#[async_trait]
impl Watch for RecordedWatch {
    async fn next(&mut self) -> Result<Event, ReadError> {
        // A server derives bookmarks from this.
        self.recorder
            .saw(self.number, Seen::Bookmark(self.watch.progress()));
        let event = self.watch.next().await?;
        self.recorder
            .saw(self.number, Seen::Event(Change::from(&event)));
        Ok(event)
    }

    fn progress(&self) -> Revision {
        let progress = self.watch.progress();
        self.recorder.saw(self.number, Seen::Bookmark(progress));
        progress
    }
}

impl From<&Event> for Change {
    fn from(event: &Event) -> Self {
        let value = match event {
            Event::Put { entry, .. } => Some(entry.value.clone()),
            Event::Delete { .. } => None,
        };
        Self {
            revision: event.revision(),
            key: Arc::clone(event.key()),
            value,
            before: match event.previous() {
                Some(previous) => Before::Entry(previous.revision, previous.value.clone()),
                None => Before::Nothing,
            },
        }
    }
}
