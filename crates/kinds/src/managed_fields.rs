//! Field management: `metadata.managedFields` and server-side apply.
//!
//! Every write goes through a [`FieldManager`]: [`update`](FieldManager::update) for those that
//! create, replace or patch an object, [`apply`](FieldManager::apply) for those that say which fields
//! they want to own. Nothing here performs I/O, fills in defaults or keeps a state.
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
//! | `shape` | which parts of an object have one owner, by tables or by schema |
//! | `value` | when values are the same |
//! | `validate`, `compare`, `merge`, `remove` | objects under a shape |
//! | `reconcile` | owned fields after a change of schema |
//! | `owners` | the list of owners, read and written |
//! | `update`, `apply` | the two ways of writing |
//! | `configuration` | what mutating policies merge, which nobody owns |
//! | `scale` | owners seen through `scale` |
//! | `guard` | lists that others made, and writes that change nothing |
//!
//! Walks over objects recurse, so objects that nest deeper than [`MAX_DEPTH`] are not tracked.

mod apply;
mod compare;
mod configuration;
mod element;
mod field_set;
mod guard;
mod merge;
mod owners;
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
pub use owners::ManagedFieldsError;
pub use scale::ScalePaths;
pub use shape::Shape;
pub use update::Managed;

/// The maximum depth of objects with managed fields. Upstream has no separate limit and accepts 10,000 levels; real
/// objects have fewer than 100.
pub const MAX_DEPTH: usize = 300;

/// Lists of owners are this much deeper than the objects they are in.
const SLACK: usize = 16;

const TOO_DEEP: &str = "the object is nested too deeply to track its fields";

/// Tracks the owners of the fields of one kind of object, in one version.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The shape of the object in this version.
    pub shape: Shape<'a>,
    /// The version of the request, as objects spell it: `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The subresource of the request; empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this endpoint does not let clients set.
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

/// The other versions of a kind: owners name fields in the version they wrote in.
pub trait Versions {
    /// The shape of the object in a version; `None` if the version is unknown.
    fn shape(&self, api_version: &str) -> Option<Shape<'_>>;

    /// The object in another version; nothing if that version is not known.
    ///
    /// # Errors
    ///
    /// The object cannot be converted.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Option<Value>, BoxError>;

    /// Fields that the endpoint does not let clients set, in another version.
    fn reset(&self, api_version: &str) -> Option<&Reset>;
}

/// A kind with one version. Owners in any other are forgotten.
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

/// Fields that an endpoint does not let clients set, and that they therefore never own.
#[derive(Debug, Clone)]
pub enum Reset {
    /// These, and all below them.
    Fields(FieldSet),
    /// All but those that a path leads to, and all below those. A step of `None` is any step.
    AllBut(Vec<Vec<Option<Element>>>),
}

impl Reset {
    fn filter(&self, fields: FieldSet) -> FieldSet {
        match self {
            Self::Fields(reset) => fields.recursive_difference(reset),
            Self::AllBut(paths) => {
                let paths: Vec<_> = paths.iter().map(Vec::as_slice).collect();
                fields.only(&paths)
            }
        }
    }
}

/// An error about an object, in upstream's words.
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

    /// Prefixes the problem with the operation that failed.
    fn of(what: impl fmt::Display) -> impl FnOnce(Self) -> Self {
        move |problem| Self(format!("{what}: {}", problem.0))
    }
}
