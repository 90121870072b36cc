//! Waiting for controllers: a write may wait until the controller that completes it has processed it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockgate_store::Revision;
use tokio::sync::watch;

/// The revisions up to which controllers have processed awaited objects, by key.
#[derive(Debug, Default)]
pub(crate) struct Reconciled(Mutex<HashMap<String, watch::Sender<u64>>>);

impl Reconciled {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers to wait for a key, before its write.
    pub(super) fn expect(&self, key: &str, timeout: Duration) -> PendingReconcile<'_> {
        let mut expected = self.lock();
        let sender = expected
            .entry(key.to_owned())
            .or_insert_with(|| watch::channel(0).0);
        PendingReconcile {
            seen: sender.subscribe(),
            reconciled: self,
            key: key.to_owned(),
            timeout,
        }
    }

    /// Notifies waiters that a controller has processed all writes up to a revision.
    pub(crate) fn notify(&self, key: &str, revision: Revision) {
        if let Some(sender) = self.lock().get(key) {
            sender.send_modify(|seen| *seen = revision.0.max(*seen));
        }
    }
}

/// A write that waits for a controller.
#[derive(Debug)]
pub(super) struct PendingReconcile<'s> {
    seen: watch::Receiver<u64>,
    reconciled: &'s Reconciled,
    key: String,
    timeout: Duration,
}

impl PendingReconcile<'_> {
    /// Waits until the write with this revision is processed, or the timeout expires.
    pub(super) async fn wait(mut self, revision: Revision) {
        let reconciled = self.seen.wait_for(|seen| *seen >= revision.0);
        // A slower controller continues in the background.
        let _ = tokio::time::timeout(self.timeout, reconciled).await;
    }
}

impl Drop for PendingReconcile<'_> {
    fn drop(&mut self) {
        let mut expected = self.reconciled.lock();
        // This receiver is still counted.
        if expected
            .get(&self.key)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            expected.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn waits_for_its_own_write_only() {
        let reconciled = Reconciled::default();
        let pending = reconciled.expect("/a", TIMEOUT);
        reconciled.notify("/a", Revision(3));
        reconciled.notify("/b", Revision(9));
        let mut waiting = std::pin::pin!(pending.wait(Revision(4)));
        let looked = futures_util::poll!(waiting.as_mut());
        assert!(looked.is_pending(), "an older write was settled");
        reconciled.notify("/a", Revision(4));
        waiting.await;
        assert!(reconciled.lock().is_empty());
    }

    #[tokio::test]
    async fn does_not_miss_a_controller_that_is_faster() {
        let reconciled = Reconciled::default();
        let pending = reconciled.expect("/a", TIMEOUT);
        reconciled.notify("/a", Revision(4));
        pending.wait(Revision(4)).await;
    }

    #[tokio::test]
    async fn gives_up_in_the_end() {
        let reconciled = Reconciled::default();
        let one = reconciled.expect("/a", Duration::ZERO);
        let other = reconciled.expect("/a", TIMEOUT);
        one.wait(Revision(4)).await;
        assert_eq!(reconciled.lock().len(), 1);
        drop(other);
        assert!(reconciled.lock().is_empty());
    }
}
