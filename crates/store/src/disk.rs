//! The disk backend: acknowledged writes survive a crash.
//!
//! All data is also in memory, in the same persistent maps as in [`MemoryStore`](crate::MemoryStore), so reads
//! and watches never access the disk. Writes go through one thread (`committer`), which publishes them after they
//! are synced.

mod committer;
mod data_dir;
mod file;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::published::Published;
use crate::watch::Cursor;
use crate::{
    Entry, Filter, List, MemoryOptions, Page, ReadAt, ReadError, Revision, Snapshot, SnapshotError,
    SnapshotReader, Store, Unavailable, Watch, WriteError,
};
use committer::{Committer, Request, ResultSender, Write};
use data_dir::DataDir;
use file::{DataFile, FORMAT, Loaded};

/// The maximum number of writes queued for the disk; further writers wait for a permit.
const QUEUE: usize = 4096;

/// An error on opening a store on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory cannot be created or written.
    #[error("cannot use the directory `{}`", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("the directory `{}` is in use by {}", path.display(), pid.map_or_else(|| String::from("another process"), |pid| format!("process {pid}")))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process id, if the lock file contains it.
        pid: Option<u32>,
    },
    /// The data file cannot be read or written.
    #[error("cannot use `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The data file was written by a later version.
    #[error("`{}` has format {format}, and this version reads formats up to {FORMAT}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format version.
        format: u64,
    },
    /// The data file is corrupted.
    #[error("`{}` is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The failed check.
        why: String,
    },
}

/// An error on restoring a snapshot. The directory is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The directory already contains a store.
    #[error("the directory `{}` already has a store", .0.display())]
    Exists(PathBuf),
    /// The snapshot is invalid.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] OpenError),
}

/// Options for restoring a snapshot.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestoreOptions {
    /// Replace an existing store.
    pub overwrite: bool,
    /// The offset added to the snapshot's revision. If it exceeds the number of writes since the snapshot, no
    /// revision known to a client is reused.
    pub bump: u64,
}

