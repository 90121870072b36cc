//! Field management: `metadata.managedFields` and server-side apply.
//!
//! Every write goes through a [`FieldManager`]: [`update`](FieldManager::update) for create, update and patch, and
//! [`apply`](FieldManager::apply) for server-side apply. It performs no I/O, does not apply defaults, and is
//! stateless.
//!
//! ```
//! use lockgate_api::meta::time::Time;
//! use lockgate_kinds::managed_fields::{FieldManager, OneVersion, Shape};
//! use lockgate_kinds::typed;
//! use serde_json::json;
//!
//! let config_maps = FieldManager {
//!     shape: Shape::BuiltIn(typed::type_of("", "v1", "ConfigMap").unwrap()),
//!     api_version: "v1",
//!     kind: "ConfigMap",
//!     subresource: "",
//!     reset: None,
//!     versions: &OneVersion,
//! };
//! let object = |value: &str| json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "k": value },
//! });
//! let now = Time::from_unix_seconds(0);
//! let live = config_maps.update(None, object("v"), "curl", now);
//! let entry = &live["metadata"]["managedFields"][0];
//! assert_eq!(entry["fieldsV1"], json!({ "f:data": { ".": {}, "f:k": {} } }));
//! let error = config_maps.apply(Some(&live), &object("w"), "me", false, now).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "Apply failed with 1 conflict: conflict with \"curl\" using v1: .data.k",
//! );
//! ```
//!
//! # Map
//!
//! | module | is responsible for |
//! |---|---|
//! | `element`, `field_set` | sets of fields, and `FieldsV1` |
//! | `shape` | granular and atomic fields of an object, by tables or by schema |
//! | `value` | equality of values |
//! | `validate`, `compare`, `merge`, `remove` | operations on objects with a shape |
//! | `reconcile` | managed fields after a schema change |
//! | `managers` | decoding and encoding of managed fields |
//! | `update`, `apply` | the two operations |
//! | `configuration` | apply configurations of mutating policies, which are not tracked |
//! | `scale` | managed fields of the subresource `scale` |
//! | `guard` | invalid managed fields after admission, and no-op writes |
//!
//! Traversal is recursive, so objects nested deeper than [`MAX_DEPTH`] are not tracked.

mod apply;
mod compare;
mod configuration;
mod element;
mod field_set;
mod guard;
mod managers;
mod merge;
mod reconcile;
mod remove;
mod scale;
mod shape;
#[cfg(test)]
mod tests;
mod update;
mod validate;
mod value;

use std::fmt;

use serde_json::Value;

pub use apply::{ApplyError, ConflictCause};
pub use configuration::{ConfigurationError, merge_configuration};
pub use element::Element;
pub use field_set::{FieldSet, FieldSetError};
pub use guard::{check, ignore_timestamp_only_change, restore_after_admission};
pub use managers::ManagedFieldsError;
pub use scale::ScalePaths;
pub use shape::Shape;
pub use update::Managed;

/// The maximum depth of objects with managed fields. Upstream has no separate limit and accepts 10,000 levels; real
/// objects have fewer than 100.
pub const MAX_DEPTH: usize = 300;

/// Managed fields nest this much deeper than their object.
const SLACK: usize = 16;

const TOO_DEEP: &str = "the object is nested too deeply to track its fields";

/// Tracks the field managers of objects of one kind, in one version.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The shape of the object in this version.
    pub shape: Shape<'a>,
    /// The `apiVersion` of the request: `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The subresource of the request; empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this endpoint resets.
    pub reset: Option<&'a Reset>,
    /// The other versions of the kind.
    pub versions: &'a dyn Versions,
}

impl fmt::Debug for FieldManager<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldManager")
            .field("api_version", &self.api_version)
            .field("kind", &self.kind)
            .field("subresource", &self.subresource)
            .finish_non_exhaustive()
    }
}

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The other versions of a kind: managed fields name fields in the version of their write.
pub trait Versions {
    /// The shape of the object in a version; `None` if the version is unknown.
    fn shape(&self, api_version: &str) -> Option<Shape<'_>>;

    /// Converts the object to another version; `None` if that version is unknown.
    ///
    /// # Errors
    ///
    /// The object cannot be converted.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Option<Value>, BoxError>;

    /// Fields that the endpoint resets, in another version.
    fn reset(&self, api_version: &str) -> Option<&Reset>;
}

/// A kind with one version. Managed fields in any other version are dropped.
#[derive(Debug, Clone, Copy)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn shape(&self, _: &str) -> Option<Shape<'_>> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Result<Option<Value>, BoxError> {
        Ok(None)
    }

    fn reset(&self, _: &str) -> Option<&Reset> {
        None
    }
}

/// Fields that an endpoint resets, which are therefore never owned.
#[derive(Debug, Clone)]
pub enum Reset {
    /// These fields, and all nested fields.
    Fields(FieldSet),
    /// All fields except those at these paths, including nested ones. `None` matches any path element.
    AllBut(Vec<Vec<Option<Element>>>),
}

impl Reset {
    fn filter(&self, fields: FieldSet) -> FieldSet {
        match self {
            Self::Fields(reset) => fields.recursive_difference(reset),
            Self::AllBut(paths) => {
                let paths: Vec<_> = paths.iter().map(Vec::as_slice).collect();
                fields.restricted_to(&paths)
            }
        }
    }
}

/// An error about an object, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Problem(String);

impl Problem {
    fn if_too_deep(object: &Value) -> Result<(), Self> {
        if value::is_within(object, MAX_DEPTH + SLACK) {
            return Ok(());
        }
        Err(Self(String::from(TOO_DEEP)))
    }

    /// Prefixes the message with the failed operation.
    fn of(what: impl fmt::Display) -> impl FnOnce(Self) -> Self {
        move |problem| Self(format!("{what}: {}", problem.0))
    }
}
