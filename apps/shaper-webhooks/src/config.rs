//! The configuration file.
//!
//! A YAML file, whose path is set by an environment variable, with the keys of the original and some more. All keys
//! have defaults.

mod duration;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use lockgate_api::document::yaml;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use duration::Span;

/// The environment variable with the path of the file.
pub const PATH_VARIABLE: &str = "SHAPER_WEBHOOK_CONFIG_PATH";

/// Values of `kubeconfigPath` that select the Pod's service account.
const IN_CLUSTER: [&str; 2] = ["in-cluster", ">>> Kubeconfig From Service Account"];

/// A configuration error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The environment variable is not set.
    #[error(
        "environment variable `{PATH_VARIABLE}` must be set to the path of the configuration file"
    )]
    Unset,
    /// It cannot be read.
    #[error("cannot read the configuration file `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It is not YAML.
    #[error("the configuration file `{path}` is not YAML: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error.
        message: String,
    },
    /// A value is of the wrong type or out of range.
    #[error("invalid configuration file `{path}`: {message}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The error.
        message: String,
    },
    /// There are unknown keys, and `strictUnknownKeys` is set.
    #[error("the configuration file `{path}` has unknown keys: {}", .keys.join(", "))]
    UnknownKeys {
        /// The file.
        path: PathBuf,
        /// The keys.
        keys: Vec<String>,
    },
}

/// The configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The namespace in which the data plane reads assignments, for `lookupScope: namespaces`.
    pub assignment_namespace: String,
    /// The namespace in which the data plane reads profiles, for `lookupScope: namespaces`.
    pub profile_namespace: String,
    /// `in-cluster`, or the path of a kubeconfig.
    pub kubeconfig_path: String,
    /// The scope of uniqueness checks.
    pub lookup_scope: LookupScope,
    /// Users who may choose the UUIDs of contents: the controller, which restores them.
    pub controller_users: Vec<String>,
    /// The handling of deletions of profiles in use.
    pub profile_deletion: ProfileDeletion,
    /// The server for reviews.
    pub webhook_server: WebhookServer,
    /// The server for probes.
    pub probes_server: ProbesServer,
    /// The server for metrics.
    pub metrics_server: MetricsServer,
    /// The log settings.
    pub logging: Logging,
    /// `true` if unknown keys are an error, not just logged.
    pub strict_unknown_keys: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            assignment_namespace: String::from("default"),
            profile_namespace: String::from("default"),
            kubeconfig_path: String::from("in-cluster"),
            lookup_scope: LookupScope::default(),
            controller_users: vec![String::from(
                "system:serviceaccount:shaper-system:shaper-controller",
            )],
            profile_deletion: ProfileDeletion::default(),
            webhook_server: WebhookServer::default(),
            probes_server: ProbesServer::default(),
            metrics_server: MetricsServer::default(),
            logging: Logging::default(),
            strict_unknown_keys: false,
        }
    }
}

/// The scope of uniqueness checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookupScope {
    /// The whole cluster, as the data plane does.
    #[default]
    Cluster,
    /// In `assignmentNamespace` and `profileNamespace` only.
    Namespaces,
}

/// The handling of deletions of profiles in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProfileDeletion {
    /// They are allowed.
    Allow,
    /// The user is warned.
    #[default]
    Warn,
    /// They are denied.
    Deny,
}

/// The server for reviews.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookServer {
    /// The listen address; empty for all addresses.
    pub host: String,
    /// The port; 0 selects a free one.
    pub port: u16,
    /// The directory of the certificate.
    pub cert_dir: PathBuf,
    /// The file name.
    pub cert_name: String,
    /// The file name of the key.
    pub key_name: String,
    /// The CA file for client certificates, in `certDir` unless absolute; empty if clients need no certificate.
    #[serde(rename = "clientCAName")]
    pub client_ca_name: String,
    /// Allowed names in client certificates; empty for any.
    pub client_subject_names: Vec<String>,
    /// A file with accepted bearer tokens; empty if none is needed.
    pub bearer_token_file: String,
    /// `true` if HTTP/2 is offered.
    pub http2: bool,
    /// The maximum size of a review.
    pub max_request_bytes: usize,
    /// The timeout of a review.
    pub request_timeout: Span,
    /// The maximum number of concurrent reviews per webhook.
    pub max_in_flight: usize,
    /// The time to keep serving after a stop signal.
    pub shutdown_delay: Span,
}

impl Default for WebhookServer {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: 9443,
            cert_dir: PathBuf::from("/tmp/k8s-webhook-server/serving-certs"),
            cert_name: String::from("tls.crt"),
            key_name: String::from("tls.key"),
            client_ca_name: String::new(),
            client_subject_names: Vec::new(),
            bearer_token_file: String::new(),
            http2: false,
            max_request_bytes: 7 << 20,
            request_timeout: Span::from_seconds(30),
            max_in_flight: 256,
            shutdown_delay: Span::from_seconds(10),
        }
    }
}

/// The server for probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbesServer {
    /// The port.
    pub port: u16,
    /// The path of the liveness probe.
    pub liveness_path: String,
    /// The path of the readiness probe.
    pub readiness_path: String,
}

impl Default for ProbesServer {
    fn default() -> Self {
        Self {
            port: 8081,
            liveness_path: String::from("/healthz"),
            readiness_path: String::from("/readyz"),
        }
    }
}

/// The server for metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsServer {
    /// The port.
    pub port: u16,
    /// The path.
    pub path: String,
}

