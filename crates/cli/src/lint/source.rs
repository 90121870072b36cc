//! Finding what is to be linted.

use std::path::{Path, PathBuf};

use crate::input::{self, ReadError};
use crate::text::Source;

/// Reads a file, every manifest below a folder, or standard input for `-`.
///
/// # Errors
///
/// Something cannot be read, is too large, or is not text.
pub fn read(path: &Path) -> Result<Vec<Source>, ReadError> {
    if path == Path::new("-") {
        return Ok(vec![input::read(path)?]);
    }
    let io_error = |error| ReadError::Io {
        path: path.to_owned(),
        error,
    };
    if !std::fs::metadata(path).map_err(io_error)?.is_dir() {
        return Ok(vec![input::read(path)?]);
    }
    let files = manifests_below(path)?;
    if files.is_empty() {
        return Err(ReadError::EmptyFolder(path.to_owned()));
    }
    files.iter().map(|file| input::read(file)).collect()
}

/// The manifests of a folder and its folders, in the order of their paths. Hidden entries are left
/// out, and links to folders are not followed, so that there is an end to it.
fn manifests_below(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let io_error = |error| ReadError::Io {
            path: folder.clone(),
            error,
        };
        for entry in std::fs::read_dir(&folder).map_err(io_error)? {
            let entry = entry.map_err(io_error)?;
            let file_type = entry.file_type().map_err(io_error)?;
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if file_type.is_dir() {
                folders.push(path);
            } else if is_manifest(&path) && path.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"]
            .into_iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}
