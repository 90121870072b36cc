//! The watch cache: the whole prefix in memory, filled once and updated by one watch.
//!
//! ```text
//!   fill ──► watch from its revision ──► events, progress ──► published ──► readers, watchers
//!     ▲            │ connection lost: resumed
//!     └────────────┘ compacted, or inconsistent responses: all client watches expire
//! ```
//!
//! A revision is published once all changes up to it are known. A watch response with events is complete up to the
//! last of them, and a progress notification up to the revision in its header. Headers of other responses may be
//! ahead of later events, so they are ignored.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::client::{CallError, Client, WatchStream};
use super::proto::{
    KeyValue, RangeRequest, WatchCall, WatchCreateRequest, WatchEvent, WatchProgressRequest,
    WatchRequest, WatchResponse,
};
use crate::keys::{self, EntryEncoding, Keys};
use crate::published::Published;
use crate::state::State;
use crate::{Entry, Event, Layout, MemoryOptions, Revision, Unavailable};

/// The page size while the cache is filled.
const PAGE: i64 = 2_000;
/// The interval of progress requests while idle: a response shows that the watch is alive.
const IDLE: Duration = Duration::from_millis(1_000);
/// The maximum wait for a progress response, before switching to another member.
const SILENCE: Duration = Duration::from_millis(3_000);
/// The delay after a failed attempt.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The keys of a store in etcd.
#[derive(Debug)]
pub(super) struct Space {
    /// The prefix of all keys in etcd, without a trailing slash.
    pub(super) prefix: String,
    pub(super) layout: Arc<dyn Layout>,
}

impl Space {
    /// Converts a key to etcd.
    pub(super) fn key(&self, key: &str) -> Bytes {
        format!("{}{}", self.prefix, self.layout.encode_key(key)).into()
    }

    /// The etcd key range of the store.
    pub(super) fn range(&self) -> (Bytes, Bytes) {
        let first = format!("{}/", self.prefix);
        let end = prefix_end(first.as_bytes());
        (first.into(), end)
    }

    /// Converts a key from etcd; `None` if it is not a key of this store.
    pub(super) fn key_of(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        self.layout.decode_key(key.strip_prefix(&self.prefix)?)
    }

    /// Converts an entry from etcd.
    pub(super) fn entry(&self, kv: KeyValue) -> Option<Entry> {
        let key = self.key_of(&kv.key)?;
        Some(Entry {
            value: self.layout.decode_value(&key, kv.value),
            key: key.into(),
            created: revision(kv.create_revision),
            revision: revision(kv.mod_revision),
        })
    }
}

/// The end of the key range of a prefix; empty if unbounded.
pub(super) fn prefix_end(prefix: &[u8]) -> Bytes {
    keys::prefix_end(prefix).map_or(Bytes::from_static(b"\0"), Bytes::from)
}

pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The cache, with the state of its watch task.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) published: Arc<Published>,
    pub(super) space: Arc<Space>,
    client: Arc<Client>,
    options: MemoryOptions,
    /// Locked while the next state is computed and published.
    writer: Mutex<()>,
    /// The published revision.
    reached: watch::Sender<Revision>,
    /// Wakes the watch task to request progress.
    wanted: Notify,
    failure: watch::Sender<Option<Unavailable>>,
}

/// The reason why a watch ended.
enum Ended {
    /// The connection was lost; the watch can be resumed on another one.
    Lost(CallError),
    /// The cache is invalid.
    Untrusted(&'static str),
}

impl Cache {
    /// Fills the cache with a list.
    pub(super) async fn fill(
        client: &Arc<Client>,
        space: &Arc<Space>,
        options: MemoryOptions,
    ) -> Result<Self, CallError> {
        let state = read_all(client, space, &options).await?;
        Ok(Self::new(state, client, space, options))
    }

    fn new(state: State, client: &Arc<Client>, space: &Arc<Space>, options: MemoryOptions) -> Self {
        let reached = state.revision;
        Self {
            published: Arc::new(Published::new(state)),
            space: Arc::clone(space),
            client: Arc::clone(client),
            options,
            writer: Mutex::new(()),
            reached: watch::Sender::new(reached),
            wanted: Notify::new(),
            failure: watch::Sender::new(None),
        }
    }

