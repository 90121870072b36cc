//! Notices that files of some folders change. Systems differ in what they tell, so it is only a hint:
//! users poll the files anyway.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches folders rather than files: a Secret that is mounted changes by another symbolic link in
/// its folder.
#[derive(Debug)]
pub(super) struct Notice {
    folders: BTreeSet<PathBuf>,
    changed: Arc<Notify>,
    /// Tells, for as long as it is kept.
    watcher: Option<RecommendedWatcher>,
}

impl Notice {
    /// Watches nothing yet.
    pub(super) fn new(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            folders: folders.into_iter().collect(),
            changed: Arc::default(),
            watcher: None,
        }
    }

    /// Begins to watch, or begins anew: a folder may be another one than it was, or be there at last.
    pub(super) fn begin(&mut self) {
        self.watcher = None;
        let changed = Arc::clone(&self.changed);
        let listen = move |event: notify::Result<Event>| {
            // Reads raise events too, and are no change.
            let is_change = event.is_ok_and(|event| match event.kind {
                EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
                _ => true,
            });
            if is_change {
                changed.notify_one();
            }
        };
        let mut watcher = match notify::recommended_watcher(listen) {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::debug!(%error, "file watching unavailable, polling");
                return;
            }
        };
        for folder in &self.folders {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::debug!(folder = %folder.display(), %error, "directory cannot be watched, polling");
            }
        }
        self.watcher = Some(watcher);
    }

    /// Waits until something changed since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The folder a file is in.
pub(super) fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
