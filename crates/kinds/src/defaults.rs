//! Defaulting: members the server fills in when it decodes an object, before admission.
//!
//! Objects come in normal form ([`Type::decode`](crate::typed::Type::decode)) and leave in it. Besides
//! the defaults proper, this does what upstream's round trip through its internal version does: members
//! that say the same under two names agree, `stringData` becomes `data`, retired annotations are
//! dropped.
//!
//! UPSTREAM: pkg/apis/*/{defaults.go,zz_generated.defaults.go,conversion.go}.

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::resource::by_kind;

/// Fills in the defaults of a built-in kind.
pub fn apply(group: &str, version: &str, kind: &str, value: &mut Value) {
    if let Some(resource) = by_kind(group, version, kind) {
        resource.rules.apply_defaults(value);
    }
}
