//! Authentication of callers.

use std::path::{Path, PathBuf};

/// Authentication of callers. Everything that is configured is required; the files are watched.
///
/// A webhook answers every client that can reach it unless this is set. The API server presents a
/// client certificate or a token when its `AdmissionConfiguration` names a kubeconfig for webhooks.
///
/// ```
/// use lockgate_webhook::server::ClientAuth;
///
/// let auth = ClientAuth::new()
///     .client_ca("/etc/clients/ca.crt")
///     .allow_name("kube-apiserver")
///     .bearer_tokens("/etc/clients/token");
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClientAuth {
    pub(super) client_ca: Option<PathBuf>,
    pub(super) names: Vec<String>,
    pub(super) token_files: Vec<PathBuf>,
}

impl ClientAuth {
    /// Allows anonymous callers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires a client certificate issued by a CA in this PEM file.
    #[must_use]
    pub fn client_ca(mut self, file: impl AsRef<Path>) -> Self {
        self.client_ca = Some(file.as_ref().to_owned());
        self
    }

    /// Requires this common name or subject alternative name in client certificates; with several
    /// calls, one of them. It requires [`client_ca`](Self::client_ca).
    #[must_use]
    pub fn allow_name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Requires a bearer token from this file, one per line. With several files, a token from any of
    /// them, so that tokens can be rotated without a gap.
    #[must_use]
    pub fn bearer_tokens(mut self, file: impl AsRef<Path>) -> Self {
        self.token_files.push(file.as_ref().to_owned());
        self
    }
}
