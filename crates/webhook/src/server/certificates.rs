//! Sources of the server's certificate.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The polling interval in addition to file events, as in controller-runtime: some file systems send no events.
const POLL: Duration = Duration::from_secs(10);

/// The source of the server's certificate and key.
///
/// A directory is watched: when the pair is renewed, for example by cert-manager, new connections use the new one, and
/// none is refused. A mismatched pair is ignored; the last valid one is kept. Without a valid one, the server listens,
/// is not ready, and fails handshakes.
#[derive(Clone)]
pub struct Certificates {
    pub(super) source: Source,
}

#[derive(Clone)]
pub(super) enum Source {
    Folder {
        folder: PathBuf,
        certificate: String,
        key: String,
        poll: Duration,
    },
    Pem {
        certificate: Vec<u8>,
        key: Vec<u8>,
    },
    /// Plain HTTP.
    None,
}

impl Certificates {
    /// The files `tls.crt` and `tls.key` in a directory, as in a mounted Secret of type `kubernetes.io/tls`.
    #[must_use]
    pub fn folder(folder: impl AsRef<Path>) -> Self {
        Self {
            source: Source::Folder {
                folder: folder.as_ref().to_owned(),
                certificate: String::from("tls.crt"),
                key: String::from("tls.key"),
                poll: POLL,
            },
        }
    }

    /// A fixed pair.
    #[must_use]
    pub fn pem(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self {
            source: Source::Pem {
                certificate: certificate.into(),
                key: key.into(),
            },
        }
    }

    /// Sets the file names in the directory.
    #[must_use]
    pub fn names(mut self, certificate_name: &str, key_name: &str) -> Self {
        if let Source::Folder {
            certificate, key, ..
        } = &mut self.source
        {
            certificate_name.clone_into(certificate);
            key_name.clone_into(key);
        }
        self
    }

    /// Sets the polling interval in addition to file events. The default is 10 seconds.
    #[must_use]
    pub fn poll(mut self, every: Duration) -> Self {
        if let Source::Folder { poll, .. } = &mut self.source {
            *poll = every;
        }
        self
    }
}

/// Hides the key.
impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Source::Folder { folder, .. } => f.debug_tuple("Certificates").field(folder).finish(),
            Source::None => f.write_str("Certificates(none)"),
            Source::Pem { .. } => f.debug_tuple("Certificates").finish_non_exhaustive(),
        }
    }
}
