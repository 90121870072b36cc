//! Structural schemas of custom resources: what is kept, filled in and allowed.
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
//! | `schema`, `props` | reading a schema |
//! | `read` | an object as it comes in: metadata, pruning, nulls |
//! | `prune`, `defaults`, `metadata` | the parts of that |
//! | `validate`, `number`, `format` | values against schemas |
//! | `list_type` | sets and maps |
//! | `rules`, `field_path` | `x-kubernetes-validations` |
//! | `correlation` | values beside those they replace, for forgiving old errors |
//!
//! Depth is bounded by the schema, which is bounded when it is read; where an object goes on without
//! a schema, nothing here recurses.

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
    /// Why the object is refused, in upstream's order.
    pub errors: FieldErrors,
    /// Errors of rules that are forgiven because the object had them before.
    pub warnings: Vec<String>,
}

impl Schema {
    /// Checks a new custom resource.
    #[must_use]
    pub fn validate(&self, object: &Json) -> Findings {
        self.validate_with(object, FieldErrors::new(), FieldErrors::new())
    }

    /// Checks a custom resource that replaces another. Errors in parts that did not change are
    /// forgiven.
    #[must_use]
    pub fn validate_update(&self, object: &Json, old: &Json) -> Findings {
        self.validate_update_with(object, old, FieldErrors::new(), FieldErrors::new())
    }

    /// Checks the status of a custom resource that replaces another.
    #[must_use]
    pub fn validate_status_update(&self, object: &Json, old: &Json) -> Findings {
        self.validate_status_update_with(object, old, FieldErrors::new(), FieldErrors::new())
    }

    /// As [`Self::validate`], with errors found before and right after the schema is looked at.
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

    /// As [`Self::validate_update`], with errors found before and right after the schema is looked
    /// at.
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

    /// As [`Self::validate_status_update`], with errors found before and right after the schema is
    /// looked at.
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

    /// Lists that were no sets or maps before need not become some.
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

/// Returns true if the rules cannot run after this error, because types or sizes are not those of
/// the schema.
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
