//! Watches the source of the webhook and its manifests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lockgate_file_watch::{FileWatch, directory_of};

/// The polling interval, in addition to events.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The delay after a change: editors write several files at once.
const DEBOUNCE: Duration = Duration::from_millis(150);
/// The maximum number of watched files.
const MAX_FILES: usize = 20_000;
/// Directories of build outputs and dependencies.
const BUILT: [&str; 4] = ["target", "node_modules", "vendor", "dist"];

/// The sizes and times of files.
type Fingerprint = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

/// Watched files and directories.
pub(super) struct Watch {
    paths: Vec<PathBuf>,
    seen: Fingerprint,
    events: FileWatch,
}

impl Watch {
    /// Watches files and directory trees, without hidden files and build outputs.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        let (seen, directories) = scan(&paths);
        let mut events = FileWatch::new(directories);
        // Without events, polling still finds changes.
        let _ = events.begin();
        Self {
            paths,
            seen,
            events,
        }
    }

    /// Waits for a change, and returns one of the changed files.
    pub(super) async fn changed(&mut self) -> PathBuf {
        loop {
            let _ = tokio::time::timeout(POLL_INTERVAL, self.events.changed()).await;
            let (now, directories) = scan(&self.paths);
            let Some(path) = difference(&self.seen, &now) else {
                continue;
            };
            tokio::time::sleep(DEBOUNCE).await;
            self.seen = scan(&self.paths).0;
            // The change may have added directories.
            self.events = FileWatch::new(directories);
            let _ = self.events.begin();
            return path;
        }
    }
}

fn scan(paths: &[PathBuf]) -> (Fingerprint, Vec<PathBuf>) {
    let (mut files, mut directories) = (Fingerprint::new(), Vec::new());
    let mut open: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = open.pop() {
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        if files.len() >= MAX_FILES {
            break;
        }
        if !metadata.is_dir() {
            if paths.contains(&path) {
                directories.push(directory_of(&path));
            }
            files.insert(path, (metadata.len(), metadata.modified().ok()));
            continue;
        }
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        open.extend(
            entries
                .map(|entry| entry.path())
                .filter(|path| is_source(path)),
        );
        directories.push(path);
    }
    (files, directories)
}

fn is_source(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| {
        !name.starts_with('.') && !BUILT.contains(&&*name) && !name.ends_with('~')
    })
}

/// A file that was added, removed or changed.
fn difference(before: &Fingerprint, now: &Fingerprint) -> Option<PathBuf> {
    let changed = now
        .iter()
        .find(|(path, state)| before.get(*path) != Some(state));
    let gone = || before.keys().find(|path| !now.contains_key(*path));
    changed.map(|(path, _)| path).or_else(gone).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notices_sources_and_nothing_that_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(file("src/deep")).unwrap();
        std::fs::create_dir_all(file("target")).unwrap();
        std::fs::create_dir_all(file(".git")).unwrap();
        std::fs::write(file("src/deep/main.rs"), "a").unwrap();
        let mut watch = Watch::new(vec![folder.path().to_owned()]);
        std::fs::write(file("target/out"), "a").unwrap();
        std::fs::write(file(".git/index"), "a").unwrap();
        std::fs::write(file("src/deep/main.rs"), "longer").unwrap();
        assert_eq!(watch.changed().await, file("src/deep/main.rs"));
        std::fs::create_dir(file("src/new")).unwrap();
        std::fs::write(file("src/new/lib.rs"), "a").unwrap();
        assert_eq!(watch.changed().await, file("src/new/lib.rs"));
        std::fs::remove_file(file("src/new/lib.rs")).unwrap();
        assert_eq!(watch.changed().await, file("src/new/lib.rs"));
    }
}
