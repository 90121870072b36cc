//! The limits Kubernetes sets to expressions.
//!
//! UPSTREAM: apiserver pkg/apis/cel/config.go, apiextensions-apiserver pkg/apis/apiextensions/validation

/// Longest expression accepted, in code points.
pub const MAX_CODE_POINTS: usize = 100_000;
/// Deepest nesting of one grammar rule, and deepest operator chain.
pub const MAX_DEPTH: u32 = 250;
/// Most units one expression may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// Most units the match conditions of one webhook may cost together.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;
/// Most units the expressions of one policy and binding may cost together.
pub const POLICY_BUDGET: u64 = 10_000_000;
/// Most units all validation rules of one object may cost together when they run.
pub const VALIDATION_RULES_BUDGET: u64 = 10_000_000;
/// Most units a validation rule may cost by its estimate, given the sizes its schema allows.
pub const ESTIMATED_RULE_LIMIT: u64 = 10_000_000;
/// Most units all validation rules of a custom resource may cost by their estimates together.
pub const ESTIMATED_RESOURCE_LIMIT: u64 = 100_000_000;

/// Text and bytes longer than this are not built; upstream has no bound, and charges 1 for joining what it does
/// not know the type of.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 20;
