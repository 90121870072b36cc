//! The backend on disk: what is acknowledged survives a crash.
//!
//! Everything is in memory too, in the same persistent maps as in [`MemoryStore`](crate::MemoryStore), so
//! reads and watches never touch the disk. Writes go through one thread (`committer`), which shows them to
//! nobody before they are on the disk.

mod committer;
mod file;
mod folder;
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
use committer::{Answer, Committer, Request, Write};
use file::{DataFile, FORMAT, Loaded};
use folder::Folder;

/// The most writes that may wait for the disk; more wait for their turn to wait.
const QUEUE: usize = 4096;

/// A store on disk that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder cannot be made or written.
    #[error("cannot use the directory `{}`", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process uses the folder.
    #[error("the directory `{}` is in use by {}", path.display(), pid.map_or_else(|| String::from("another process"), |pid| format!("process {pid}")))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process, if its lock file names it.
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
    /// A later version wrote the data file.
    #[error("`{}` has format {format}, and this version reads formats up to {FORMAT}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// The data file does not hold what was written to it.
    #[error("`{}` is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The check that failed.
        why: String,
    },
}

/// A snapshot that was not restored. The folder is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// There is a store already.
    #[error("the directory `{}` already has a store", .0.display())]
    Exists(PathBuf),
    /// The snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenError),
}

/// Settings of restoring a snapshot.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestoreOptions {
    /// Replace a store that is there.
    pub overwrite: bool,
    /// The store begins so many revisions later than the snapshot. More than were written since the snapshot, and
    /// no revision that somebody has seen is given to anything else.
    pub bump: u64,
}

/// A store in a folder. Clones are handles to the same store.
///
/// After a write failed for want of space or by a fault of the disk, every later write fails as
/// [`Unavailable`], and reads go on: what the disk holds is certain again when the store is opened anew.
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
    /// Opens the store of a folder, and makes what is not there. Reads everything into memory.
    ///
    /// # Errors
    ///
    /// The folder cannot be used, is used by another process, or its contents cannot be trusted.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        Self::open_with(folder, MemoryOptions::default())
    }

    /// The same, with other options for what is in memory.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn open_with(folder: &Path, options: MemoryOptions) -> Result<Self, OpenError> {
        let folder = Folder::take(folder)?;
        let path = folder.data();
        // On a thread of its own: whatever a damaged file does to its reader, it ends there.
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

    /// Makes the store of a folder from a snapshot, whole or not at all. `told` is called with the number of
    /// entries from time to time. Returns the revision of the store.
    ///
    /// # Errors
    ///
    /// The snapshot or the folder cannot be used, or there is a store that is not to be replaced.
    pub fn restore(
        folder: &Path,
        snapshot: SnapshotReader<impl Read>,
        options: RestoreOptions,
        told: &mut dyn FnMut(u64),
    ) -> Result<Revision, RestoreError> {
        let folder = Folder::take(folder)?;
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

    /// Waits for the writes under way, and gives the folder back. Later writes fail.
    pub async fn close(&self) {
        let shared = Arc::clone(&self.shared);
        // Closing waits for the disk. A runtime that ends meanwhile does not keep it from happening.
        let _ = tokio::task::spawn_blocking(move || shared.close()).await;
    }

    /// Returns when nothing can be written any more, and says why. While all is well it waits.
    pub async fn failed(&self) -> Unavailable {
        let mut failure = self.shared.failure.clone();
        let failed = failure.wait_for(Option::is_some).await;
        let why = failed.ok().and_then(|failed| failed.clone());
        match why {
            Some(why) => why,
            // Closed, which is no failure.
            None => std::future::pending().await,
        }
    }

    async fn write<T>(&self, write: impl FnOnce(Answer<T>) -> Write) -> Result<T, WriteError> {
        let closed = || WriteError::from(Unavailable(String::from("the store is closed")));
        let place = Arc::clone(&self.shared.places).acquire_owned().await;
        let place = place.map_err(|_| closed())?;
        let (answer, answered) = oneshot::channel();
        self.shared
            .requests
            .send(Request::Write(write(answer), place))
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
            // A thread that is gone already, by a panic, closed the file as it went.
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
        self.write(|answer| Write::Create {
            key: key.to_owned(),
            value,
            deadline,
            answer,
        })
        .await
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        self.write(|answer| Write::Update {
            key: key.to_owned(),
            expected,
            value,
            answer,
        })
        .await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        self.write(|answer| Write::Delete {
            key: key.to_owned(),
            expected,
            answer,
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
        let (answer, answered) = oneshot::channel();
        self.shared
            .requests
            .send(Request::Compact(oldest, answer))
            .map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    async fn snapshot(&self) -> Result<Snapshot, ReadError> {
        let closed = || ReadError::from(Unavailable(String::from("the store is closed")));
        let (answer, answered) = oneshot::channel();
        self.shared
            .requests
            .send(Request::Snapshot(answer))
            .map_err(|_| closed())?;
        answered.await.map_err(|_| closed())
    }

    fn failure(&self) -> Option<Unavailable> {
        self.shared.failure.borrow().clone()
    }
}
