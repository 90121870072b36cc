//! Configuration files: YAML, or JSON, which is YAML too.

use lockgate_api::document::yaml;
use serde::de::DeserializeOwned;

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

/// Reads the configuration of a plugin.
///
/// # Errors
///
/// The text is not YAML, or not a `T`; the error says where.
///
/// ```
/// use lockgate_plugins::config;
/// use lockgate_plugins::event_rate_limit::Configuration;
///
/// let limits: Configuration = config::read("
/// apiVersion: eventratelimit.admission.k8s.io/v1alpha1
/// kind: Configuration
/// limits:
/// - {type: Namespace, qps: 50, burst: 100}
/// ")?;
/// # Ok::<(), lockgate_plugins::config::ConfigError>(())
/// ```
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    let document = yaml::parse(text).map_err(|error| ConfigError(error.to_string()))?;
    let json = document.root().to_json();
    serde_json::from_str(&json).map_err(|error| ConfigError(error.to_string()))
}
