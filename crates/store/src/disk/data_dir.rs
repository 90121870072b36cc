//! The data directory of a store: created if missing, and locked by one process.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::OpenError;
use crate::Revision;

/// The data file.
const DATA: &str = "store.redb";
/// The data file during creation. After a crash, the next start removes it.
const NEW: &str = "store.redb.new";
/// Locked while a process uses the directory; contains its process id.
const LOCK: &str = "lock";
/// The clean-shutdown file: the revision at which the store was closed.
const CLOSED: &str = "closed";
/// The mode of all files.
const PRIVATE: u32 = 0o600;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// A locked data directory.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// The operating system releases the lock when the process ends, in any way.
    _lock: File,
}

impl DataDir {
    /// Locks a directory, creating it if necessary.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::DataDir {
            path: path.to_owned(),
            source,
        };
        let missing: Vec<&Path> = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
            .collect();
        let mut builder = DirBuilder::new();
        // The data is as confidential as the Secrets in it.
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(unusable)?;
        for folder in missing {
            sync_name(folder).map_err(unusable)?;
        }
        let mut lock = private(&path.join(LOCK), false).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The process id is only informative: the lock is held in any case.
                let _ = lock.read_to_string(&mut pid);
                return Err(OpenError::InUse {
                    path: path.to_owned(),
                    pid: pid.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let named = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        // On a full disk, the lock is held without a process id.
        if let Err(error) = named
            && error.kind() != io::ErrorKind::StorageFull
        {
            return Err(unusable(error));
        }
        // No other process writes to them now.
        for name in [DATA, CLOSED] {
            secure(&path.join(name)).map_err(unusable)?;
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The data file.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the data file with `fill`, atomically.
    pub(super) fn make_data<E>(&self, fill: impl FnOnce(File) -> Result<(), E>) -> Result<(), E>
    where
        E: From<OpenError>,
    {
        let new = self.path.join(NEW);
        let unusable = |source| OpenError::File {
            path: new.clone(),
            source,
        };
        fill(private(&new, true).map_err(unusable)?)?;
        let placed = std::fs::rename(&new, self.data()).and_then(|()| sync_name(&self.data()));
        Ok(placed.map_err(unusable)?)
    }

    /// Removes the clean-shutdown file.
    pub(super) fn remove_clean_shutdown(&self) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(CLOSED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes the clean-shutdown file with a revision.
    pub(super) fn write_clean_shutdown(&self, revision: Revision) -> io::Result<()> {
        let mut file = private(&self.path.join(CLOSED), true)?;
        writeln!(file, "{revision}")?;
        file.sync_all()
    }

    /// The revision of the last clean shutdown, if any. A store with an earlier revision lost data; one that
    /// crashed since has a later revision.
    ///
    /// A crash while the file is written leaves it empty.
    pub(super) fn clean_shutdown_revision(&self) -> io::Result<Option<Revision>> {
        let text = match std::fs::read_to_string(self.path.join(CLOSED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        match text.trim() {
            "" => Ok(None),
            number => {
                let revision = number.parse().map_err(io::Error::other)?;
                Ok(Some(Revision(revision)))
            }
        }
    }
}

/// Makes the name of a file or directory durable by syncing its parent directory.
fn sync_name(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    File::open(above.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Opens a file for reading and writing that only its owner can access.
fn private(path: &Path, empty: bool) -> io::Result<File> {
    secure(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(empty);
    options.mode(PRIVATE).open(path)
}

/// Removes the permissions of group and others from a file, if it exists. A symbolic link is rejected: it
/// could make the server write to another user's choice of file.
fn secure(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.is_symlink() {
        let path = path.display();
        return Err(io::Error::other(format!("`{path}` is a symbolic link")));
    }
    match found.permissions().mode() & OTHERS {
        0 => Ok(()),
        _ => std::fs::set_permissions(path, Permissions::from_mode(PRIVATE)),
    }
}
