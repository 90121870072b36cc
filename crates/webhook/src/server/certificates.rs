//! Sources of the server's certificate.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The polling interval in addition to file events, as in controller-runtime: some file systems send no events.
const POLL: Duration = Duration::from_secs(10);

/// The source of the server's certificate and key.
///
/// A folder is watched: when cert-manager or a person renews the pair, connections from then on get
/// the new one, and none is refused. A pair that does not fit together is not taken; the last good
/// one stays. Without any, the server listens, is not ready, and refuses handshakes.
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
    /// The files `tls.crt` and `tls.key` of a folder, as a Secret of type `kubernetes.io/tls` is
    /// mounted.
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

    /// A pair that never changes.
    #[must_use]
    pub fn pem(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self {
            source: Source::Pem {
                certificate: certificate.into(),
                key: key.into(),
            },
        }
    }

    /// Other names of the files in the folder.
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

/// Without the key.
impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Source::Folder { folder, .. } => f.debug_tuple("Certificates").field(folder).finish(),
            Source::None => f.write_str("Certificates(none)"),
            Source::Pem { .. } => f.debug_tuple("Certificates").finish_non_exhaustive(),
        }
    }
}
