//! Tasks that live as long as the server.

use std::future::Future;

use lockgate_listener::Phase;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Spawns tasks and ends them with the server.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    phase: watch::Receiver<Phase>,
    tracker: TaskTracker,
}

impl Tasks {
    /// Tasks that end when the server closes.
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

    /// A task that ends when the server stops, wherever it is run.
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

    /// Runs a task to its end, which the server waits for when it stops.
    pub(crate) fn spawn_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// A future that the server waits for when it stops, wherever it is run.
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
        // A sender that is gone stops the server too.
        let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
    }

    /// Waits for every task to end.
    pub(crate) async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
