//! Writes capture files: a header, then one line per request when it completes.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lockgate_api::meta::time::Time;
use lockgate_offline::capture::{Record, header};

/// A capture file, readable by its owner only.
#[derive(Debug)]
pub struct CaptureFile {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
}

/// An error while writing a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureFileError {
    /// The file exists.
    #[error("`{}` already exists", .0.display())]
    Exists(PathBuf),
    /// An I/O error.
    #[error("cannot write `{}`: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl CaptureFile {
    /// Creates a file with its header.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub fn create(path: &Path, source: &str) -> Result<Self, CaptureFileError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => CaptureFileError::Exists(path.to_owned()),
            _ => CaptureFileError::Io {
                path: path.to_owned(),
                error,
            },
        };
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = BufWriter::new(options.open(path).map_err(failed)?);
        let header = serde_json::to_string(&header(source)).unwrap_or_default();
        writeln!(file, "{header}").map_err(failed)?;
        file.flush().map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(file),
        })
    }

    /// Writes a record.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, record: &Record) -> Result<(), CaptureFileError> {
        let mut line = record.to_line();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // One write per line, so that a truncated file still ends with a complete line.
        let written = file.write_all(line.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| CaptureFileError::Io {
            path: self.path.clone(),
            error,
        })
    }
}

/// The current time in the format of captures.
#[must_use]
pub fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map(|since| since.as_secs()).unwrap_or_default();
    Time::from_unix_seconds(i64::try_from(now).unwrap_or_default()).to_string()
}
