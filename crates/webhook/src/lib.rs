//! A framework for Kubernetes admission and conversion webhooks.
//!
//! ```text
//!   POST /path ──► review ──► Context ──► Handler ──► Response ──► review
//!                 (uid is      (facts)      ▲         (patch made here)
//!                  never lost)              │
//!                       Validator<K> ── validating      Mutator<K> ── mutating
//! ```
//!
//! A [`Validator`] or [`Mutator`] gets typed objects and returns its decision; the framework implements the protocol:
//! decoding, denials with causes, minimal patches that preserve unknown fields, the version and uid of the response.
//! [`Handler`] is the untyped form of both. A [`Conversion`] converts custom resources between versions, each a type.
//!
//! The module `server` serves webhooks, and `testing` supports their tests; both are features of the same
//! name, and `server` is enabled by default.
//!
//! A [`Denial`] is a response; a [`Fault`] is an error without a decision, to which the `failurePolicy` of the
//! registration applies.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use lockgate_webhook::{Context, Denial, Mutator, Object, Validator, Verdict};
//!
//! struct Owned;
//!
//! impl Mutator<ConfigMap> for Owned {
//!     async fn mutate(&self, ctx: &Context, object: &mut ConfigMap) -> Verdict {
//!         let labels = object.metadata.labels.get_or_insert_default();
//!         labels.entry("owner".into()).or_insert_with(|| ctx.user().username.clone());
//!         Ok(())
//!     }
//! }
//!
//! impl Validator<ConfigMap> for Owned {
//!     async fn update(&self, _: &Context, old: &Object<ConfigMap>, new: &Object<ConfigMap>) -> Verdict {
//!         if old.metadata.labels != new.metadata.labels {
//!             return Err(Denial::forbidden("labels stay as they are").into());
//!         }
//!         Ok(())
//!     }
//! }
//! ```

#![warn(missing_docs)]

// The wire format.
mod review;

// The request and the response.
mod context;
mod denial;
mod object;
mod response;

// The traits that authors implement.
mod chain;
mod guard;
mod handler;
mod mutate;
mod validate;

// Computes patches from changed objects.
pub mod patch;

// Conversion of custom resources.
mod conversion;

// Registrations and manifests.
mod manifest;
mod registration;
mod webhooks;

// The server and the test kit.
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "testing")]
pub mod testing;

pub use lockgate_api::admission::{
    GroupVersionKind, GroupVersionResource, ReviewVersion, UserInfo,
};
pub use lockgate_api::field;

pub use chain::{Mutators, Validators};
pub use context::{Context, Operation};
pub use conversion::{
    Conversion, ConversionOf, ConversionRegistration, Converted, ConvertedObjects, Hub, MarkedHub,
    Spoke,
};
pub use denial::{Denial, Fault, FieldErrors, Refusal, Verdict};
pub use guard::{Guard, Guarded};
pub use handler::{BoxFuture, Handler, HandlerFn, from_fn};
#[cfg(feature = "macros")]
pub use lockgate_webhook_macros::{conversion, webhook};
pub use manifest::{Invalid, ManifestOptions, Manifests};
pub use mutate::{Mutator, mutating};
pub use object::{MAX_DEPTH, Object};
pub use registration::{
    FailurePolicy, Marked, MatchPolicy, Mutates, Registration, ReinvocationPolicy, Role, Rule,
    Scope, SideEffects, Validates, default_path, logical_path,
};
pub use response::Response;
pub use review::{Answered, ReviewError, answer};
pub use validate::{Validator, validating};
pub use webhooks::{Conversions, Webhook, Webhooks};

/// Support for the attribute's output; not public API.
#[doc(hidden)]
pub mod __private {
    pub use crate::conversion::group_of;
    pub use crate::registration::selector;
    #[cfg(feature = "kube")]
    pub use crate::registration::{Kind, Scoped, kind_of};
}
