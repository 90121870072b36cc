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
//! from files; both read here, so that they cannot disagree. This crate builds with every program
//! that uses the attribute, so it depends on little and knows no wire types.

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
    /// It may.
    Mutating,
    /// It may not.
    #[default]
    Validating,
}

/// The registration of one webhook. Words have the spelling of the API; absent settings are `None`.
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
    /// The service that reaches it.
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
    /// Names and expressions that must hold.
    pub match_conditions: Vec<(String, String)>,
}

/// The conversion webhook of a custom resource: the `conversion` of its CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversionMarker {
    /// The API group; `None` if the program does not show it.
    pub group: Option<String>,
    /// The plural of the kind.
    pub resource: String,
    /// The path it is served at.
    pub path: Option<String>,
    /// A fixed URL.
    pub url: Option<String>,
    /// The service that reaches it.
    pub service: Service,
    /// Versions of ConversionReviews, the preferred first.
    pub review_versions: Option<Vec<String>>,
}

/// Another path of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alias {
    /// This one.
    Path(String),
    /// The one made of the verb and the kind, as in `/validate-pod`.
    Logical,
}

/// The service that reaches a webhook, as far as the marker says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// Its name.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its port.
    pub port: Option<i32>,
}
