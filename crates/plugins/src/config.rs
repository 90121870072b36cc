//! Configuration files: YAML, or JSON, which is YAML too.

use lockgate_api::document::yaml;
use lockgate_go::quote::quote;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An invalid configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

/// Parses the configuration of a plugin.
///
/// # Errors
///
/// Fails if the text is not YAML, or not a `T`; the error contains the location.
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

/// The allowed fields of a configuration object; fields that are objects or lists of objects have their own.
pub(crate) struct Known(pub(crate) &'static [(&'static str, Option<&'static Self>)]);

/// Parses a configuration with apiVersion and kind; unknown fields are errors.
pub(crate) fn read_strict<T: DeserializeOwned>(
    text: &str,
    versions: &[&str],
    kind: &str,
    known: &Known,
) -> Result<T, ConfigError> {
    let value: Value = read(text)?;
    let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, found) = (member("apiVersion"), member("kind"));
    if !versions.contains(&version) || found != kind {
        return Err(ConfigError(format!(
            "no kind {} is registered for version {}",
            quote(found),
            quote(version)
        )));
    }
    let mut unknown = Vec::new();
    find_unknown(&value, known, "", &mut unknown);
    if !unknown.is_empty() {
        let all: Vec<String> = unknown
            .iter()
            .map(|path| format!("unknown field {}", quote(path)))
            .collect();
        let message = format!("strict decoding error: {}", all.join(", "));
        return Err(ConfigError(message));
    }
    serde_json::from_value(value).map_err(|error| ConfigError(error.to_string()))
}

fn find_unknown(value: &Value, known: &Known, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                let is_head = matches!(path.as_str(), "apiVersion" | "kind");
                match known.0.iter().find(|(known, _)| known == name) {
                    Some((_, Some(inner))) => find_unknown(value, inner, &path, unknown),
                    Some((_, None)) => {}
                    None if is_head => {}
                    None => unknown.push(path),
                }
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                find_unknown(item, known, &format!("{path}[{n}]"), unknown);
            }
        }
        _ => {}
    }
}
