//! What is written beside the code of a webhook about its registration.
//!
//! ```text
//!   #[webhook(…)] impl Validator<K> for T ──► attribute ─┐
//!                                                        ├─► Marker
//!   // +kubebuilder:webhook:…             ──► comment ───┘
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

/// Whether a webhook may change objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// It may.
    Mutating,
    /// It may not.
    #[default]
    Validating,
}

/// What a marker says of one webhook. Words have the spelling of the API; what is not said is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marker {
    /// Whether it may change objects.
    pub role: Role,
    /// Its name, a domain.
    pub name: String,
    /// Where it is served.
    pub path: Option<String>,
    /// Where it is served besides.
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
    /// Which namespaces.
    pub namespace_selector: Option<Selector>,
    /// Which objects.
    pub object_selector: Option<Selector>,
    /// Names and expressions that must hold.
    pub match_conditions: Vec<(String, String)>,
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
