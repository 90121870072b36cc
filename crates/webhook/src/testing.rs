//! The test kit for webhooks: reviews, assertions, fixture directories, a server with its own certificates.
//!
//! Nothing here is simulated: a [`Review`] is encoded as by the API server, handled as by the server, and its patch is
//! applied to the original object. The crate `lockgate-webhook-test` adds an entire API server.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use lockgate_webhook::testing::Review;
//! use lockgate_webhook::{Context, Mutator, Operation, Registration, Verdict, Webhooks, mutating};
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
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let webhooks = Webhooks::new().with(
//!     Registration::mutating("owner.example.com").path("/owner"),
//!     mutating::<ConfigMap, _>(Owned),
//! );
//! let outcome = Review::create("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
//!     .user("jane")
//!     .ask(&webhooks, "/owner")
//!     .await;
//! outcome
//!     .accepts()
//!     .patches_to("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {owner: jane}}}");
//! outcome.idempotent().await;
//! outcome.preserves_unknown_fields().await;
//! # }
//! ```

#![expect(
    clippy::panic,
    reason = "a statement of a test that does not hold ends the test"
)]

mod apply;
mod authority;
mod conversion;
mod fixtures;
mod outcome;
mod review;
mod serve;

pub use apply::{PatchError, apply};
pub use authority::Authority;
pub use conversion::{ConversionOutcome, ConversionReview, round_trips};
pub use fixtures::run_fixtures;
pub use outcome::Outcome;
pub use review::Review;
pub use serve::{Served, serve, serve_with};

use lockgate_api::document::{SyntaxError, yaml};
use serde_json::Value;

/// Text that is neither YAML nor JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A syntax error.
    #[error(transparent)]
    Yaml(#[from] SyntaxError),
    /// A number is out of range.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Parses YAML or JSON.
///
/// # Errors
///
/// Fails if the text is neither.
pub fn read(text: &str) -> Result<Value, ReadError> {
    let document = yaml::parse(text)?;
    let text = document.root().to_json();
    Ok(serde_json::from_str(&text)?)
}
