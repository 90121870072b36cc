//! File change events for directories.
//!
//! Events differ between operating systems and file systems, so they are only hints: users also poll the
//! files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

pub use notify::Error;

/// Watches directories instead of files: a mounted Secret is updated by replacing a symbolic link in its
/// directory.
#[derive(Debug)]
pub struct FileWatch {
    directories: Arc<BTreeSet<PathBuf>>,
    state: Arc<EventState>,
    /// Sends events until dropped.
    watcher: Option<RecommendedWatcher>,
}

#[derive(Debug, Default)]
struct EventState {
    changed: Notify,
    /// True if a watched directory was removed, or watching failed.
    lost: AtomicBool,
}

impl FileWatch {
    /// Creates a watch that is not started.
    #[must_use]
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            directories: Arc::new(directories.into_iter().collect()),
            state: Arc::default(),
            watcher: None,
        }
    }

    /// Starts watching, unless already started.
    ///
    /// # Errors
    ///
    /// A directory cannot be watched; all others are.
    pub fn begin(&mut self) -> Result<(), Error> {
        let lost = self.state.lost.swap(false, Ordering::AcqRel);
        if self.watcher.is_some() && !lost {
            return Ok(());
        }
        self.restart()
    }

    /// Starts or restarts watching, as a directory may have been replaced or created.
    ///
    /// # Errors
    ///
    /// A directory cannot be watched; all others are.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.watcher = None;
        let (state, directories) = (Arc::clone(&self.state), Arc::clone(&self.directories));
        let listen = move |event: Result<Event, Error>| {
            let (is_change, is_lost) = match &event {
                Ok(event) => (is_change(&event.kind), is_gone(event, &directories)),
                // Events may have been lost.
                Err(_) => (true, true),
            };
            if is_lost {
                state.lost.store(true, Ordering::Release);
            }
            if is_change {
                state.changed.notify_one();
            }
        };
        let mut watcher = notify::recommended_watcher(listen)?;
        let mut outcome = Ok(());
        for directory in self.directories.iter() {
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
                // Retried by the next call.
                self.state.lost.store(true, Ordering::Release);
                outcome = outcome.and(Err(error));
            }
        }
        self.watcher = Some(watcher);
        outcome
    }

    /// Waits for a change since the last call.
    pub async fn changed(&self) {
        self.state.changed.notified().await;
    }
}

/// The directory of a file.
#[must_use]
pub fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns true for events that may change files; reads also cause events.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => *kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Returns true if a watched directory was removed or renamed.
fn is_gone(event: &Event, directories: &BTreeSet<PathBuf>) -> bool {
    let is_moved = matches!(
        event.kind,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
    );
    is_moved && event.paths.iter().any(|path| directories.contains(path))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    async fn told(files: &FileWatch) {
        let told = tokio::time::timeout(Duration::from_secs(20), files.changed()).await;
        told.expect("a change is told");
    }

    #[tokio::test]
    async fn a_directory_that_went_away_is_watched_again_when_it_is_back() {
        let around = tempfile::tempdir().unwrap();
        let home = around.path().join("home");
        let mut files = FileWatch::new([home.clone()]);
        assert!(files.begin().is_err());
        fs::create_dir(&home).unwrap();
        files.begin().unwrap();
        fs::write(home.join("a"), "1").unwrap();
        told(&files).await;
        fs::remove_dir_all(&home).unwrap();
        while files.begin().is_ok() {
            told(&files).await;
        }
        fs::create_dir(&home).unwrap();
        files.begin().unwrap();
        fs::write(home.join("a"), "2").unwrap();
        told(&files).await;
    }

    #[tokio::test]
    async fn one_directory_that_is_missing_keeps_no_other_from_being_watched() {
        let around = tempfile::tempdir().unwrap();
        let home = around.path().join("home");
        fs::create_dir(&home).unwrap();
        let mut files = FileWatch::new([around.path().join("missing"), home.clone()]);
        assert!(files.begin().is_err());
        fs::write(home.join("a"), "1").unwrap();
        told(&files).await;
    }

    #[test]
    fn reading_is_no_change() {
        for kind in [
            AccessKind::Read,
            AccessKind::Open(AccessMode::Any),
            AccessKind::Close(AccessMode::Read),
        ] {
            assert!(!is_change(&EventKind::Access(kind)), "{kind:?}");
        }
        let written = AccessKind::Close(AccessMode::Write);
        assert!(is_change(&EventKind::Access(written)));
        assert!(is_change(&EventKind::Any));
    }

    #[test]
    fn a_file_without_a_directory_is_in_the_current_one() {
        assert_eq!(directory_of(Path::new("a.pem")), Path::new("."));
        assert_eq!(directory_of(Path::new("/tls/a.pem")), Path::new("/tls"));
    }
}
