//! Deletes expired entries.
//!
//! A task sleeps until the first deadline and ends without further ones, so a store without expiring
//! entries has no overhead. It has a weak reference: a store can be dropped while the task sleeps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use crate::Revision;

/// The deadline of a key, with its creation revision to distinguish it from a later key of the same
/// name.
type Deadline = Reverse<(Instant, Arc<str>, Revision)>;

#[derive(Debug, Default)]
pub(super) struct Expiry {
    queue: Mutex<Queue>,
    /// Notified when an earlier deadline is added.
    earlier: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Queue {
    deadlines: BinaryHeap<Deadline>,
    running: bool,
}

impl Expiry {
    /// Deletes the entry at `at`, unless it was deleted before.
    pub(super) fn add(&self, shared: &Arc<Shared>, at: Instant, key: &str, created: Revision) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.deadlines.push(Reverse((at, Arc::from(key), created)));
        if queue.running {
            self.earlier.notify_one();
        } else {
            queue.running = true;
            tokio::spawn(run(Arc::downgrade(shared), Arc::clone(&self.earlier)));
        }
    }

    /// Takes a due entry, or returns the next deadline. `None` ends the task.
    fn due(&self, now: Instant) -> Option<Result<(Arc<str>, Revision), Instant>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Reverse((at, _, _))) = queue.deadlines.peek() else {
            queue.running = false;
            return None;
        };
        if *at > now {
            return Some(Err(*at));
        }
        let Reverse((_, key, created)) = queue.deadlines.pop()?;
        Some(Ok((key, created)))
    }
}

async fn run(store: Weak<Shared>, earlier: Arc<Notify>) {
    loop {
        let next = {
            let Some(shared) = store.upgrade() else {
                return;
            };
            match shared.expiry.due(Instant::now()) {
                None => return,
                Some(Ok((key, created))) => {
                    expire(&shared, &key, created);
                    continue;
                }
                Some(Err(at)) => at,
            }
        };
        tokio::select! {
            () = sleep_until(next) => {}
            () = earlier.notified() => {}
        }
    }
}

fn expire(shared: &Shared, key: &str, created: Revision) {
    let _ = shared.write(|state| Ok((state.expire(key, created), ())));
}
