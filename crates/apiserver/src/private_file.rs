//! Files that are readable by their owner only: keys, kubeconfigs, logs. They are written atomically, symbolic links
//! are not followed, and permissive modes are corrected.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

/// The mode of a private file.
const PRIVATE: u32 = 0o600;
/// The permissions of group and others.
const OTHERS: u32 = 0o077;
/// The write permissions of group and others on a directory.
const OTHERS_WRITE: u32 = 0o022;

/// Writes a private file, replacing an existing one; a symbolic link is replaced, not followed.
///
/// # Errors
///
/// Fails if the directory is not writable.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    write_with(path, text, PRIVATE)
}

/// Writes a file with a mode, replacing an existing one.
pub(crate) fn write_with(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut new = NewFile::with_mode(path, mode)?;
    new.file().write_all(text.as_bytes())?;
    new.place()
}

/// A file that replaces another when complete. Until then it has an unpredictable name; dropping it removes it.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    new: PathBuf,
    path: PathBuf,
    is_placed: bool,
}

impl NewFile {
    /// Creates a private file, in the directory of the one it replaces.
    ///
    /// # Errors
    ///
    /// Fails if the directory is not writable.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::with_mode(path, PRIVATE)
    }

    fn with_mode(path: &Path, mode: u32) -> io::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let suffix = format!("{:016x}.new", u64::from_ne_bytes(random));
        let new = path.with_added_extension(suffix);
        // A file that did not exist before.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        let made = Self {
            file: options.open(&new)?,
            new,
            path: path.to_owned(),
            is_placed: false,
        };
        // Independent of the umask.
        made.file.set_permissions(Permissions::from_mode(mode))?;
        Ok(made)
    }

    /// The file to write to.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Moves the file to its place; a symbolic link is replaced, not followed.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be synced or renamed.
    pub fn place(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.new, &self.path)?;
        self.is_placed = true;
        // A rename is durable once its directory is synced, and a new directory once its parent is.
        let folders = self.path.ancestors().skip(1).take(2);
        let mut named = folders.filter(|folder| !folder.as_os_str().is_empty());
        named.try_for_each(|folder| File::open(folder)?.sync_all())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}

/// Opens a private file for appending, or creates it. Devices and pipes are opened as they are.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    match options.clone().create_new(true).mode(PRIVATE).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let leads_to_a_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
    let before = std::fs::symlink_metadata(path)?;
    if before.is_symlink() && leads_to_a_file {
        return Err(io::Error::other("it is a symbolic link"));
    }
    let file = options.open(path)?;
    let opened = file.metadata()?;
    if opened.is_file() {
        if (opened.dev(), opened.ino()) != (before.dev(), before.ino()) {
            return Err(io::Error::other("it was replaced while it was opened"));
        }
        repair(path, &opened, OTHERS, |mode| {
            file.set_permissions(Permissions::from_mode(mode))
        })?;
    }
    Ok(file)
}

/// Reads a private file; a mode that lets others read it is corrected.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let found = std::fs::metadata(path)?;
    if found.is_file() {
        repair(path, &found, OTHERS, |mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode))
        })?;
    }
    std::fs::read_to_string(path)
}

/// Creates a private directory, or removes the permissions of others on an existing one.
///
/// # Errors
///
/// Fails if the directory cannot be created, or belongs to another user and is accessible to others.
pub fn private_folder(path: &Path) -> io::Result<()> {
    folder_without(path, OTHERS)
}

/// Creates a private directory, or removes the write permission of others on an existing one: some files in it may be
/// public.
///
/// # Errors
///
/// Fails if the directory cannot be created, or belongs to another user and is writable by others.
pub(crate) fn secure_folder(path: &Path) -> io::Result<()> {
    folder_without(path, OTHERS_WRITE)
}

fn folder_without(path: &Path, rights: u32) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path)?;
    let found = std::fs::metadata(path)?;
    repair(path, &found, rights, |mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode))
    })
}

fn repair(
    path: &Path,
    found: &std::fs::Metadata,
    forbidden: u32,
    set: impl FnOnce(u32) -> io::Result<()>,
) -> io::Result<()> {
    let mode = found.permissions().mode() & 0o7777;
    if mode & forbidden == 0 {
        return Ok(());
    }
    let path = path.display();
    set(mode & !forbidden).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("mode {mode:o} is too permissive and cannot be changed: {error}"),
        )
    })?;
    tracing::warn!(%path, mode = format!("{mode:o}"), "permissions too open, corrected");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn follows_no_links_and_keeps_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("victim"), "precious").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("link")).unwrap();
        write(&at("link"), "secret").unwrap();
        assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(at("link")).unwrap(), "secret");
        assert_eq!(mode(&at("link")), 0o600);

        std::os::unix::fs::symlink(at("victim"), at("log")).unwrap();
        assert!(append(&at("log")).is_err());
        let mut log = append(&at("fresh")).unwrap();
        log.write_all(b"a").unwrap();
        assert_eq!(mode(&at("fresh")), 0o600);
        std::fs::set_permissions(at("fresh"), Permissions::from_mode(0o644)).unwrap();
        append(&at("fresh")).unwrap().write_all(b"b").unwrap();
        assert_eq!(mode(&at("fresh")), 0o600);
        assert_eq!(read(&at("fresh")).unwrap(), "ab");
        append(Path::new("/dev/null")).unwrap();
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 4, "nothing is left over");
    }

    #[test]
    fn takes_the_right_to_write_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let loose = folder.path().join("loose");
        std::fs::create_dir(&loose).unwrap();
        std::fs::set_permissions(&loose, Permissions::from_mode(0o777)).unwrap();
        secure_folder(&loose).unwrap();
        assert_eq!(mode(&loose), 0o755);
        private_folder(&loose).unwrap();
        assert_eq!(mode(&loose), 0o700);
        let fresh = folder.path().join("a/b");
        secure_folder(&fresh).unwrap();
        assert_eq!(mode(&fresh), 0o700);
    }
}
