//! Notices that files of a directory change.
//!
//! Systems and file systems differ in what they tell, so this is only ever a hint: whoever uses it
//! looks at the files now and then anyway.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches one directory.
#[derive(Debug)]
pub(super) struct Notice {
    directory: PathBuf,
    heard: Arc<Heard>,
    /// Tells, for as long as it is kept.
    watcher: Option<RecommendedWatcher>,
}

#[derive(Debug, Default)]
struct Heard {
    changed: Notify,
    /// `true` if the directory itself is gone, or events stopped.
    lost: AtomicBool,
}

impl Notice {
    /// Watches nothing yet.
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            heard: Arc::default(),
            watcher: None,
        }
    }

    /// Begins to watch, if that is not done already.
    ///
    /// # Errors
    ///
    /// The directory cannot be watched.
    pub(super) fn begin(&mut self) -> notify::Result<()> {
        let lost = self.heard.lost.swap(false, Ordering::AcqRel);
        if self.watcher.is_some() && !lost {
            return Ok(());
        }
        self.watcher = None;
        let (heard, directory) = (Arc::clone(&self.heard), self.directory.clone());
        let listen = move |event: notify::Result<Event>| {
            let (is_change, is_lost) = match &event {
                Ok(event) => (is_change(&event.kind), is_gone(event, &directory)),
                // It may have overheard something.
                Err(_) => (true, true),
            };
            if is_lost {
                heard.lost.store(true, Ordering::Release);
            }
            if is_change {
                heard.changed.notify_one();
            }
        };
        let watch = || -> notify::Result<RecommendedWatcher> {
            let mut watcher = notify::recommended_watcher(listen)?;
            watcher.watch(&self.directory, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        };
        self.watcher = Some(watch()?);
        Ok(())
    }

    /// Waits until something changed since the last time.
    pub(super) async fn changed(&self) {
        self.heard.changed.notified().await;
    }
}

/// Returns `true` if an event can mean changed files; reads raise events too.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => *kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Returns `true` if the watched directory was replaced.
fn is_gone(event: &Event, directory: &Path) -> bool {
    let is_moved = matches!(
        event.kind,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
    );
    is_moved && event.paths.iter().any(|path| path == directory)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    async fn told(notice: &Notice) {
        let told = tokio::time::timeout(Duration::from_secs(20), notice.changed()).await;
        told.expect("a change is told");
    }

    #[tokio::test]
    async fn a_directory_that_went_away_is_watched_again_when_it_is_back() {
        let around = tempfile::tempdir().unwrap();
        let home = around.path().join("home");
        let mut notice = Notice::new(&home);
        assert!(notice.begin().is_err());
        fs::create_dir(&home).unwrap();
        notice.begin().unwrap();
        fs::write(home.join("a"), "1").unwrap();
        told(&notice).await;
        fs::remove_dir_all(&home).unwrap();
        while notice.begin().is_ok() {
            told(&notice).await;
        }
        fs::create_dir(&home).unwrap();
        notice.begin().unwrap();
        fs::write(home.join("a"), "2").unwrap();
        told(&notice).await;
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
}
