//! Structural schemas of custom resources: pruning, defaulting and validation.
//!
//! ```
//! use lockgate_kinds::structural::{Schema, Source};
//! let schema = Schema::parse(&serde_json::json!({
//!     "type": "object",
//!     "properties": { "spec": {
//!         "type": "object",
//!         "properties": { "size": { "type": "integer" } },
//!         "x-kubernetes-validations": [
//!             { "rule": "self.size < oldSelf.size", "message": "must shrink" },
//!         ],
//!     } },
//! })).unwrap();
//! let mut new = serde_json::json!({ "metadata": { "name": "a" }, "spec": { "size": 2, "x": 1 } });
//! assert_eq!(schema.read(&mut new, Source::Request).unwrap(), ["spec.x"]);
//! let old = serde_json::json!({ "metadata": { "name": "a" }, "spec": { "size": 1 } });
//! let found = schema.validate_update(&new, &old);
//! assert_eq!(found.errors[0].to_string(), "spec: Invalid value: must shrink");
//! ```
//!
//! # Map
//!
//! | module | is responsible for |
//! |---|---|
//! | `schema`, `props` | parsing schemas |
//! | `read` | decoding objects: metadata, pruning, nulls |
//! | `prune`, `defaults`, `metadata` | the stages of decoding |
//! | `validate`, `number`, `format` | validating values |
//! | `list_type` | uniqueness in sets and maps |
//! | `rules`, `field_path` | `x-kubernetes-validations` |
//! | `correlation` | correlation of old and new values, for ratcheting |
//!
//! Recursion is bounded by the depth of the schema, which is checked when it is parsed; values without a schema are
//! traversed iteratively.

pub(crate) mod correlation;
pub(crate) mod defaults;
pub(crate) mod error;
pub(crate) mod field_path;
pub(crate) mod format;
pub(crate) mod json;
mod list_type;
pub(crate) mod metadata;
mod number;
pub(crate) mod path;
pub(crate) mod props;
mod prune;
mod read;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod validate;

use serde_json::Value as Json;

use lockgate_api::field::{ErrorType, FieldError, FieldErrors};

use correlation::Correlation;
use path::Path;

pub use read::{ReadError, Source};
pub use schema::{Schema, SchemaError};

/// The result of validating a custom resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The validation errors, in upstream's order.
    pub errors: FieldErrors,
    /// Errors of validation rules that are ratcheted, because the old object has them, too.
    pub warnings: Vec<String>,
}

impl Schema {
    /// Validates a new custom resource.
    #[must_use]
    pub fn validate(&self, object: &Json) -> Findings {
        self.validate_with(object, FieldErrors::new(), FieldErrors::new())
    }

    /// Validates an update of a custom resource. Errors in unchanged parts are ratcheted.
    #[must_use]
    pub fn validate_update(&self, object: &Json, old: &Json) -> Findings {
        self.validate_update_with(object, old, FieldErrors::new(), FieldErrors::new())
    }

    /// Validates a status update of a custom resource.
    #[must_use]
    pub fn validate_status_update(&self, object: &Json, old: &Json) -> Findings {
        self.validate_status_update_with(object, old, FieldErrors::new(), FieldErrors::new())
    }

    /// Like [`Self::validate`], with additional errors before and after those of the schema.
    pub(crate) fn validate_with(
        &self,
        object: &Json,
        before: FieldErrors,
        after: FieldErrors,
    ) -> Findings {
        let mut errors = before;
        errors.extend(validate::validate(&self.root, object, None));
        errors.extend(after);
        metadata::validate(&self.root, object, &Path::ROOT, &mut errors);
        list_type::validate(&self.root, object, &Path::ROOT, &mut errors);
        self.run_rules(errors, object, None)
    }

    /// Like [`Self::validate_update`], with additional errors before and after those of the schema.
    pub(crate) fn validate_update_with(
        &self,
        object: &Json,
        old: &Json,
        before: FieldErrors,
        after: FieldErrors,
    ) -> Findings {
        let correlation = Correlation::new(&self.root, object, old);
        let mut errors = before;
        errors.extend(validate::validate_update(&self.root, &correlation, None));
        errors.extend(after);
        metadata::validate(&self.root, object, &Path::ROOT, &mut errors);
        self.validate_lists(object, old, &mut errors);
        self.run_rules(errors, object, Some((old, &correlation)))
    }

    /// Like [`Self::validate_status_update`], with additional errors before and after those of the schema.
    pub(crate) fn validate_status_update_with(
        &self,
        object: &Json,
        old: &Json,
        before: FieldErrors,
        after: FieldErrors,
    ) -> Findings {
        let correlation = Correlation::new(&self.root, object, old);
        let mut errors = before;
        if let (Some(status), Some(schema)) = (object.get("status"), self.property("status")) {
            errors.extend(match correlation.key("status") {
                Some(correlation) => {
                    validate::validate_update(schema, &correlation, Some("status"))
                }
                None => {
                    let old = old.get("status").unwrap_or(&Json::Null);
                    let correlation = Correlation::new(schema, status, old);
                    validate::validate_update(schema, &correlation, Some("status"))
                }
            });
        }
        errors.extend(after);
        self.validate_lists(object, old, &mut errors);
        self.run_rules(errors, object, Some((old, &correlation)))
    }

    /// Validates list types, unless the old object violates them already.
    fn validate_lists(&self, object: &Json, old: &Json, errors: &mut FieldErrors) {
        let mut found = FieldErrors::new();
        list_type::validate(&self.root, object, &Path::ROOT, &mut found);
        if found.is_empty() {
            return;
        }
        let mut before = FieldErrors::new();
        list_type::validate(&self.root, old, &Path::ROOT, &mut before);
        if before.is_empty() {
            errors.extend(found);
        }
    }

    fn run_rules(
        &self,
        mut errors: FieldErrors,
        object: &Json,
        old: Option<(&Json, &Correlation<'_>)>,
    ) -> Findings {
        if !self.root.has_rules {
            return Findings {
                errors,
                warnings: Vec::new(),
            };
        }
        if errors.iter().any(blocks_rules) {
            errors.push(error::invalid(
                &Path::ROOT,
                "null",
                "some validation rules were not checked because the object was invalid; correct \
                 the existing errors to complete validation",
            ));
            return Findings {
                errors,
                warnings: Vec::new(),
            };
        }
        let (old, correlation) = old.unzip();
        let outcome = rules::run_object(&self.root, object, old, correlation);
        errors.extend(outcome.errors);
        Findings {
            errors,
            warnings: outcome.warnings,
        }
    }
}

/// Returns true for an error after which validation rules cannot run, because types or sizes differ from the schema.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.error_type,
        ErrorType::NotSupported
            | ErrorType::Required
            | ErrorType::TooLong
            | ErrorType::TooMany
            | ErrorType::TypeInvalid
    )
}
