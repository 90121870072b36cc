//! Reads the sources to lint.

use std::path::Path;

use crate::input::{self, ReadError};
use crate::text::Source;

/// Reads a file, every manifest below a directory, or standard input for `-`.
///
/// # Errors
///
/// A file cannot be read, is too large, or is not text.
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
    // Sorted by path, without hidden entries.
    let is_hidden = |name: &str| name.starts_with('.');
    let files = input::files_below(
        path,
        |name| !is_hidden(name),
        |file, name| !is_hidden(name) && is_manifest(file),
    )?;
    if files.is_empty() {
        return Err(ReadError::EmptyFolder(path.to_owned()));
    }
    files.iter().map(|file| input::read(file)).collect()
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"]
            .into_iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}
