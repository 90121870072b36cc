//! Serialises quota writers per namespace, so that counts are correct.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{MutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Tracks charged writes in progress.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<HashMap<String, Weak<Page>>>);

/// The state of one namespace.
#[derive(Debug, Default)]
struct Page {
    /// Held while charging, exclusively.
    turn: tokio::sync::Mutex<()>,
    /// Shared by writes in progress; held exclusively by a recount.
    writing: Arc<RwLock<()>>,
}

/// A write in progress.
#[derive(Debug)]
pub(super) struct Entry {
    namespace: String,
    page: Arc<Page>,
    _writing: OwnedRwLockReadGuard<()>,
}

impl Entry {
    pub(super) fn is_of(&self, namespace: &str) -> bool {
        self.namespace == namespace
    }

    /// Waits for other charges to complete.
    pub(super) async fn lock(&self) -> MutexGuard<'_, ()> {
        self.page.turn.lock().await
    }
}

/// While held, no charged object is written in the namespace.
#[derive(Debug)]
pub struct Counting {
    _page: Arc<Page>,
    _writing: OwnedRwLockWriteGuard<()>,
}

impl Ledger {
    fn page(&self, namespace: &str) -> Arc<Page> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = pages.get(namespace).and_then(Weak::upgrade) {
            return page;
        }
        // There are few unused entries, unless many namespaces are created and deleted.
        if pages.len() >= 1024 {
            pages.retain(|_, page| page.strong_count() > 0);
        }
        let page = Arc::new(Page::default());
        pages.insert(namespace.to_owned(), Arc::downgrade(&page));
        page
    }

    /// Starts a write.
    pub(super) async fn enter(&self, namespace: &str) -> Entry {
        let page = self.page(namespace);
        let writing = Arc::clone(&page.writing).read_owned().await;
        Entry {
            namespace: namespace.to_owned(),
            page,
            _writing: writing,
        }
    }

    /// Waits for the writes in progress, and blocks new ones.
    pub async fn count(&self, namespace: &str) -> Counting {
        let page = self.page(namespace);
        let writing = Arc::clone(&page.writing).write_owned().await;
        Counting {
            _page: page,
            _writing: writing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counts_wait_for_writes_and_writes_for_counts() {
        let ledger = Ledger::default();
        let one = ledger.enter("shop").await;
        let other = ledger.enter("shop").await;
        drop(one);
        let mut count = Box::pin(ledger.count("shop"));
        let polled = futures_poll(count.as_mut()).await;
        assert!(polled.is_none(), "a write is under way");
        let _elsewhere = ledger.count("other").await;
        drop(other);
        let counting = count.await;
        let mut write = Box::pin(ledger.enter("shop"));
        assert!(
            futures_poll(write.as_mut()).await.is_none(),
            "somebody counts"
        );
        drop(counting);
        assert!(write.await.is_of("shop"));
    }

    async fn futures_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            let polled = std::pin::Pin::new(&mut future).poll(context);
            std::task::Poll::Ready(match polled {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
