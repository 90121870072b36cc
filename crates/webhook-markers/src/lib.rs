//! Registration markers beside the code of a webhook.
//!
//! ```text
//!   #[webhook(…)] impl Validator<K> for T ──► attribute ─┐
//!                                                        ├─► Marker
//!   // +kubebuilder:webhook:…             ──► comment ───┘
//!   #[conversion(…)] impl Hub for T       ──► attribute ─┐
//!                                                        ├─► ConversionMarker
//!   // +lockgate:conversion:…             ──► comment ───┘
//! ```
//!
//! The attribute macro reads tokens from the compiler, the command `lockgate manifests` reads them
//! from files; both use this parser, so that they always agree. This crate is built with every program that uses the
//! attribute, so it has few dependencies and no wire types.

#![warn(missing_docs)]

pub mod attribute;
pub mod comment;
pub mod source;

mod check;
mod selector;
mod words;

pub use selector::{Expression, Selector};
pub use words::nearest;

/// The kind of a webhook: mutating or validating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// It may mutate objects.
    Mutating,
    /// It may not.
    #[default]
    Validating,
}

/// The registration of one webhook. Values have the spelling of the API; absent settings are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marker {
    /// Mutating or validating.
    pub role: Role,
    /// Its name, a domain.
    pub name: String,
    /// The path it is served at.
    pub path: Option<String>,
    /// Further paths it is served at.
    pub aliases: Vec<Alias>,
    /// A fixed URL.
    pub url: Option<String>,
    /// The Service of the webhook.
    pub service: Service,
    /// API groups; the core group is empty.
    pub groups: Option<Vec<String>>,
    /// API versions.
    pub versions: Option<Vec<String>>,
    /// Resources.
    pub resources: Option<Vec<String>>,
    /// `Cluster`, `Namespaced` or `*`.
    pub scope: Option<String>,
    /// `CREATE` and so on.
    pub verbs: Vec<String>,
    /// `Fail` or `Ignore`.
    pub failure_policy: Option<String>,
    /// `Exact` or `Equivalent`.
    pub match_policy: Option<String>,
    /// `None` or `NoneOnDryRun`.
    pub side_effects: Option<String>,
    /// `Never` or `IfNeeded`.
    pub reinvocation_policy: Option<String>,
    /// From 1 to 30.
    pub timeout_seconds: Option<i32>,
    /// Versions of reviews, the preferred first.
    pub admission_review_versions: Option<Vec<String>>,
    /// The namespaces it is called for.
    pub namespace_selector: Option<Selector>,
    /// The objects it is called for.
    pub object_selector: Option<Selector>,
    /// Names and expressions, all of which must be true.
    pub match_conditions: Vec<(String, String)>,
}

/// The conversion webhook of a custom resource: the `conversion` of its CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversionMarker {
    /// The API group; `None` if the source does not contain it.
    pub group: Option<String>,
    /// The plural of the kind.
    pub resource: String,
    /// The path it is served at.
    pub path: Option<String>,
    /// A fixed URL.
    pub url: Option<String>,
    /// The Service of the webhook.
    pub service: Service,
    /// Versions of ConversionReviews, the preferred first.
    pub review_versions: Option<Vec<String>>,
}

/// Another path of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alias {
    /// A given path.
    Path(String),
    /// The path from the verb and the kind, as in `/validate-pod`.
    Logical,
}

/// The Service of a webhook, as far as the marker specifies it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// Its name.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its port.
    pub port: Option<i32>,
}
