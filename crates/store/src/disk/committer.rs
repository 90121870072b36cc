//! The single writer thread (group commit). It takes all queued writes, applies them in order, commits
//! them to disk with one sync, and only then publishes them.
//!
//! New writes are queued during a sync; so the higher the load, the more writes share a sync.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::Instant;

use super::file::{Changes, Commit, DataFile, Loaded};
use crate::published::Published;
use crate::record::{Deadline, Summary};
use crate::state::{State, Undo};
use crate::{Entry, Event, MemoryOptions, ReadError, Revision, Snapshot, Unavailable, WriteError};

/// The maximum number of writes per sync, to bound the latency of the first one.
const MAX_BATCH_WRITES: usize = 2048;
/// The maximum number of bytes per sync.
const MAX_BATCH_BYTES: usize = 16 << 20;
/// The maximum wait for a request, as the system clock may be adjusted meanwhile.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The channel for a writer's result.
pub(super) type ResultSender<T> = oneshot::Sender<Result<T, WriteError>>;

/// A requested write.
#[derive(Debug)]
pub(super) enum Write {
    Create {
        key: String,
        value: Bytes,
        deadline: Deadline,
        sender: ResultSender<Revision>,
    },
    Update {
        key: String,
        expected: Revision,
        value: Bytes,
        sender: ResultSender<Revision>,
    },
    Delete {
        key: String,
        expected: Revision,
        sender: ResultSender<(Revision, Entry)>,
    },
}

/// A message to the committer thread.
#[derive(Debug)]
pub(super) enum Request {
    /// The permit is the writer's slot in the queue.
    Write(Write, OwnedSemaphorePermit),
    Compact(Revision, oneshot::Sender<Result<(), ReadError>>),
    Snapshot(oneshot::Sender<Snapshot>),
    Close,
}

impl Write {
    fn size(&self) -> usize {
        match self {
            Self::Create { key, value, .. } | Self::Update { key, value, .. } => {
                key.len() + value.len()
            }
            Self::Delete { key, .. } => key.len(),
        }
    }

