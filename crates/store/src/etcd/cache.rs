//! The watch cache: everything below the prefix in memory, filled once and kept by one watch.
//!
//! ```text
//!   fill ──► watch after its revision ──► events, progress ──► published ──► readers, watchers
//!     ▲            │ connection lost: again from where it was
//!     └────────────┘ compacted, or the member contradicts itself: all watchers are cut off
//! ```
//!
//! A revision is published when every change up to it is. Answers with changes say so up to the last of them, and
//! answers to progress requests say so of the revision in their header. Other headers are ahead of the events that
//! follow them, and nothing is concluded from those.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::client::{CallError, Client, Watching};
use super::proto::{
    KeyValue, RangeRequest, WatchCall, WatchCreateRequest, WatchEvent, WatchProgressRequest,
    WatchRequest, WatchResponse,
};
use crate::keys::{self, Keep, Keys};
use crate::published::Published;
use crate::state::State;
use crate::{Entry, Event, Layout, MemoryOptions, Revision, Unavailable};

/// The entries of a page while the cache is filled.
const PAGE: i64 = 2_000;
/// The interval of progress requests while idle: a response shows that the watch is alive.
const IDLE: Duration = Duration::from_millis(1_000);
/// The longest silence after a progress request, before another member is watched.
const SILENCE: Duration = Duration::from_millis(3_000);
/// The pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// The keys of a store in etcd.
#[derive(Debug)]
pub(super) struct Space {
    /// The prefix of all of its keys in etcd, without a slash at the end.
    pub(super) prefix: String,
    pub(super) layout: Arc<dyn Layout>,
}

impl Space {
    /// The key in etcd.
    pub(super) fn key(&self, key: &str) -> Bytes {
        format!("{}{}", self.prefix, self.layout.encode_key(key)).into()
    }

    /// The first key of the space, and the first one after it.
    pub(super) fn range(&self) -> (Bytes, Bytes) {
        let first = format!("{}/", self.prefix);
        let end = prefix_end(first.as_bytes());
        (first.into(), end)
    }

    /// The key of a key in etcd; none if it is none of this store's.
    pub(super) fn key_of(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        self.layout.decode_key(key.strip_prefix(&self.prefix)?)
    }

    /// The entry of a key in etcd.
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

/// The first key after all those with a prefix; empty if there is none.
pub(super) fn prefix_end(prefix: &[u8]) -> Bytes {
    keys::prefix_end(prefix).map_or(Bytes::from_static(b"\0"), Bytes::from)
}

pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The cache, and its task's side of it.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) published: Arc<Published>,
    pub(super) space: Arc<Space>,
    client: Arc<Client>,
    options: MemoryOptions,
    /// Held while the next state is made and published.
    writer: Mutex<()>,
    /// The revision that is published.
    reached: watch::Sender<Revision>,
    /// Wakes the watch to request its progress.
    wanted: Notify,
    failure: watch::Sender<Option<Unavailable>>,
}

/// Why a watch ended.
enum Ended {
    /// It goes on from where it was, on another connection.
    Lost(CallError),
    /// The cache is no longer valid.
    Untrusted(&'static str),
}

impl Cache {
    /// Reads everything.
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

    /// An empty cache.
    #[cfg(test)]
    pub(super) fn at(
        revision: Revision,
        client: &Arc<Client>,
        space: &Arc<Space>,
        options: MemoryOptions,
    ) -> Self {
        let state = State::new(revision, Keys::new(), Keep::new(&options));
        Self::new(state, client, space, options)
    }

    /// Keeps the cache up to date for ever.
    pub(super) async fn keep(&self) {
        loop {
            let why = match self.follow().await {
                Ended::Lost(CallError::Compacted) => "the watch fell behind compaction",
                Ended::Lost(error) => {
                    let failure = error.unavailable();
                    tracing::debug!(%failure, "etcd watch interrupted, resuming");
                    // A connection that was lost is made again at once; what fails then is a failure.
                    if matches!(error, CallError::NotSent(_)) {
                        self.failure.send_replace(Some(failure));
                        tokio::time::sleep(PAUSE).await;
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
                        // Nothing before it is known, so watchers are cut off.
                        let _writer = self.writer();
                        self.publish(state);
                        break;
                    }
                    Err(error) => {
                        self.failure.send_replace(Some(error.unavailable()));
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    pub(super) fn failure(&self) -> Option<Unavailable> {
        self.failure.borrow().clone()
    }

    /// The revision that is published.
    pub(super) fn revision(&self) -> Revision {
        self.published.revision()
    }

    /// Waits until a revision is published. Returns false if that takes too long.
    pub(super) async fn reaches(&self, wanted: Revision, patience: Duration) -> bool {
        if self.revision() >= wanted {
            return true;
        }
        let end = Instant::now() + patience;
        let mut reached = self.reached.subscribe();
        let mut pause = Duration::from_millis(5);
        loop {
            // The change it waits for may be on its way, or there may be none: then somebody has to ask.
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

    /// Forgets history that was compacted.
    pub(super) fn compact(&self, oldest: Revision) {
        let _writer = self.writer();
        // What is not published yet cannot be forgotten yet.
        let _ = self.published.compact(oldest);
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        // A writer that panicked left no half-made state behind: states are replaced as a whole.
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

    async fn answers(&self, watching: &mut Watching<'_>) -> Ended {
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
                    watching.ask(progress());
                    continue;
                }
                () = self.wanted.notified(), if is_created => {
                    watching.ask(progress());
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
            // The changes of a revision may come in several answers.
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

    /// Takes note that there is no change up to a revision. A member that lags behind says what was known already.
    pub(super) fn advance(&self, revision: Revision) {
        let _writer = self.writer();
        let current = self.published.current();
        if revision > current.revision {
            self.publish(current.advanced(revision));
        }
    }

    /// Publishes changes.
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
                // Published already. An event that says something new should have come before.
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
        // The last changes may be of keys that are none of this store's.
        if last > state.revision {
            state = state.advanced(last);
        }
        if last > current.revision {
            self.publish(state);
        }
        Ok(())
    }
}

/// The kind of an event that deletes.
const DELETE: i32 = 1;

/// Reads everything at one revision.
async fn read_all(
    client: &Client,
    space: &Space,
    options: &MemoryOptions,
) -> Result<State, CallError> {
    let keep = Keep::new(options);
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
                // It took so long that the state is gone.
                Err(CallError::Compacted) => continue 'again,
                Err(error) => return Err(error),
            };
            if at == 0 {
                at = answer.header.unwrap_or_default().revision;
            }
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            for entry in answer.kvs.into_iter().filter_map(|kv| space.entry(kv)) {
                keys.insert(keep.entry(entry));
            }
            match last {
                Some(last) if answer.more => key = after(&last),
                _ => return Ok(State::new(revision(at), keys, keep)),
            }
        }
    }
}

/// The first key after a key.
pub(super) fn after(key: &[u8]) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}
