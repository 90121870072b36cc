//! Threads for long computations. Decoding, merging and validating a large object takes milliseconds to seconds; on
//! dedicated threads such requests delay only each other. When CPUs are scarce, the threads for small requests take
//! precedence.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinHandle;

/// The body size from which a write counts as large.
pub(crate) const LARGE: u64 = 16 << 10;

/// A runtime separate from the one that serves connections.
#[derive(Debug)]
pub(crate) struct Heavy {
    work: Work,
    /// The inner value is `None` if its threads could not be started.
    runtime: OnceLock<Option<Runtime>>,
}

/// The niceness of these threads relative to serving threads. They get a tenth of the weight, so that they still make
/// progress and release locks on a busy machine.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

/// The work of a runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Writes of large objects.
    LargeWrites,
    /// TLS handshakes: existing connections take precedence over new ones.
    Handshakes,
    /// Controllers.
    Controllers,
}

impl Work {
    const fn thread_name(self) -> &'static str {
        match self {
            Self::LargeWrites => "lockgate-large-write",
            Self::Handshakes => "lockgate-handshake",
            Self::Controllers => "lockgate-controllers",
        }
    }

    /// The number of threads for a number of processors.
    fn threads(self, processors: usize) -> usize {
        match self {
            Self::LargeWrites | Self::Controllers => processors.clamp(1, 8),
            Self::Handshakes => (processors / 2).clamp(1, 8),
        }
    }
}

thread_local! {
    /// True on threads that are dedicated to such work.
    static IS_HEAVY: Cell<bool> = const { Cell::new(false) };
}

/// Runs work whose time depends on a number of bytes. For a large number, other tasks of the thread move elsewhere,
/// except on threads dedicated to such work: there they wait, since otherwise there would be as many threads as large
/// requests.
pub(crate) fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes as u64 <= LARGE || IS_HEAVY.get() {
        return work();
    }
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Heavy {
    /// Starts the threads immediately.
    pub(crate) fn start(work: Work) -> io::Result<Self> {
        let runtime = Self::build(work)?;
        Ok(Self {
            work,
            runtime: OnceLock::from(Some(runtime)),
        })
    }

    /// Starts the threads on the first task: most servers never need them.
    pub(crate) fn when_needed(work: Work) -> Self {
        Self {
            work,
            runtime: OnceLock::new(),
        }
    }

    fn build(work: Work) -> io::Result<Runtime> {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let niceness = niceness();
        Builder::new_multi_thread()
            .worker_threads(work.threads(processors))
            .thread_name(work.thread_name())
            .on_thread_start(move || {
                IS_HEAVY.set(true);
                yield_to_others(niceness);
            })
            .enable_all()
            .build()
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let runtime = self.runtime.get_or_init(|| {
            let built = Self::build(self.work);
            built
                .inspect_err(|error| tracing::error!(%error, "cannot start threads"))
                .ok()
        });
        match runtime {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }
}

/// The nice value of a thread that yields to the calling one.
#[cfg(target_os = "linux")]
fn niceness() -> Option<i32> {
    rustix::process::getpriority_process(None)
        .ok()
        .map(|own| own + NICER)
}

/// Sets the nice value of the calling thread: on Linux, priorities belong to threads.
#[cfg(target_os = "linux")]
fn yield_to_others(niceness: Option<i32>) {
    let Some(niceness) = niceness else {
        return;
    };
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::debug!(%error, "cannot set the priority of a thread");
    }
}

#[cfg(not(target_os = "linux"))]
fn niceness() -> Option<i32> {
    None
}

#[cfg(not(target_os = "linux"))]
fn yield_to_others(_: Option<i32>) {}

impl Drop for Heavy {
    fn drop(&mut self) {
        // Async threads must not block on these threads.
        if let Some(runtime) = self.runtime.take().flatten() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::sync::Barrier;

    use super::*;

    /// Concurrent large computations run on the dedicated threads, without starting more.
    #[tokio::test]
    async fn heavy_work_starts_no_further_threads() {
        let heavy = Heavy::start(Work::LargeWrites).unwrap();
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = Work::LargeWrites.threads(processors);
        // All of them are busy at the same time.
        let met = Arc::new(Barrier::new(threads));
        let tasks: Vec<_> = (0..threads * 8)
            .map(|_| {
                let met = Arc::clone(&met);
                heavy.spawn(async move {
                    run(usize::MAX, || {
                        met.wait();
                        std::thread::current().id()
                    })
                })
            })
            .collect();
        let mut used = HashSet::new();
        for task in tasks {
            used.insert(task.await.unwrap());
        }
        assert_eq!(used.len(), threads);
    }
}
