//! The concurrency limit of a webhook.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Limits concurrent and queued reviews.
#[derive(Debug)]
pub(super) struct Gate {
    slots: Semaphore,
    waiting: AtomicUsize,
    most_waiting: usize,
    shown: Gauge,
}

/// The reason that a review is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shed {
    /// The queue is full.
    Full,
    /// Its deadline has passed.
    TooLate,
}

impl Gate {
    /// `shown` reports the queue length.
    pub(super) fn new(slots: usize, most_waiting: usize, shown: Gauge) -> Self {
        Self {
            slots: Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)),
            waiting: AtomicUsize::new(0),
            most_waiting,
            shown,
        }
    }

    /// Waits for a slot, until the deadline.
    pub(super) async fn enter(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Shed> {
        if let Ok(permit) = self.slots.try_acquire() {
            return Ok(permit);
        }
        let place = QueueSlot::take(self)?;
        let entering = tokio::time::timeout_at(deadline.into(), self.slots.acquire());
        let entered = entering.await;
        drop(place);
        match entered {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Shed::TooLate),
        }
    }
}

/// A place in the queue, released on drop.
struct QueueSlot<'g>(&'g Gate);

impl<'g> QueueSlot<'g> {
    fn take(gate: &'g Gate) -> Result<Self, Shed> {
        let before = gate.waiting.fetch_add(1, Ordering::AcqRel);
        gate.shown.inc();
        let place = Self(gate);
        if before >= gate.most_waiting {
            return Err(Shed::Full);
        }
        Ok(place)
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        self.0.shown.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn lets_some_in_and_some_wait_and_sheds_the_rest() {
        let shown = Gauge::default();
        let gate = Gate::new(1, 1, shown.clone());
        let soon = Instant::now() + Duration::from_secs(60);
        let first = gate.enter(soon).await.unwrap();
        let mut second = Box::pin(gate.enter(soon));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(shown.get(), 1);
        assert_eq!(gate.enter(soon).await.err(), Some(Shed::Full));
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(shown.get(), 0);

        let now = Instant::now();
        assert_eq!(gate.enter(now).await.err(), Some(Shed::TooLate));
        // A dropped waiter leaves the queue.
        let mut third = Box::pin(gate.enter(soon));
        assert!(third.as_mut().now_or_never().is_none());
        drop(third);
        assert_eq!(shown.get(), 0);
        drop(second);
        assert!(gate.enter(now).await.is_ok());
    }
}
