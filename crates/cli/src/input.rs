//! Reading files and standard input, within bounds.

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

/// Reads a file, or standard input for `-`.
///
/// # Errors
///
/// It cannot be read, is too large, or is not text.
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
