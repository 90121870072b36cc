//! Backends of `ImageReview`s.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockgate_admission::call::{Caller, Client, Post};
use lockgate_admission::host::BoxFuture;
use lockgate_admission::https::credentials::parse_kubeconfig;
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_api::decode::Bytes as CaBundle;
use lockgate_api::registration::hub::ClientConfig;
use lockgate_go::base64;
use serde::{Deserialize, Serialize};

use super::{ImageReviewSpec, ImageReviewStatus};
use crate::config::{self, ConfigError};

const API_VERSION: &str = "imagepolicy.k8s.io/v1alpha1";

/// The timeout of a request.
// UPSTREAM: apiserver pkg/util/webhook/webhook.go (defaultRequestTimeout).
const TIMEOUT: Duration = Duration::from_secs(30);

/// Decides on images.
pub trait Backend: Send + Sync + 'static {
    /// Reviews the images of a Pod.
    fn review<'f>(
        &'f self,
        spec: &'f ImageReviewSpec,
    ) -> BoxFuture<'f, Result<ImageReviewStatus, BackendError>>;
}

/// A failed backend request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// The error message.
    pub message: String,
    /// True if the request may be retried.
    pub retry: bool,
}

/// A server for `ImageReview`s over HTTPS.
#[derive(Clone)]
pub struct HttpsBackend {
    client: Arc<dyn Client>,
}

impl HttpsBackend {
    /// Creates a backend from a client configuration. The settings contain its credentials.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn new(config: &ClientConfig, settings: Settings) -> Result<Self, ConfigError> {
        Self::through(&HttpsCaller::new(settings), config)
    }

    fn through(caller: &HttpsCaller, config: &ClientConfig) -> Result<Self, ConfigError> {
        let client = caller.client(config);
        let client = client.map_err(|error| ConfigError(error.to_string()))?;
        Ok(Self { client })
    }

    /// Creates a backend from a file in kubeconfig format: the cluster and the user of its current context.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is invalid.
    pub fn from_kubeconfig(file: &Path) -> Result<Self, ConfigError> {
        let read = |file: &Path| {
            let text = std::fs::read_to_string(file);
            text.map_err(|error| {
                let why = match error.kind() {
                    std::io::ErrorKind::NotFound => String::from("no such file or directory"),
                    _ => error.to_string(),
                };
                ConfigError(format!("stat {}: {why}", file.display()))
            })
        };
        let text = read(file)?;
        let kubeconfig: Kubeconfig = config::read(&text)?;
        let cluster = kubeconfig.current_cluster()?;
        if !cluster.server.starts_with("https://") {
            let message = format!("server `{}` must use https", cluster.server);
            return Err(ConfigError(message));
        }
        let ca = if !cluster.certificate_authority_data.is_empty() {
            let data = base64::decode(&cluster.certificate_authority_data);
            Some(data.map_err(|error| ConfigError(error.to_string()))?)
        } else if !cluster.certificate_authority.is_empty() {
            let folder = file.parent().unwrap_or_else(|| Path::new(""));
            Some(read(&folder.join(&cluster.certificate_authority))?.into_bytes())
        } else {
            None
        };
        let config = ClientConfig {
            url: Some(cluster.server.clone()),
            ca_bundle: ca.map(CaBundle),
            ..ClientConfig::default()
        };
        let credentials = parse_kubeconfig(text.as_bytes(), file)
            .map_err(|error| ConfigError(error.to_string()))?;
        let settings = Settings {
            credentials,
            ..Settings::default()
        };
        let mut caller = HttpsCaller::new(settings);
        if cluster.insecure_skip_tls_verify {
            caller = caller.trusting_everybody();
        }
        Self::through(&caller, &config)
    }
}

/// The fields of a kubeconfig besides its users.
#[derive(Deserialize)]
struct Kubeconfig {
    #[serde(default, rename = "current-context")]
    current_context: String,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: ContextEntry,
}

#[derive(Deserialize)]
struct ContextEntry {
    cluster: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    server: String,
    #[serde(default, rename = "certificate-authority")]
    certificate_authority: String,
    #[serde(default, rename = "certificate-authority-data")]
    certificate_authority_data: String,
    #[serde(default, rename = "insecure-skip-tls-verify")]
    insecure_skip_tls_verify: bool,
}

impl Kubeconfig {
    fn current_cluster(&self) -> Result<&Cluster, ConfigError> {
        let mut contexts = self.contexts.iter();
        let context = contexts.find(|context| context.name == self.current_context);
        let name = context.map(|context| context.context.cluster.as_str());
        let mut clusters = self.clusters.iter();
        let cluster = clusters.find(|cluster| Some(cluster.name.as_str()) == name);
        let missing = || ConfigError(String::from("the current context names no cluster"));
        Ok(&cluster.ok_or_else(missing)?.cluster)
    }
}

impl std::fmt::Debug for HttpsBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpsBackend")
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest<'s> {
    kind: &'static str,
    api_version: &'static str,
    spec: &'s ImageReviewSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    api_version: String,
    kind: String,
    #[serde(default)]
    status: ImageReviewStatus,
}

impl Backend for HttpsBackend {
    fn review<'f>(
        &'f self,
        spec: &'f ImageReviewSpec,
    ) -> BoxFuture<'f, Result<ImageReviewStatus, BackendError>> {
        Box::pin(async move {
            let question = ReviewRequest {
                kind: "ImageReview",
                api_version: API_VERSION,
                spec,
            };
            let body = Bytes::from(lockgate_go::json::to_string(&question));
            let deadline = Some(Instant::now() + TIMEOUT);
            let posted = self.client.post(Post { body, deadline }).await;
            let answer = posted.result.map_err(|error| BackendError {
                message: error.message,
                retry: !error.timed_out,
            })?;
            if !(200..300).contains(&answer.code) {
                return Err(BackendError {
                    // UPSTREAM: apimachinery pkg/api/errors/errors.go (NewGenericServerResponse).
                    // The body of an error response is not a `Status` here, and is not reported.
                    message: match answer.code {
                        500.. => String::from(
                            "an error on the server (\"unknown\") has prevented the request from \
                             succeeding",
                        ),
                        404 => String::from("the server could not find the requested resource"),
                        _ => String::from("the server rejected our request for an unknown reason"),
                    },
                    // UPSTREAM: apiserver pkg/util/webhook/webhook.go (DefaultShouldRetry).
                    retry: matches!(answer.code, 429 | 500 | 503 | 504),
                });
            }
            read(&answer.body).map_err(|error| BackendError {
                message: error.to_string(),
                retry: false,
            })
        })
    }
}

/// A response that is not an `ImageReview`.
#[derive(Debug, thiserror::Error)]
enum ResponseError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("expected an ImageReview of {API_VERSION}, got kind `{kind}` of `{version}`")]
    Kind { kind: String, version: String },
}

fn read(body: &[u8]) -> Result<ImageReviewStatus, ResponseError> {
    let answer: ReviewResponse = serde_json::from_slice(body)?;
    if (answer.api_version.as_str(), answer.kind.as_str()) != (API_VERSION, "ImageReview") {
        let (version, kind) = (answer.api_version, answer.kind);
        return Err(ResponseError::Kind { kind, version });
    }
    Ok(answer.status)
}
