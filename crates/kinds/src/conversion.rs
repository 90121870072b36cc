//! Conversion of built-in kinds between served versions.
//!
//! Objects are in normal form before and after. Kinds with identical versions only change their `apiVersion`.

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::object::text;
use crate::resource::{Resource, by_kind, resources};
use crate::tree;
use crate::typed::{DecodeError, type_of};

/// A conversion error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The value is not an object.
    #[error("an object is needed")]
    NotAnObject,
    /// There is no conversion between these versions.
    #[error("no conversion of {kind} from `{from}` to `{to}`")]
    Unknown {
        /// The kind.
        kind: String,
        /// The `apiVersion` of the object.
        from: String,
        /// The requested `apiVersion`.
        to: String,
    },
    /// The object does not match its kind.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Converts an object, whose `apiVersion` and `kind` are set, to another version of its kind.
///
/// # Errors
///
/// There is no conversion between the two versions.
pub fn convert(value: &Value, to_group: &str, to_version: &str) -> Result<Value, ConvertError> {
    let object = value.as_object().ok_or(ConvertError::NotAnObject)?;
    let (api_version, kind) = (text(object, "apiVersion"), text(object, "kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if (group, version) == (to_group, to_version) {
        return Ok(tree::copy(value));
    }
    let refused = || ConvertError::Unknown {
        kind: kind.to_owned(),
        from: api_version.to_owned(),
        to: format!("{to_group}/{to_version}"),
    };
    let from = by_kind(group, version, kind).ok_or_else(refused)?;
    let to = by_kind(to_group, to_version, kind).ok_or_else(refused)?;
    if from.storage != to.storage {
        return Err(refused());
    }
    let Value::Object(mut out) = tree::copy(value) else {
        return Err(refused());
    };
    to.rules.convert(&mut out, to);
    out.insert("apiVersion".to_owned(), Value::String(to.api_version()));
    let ty = type_of(to_group, to_version, kind).ok_or_else(refused)?;
    Ok(ty.decode_value(&Value::Object(out))?.value)
}

/// The other versions in which objects of a resource are served.
pub fn equivalents(resource: &Resource) -> impl Iterator<Item = &'static Resource> {
    let storage = resource.storage;
    let own = (resource.group, resource.version);
    resources().filter(move |other| other.storage == storage && (other.group, other.version) != own)
}
