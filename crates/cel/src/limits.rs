//! The limits Kubernetes sets to expressions.
//!
//! UPSTREAM: apiserver pkg/apis/cel/config.go, apiextensions-apiserver pkg/apis/apiextensions/validation

pub use crate::admission::MATCH_CONDITIONS_BUDGET;
pub use crate::eval::PER_CALL_LIMIT;
pub use crate::syntax::{MAX_CODE_POINTS, MAX_DEPTH};

/// Most units all validation rules of one object may cost together when they run.
pub const VALIDATION_RULES_BUDGET: u64 = 10_000_000;
/// Most units a validation rule may cost by its estimate, given the sizes its schema allows.
pub const ESTIMATED_RULE_LIMIT: u64 = 10_000_000;
/// Most units all validation rules of a custom resource may cost by their estimates together.
pub const ESTIMATED_RESOURCE_LIMIT: u64 = 100_000_000;
