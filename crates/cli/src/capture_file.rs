//! Writing capture files: a header, and a line for each request as soon as it is over.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lockgate_api::meta::time::Time;
use lockgate_offline::capture::{Record, header};

/// A capture that is being written. Only its owner can read it.
#[derive(Debug)]
pub struct CaptureFile {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
}

/// A capture that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureFileError {
    /// The file exists.
    #[error("`{}` exists already", .0.display())]
    Exists(PathBuf),
    /// The file system says no.
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
        // A line at once, so that a file that is cut short ends with a whole one.
        let written = file.write_all(line.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| CaptureFileError::Io {
            path: self.path.clone(),
            error,
        })
    }
}

/// The current time as captures have it.
#[must_use]
pub fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map(|since| since.as_secs()).unwrap_or_default();
    Time::from_unix_seconds(i64::try_from(now).unwrap_or_default()).to_string()
}
