//! Requests in flight, in total and by user: their number and memory are limited. One user gets half of either. Watches
//! and health checks are exempt from the number.
//!
//! UPSTREAM: apiserver pkg/server/filters/maxinflight.go

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// The time after which an unread response loses its seat.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The memory for request bodies, watch events and unchunked responses, in bytes.
/// A client that sends a large body or reads a large response slowly keeps its share meanwhile.
pub(crate) const MEMORY_BUDGET: usize = 64 << 20;

/// The memory for the object trees of large writes in progress, in bytes.
pub(crate) const TREES: usize = 32 << 20;

/// The memory of an object tree relative to its text.
pub(crate) const TREE: usize = 4;

/// The current number of requests of one kind, or their memory.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    /// `None` means no limit.
    limit: Option<usize>,
    now: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<Counts>,
    /// Notified on release.
    freed: Notify,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_user: HashMap<String, usize>,
}

impl InFlight {
    /// Creates it with a concurrency limit; zero means no limit.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: (limit > 0).then_some(limit),
            now: Arc::default(),
        }
    }

    /// Reserves a place for a request of a user; `None` if there are too many.
    pub(crate) fn enter(&self, user: &str) -> Option<Permit> {
        self.take(user, 1)
    }

    /// Reserves memory for a request of a user. A user without a reservation gets any size while memory is left: a
    /// request larger than the limit is served alone.
    pub(crate) fn take(&self, user: &str, amount: usize) -> Option<Permit> {
        let mut now = self.now.counts();
        let own = now.by_user.get(user).copied().unwrap_or_default();
        if let Some(limit) = self.limit {
            let fits = |has: usize, limit: usize| has.saturating_add(amount) <= limit;
            let is_first = own == 0 && now.all < limit;
            let is_fair = fits(now.all, limit) && fits(own, limit.div_ceil(2));
            if !is_first && !is_fair {
                return None;
            }
        }
        now.all = now.all.saturating_add(amount);
        let own = now.by_user.entry(user.to_owned()).or_default();
        *own = own.saturating_add(amount);
        Some(Permit::holding(Reservation {
            now: Arc::clone(&self.now),
            user: user.to_owned(),
            amount,
        }))
    }

    /// The same, but waits for others to release memory, up to a timeout.
    pub(crate) async fn take_timeout(
        &self,
        user: &str,
        amount: usize,
        timeout: Duration,
    ) -> Option<Permit> {
        let turn = async {
            loop {
                let mut freed = pin!(self.now.freed.notified());
                freed.as_mut().enable();
                if let Some(permit) = self.take(user, amount) {
                    return permit;
                }
                freed.await;
            }
        };
        tokio::time::timeout(timeout, turn).await.ok()
    }
}

/// A place among the requests in flight, released on drop.
pub(crate) struct Permit(Arc<Held>);

/// A counted request, released on drop.
type Held = Mutex<Option<Box<dyn Any + Send>>>;

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Reservation {
    now: Arc<Shared>,
    user: String,
    amount: usize,
}

impl Permit {
    /// A permit that holds a value until it is dropped, or released by timeout.
    pub(crate) fn holding(place: impl Any + Send) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(place)))))
    }

    /// Releases the reservation after a timeout even if the response was not read: its source is shared, and
    /// connections are limited.
    pub(crate) fn release_in_time(&self) {
        let place = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(READ_TIMEOUT).await;
            if let Some(place) = place.upgrade() {
                release(&place);
            }
        });
    }
}

fn release(place: &Held) {
    let place = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(place);
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut now = self.now.counts();
        now.all = now.all.saturating_sub(self.amount);
        if let Some(own) = now.by_user.get_mut(&self.user) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                now.by_user.remove(&self.user);
            }
        }
        drop(now);
        self.now.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_half_of_the_places_to_others() {
        let in_flight = InFlight::new(4);
        let ann: Vec<Permit> = (0..2).filter_map(|_| in_flight.enter("ann")).collect();
        assert_eq!(ann.len(), 2);
        assert!(in_flight.enter("ann").is_none());
        let bob: Vec<Permit> = (0..2).filter_map(|_| in_flight.enter("bob")).collect();
        assert_eq!(bob.len(), 2);
        assert!(in_flight.enter("eve").is_none());
        drop(ann);
        assert!(in_flight.enter("eve").is_some());
        assert!(InFlight::new(0).enter("ann").is_some());
    }

    #[test]
    fn what_is_larger_than_all_is_served_alone() {
        let memory = InFlight::new(100);
        let large = memory.take("ann", 1000).unwrap();
        assert!(memory.take("ann", 1).is_none());
        assert!(memory.take("bob", 1).is_none());
        drop(large);
        let half = memory.take("ann", 50).unwrap();
        assert!(memory.take("ann", 1).is_none());
        let more = memory.take("bob", 60).unwrap();
        assert!(memory.take("eve", 1).is_none());
        drop((half, more));
        assert!(memory.take("eve", 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn waits_in_turn() {
        let memory = InFlight::new(100);
        let second = Duration::from_secs(1);
        let first = memory.take_timeout("ann", 80, second).await.unwrap();
        assert!(memory.take_timeout("ann", 1, second).await.is_none());
        let waiting = memory.take_timeout("ann", 80, second);
        let later = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (taken, ()) = tokio::join!(waiting, later);
        assert!(taken.is_some());
    }

    #[test]
    fn takes_back_places_of_answers_that_nobody_reads() {
        let in_flight = InFlight::new(1);
        let permit = in_flight.enter("ann").unwrap();
        assert!(in_flight.enter("bob").is_none());
        release(&permit.0);
        let taken = in_flight.enter("bob");
        assert!(taken.is_some());
        // A permit that lost its place does not release another's.
        drop(permit);
        assert!(in_flight.enter("eve").is_none());
    }
}
