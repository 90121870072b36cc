//! Reads files and standard input, within limits.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::text::Source;

/// The maximum file size.
pub const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Input that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// An I/O error.
    #[error("cannot read `{}`: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The input is too large.
    #[error("`{0}` is larger than {limit} MiB", limit = MAX_BYTES / 1024 / 1024)]
    TooLarge(String),
    /// The input is not UTF-8.
    #[error("`{0}` is not UTF-8 text")]
    NotText(String),
    /// The directory contains no manifests.
    #[error("`{}` contains no .yaml, .yml or .json file", .0.display())]
    EmptyFolder(PathBuf),
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
///
/// The input cannot be read, is too large, or is not text.
pub fn read(path: &Path) -> Result<Source, ReadError> {
    if path == Path::new("-") {
        return read_text("<stdin>", io::stdin().lock(), path);
    }
    let file = File::open(path).map_err(|error| ReadError::Io {
        path: path.to_owned(),
        error,
    })?;
    read_text(&path.display().to_string(), file, path)
}

fn read_text(name: &str, reader: impl Read, path: &Path) -> Result<Source, ReadError> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ReadError::Io {
            path: path.to_owned(),
            error,
        })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ReadError::TooLarge(name.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| ReadError::NotText(name.to_owned()))?;
    Ok(Source::new(name, text))
}

/// The files below a directory, sorted by path. `enters` selects subdirectories by name, `takes` files by path
/// and name. Symbolic links to directories are not followed, so that the walk ends.
///
/// # Errors
///
/// Fails if a directory cannot be read.
pub fn files_below(
    folder: &Path,
    enters: impl Fn(&str) -> bool,
    takes: impl Fn(&Path, &str) -> bool,
) -> Result<Vec<PathBuf>, ReadError> {
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
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if file_type.is_dir() {
                if enters(&name) {
                    folders.push(path);
                }
            } else if takes(&path, &name) && path.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_no_more_than_the_limit() {
        let endless = io::repeat(b'x');
        let result = read_text("endless", endless, Path::new("endless"));
        assert!(matches!(result, Err(ReadError::TooLarge(_))));
        let bytes = read_text("bytes", &[0xff_u8][..], Path::new("bytes"));
        assert!(matches!(bytes, Err(ReadError::NotText(_))));
    }
}