impl Default for MetricsServer {
    fn default() -> Self {
        Self {
            port: 8080,
            path: String::from("/metrics"),
        }
    }
}

/// The log settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    /// The log level.
    pub level: Level,
    /// The log format.
    pub format: Format,
}

/// A log level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Errors.
    Error,
    /// Errors and warnings.
    Warn,
    /// The default level.
    #[default]
    Info,
    /// Debug events.
    Debug,
    /// All events.
    Trace,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON lines.
    #[default]
    Json,
    /// Human-readable lines.
    Text,
}

/// A configuration and its unknown keys.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Unknown keys.
    pub unknown_keys: Vec<String>,
}

impl Config {
    /// Loads the file at the path in the environment variable.
    ///
    /// # Errors
    ///
    /// Fails if the variable is not set, or the file is missing or invalid.
    pub fn load(path: Option<std::ffi::OsString>) -> Result<Loaded, ConfigError> {
        let path = path
            .filter(|path| !path.is_empty())
            .ok_or(ConfigError::Unset)?;
        Self::read(Path::new(&path))
    }

    /// Loads a file.
    ///
    /// # Errors
    ///
    /// Fails if the file is missing or invalid.
    pub fn read(path: &Path) -> Result<Loaded, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let document = yaml::parse(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            message: error.message,
        })?;
        let wrong = |message: String| ConfigError::Value {
            path: path.to_owned(),
            message,
        };
        let mut read: Value = serde_json::from_str(&document.root().to_json())
            .map_err(|error| wrong(error.to_string()))?;
        without_nulls(&mut read);
        // serde would accept a list as the fields of a struct in their order.
        if let Some(path) = listed(&read, &defaults(), "") {
            return Err(wrong(format!("{path}expected keys, found a list")));
        }
        let config: Self =
            serde_json::from_value(read.clone()).map_err(|error| wrong(error.to_string()))?;
        config.check().map_err(wrong)?;
        let mut unknown_keys = Vec::new();
        unknown(&read, &defaults(), "", &mut unknown_keys);
        if config.strict_unknown_keys && !unknown_keys.is_empty() {
            return Err(ConfigError::UnknownKeys {
                path: path.to_owned(),
                keys: unknown_keys,
            });
        }
        Ok(Loaded {
            config,
            unknown_keys,
        })
    }

    /// The listen address of the webhook server; the unspecified address by default.
    #[must_use]
    pub fn host(&self) -> IpAddr {
        let all = IpAddr::from([0, 0, 0, 0]);
        self.webhook_server.host.parse().unwrap_or(all)
    }

    /// The kubeconfig; `None` for the Pod's service account.
    #[must_use]
    pub fn kubeconfig(&self) -> Option<&str> {
        let path = self.kubeconfig_path.as_str();
        (!path.is_empty() && !IN_CLUSTER.contains(&path)).then_some(path)
    }

    fn check(&self) -> Result<(), String> {
        let server = &self.webhook_server;
        if !server.host.is_empty() && server.host.parse::<IpAddr>().is_err() {
            return Err(format!(
                "webhookServer.host: `{}` is no IP address",
                server.host
            ));
        }
        let paths = [
            (
                "probesServer.livenessPath",
                &self.probes_server.liveness_path,
            ),
            (
                "probesServer.readinessPath",
                &self.probes_server.readiness_path,
            ),
            ("metricsServer.path", &self.metrics_server.path),
        ];
        for (key, path) in paths {
            if !path.starts_with('/') {
                return Err(format!("{key}: `{path}` does not begin with `/`"));
            }
        }
        if !server.client_subject_names.is_empty() && server.client_ca_name.is_empty() {
            return Err(String::from(
                "webhookServer.clientSubjectNames: names are those of certificates, so webhookServer.clientCAName is needed",
            ));
        }
        for (key, count) in [
            ("webhookServer.maxRequestBytes", server.max_request_bytes),
            ("webhookServer.maxInFlight", server.max_in_flight),
        ] {
            if count == 0 {
                return Err(format!("{key}: 0 would let nothing through"));
            }
        }
        if server.request_timeout.is_zero() {
            return Err(String::from(
                "webhookServer.requestTimeout: a review needs some time",
            ));
        }
        Ok(())
    }
}

/// Removes fields that are `null`: a key without a value has its default. The parser limits the nesting.
fn without_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(without_nulls);
    }
    if value.is_null() {
        *value = Value::Object(serde_json::Map::new());
    }
}

fn defaults() -> Value {
    serde_json::to_value(Config::default()).unwrap_or_default()
}

/// Returns the path where `read` has a list and `known` has an object.
fn listed(read: &Value, known: &Value, path: &str) -> Option<String> {
    match (read, known) {
        (Value::Array(_), Value::Object(_)) if path.is_empty() => Some(String::new()),
        (Value::Array(_), Value::Object(_)) => Some(format!("{path}: ")),
        (Value::Object(read), Value::Object(known)) => read
            .iter()
            .find_map(|(key, value)| listed(value, known.get(key)?, key)),
        _ => None,
    }
}

/// Adds the paths of keys in `read` that are not in `known`.
fn unknown(read: &Value, known: &Value, path: &str, found: &mut Vec<String>) {
    let (Value::Object(read), Value::Object(known)) = (read, known) else {
        return;
    };
    for (key, value) in read {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        match known.get(key) {
            None => found.push(path),
            Some(known) => unknown(value, known, &path, found),
        }
    }
}

#[cfg(test)]
mod tests;
