//! `admissionregistration.k8s.io`: webhook configurations, admission policies and bindings.
//!
//! ```text
//!   v1::ValidatingWebhookConfiguration ─┐                    ┌─► defaults   (by version)
//!   v1::MutatingWebhookConfiguration   ─┤   one hub type     ├─► validation (by version, on create
//!   v1beta1::Validating…               ─┼─► Configuration ◄──┤               and on update)
//!   v1beta1::Mutating…                 ─┘                    └─► strategy   (generation, warnings)
//! ```
//!
//! Every version of the API has its own wire types. Defaults depend on the version; validation is
//! implemented once, for the hub type, to which each version converts without loss.

pub mod codec;
pub mod defaults;
pub mod hub;
pub mod policy;
pub mod strategy;
pub mod validation;
mod wire;

pub use hub::{Configuration, ConfigurationKind, Version, Webhook};
pub use wire::{v1, v1beta1};

/// The API group.
pub const GROUP: &str = "admissionregistration.k8s.io";
