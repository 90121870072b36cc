//! Reads the input of offline commands: manifests, live clusters, hook scripts and requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_api::decode::Bytes;
use lockgate_api::kube_version::KubeVersion;
use lockgate_api::registration::hub::ClientConfig;
use lockgate_offline::cluster::{Cluster, ClusterError, Validation};
use lockgate_offline::hooks::{Hook, Hooks, Script};
use lockgate_offline::manifest::{self, Manifest, ManifestError};
use serde::Deserialize;

use crate::input::{self, ReadError};
use crate::lint::source;
use crate::live::{LiveArgs, LiveError};

/// Manifests, files and a live cluster.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// File or directory with webhook configurations, policies, Namespaces, RBAC, CustomResourceDefinitions and
    /// parameters, or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<PathBuf>,

    /// A live cluster.
    #[command(flatten)]
    pub live: LiveArgs,

    /// Kubernetes version to validate the files for, from 1.33 to 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    pub kube_version: KubeVersion,
}

/// Invalid input.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file is neither YAML nor JSON.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// An API server would reject a manifest.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The cluster cannot be read.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Neither manifests nor a cluster are given.
    #[error("no manifests and no cluster given")]
    Nothing,
    /// A hook script is invalid.
    #[error("{file}: {message}")]
    Script {
        /// The file.
        file: String,
        /// The error.
        message: String,
    },
}

impl LoadError {
    /// Advice.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Read(_) => None,
            Self::Manifest(_) => Some("pass YAML or JSON"),
            Self::Cluster(_) => {
                Some("`lockgate lint -f FILE` shows the position and the expected value")
            }
            Self::Live(LiveError::Config(_)) => Some(
                "set --kubeconfig to a file that kubectl can use, and --context to one of its contexts",
            ),
            Self::Live(_) => Some("check the kubeconfig, and that its user may list the resource"),
            Self::Nothing => {
                Some("pass -f FILE, -f DIR or -f -, or --context NAME for a live cluster")
            }
            Self::Script { .. } => Some(
                "expected a list `webhooks`, each with `name` and one of `allowed`, `patch`, `error`, `url`",
            ),
        }
    }
}

/// A cluster, with notes on unreadable resources.
#[derive(Debug)]
pub struct Loaded {
    /// The cluster.
    pub cluster: Cluster,
    /// The unreadable resources.
    pub notes: Vec<String>,
}

impl ClusterArgs {
    /// Reads the cluster. Files are decoded like applied manifests; objects of a live cluster are decoded
    /// like stored objects.
    ///
    /// # Errors
    ///
    /// The input cannot be read, or an API server would reject it.
    pub async fn load(&self) -> Result<Loaded, LoadError> {
        if self.filename.is_empty() && !self.live.is_given() {
            return Err(LoadError::Nothing);
        }
        let mut cluster = Cluster::default();
        let mut notes = Vec::new();
        if self.live.is_given() {
            let objects = self.live.connect().await?.objects().await?;
            notes = objects.notes;
            cluster = Cluster::from_manifests(objects.manifests, Validation::Stored)?;
        }
        let mut manifests = Vec::new();
        for path in &self.filename {
            manifests.extend(read_manifests(path)?);
        }
        // Files override objects of the cluster, so that they show the effect of a change.
        cluster.extend(manifests, Validation::Version(self.kube_version))?;
        Ok(Loaded { cluster, notes })
    }
}

/// Reads the manifests of a file, a directory or standard input.
///
/// # Errors
///
/// Fails if a file cannot be read, or is invalid.
pub fn read_manifests(path: &Path) -> Result<Vec<Manifest>, LoadError> {
    let mut manifests = Vec::new();
    for source in source::read(path)? {
        manifests.extend(manifest::read(&source.name, &source.text)?);
    }
    Ok(manifests)
}

/// A file of scripted webhooks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScriptFile {
    webhooks: Vec<Script>,
}

/// Reads hook scripts.
///
/// # Errors
///
/// The file cannot be read, or a script is invalid.
pub fn read_hooks(file: &Path) -> Result<Hooks, LoadError> {
    let source = input::read(file)?;
    let wrong = |message: String| LoadError::Script {
        file: source.name.clone(),
        message,
    };
    let mut scripts = Vec::new();
    for (_, value) in manifest::read_values(&source.name, &source.text)? {
        let read: ScriptFile =
            serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        scripts.extend(read.webhooks);
    }
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    make_hooks(scripts, folder).map_err(|message| wrong(message.to_string()))
}

/// An invalid hook script.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It has no name.
    #[error("a webhook has no name")]
    NoName,
    /// The webhook has two exclusive fields.
    #[error("webhook `{0}` has more than one of `error`, `url` and `recorded`")]
    Several(String),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(#[from] lockgate_offline::capture::CaptureError),
}

/// The scripted webhooks; file names are relative to a directory.
///
/// # Errors
///
/// Fails if a script is contradictory, or a file cannot be read.
pub fn make_hooks(scripts: Vec<Script>, folder: &Path) -> Result<Hooks, HookError> {
    let mut hooks = Hooks::default();
    let mut is_live = false;
    for script in scripts {
        let name = script.name.clone();
        if name.is_empty() {
            return Err(HookError::NoName);
        }
        let kinds = [
            script.error.is_some(),
            script.url.is_some(),
            script.recorded.is_some(),
        ];
        if kinds.into_iter().filter(|is| *is).count() > 1 {
            return Err(HookError::Several(name));
        }
        let hook = if let Some(url) = &script.url {
            is_live = true;
            let ca_file = script.ca_file.as_ref().map(|file| folder.join(file));
            Hook::Live(Box::new(webhook_at(url, ca_file.as_deref())?))
        } else if let Some(file) = &script.recorded {
            let source = input::read(&folder.join(file))?;
            let capture = lockgate_offline::capture::read(&source.name, &source.text)?;
            Hook::Recorded(Arc::new(capture.answers(&name)))
        } else {
            Hook::Scripted(Box::new(script))
        };
        hooks.set(&name, hook);
    }
    if is_live {
        hooks = hooks.with_caller(live_caller());
    }
    Ok(hooks)
}

/// The client configuration of a webhook at a URL, with the CA bundle from a file.
///
/// # Errors
///
/// The file cannot be read.
pub fn webhook_at(url: &str, ca_file: Option<&Path>) -> Result<ClientConfig, ReadError> {
    let ca_bundle = ca_file.map(input::read).transpose()?;
    Ok(ClientConfig {
        url: Some(url.to_owned()),
        service: None,
        ca_bundle: ca_bundle.map(|read| Bytes(read.text.into_bytes())),
    })
}

/// Calls webhooks at URLs, as an API server does.
#[must_use]
pub fn live_caller() -> Arc<HttpsCaller> {
    Arc::new(HttpsCaller::new(Settings::default()))
}
