//! Reading what is to be linted.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::text::Source;

/// The largest file that is read.
pub const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system says no.
    #[error("cannot read `{}`: {error}", path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// There is too much of it.
    #[error("`{0}` is larger than {limit} MiB", limit = MAX_BYTES / 1024 / 1024)]
    TooLarge(String),
    /// It is not text.
    #[error("`{0}` is not UTF-8 text")]
    NotText(String),
    /// A folder has nothing to lint.
    #[error("`{}` holds no .yaml, .yml or .json file", .0.display())]
    EmptyFolder(PathBuf),
}

/// Reads a file, every manifest below a folder, or standard input for `-`.
///
/// # Errors
///
/// Something cannot be read, is too large, or is not text.
pub fn read(path: &Path) -> Result<Vec<Source>, ReadError> {
    if path == Path::new("-") {
        return Ok(vec![read_text("<stdin>", io::stdin().lock(), path)?]);
    }
    let io_error = |error| ReadError::Io {
        path: path.to_owned(),
        error,
    };
    if !std::fs::metadata(path).map_err(io_error)?.is_dir() {
        return Ok(vec![read_file(path)?]);
    }
    let files = manifests_below(path)?;
    if files.is_empty() {
        return Err(ReadError::EmptyFolder(path.to_owned()));
    }
    files.iter().map(|file| read_file(file)).collect()
}

fn read_file(path: &Path) -> Result<Source, ReadError> {
    let io_error = |error| ReadError::Io {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(io_error)?;
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
