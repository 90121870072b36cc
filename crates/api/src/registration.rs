//! `admissionregistration.k8s.io`: the objects that register webhooks.
//!
//! ```text
//!   v1::ValidatingWebhookConfiguration ─┐                    ┌─► defaults   (by version)
//!   v1::MutatingWebhookConfiguration   ─┤   one hub type     ├─► validation (by version, on create
//!   v1beta1::Validating…               ─┼─► Configuration ◄──┤               and on update)
//!   v1beta1::Mutating…                 ─┘                    └─► strategy   (generation, warnings)
//! ```
//!
//! Every version of the API is a set of wire types that say exactly what is read and written. All
//! rules are written once, on the hub, to and from which each version converts without loss.

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
