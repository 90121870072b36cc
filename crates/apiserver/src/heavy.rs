//! Threads for work without a pause. Decoding, merging and validating a large object takes milliseconds to
//! seconds; on threads of their own such requests delay nobody but each other.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinHandle;

/// The body from which a write counts as large.
pub(crate) const LARGE: u64 = 16 << 10;

/// A runtime beside the one that accepts connections.
#[derive(Debug)]
pub(crate) struct Heavy(Option<Runtime>);

/// Runs work whose time follows a number of bytes. If they are many, other tasks of the thread go on
/// elsewhere in the meantime.
pub(crate) fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let is_large = bytes as u64 > LARGE;
    let runtime = Handle::try_current().ok().filter(|_| is_large);
    match runtime.map(|runtime| runtime.runtime_flavor()) {
        Some(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Heavy {
    pub(crate) fn start(name: &'static str) -> io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.clamp(1, 8))
            .thread_name(name)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.0 {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }
}

impl Drop for Heavy {
    fn drop(&mut self) {
        // Waiting for threads is not for those that run futures.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
