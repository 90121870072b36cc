//! What the server does to an object around a write, kind by kind, and what it refuses.
//!
//! The order of a write, upstream's:
//!
//! ```text
//! decode ► defaults ► mutating admission ► prepare ► validate ► canonicalize ► validating admission ► store
//! ```
//!
//! By the time of `prepare`, name, uid, creation time and namespace are set. Not here: addresses and
//! ports of services, which need an allocator; scheduling of pods; tables.
//!
//! UPSTREAM: pkg/registry/*/*/strategy.go, apiserver pkg/registry/rest/{create,update}.go.

mod names;
mod pod;
mod prepare;
mod scale;
mod service;
#[cfg(test)]
mod tests;
mod validation;

use std::collections::BTreeMap;

use lockgate_api::meta::time::Time;

pub use names::name_rules;
pub use pod::{grace_period, quality_of_service};
pub use prepare::{canonicalize, prepare_create, prepare_update};
pub use scale::{apply_scale, scale_of, validate_scale};
pub use validation::{validate_create, validate_update, warnings_on_create};

/// What a strategy may ask about the request.
#[derive(Debug, Clone, Copy)]
pub struct Context<'r> {
    /// The time of the write.
    pub now: Time,
    /// Who writes; a signing request records it.
    pub requester: Requester<'r>,
}

/// Who sent a request.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'r> {
    /// The name of the user.
    pub name: &'r str,
    /// The uid of the user; may be empty.
    pub uid: &'r str,
    /// The groups of the user.
    pub groups: &'r [String],
    /// What the authenticator added.
    pub extra: &'r BTreeMap<String, Vec<String>>,
}