    /// Creates an empty cache.
    #[cfg(test)]
    pub(super) fn at(
        revision: Revision,
        client: &Arc<Client>,
        space: &Arc<Space>,
        options: MemoryOptions,
    ) -> Self {
        let state = State::new(revision, Keys::new(), EntryEncoding::new(&options));
        Self::new(state, client, space, options)
    }

    /// Updates the cache continuously.
    pub(super) async fn run(&self) {
        loop {
            let why = match self.follow().await {
                Ended::Lost(CallError::Compacted) => "the watch fell behind compaction",
                Ended::Lost(error) => {
                    let failure = error.unavailable();
                    tracing::debug!(%failure, "etcd watch interrupted, resuming");
                    // A lost connection is replaced immediately; only an error of the new one is a failure.
                    if matches!(error, CallError::NotSent(_)) {
                        self.failure.send_replace(Some(failure));
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                    continue;
                }
                Ended::Untrusted(why) => why,
            };
            tracing::warn!(
                why,
                "etcd watch expired, relisting; client watches end with 410"
            );
            loop {
                match read_all(&self.client, &self.space, &self.options).await {
                    Ok(state) => {
                        // Earlier history is unknown, so watchers expire.
                        let _writer = self.writer();
                        self.publish(state);
                        break;
                    }
                    Err(error) => {
                        self.failure.send_replace(Some(error.unavailable()));
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
        }
    }

    pub(super) fn failure(&self) -> Option<Unavailable> {
        self.failure.borrow().clone()
    }

    /// The published revision.
    pub(super) fn revision(&self) -> Revision {
        self.published.revision()
    }

    /// Waits until a revision is published. Returns false on timeout.
    pub(super) async fn reaches(&self, wanted: Revision, max_wait: Duration) -> bool {
        if self.revision() >= wanted {
            return true;
        }
        let end = Instant::now() + max_wait;
        let mut reached = self.reached.subscribe();
        let mut pause = Duration::from_millis(5);
        loop {
            // The change may be about to arrive, or there may be none: then progress must be requested.
            let next = (Instant::now() + pause).min(end);
            let waiting = reached.wait_for(|reached| *reached >= wanted);
            if tokio::time::timeout_at(next, waiting).await.is_ok() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            self.wanted.notify_one();
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Drops compacted history.
    pub(super) fn compact(&self, oldest: Revision) {
        let _writer = self.writer();
        // Unpublished revisions cannot be compacted yet.
        let _ = self.published.compact(oldest);
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        // A panic of a writer leaves a consistent state: states are replaced atomically.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: State) {
        let revision = state.revision;
        self.published.publish(state);
        self.reached.send_replace(revision);
    }

    /// Watches from the published revision until the connection is lost.
    async fn follow(&self) -> Ended {
        let (key, range_end) = self.space.range();
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: number(self.revision()).saturating_add(1),
            progress_notify: true,
            fragment: true,
        };
        let create = WatchRequest {
            call: Some(WatchCall::Create(create)),
        };
        let mut watching = match self.client.watch(create).await {
            Ok(watching) => watching,
            Err(error) => return Ended::Lost(error),
        };
        let ended = self.answers(&mut watching).await;
        watching.abandon().await;
        ended
    }

    async fn answers(&self, watching: &mut WatchStream<'_>) -> Ended {
        let progress = || WatchRequest {
            call: Some(WatchCall::Progress(WatchProgressRequest {})),
        };
        let mut events: Vec<WatchEvent> = Vec::new();
        let mut is_created = false;
        let mut heard = Instant::now();
        let mut idle = tokio::time::interval(IDLE);
        idle.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let answer = tokio::select! {
                answer = watching.next(heard + IDLE + SILENCE) => answer,
                _ = idle.tick(), if is_created => {
                    watching.send(progress());
                    continue;
                }
                () = self.wanted.notified(), if is_created => {
                    watching.send(progress());
                    continue;
                }
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => return Ended::Lost(error),
            };
            heard = Instant::now();
            let WatchResponse {
                header,
                created,
                canceled,
                compact_revision,
                cancel_reason,
                fragment,
                events: some,
            } = answer;
            if compact_revision > 0 {
                return Ended::Lost(CallError::Compacted);
            }
            if canceled {
                return Ended::Lost(CallError::Failed(cancel_reason));
            }
            if created {
                is_created = true;
                self.failure.send_replace(None);
                continue;
            }
            let is_progress = some.is_empty() && events.is_empty();
            events.extend(some);
            // The events of a revision may be split into several responses.
            if fragment {
                continue;
            }
            let published = if is_progress {
                let header = header.unwrap_or_default();
                self.advance(revision(header.revision));
                Ok(())
            } else {
                self.apply(std::mem::take(&mut events))
            };
            if let Err(why) = published {
                return Ended::Untrusted(why);
            }
        }
    }

    /// Records that there are no changes up to a revision. A lagging member may report an earlier one.
    pub(super) fn advance(&self, revision: Revision) {
        let _writer = self.writer();
        let current = self.published.current();
        if revision > current.revision {
            self.publish(current.advanced(revision));
        }
    }

    /// Publishes events.
    pub(super) fn apply(&self, events: Vec<WatchEvent>) -> Result<(), &'static str> {
        let _writer = self.writer();
        let current = self.published.current();
        let mut state = State::clone(&current);
        let mut last = current.revision;
        for WatchEvent { kind, kv } in events {
            let kv = kv.ok_or("an event has no key")?;
            let at = revision(kv.mod_revision);
            if at < last && last > current.revision {
                return Err("events are out of order");
            }
            let key = self.space.key_of(&kv.key);
            if at <= current.revision {
                // Already published. An event that is unknown should have arrived before.
                let known = key.as_deref().map(|key| current.keys.get(key));
                let is_known = match known {
                    None => true,
                    Some(entry) if kind == DELETE => {
                        entry.is_none_or(|entry| entry.revision() > at)
                    }
                    Some(entry) => entry.is_none_or(|entry| entry.revision() >= at),
                };
                if !is_known {
                    return Err("an event came after a progress notification that covers it");
                }
                continue;
            }
            last = at;
            let Some(key) = key else {
                continue;
            };
            let previous = state.entry(&key);
            let event = match (kind, previous) {
                (DELETE, Some(previous)) => Event::Delete {
                    revision: at,
                    previous,
                },
                (DELETE, None) => return Err("delete event for an unknown key"),
                (_, previous) => {
                    let Some(entry) = self.space.entry(kv) else {
                        continue;
                    };
                    let is_new = previous.is_none();
                    if is_new != (entry.created == entry.revision) {
                        return Err("a change before this one is missing");
                    }
                    Event::Put { entry, previous }
                }
            };
            state = state.after(event, Instant::now(), &self.options);
        }
        // The last events may be of keys outside of this store.
        if last > state.revision {
            state = state.advanced(last);
        }
        if last > current.revision {
            self.publish(state);
        }
        Ok(())
    }
}

/// The event type for deletions.
const DELETE: i32 = 1;

/// Lists everything at one revision.
async fn read_all(
    client: &Client,
    space: &Space,
    options: &MemoryOptions,
) -> Result<State, CallError> {
    let encoding = EntryEncoding::new(options);
    'again: loop {
        let (mut key, range_end) = space.range();
        let mut keys = Keys::new();
        let mut at = 0;
        loop {
            let request = RangeRequest {
                key,
                range_end: range_end.clone(),
                limit: PAGE,
                revision: at,
                keys_only: false,
            };
            let answer = match client.range(request).await {
                Ok(answer) => answer,
                // The list took so long that its revision was compacted.
                Err(CallError::Compacted) => continue 'again,
                Err(error) => return Err(error),
            };
            if at == 0 {
                at = answer.header.unwrap_or_default().revision;
            }
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            for entry in answer.kvs.into_iter().filter_map(|kv| space.entry(kv)) {
                keys.insert(encoding.entry(entry));
            }
            match last {
                Some(last) if answer.more => key = after(&last),
                _ => return Ok(State::new(revision(at), keys, encoding)),
            }
        }
    }
}

/// The smallest key after a key.
pub(super) fn after(key: &[u8]) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}
