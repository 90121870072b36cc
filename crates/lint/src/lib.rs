//! Risk and availability rules for webhook configurations and admission policies.
//!
//! An API server accepts a webhook that matches everything, fails closed and may take 30 s. The rules
//! report the effect of such a configuration on a cluster. They check a whole [`Set`] at once: the maximum
//! latency of a request depends on all webhooks.
//!
//! ```text
//!   documents ──► Set (hooks, policies, other manifests) ──► rules ──► Finding (rule, place, message)
//! ```
//!
//! Rules about the responses of webhooks use captured calls, see [`traffic`]. There is no I/O and no clock:
//! [`Options`] has the time.

#![warn(missing_docs)]
#![doc = include_str!("../README.md")]

pub mod finding;

mod resource;

mod matching;
pub mod traffic;

pub mod fix;

pub mod set;

pub mod rule;

mod rules;

pub mod suppression;

mod check;

pub use check::{Options, check};
pub use finding::{Grade, Levels, Profile, Severity};
pub use fix::Fix;
pub use rule::{Captured, Finding, Rule};
pub use rules::{RULES, find};
pub use set::{Set, SetError};
pub use suppression::Suppressions;

pub mod docs;
