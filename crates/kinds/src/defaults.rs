//! Defaulting: fields that the server sets when it decodes an object, before admission.
//!
//! Objects are in normal form ([`Type::decode`](crate::typed::Type::decode)) before and after. Besides actual
//! defaults, this performs the effects of upstream's round trip through its internal version: fields with two names
//! are synchronized, `stringData` is merged into `data`, obsolete annotations are dropped.
//!
//! UPSTREAM: pkg/apis/*/{defaults.go,zz_generated.defaults.go,conversion.go}.

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::resource::by_kind;

/// Applies the defaults of a built-in kind.
pub fn apply(group: &str, version: &str, kind: &str, value: &mut Value) {
    if let Some(resource) = by_kind(group, version, kind) {
        resource.rules.apply_defaults(value);
    }
}
