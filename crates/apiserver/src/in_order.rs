//! Serialises writes with effects per object; writes of different objects are concurrent, so that they share disk
//! syncs. Readers can wait for all writes in progress.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

/// The writes in progress.
#[derive(Debug, Default)]
pub(crate) struct InOrder {
    open: Mutex<Open>,
    /// Notified whenever one ends.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    numbers: BTreeSet<u64>,
    /// The objects being written. Writes to the same object wait for each other.
    keys: HashMap<String, Arc<AsyncMutex<()>>>,
}

impl InOrder {
    /// Waits for the turn to write an object.
    pub(crate) async fn turn(self: &Arc<Self>, key: &str) -> Turn {
        let (number, lock) = {
            let mut open = self.open();
            let number = open.next;
            open.next += 1;
            open.numbers.insert(number);
            (
                number,
                Arc::clone(open.keys.entry(key.to_owned()).or_default()),
            )
        };
        // From here on it is counted, even if its waiter is dropped.
        let mut turn = Turn {
            writes: Arc::clone(self),
            number,
            key: key.to_owned(),
            guard: None,
        };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }

    /// Waits until all writes in progress have ended.
    pub(crate) async fn idle(&self) {
        let begun = self.open().next;
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Registered before the check, so that no notification is missed.
            ended.as_mut().enable();
            if self
                .open()
                .numbers
                .first()
                .is_none_or(|first| *first >= begun)
            {
                return;
            }
            ended.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write in progress, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    writes: Arc<InOrder>,
    number: u64,
    key: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut open = self.writes.open();
        open.numbers.remove(&self.number);
        // There is no other waiter, which would hold it too.
        if open
            .keys
            .get(&self.key)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            open.keys.remove(&self.key);
        }
        drop(open);
        self.writes.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn an_object_is_written_one_at_a_time_and_others_at_once() {
        let writes = Arc::new(InOrder::default());
        let first = writes.turn("/a").await;
        let mut second = Box::pin(writes.turn("/a"));
        assert!(poll!(second.as_mut()).is_pending());
        let other = writes.turn("/b").await;
        drop(first);
        let second = second.await;
        drop((second, other));
        assert!(writes.open().keys.is_empty() && writes.open().numbers.is_empty());
    }

    #[tokio::test]
    async fn waits_for_those_that_have_begun_and_no_others() {
        let writes = Arc::new(InOrder::default());
        writes.idle().await;
        let (one, two) = (writes.turn("/a").await, writes.turn("/b").await);
        let mut idle = Box::pin(writes.idle());
        assert!(poll!(idle.as_mut()).is_pending());
        let later = writes.turn("/c").await;
        drop(two);
        assert!(poll!(idle.as_mut()).is_pending());
        drop(one);
        idle.await;
        drop(later);
    }

    #[tokio::test]
    async fn one_that_is_given_up_holds_up_nobody() {
        let writes = Arc::new(InOrder::default());
        let first = writes.turn("/a").await;
        let mut given_up = Box::pin(writes.turn("/a"));
        assert!(poll!(given_up.as_mut()).is_pending());
        drop(given_up);
        drop(first);
        writes.idle().await;
        drop(writes.turn("/a").await);
        assert!(writes.open().keys.is_empty());
    }
}
