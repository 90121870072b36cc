//! Converts between documents and the hub: identifies kind and version, decodes with the version's
//! defaults, and encodes hub objects in either version.

use super::GROUP;
use super::hub::{Configuration, ConfigurationKind, Version};
use super::{v1, v1beta1};
use crate::decode::{DecodeError, Decoded, WireStruct, decode_value};
use crate::document::Value;

impl ConfigurationKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Validating, Self::Mutating];
}

/// The kind and version of a document, if it is a webhook configuration.
#[must_use]
pub fn identify(api_version: &str, kind: &str) -> Option<(ConfigurationKind, Version)> {
    let version = match api_version.strip_prefix(GROUP)?.strip_prefix('/')? {
        "v1" => Version::V1,
        "v1beta1" => Version::V1beta1,
        _ => return None,
    };
    let kind = ConfigurationKind::ALL
        .into_iter()
        .find(|known| known.name() == kind)?;
    Some((kind, version))
}

/// Decodes a configuration and applies the defaults of its version.
///
/// # Errors
///
/// The first field with a type mismatch.
pub fn decode(
    value: Value<'_>,
    kind: ConfigurationKind,
    version: Version,
) -> Result<Decoded<Configuration>, DecodeError> {
    let mut decoded = decode_without_defaults(value, kind, version)?;
    decoded.value.apply_defaults(version);
    Ok(decoded)
}

/// Decodes a configuration without defaults.
///
/// # Errors
///
/// The first field with a type mismatch.
pub fn decode_without_defaults(
    value: Value<'_>,
    kind: ConfigurationKind,
    version: Version,
) -> Result<Decoded<Configuration>, DecodeError> {
    match (kind, version) {
        (ConfigurationKind::Validating, Version::V1) => {
            decode_as::<v1::ValidatingWebhookConfiguration>(value)
        }
        (ConfigurationKind::Mutating, Version::V1) => {
            decode_as::<v1::MutatingWebhookConfiguration>(value)
        }
        (ConfigurationKind::Validating, Version::V1beta1) => {
            decode_as::<v1beta1::ValidatingWebhookConfiguration>(value)
        }
        (ConfigurationKind::Mutating, Version::V1beta1) => {
            decode_as::<v1beta1::MutatingWebhookConfiguration>(value)
        }
    }
}

fn decode_as<T>(value: Value<'_>) -> Result<Decoded<Configuration>, DecodeError>
where
    T: WireStruct + Default + Into<Configuration>,
{
    let Decoded { value, findings } = decode_value::<T>(value)?;
    Ok(Decoded {
        value: value.into(),
        findings,
    })
}

/// Encodes a configuration as JSON in `version`.
#[must_use]
pub fn to_json(configuration: Configuration, version: Version) -> serde_json::Value {
    let json = match (configuration.kind, version) {
        (ConfigurationKind::Validating, Version::V1) => {
            serde_json::to_value(v1::ValidatingWebhookConfiguration::from(configuration))
        }
        (ConfigurationKind::Mutating, Version::V1) => {
            serde_json::to_value(v1::MutatingWebhookConfiguration::from(configuration))
        }
        (ConfigurationKind::Validating, Version::V1beta1) => {
            serde_json::to_value(v1beta1::ValidatingWebhookConfiguration::from(configuration))
        }
        (ConfigurationKind::Mutating, Version::V1beta1) => {
            serde_json::to_value(v1beta1::MutatingWebhookConfiguration::from(configuration))
        }
    };
    // Raw JSON was parsed when it was decoded.
    json.expect("a configuration has no value that JSON cannot hold")
}
