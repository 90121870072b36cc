//! The workers of a controller loop: the item of each is known until it ends, even by a panic.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{Id, JoinSet};

/// Tasks, each with its work item.
#[derive(Debug)]
pub(super) struct Workers<W, R> {
    tasks: JoinSet<R>,
    busy: HashMap<Id, W>,
}

impl<W, R: Send + 'static> Workers<W, R> {
    pub(super) fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            busy: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn start(&mut self, work: W, doing: impl Future<Output = R> + Send + 'static) {
        let task = self.tasks.spawn(doing);
        self.busy.insert(task.id(), work);
    }

    /// The next finished work item with its result; `None` if its worker panicked. Pending while no worker is busy.
    pub(super) async fn next(&mut self) -> (W, Option<R>) {
        loop {
            let (id, result) = match self.tasks.join_next_with_id().await {
                Some(Ok((id, result))) => (id, Some(result)),
                Some(Err(error)) => {
                    tracing::error!(%error, "controller worker exited unexpectedly");
                    (error.id(), None)
                }
                None => std::future::pending().await,
            };
            if let Some(work) = self.busy.remove(&id) {
                return (work, result);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_back_the_work_of_a_worker_that_panics() {
        let mut workers = Workers::new();
        workers.start("breaks", async { panic!("on purpose") });
        let (work, result): (_, Option<u32>) = workers.next().await;
        assert_eq!((work, result), ("breaks", None));
        workers.start("works", async { 7 });
        assert_eq!(workers.next().await, ("works", Some(7)));
        assert_eq!(workers.len(), 0);
        assert!(workers.busy.is_empty());
    }

    #[tokio::test]
    async fn waits_while_nobody_works() {
        let mut workers: Workers<&str, u32> = Workers::new();
        let waiting = std::pin::pin!(workers.next());
        assert!(futures_util::poll!(waiting).is_pending());
    }
}
