//! Tasks with the lifetime of the server.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use lockgate_listener::Phase;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Spawns tasks and ends them with the server.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    phase: watch::Receiver<Phase>,
    tracker: TaskTracker,
}

impl Tasks {
    /// Creates it; tasks end when the server closes.
    pub(crate) fn new(phase: watch::Receiver<Phase>) -> Self {
        Self {
            phase,
            tracker: TaskTracker::new(),
        }
    }

    /// Runs a task until it ends or the server stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.until_stopped(task));
    }

    /// A task that ends when the server starts draining, while it still serves.
    pub(crate) fn until_draining(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut phase = self.phase.clone();
        self.tracker.track_future(async move {
            tokio::select! {
                () = task => {}
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
            }
        })
    }

    /// Returns true if the server is draining.
    pub(crate) fn is_draining(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }

    /// A future that ends when the server stops, wherever it is polled.
    pub(crate) fn until_stopped(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let tasks = self.clone();
        self.tracker.track_future(async move {
            tokio::select! {
                () = task => {}
                () = tasks.stopped() => {}
            }
        })
    }

    /// Runs a task to completion; shutdown waits for it.
    pub(crate) fn spawn_to_completion(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// A future that shutdown waits for, wherever it is polled.
    pub(crate) fn track<T>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static
    where
        T: Send + 'static,
    {
        self.tracker.track_future(task)
    }

    /// Returns when the server stops.
    pub(crate) async fn stopped(&self) {
        let mut phase = self.phase.clone();
        // A dropped sender stops the server too.
        let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
    }

    /// Waits for every task to end.
    pub(crate) async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// A future that runs to completion: if the polling task is dropped, the rest is spawned.
#[derive(Debug)]
pub(crate) struct RunToCompletion<F: Future<Output: Send> + Unpin + Send + 'static>(Option<F>);

/// The future panicked; other tasks are not affected.
#[derive(Debug, thiserror::Error)]
#[error("a task panicked")]
pub(crate) struct Panicked;

impl<F: Future<Output: Send> + Unpin + Send + 'static> RunToCompletion<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Some(future))
    }
}

impl<F: Future<Output: Send> + Unpin + Send + 'static> Future for RunToCompletion<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else {
            return Poll::Ready(Err(Panicked));
        };
        // Its shared state is behind locks that recover from poisoning.
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(future).poll(context)));
        let ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(_) => Err(Panicked),
        };
        self.0 = None;
        Poll::Ready(ended)
    }
}

impl<F: Future<Output: Send> + Unpin + Send + 'static> Drop for RunToCompletion<F> {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn goes_on_when_it_is_given_up() {
        let (go, gone) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut work = RunToCompletion::new(Box::pin(async move {
            gone.await.unwrap();
            end.send(7).unwrap();
        }));
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(ended.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_panic_is_the_end_of_it() {
        assert_eq!(
            RunToCompletion::new(Box::pin(async { 7 })).await.unwrap(),
            7
        );
        let panics = RunToCompletion::new(Box::pin(async { assert_eq!(1, 2) }));
        assert!(panics.await.is_err());
    }
}
