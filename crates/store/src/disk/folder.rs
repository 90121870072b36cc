//! The folder of a store: made when it is missing, and held by one process at a time.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::OpenError;
use crate::Revision;

/// The file with everything in it.
const DATA: &str = "store.redb";
/// The same while it is made. A crash leaves it behind, and the next start removes it.
const NEW: &str = "store.redb.new";
/// Locked while a process uses the folder; says which.
const LOCK: &str = "lock";
/// Written when a store is closed: the revision it was at.
const CLOSED: &str = "closed";
/// The mode of every file.
const PRIVATE: u32 = 0o600;
/// The rights of everybody but the owner.
const OTHERS: u32 = 0o077;

/// A folder that no other process uses.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The system frees the lock when the process ends, however it ends.
    _lock: File,
}

impl Folder {
    /// Takes a folder, which is made if it is not there.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::Folder {
            path: path.to_owned(),
            source,
        };
        let missing: Vec<&Path> = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
            .collect();
        let mut builder = DirBuilder::new();
        // What is stored is as secret as the secrets in it.
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
                // Who holds it is a courtesy: that it is held is certain.
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
        // On a full disk the lock holds without the name.
        if let Err(error) = named
            && error.kind() != io::ErrorKind::StorageFull
        {
            return Err(unusable(error));
        }
        // Nobody else writes to them now.
        for name in [DATA, CLOSED] {
            secure(&path.join(name)).map_err(unusable)?;
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The file with everything in it.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the data file by `fill`, so that it is there whole or not at all.
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

    /// Forgets at which revision the store was closed.
    pub(super) fn forget_closed(&self) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(CLOSED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes at which revision the store was closed.
    pub(super) fn note_closed(&self, revision: Revision) -> io::Result<()> {
        let mut file = private(&self.path.join(CLOSED), true)?;
        writeln!(file, "{revision}")?;
        file.sync_all()
    }

    /// The revision at which the store was last closed, if it was. A store that is older than that lost
    /// something; one that crashed since is newer.
    ///
    /// A crash while the note was written leaves an empty file.
    pub(super) fn closed_at(&self) -> io::Result<Option<Revision>> {
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

/// Makes the name of a file or folder last: it is part of the folder above.
fn sync_name(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    File::open(above.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Opens a file that is its owner's alone, to read and write.
fn private(path: &Path, empty: bool) -> io::Result<File> {
    secure(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(empty);
    options.mode(PRIVATE).open(path)
}

/// Takes the rights of others to a file, if it is there. A symbolic link is refused: it would make the server
/// write to a file of somebody else's choice.
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