/// A store in a directory. Clones are handles to the same store.
///
/// After a failed disk write, every later write fails as [`Unavailable`], and reads continue: the contents of the
/// disk are only certain after the store is reopened.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockgate_store::{DiskStore, ReadAt, Store};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let store = DiskStore::open(folder)?;
/// let revision = store.create("/pods/a", "one".into(), None).await?;
/// store.close().await;
///
/// let store = DiskStore::open(folder)?;
/// let (entry, _) = store.get("/pods/a", ReadAt::Latest).await?;
/// assert_eq!(entry.map(|entry| entry.revision), Some(revision));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DiskStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    published: Arc<Published>,
    requests: Sender<Request>,
    places: Arc<Semaphore>,
    failure: watch::Receiver<Option<Unavailable>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl DiskStore {
    /// Opens the store of a directory, creating it if necessary. Loads everything into memory.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, is used by another process, or the data file is corrupted.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        Self::open_with(folder, MemoryOptions::default())
    }

    /// Like [`Self::open`], with options for the data in memory.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub fn open_with(folder: &Path, options: MemoryOptions) -> Result<Self, OpenError> {
        let folder = DataDir::take(folder)?;
        let path = folder.data();
        // On a separate thread: a panic while reading a corrupted file ends there.
        let opening = std::thread::Builder::new()
            .name(String::from("store-open"))
            .spawn(move || DataFile::open(folder, &options));
        let opening = opening.map_err(|source| OpenError::File {
            path: path.clone(),
            source,
        })?;
        let opened = opening.join().unwrap_or_else(|_| {
            Err(OpenError::Damaged {
                path: path.clone(),
                why: String::from("invalid contents"),
            })
        });
        let (file, loaded) = opened?;
        Self::start(file, loaded, options).map_err(|source| OpenError::File { path, source })
    }

    /// Creates the store of a directory from a snapshot, atomically. `told` is called periodically with the
    /// number of restored entries. Returns the revision of the store.
    ///
    /// # Errors
    ///
    /// The snapshot or the directory cannot be used, or there is an existing store without `overwrite`.
    pub fn restore(
        folder: &Path,
        snapshot: SnapshotReader<impl Read>,
        options: RestoreOptions,
        told: &mut dyn FnMut(u64),
    ) -> Result<Revision, RestoreError> {
        let folder = DataDir::take(folder)?;
        file::restore(&folder, snapshot, options, told)
    }

    fn start(file: DataFile, loaded: Loaded, options: MemoryOptions) -> io::Result<Self> {
        let (fail, failure) = watch::channel(None);
        let committer = Committer::new(file, loaded, fail, options);
        let published = committer.published();
        let (requests, incoming) = channel();
        let thread = std::thread::Builder::new()
            .name(String::from("store-write"))
            .spawn(move || committer.run(&incoming))?;
        let shared = Shared {
            published,
            requests,
            places: Arc::new(Semaphore::new(QUEUE)),
            failure,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Waits for writes in progress, and releases the directory. Later writes fail.
    pub async fn close(&self) {
        let shared = Arc::clone(&self.shared);
        // Closing waits for the disk. It completes even if the runtime shuts down meanwhile.
        let _ = tokio::task::spawn_blocking(move || shared.close()).await;
    }

    /// Waits until writes are no longer possible, and returns the error.
    pub async fn failed(&self) -> Unavailable {
        let mut failure = self.shared.failure.clone();
        let failed = failure.wait_for(Option::is_some).await;
        let why = failed.ok().and_then(|failed| failed.clone());
        match why {
            Some(why) => why,
            // Closed, which is not a failure.
            None => std::future::pending().await,
        }
    }

    async fn write<T>(
        &self,
        write: impl FnOnce(ResultSender<T>) -> Write,
    ) -> Result<T, WriteError> {
        let closed = || WriteError::from(Unavailable(String::from("the store is closed")));
        let place = Arc::clone(&self.shared.places).acquire_owned().await;
        let place = place.map_err(|_| closed())?;
        let (sender, answered) = oneshot::channel();
        self.shared
            .requests
            .send(Request::Write(write(sender), place))
            .map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

impl Shared {
    fn close(&self) {
        let thread = {
            let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            thread.take()
        };
        if let Some(thread) = thread {
            // A thread that ended with a panic has dropped and thus closed the file.
            let _ = self.requests.send(Request::Close);
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Store for DiskStore {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        let deadline = ttl.map_or(0, |ttl| {
            let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            committer::now().saturating_add(millis)
        });
        self.write(|sender| Write::Create {
            key: key.to_owned(),
            value,
            deadline,
            sender,
        })
        .await
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        self.write(|sender| Write::Update {
            key: key.to_owned(),
            expected,
            value,
            sender,
        })
        .await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.write(|sender| Write::Delete {
            key: key.to_owned(),
            expected,
            sender,
        })
        .await
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        self.shared.published.get(key, at)
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        self.shared.published.list(list)
    }

    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError> {
        Cursor::open(&self.shared.published, prefix, after, filter)
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        Ok(self.shared.published.revision())
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        let closed = || ReadError::from(Unavailable(String::from("the store is closed")));
        let (sender, answered) = oneshot::channel();
        self.shared
            .requests
            .send(Request::Compact(oldest, sender))
            .map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    async fn snapshot(&self) -> Result<Snapshot, ReadError> {
        let closed = || ReadError::from(Unavailable(String::from("the store is closed")));
        let (sender, answered) = oneshot::channel();
        self.shared
            .requests
            .send(Request::Snapshot(sender))
            .map_err(|_| closed())?;
        answered.await.map_err(|_| closed())
    }

    fn failure(&self) -> Option<Unavailable> {
        self.shared.failure.borrow().clone()
    }
}
