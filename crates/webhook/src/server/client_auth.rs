//! Authentication of callers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Authentication of callers. Everything that is configured is required; the files are watched.
///
/// Without it, a webhook serves every client that can reach it. The API server presents a client certificate or a token
/// if its `AdmissionConfiguration` has a kubeconfig for webhooks.
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
    pub(super) user_files: Vec<PathBuf>,
    /// The requirements by path.
    pub(super) paths: BTreeMap<String, Self>,
}

impl ClientAuth {
    /// Creates it without requirements: anonymous clients are allowed.
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
    /// calls, any of them. Requires [`client_ca`](Self::client_ca).
    #[must_use]
    pub fn allow_name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Requires a bearer token from this file, one per line. With several files, a token from any of
    /// them, so that tokens can be rotated without interruption.
    #[must_use]
    pub fn bearer_tokens(mut self, file: impl AsRef<Path>) -> Self {
        self.token_files.push(file.as_ref().to_owned());
        self
    }

    /// Requires basic authentication with a line `user:password` of this file. With several files, of any
    /// of them. If bearer tokens are required, too, either suffices.
    #[must_use]
    pub fn basic_auth(mut self, file: impl AsRef<Path>) -> Self {
        self.user_files.push(file.as_ref().to_owned());
        self
    }

    /// Requires other names, tokens and users at a path, instead of the server's. The client CA is the server's.
    ///
    /// ```
    /// use lockgate_webhook::server::ClientAuth;
    ///
    /// let auth = ClientAuth::new()
    ///     .bearer_tokens("/etc/clients/token")
    ///     .at("/convert", ClientAuth::new().basic_auth("/etc/clients/conversion"));
    /// ```
    #[must_use]
    pub fn at(mut self, path: impl Into<String>, auth: Self) -> Self {
        self.paths.insert(path.into(), auth);
        self
    }

    /// The requirements at a path.
    pub(super) fn of(&self, path: &str) -> &Self {
        self.paths.get(path).unwrap_or(self)
    }

    /// The requirements of the server, followed by those of each path.
    pub(super) fn all(&self) -> impl Iterator<Item = (Option<&str>, &Self)> {
        let paths = self.paths.iter();
        let paths = paths.map(|(path, auth)| (Some(path.as_str()), auth));
        std::iter::once((None, self)).chain(paths)
    }

    /// Returns true if client names are checked at any path.
    pub(super) fn checks_names(&self) -> bool {
        self.all().any(|(_, auth)| !auth.names.is_empty())
    }
}