    /// Returns an error without writing. A cancelled writer is ignored.
    fn fail(self, failure: Unavailable) {
        match self {
            Self::Create { sender, .. } | Self::Update { sender, .. } => {
                let _ = sender.send(Err(failure.into()));
            }
            Self::Delete { sender, .. } => {
                let _ = sender.send(Err(failure.into()));
            }
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> Deadline {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The deadline of a key, with its creation revision to distinguish it from a later key of the same name.
type Ending = Reverse<(Deadline, Arc<str>, Revision)>;

pub(super) struct Committer {
    file: DataFile,
    published: Arc<Published>,
    /// The error after which all writes are rejected.
    failure: watch::Sender<Option<Unavailable>>,
    deadlines: HashMap<Arc<str>, Deadline>,
    endings: BinaryHeap<Ending>,
    options: MemoryOptions,
}

/// Writes that are applied but not yet committed to disk.
struct Batch {
    state: State,
    changes: Changes,
    history: Vec<Undo>,
    answers: Vec<Reply>,
}

/// Sends a writer its result, with the error if the commit failed.
type Reply = Box<dyn FnOnce(Option<&Unavailable>)>;

impl Committer {
    pub(super) fn new(
        file: DataFile,
        loaded: Loaded,
        failure: watch::Sender<Option<Unavailable>>,
        options: MemoryOptions,
    ) -> Self {
        let Loaded {
            state, deadlines, ..
        } = loaded;
        let endings = deadlines.iter().filter_map(|(key, &deadline)| {
            let stored = state.keys.get(key)?;
            Some(Reverse((deadline, Arc::clone(key), stored.created())))
        });
        let endings = endings.collect();
        Self {
            file,
            published: Arc::new(Published::new(state)),
            failure,
            deadlines,
            endings,
            options,
        }
    }

    /// The published state for readers.
    pub(super) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// Processes requests until closed, or until all senders are dropped.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            let first = match requests.recv_timeout(self.wait()) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut batch = self.begin();
            let mut permits = Vec::new();
            let mut bytes = 0;
            let mut next = first;
            let mut last = None;
            while let Some(request) = next.take() {
                let Request::Write(write, permit) = request else {
                    last = Some(request);
                    break;
                };
                bytes += write.size();
                permits.push(permit);
                self.decide(&mut batch, write);
                if permits.len() >= MAX_BATCH_WRITES || bytes >= MAX_BATCH_BYTES {
                    break;
                }
                // None means empty or disconnected; the next iteration distinguishes them.
                next = requests.try_recv().ok();
            }
            self.expire(&mut batch);
            self.finish(batch);
            match last {
                Some(Request::Compact(oldest, sender)) => {
                    let _ = sender.send(self.published.compact(oldest));
                }
                Some(Request::Snapshot(sender)) => {
                    let _ = sender.send(self.snapshot());
                }
                Some(Request::Close) => break,
                Some(Request::Write(..)) | None => {}
            }
        }
        self.file.close(self.published.revision());
    }

    /// A snapshot of everything on disk. It shares the keys with the state, and reads them lazily.
    fn snapshot(&self) -> Snapshot {
        let state = self.published.current();
        let deadlines = self.deadlines.clone();
        let entries = state.keys.clone().into_iter().map(move |stored| {
            let entry = stored.entry();
            let deadline = deadlines.get(&entry.key).copied().unwrap_or_default();
            (entry, deadline)
        });
        Snapshot::new(state.revision, entries)
    }

    /// The time until the next deadline.
    fn wait(&self) -> Duration {
        match self.endings.peek() {
            Some(Reverse((deadline, ..))) if !self.has_failed() => {
                Duration::from_millis(deadline.saturating_sub(now())).min(MAX_WAIT)
            }
            _ => MAX_WAIT,
        }
    }

    fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    fn begin(&self) -> Batch {
        Batch {
            state: State::clone(&self.published.current()),
            changes: Changes::new(),
            history: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Applies a write to the batch's state, which includes preceding writes.
    fn decide(&mut self, batch: &mut Batch, write: Write) {
        if let Some(failure) = self.failure.borrow().clone() {
            write.fail(failure);
            return;
        }
        match write {
            Write::Create {
                key,
                value,
                deadline,
                sender,
            } => {
                let result = batch.state.create(&key, value).map(|event| {
                    if deadline != 0 {
                        let key = Arc::clone(event.key());
                        self.deadlines.insert(Arc::clone(&key), deadline);
                        self.endings
                            .push(Reverse((deadline, key, event.revision())));
                    }
                    self.apply(batch, event)
                });
                batch.queue_result(sender, result);
            }
            Write::Update {
                key,
                expected,
                value,
                sender,
            } => {
                let result = batch.state.update(&key, expected, value);
                let result =
                    result.map(|event| event.map_or(expected, |event| self.apply(batch, event)));
                batch.queue_result(sender, result);
            }
            Write::Delete {
                key,
                expected,
                sender,
            } => {
                let result = batch.state.expect(&key, expected).map(|previous| {
                    let event = batch.state.delete(previous.clone());
                    (self.apply(batch, event), previous)
                });
                batch.queue_result(sender, result);
            }
        }
    }

    /// Adds a change to the batch.
    fn apply(&mut self, batch: &mut Batch, event: Event) -> Revision {
        let revision = event.revision();
        let key = Arc::clone(event.key());
        let change = match &event {
            Event::Put { entry, .. } => {
                let deadline = self.deadlines.get(&key).copied().unwrap_or_default();
                Some((entry.clone(), deadline))
            }
            Event::Delete { .. } => {
                self.deadlines.remove(&key);
                None
            }
        };
        batch.history.push(Undo {
            key: Arc::clone(&key),
            revision,
            before: event.previous().cloned(),
        });
        batch.changes.insert(key, change);
        batch.state = batch.state.after(event, Instant::now(), &self.options);
        revision
    }

    /// Adds the deletions of expired entries to the batch.
    fn expire(&mut self, batch: &mut Batch) {
        if self.has_failed() {
            return;
        }
        let now = now();
        while batch.changes.len() < MAX_BATCH_WRITES
            && let Some(Reverse((deadline, ..))) = self.endings.peek()
            && *deadline <= now
            && let Some(Reverse((_, key, created))) = self.endings.pop()
        {
            if let Some(event) = batch.state.expire(&key, created) {
                self.apply(batch, event);
            }
        }
    }

    /// Commits a batch to disk, publishes it, and sends all results.
    fn finish(&mut self, batch: Batch) {
        let Batch {
            state,
            changes,
            history,
            answers,
        } = batch;
        // Results without a change are of committed state; there is nothing to write.
        let failure = if changes.is_empty() {
            None
        } else {
            self.commit(state, &changes, &history).err()
        };
        for send in answers {
            send(failure.as_ref());
        }
    }

    fn commit(&self, state: State, changes: &Changes, history: &[Undo]) -> Result<(), Unavailable> {
        let summary = Summary {
            revision: state.revision,
            entries: u64::try_from(state.keys.len()).unwrap_or(u64::MAX),
        };
        let commit = Commit {
            changes,
            history,
            oldest: state.oldest(),
            summary,
        };
        match self.file.commit(commit) {
            Ok(()) => {
                self.published.publish(state);
                Ok(())
            }
            // The contents of the disk are unknown until it is read again: all later writes are rejected,
            // and none of this batch is acknowledged.
            Err(error) => {
                let why = format!(
                    "disk write failed ({error}); writes are rejected until the server restarts"
                );
                let failure = Unavailable(why);
                self.failure.send_replace(Some(failure.clone()));
                Err(failure)
            }
        }
    }
}

impl Batch {
    /// Queues the result for after the commit. An error may contain an entry of the batch, so errors wait
    /// for the commit as well.
    fn queue_result<T: Send + 'static>(
        &mut self,
        sender: ResultSender<T>,
        result: Result<T, WriteError>,
    ) {
        self.answers.push(Box::new(move |failure| {
            let result = failure.map_or(result, |failure| Err(failure.clone().into()));
            // A cancelled writer is ignored.
            let _ = sender.send(result);
        }));
    }
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer").finish_non_exhaustive()
    }
}
