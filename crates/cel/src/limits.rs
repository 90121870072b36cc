//! Kubernetes' limits for expressions.
//!
//! UPSTREAM: apiserver pkg/apis/cel/config.go, apiextensions-apiserver pkg/apis/apiextensions/validation

/// The maximum length of an expression, in code points.
pub const MAX_CODE_POINTS: usize = 100_000;
/// The maximum nesting of one grammar rule, and the maximum length of an operator chain.
pub const MAX_DEPTH: u32 = 250;
/// The maximum cost of one expression.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The maximum cost of the match conditions of one webhook together.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;
/// The maximum cost of the expressions of one policy and binding together.
pub const POLICY_BUDGET: u64 = 10_000_000;
/// The maximum runtime cost of all validation rules of one object together.
pub const VALIDATION_RULES_BUDGET: u64 = 10_000_000;
/// The maximum estimated cost of a validation rule, given the size bounds of its schema.
pub const ESTIMATED_RULE_LIMIT: u64 = 10_000_000;
/// The maximum estimated cost of all validation rules of a custom resource together.
pub const ESTIMATED_RESOURCE_LIMIT: u64 = 100_000_000;

/// The maximum length of a resulting string or bytes value; upstream has no limit, and charges 1 for a
/// concatenation of unknown type.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 20;
