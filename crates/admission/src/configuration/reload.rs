//! Reloads webhooks from manifest files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockgate_api::registration::ConfigurationKind;
use lockgate_file_watch::FileWatch;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::Configurations;
use super::manifests::{self, ManifestError, ManifestGate, hex};

/// The polling interval of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// The result of reading the manifest files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// They are unchanged.
    Unchanged,
    /// They have changed, and the new content is effective.
    Changed,
}

/// A manifest directory and the webhooks loaded from it.
#[derive(Debug)]
pub struct StaticManifests {
    directory: PathBuf,
    configurations: Arc<Configurations>,
    state: Mutex<State>,
    noted: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    hash: String,
    /// For `success` and `failure`: the count, and the time of the last one in seconds since 1970.
    outcomes: BTreeMap<&'static str, (u64, f64)>,
}

impl StaticManifests {
    /// Loads the directory for the first time.
    ///
    /// # Errors
    ///
    /// Fails if the gate is disabled, or the content is invalid: the server must not start.
    pub fn open(
        directory: &str,
        gate: ManifestGate,
        configurations: Arc<Configurations>,
    ) -> Result<Self, ManifestError> {
        manifests::check_directory(directory, gate)?;
        configurations.expect_static();
        let directory = PathBuf::from(directory);
        let read = manifests::load(&directory, configurations.kind())?;
        configurations.replace_static(&read.configurations);
        let mut state = State::default();
        state.succeeded(read.hash);
        Ok(Self {
            directory,
            configurations,
            state: Mutex::new(state),
            noted: watch::Sender::new(1),
        })
    }

    /// Loads the files again.
    ///
    /// # Errors
    ///
    /// Fails if the content is invalid; the previous content stays effective.
    pub fn reload(&self) -> Result<Reload, ManifestError> {
        let read = manifests::load(&self.directory, self.configurations.kind());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match read {
            Err(error) => {
                state.note("failure");
                Err(error)
            }
            Ok(read) if read.hash == state.hash => return Ok(Reload::Unchanged),
            Ok(read) => {
                self.configurations.replace_static(&read.configurations);
                state.succeeded(read.hash);
                Ok(Reload::Changed)
            }
        };
        self.noted.send_modify(|count| *count += 1);
        outcome
    }

    /// Reloads the files on changes, and every minute in case events are missed, while it is polled. `report` receives
    /// errors.
    pub async fn run(self: Arc<Self>, report: impl Fn(ManifestError)) {
        let mut files = FileWatch::new([self.directory.clone()]);
        let mut was_told = false;
        loop {
            // Logged once, until the state changes.
            match files.begin() {
                Ok(()) => was_told = false,
                Err(problem) if !was_told => {
                    was_told = true;
                    report(ManifestError::unwatched(&self.directory, &problem));
                }
                Err(_) => {}
            }
            // The files may have changed before the watch was established.
            let this = Arc::clone(&self);
            // Reading files blocks, so it runs on a blocking thread.
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || this.reload()).await {
                report(error);
            }
            // Either triggers a reload.
            let _ = tokio::time::timeout(POLL_INTERVAL, files.changed()).await;
        }
    }

    /// Counts the reloads with any result other than "unchanged".
    #[must_use]
    pub fn outcomes(&self) -> watch::Receiver<u64> {
        self.noted.subscribe()
    }

    /// The reload metrics in the Prometheus text format. `server` is the identity of this API server, of which only a
    /// hash is shown.
    #[must_use]
    pub fn render_metrics(&self, server: &str) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let prefix = "apiserver_manifest_admission_config_controller_";
        let server = if server.is_empty() {
            String::new()
        } else {
            hex(&Sha256::digest(server.as_bytes()))
        };
        let plugin = match self.configurations.kind() {
            ConfigurationKind::Mutating => "MutatingAdmissionWebhook",
            ConfigurationKind::Validating => "ValidatingAdmissionWebhook",
        };
        let labels = format!("apiserver_id_hash=\"{server}\"");
        let mut out = String::new();
        let head = |name: &str, help: &str, kind: &str| {
            format!("# HELP {prefix}{name} [ALPHA] {help}\n# TYPE {prefix}{name} {kind}\n")
        };
        let (last, info, total) = (
            "automatic_reload_last_timestamp_seconds",
            "last_config_info",
            "automatic_reloads_total",
        );
        out += &head(
            last,
            "Time of the last reload of manifests, by status.",
            "gauge",
        );
        for (status, (_, when)) in &state.outcomes {
            out += &format!(
                "{prefix}{last}{{{labels},plugin=\"{plugin}\",status=\"{status}\"}} {when}\n"
            );
        }
        out += &head(total, "Reloads of manifests, by status.", "counter");
        for (status, (count, _)) in &state.outcomes {
            out += &format!(
                "{prefix}{total}{{{labels},plugin=\"{plugin}\",status=\"{status}\"}} {count}\n"
            );
        }
        out += &head(info, "Hash of the manifests in effect.", "gauge");
        let hash = &state.hash;
        out + &format!("{prefix}{info}{{{labels},hash=\"{hash}\",plugin=\"{plugin}\"}} 1\n")
    }
}

impl State {
    fn succeeded(&mut self, hash: String) {
        self.hash = hash;
        self.note("success");
    }

    fn note(&mut self, status: &'static str) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (count, when) = self.outcomes.entry(status).or_default();
        *count += 1;
        *when = now.as_secs_f64();
    }
}
