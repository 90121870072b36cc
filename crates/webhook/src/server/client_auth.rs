//! Who may call.

use std::path::{Path, PathBuf};

/// Who may call. Everything that is asked for is needed; the files are watched.
///
/// A webhook that anybody in the cluster can reach answers anybody in the cluster. The API server
/// shows a certificate or a token when its `AdmissionConfiguration` names a kubeconfig for webhooks.
///
/// ```
/// use lockgate_webhook::server::ClientAuth;
///
/// let auth = ClientAuth::new()
///     .authorities("/etc/clients/ca.crt")
///     .allow_name("kube-apiserver")
///     .bearer_tokens("/etc/clients/token");
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClientAuth {
    pub(super) authorities: Option<PathBuf>,
    pub(super) names: Vec<String>,
    pub(super) token_files: Vec<PathBuf>,
}

impl ClientAuth {
    /// Anybody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Those with a certificate from an authority in this PEM file.
    #[must_use]
    pub fn authorities(mut self, file: impl AsRef<Path>) -> Self {
        self.authorities = Some(file.as_ref().to_owned());
        self
    }

    /// Of those with a certificate, the ones whose common name or subject alternative name is this,
    /// or another that is allowed. It needs [`authorities`](Self::authorities).
    #[must_use]
    pub fn allow_name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Those who show a bearer token that stands in this file, one to a line. With several files, any
    /// of them will do, so that a token can be replaced without a gap.
    #[must_use]
    pub fn bearer_tokens(mut self, file: impl AsRef<Path>) -> Self {
        self.token_files.push(file.as_ref().to_owned());
        self
    }
}
