//! A server for tests: in process, on a free port, in memory. Many can run concurrently.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_store::MemoryStore;
use tempfile::TempDir;

use crate::config::Settings;
use crate::encoding::store_options;
use crate::server::{Running, StartError};

/// A server with the lifetime of a test. Dropping it stops it immediately and removes its directory;
/// [`stop`](Self::stop) drains requests.
#[derive(Debug)]
pub struct TestServer {
    running: Running,
    /// Private and with an unpredictable name: it contains an admin key.
    folder: TempDir,
}

impl TestServer {
    /// Starts a server with the defaults.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot start.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Settings::default()).await
    }

    /// Starts a server with these settings, on a free port.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot start.
    pub async fn start_with(settings: Settings) -> Result<Self, StartError> {
        let settings = Settings {
            secure_port: 0,
            ..settings
        };
        let failed = |path: &Path, source| StartError::File {
            path: path.to_owned(),
            source,
        };
        let folder = tempfile::Builder::new()
            .prefix("lockgate-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(|source| failed(&std::env::temp_dir(), source))?;
        let running = Running::start(
            settings,
            Arc::new(MemoryStore::with_options(store_options())),
        )
        .await?;
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, running.kubeconfig()).map_err(|source| failed(&path, source))?;
        Ok(Self { running, folder })
    }

    /// The path of an admin kubeconfig.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A directory for files of the test, removed with the server.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Drains requests, and stops.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

impl std::ops::Deref for TestServer {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}
