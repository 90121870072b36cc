//! A server for tests: in process, on a free port, in memory. Many can run at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_store::MemoryStore;

use crate::config::Settings;
use crate::server::{Running, StartError};

/// A server that is gone with the test.
#[derive(Debug)]
pub struct TestServer {
    running: Running,
    folder: PathBuf,
}

impl TestServer {
    /// Starts a server with the defaults.
    ///
    /// # Errors
    ///
    /// It cannot start.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Settings::default()).await
    }

    /// Starts a server with these settings, on a free port.
    ///
    /// # Errors
    ///
    /// It cannot start.
    pub async fn start_with(settings: Settings) -> Result<Self, StartError> {
        let settings = Settings {
            secure_port: 0,
            ..settings
        };
        let running = Running::start(settings, Arc::new(MemoryStore::new())).await?;
        let folder = std::env::temp_dir().join(format!(
            "lockgate-{}-{}",
            std::process::id(),
            running.address().port()
        ));
        let path = folder.join("kubeconfig");
        let failed = |source| StartError::File {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(&path, running.kubeconfig()).map_err(|source| StartError::File {
            path: path.clone(),
            source,
        })?;
        Ok(Self { running, folder })
    }

    /// A kubeconfig with which a client may do everything.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A folder for files of the test, gone with the server.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lets requests end, and stops.
    pub async fn stop(self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        self.running.stop().await;
    }
}

impl std::ops::Deref for TestServer {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}
