//! Where the registration API and the expression language meet.

use lockgate_api::registration::validation::{Environment, ExpressionChecker};
use lockgate_cel::admission::check_condition;

/// Compiles match conditions for the validation of registrations, as a v1.36 server does.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatchConditionChecker;

impl ExpressionChecker for MatchConditionChecker {
    /// New and stored expressions have the same language in this release.
    fn check(&self, expression: &str, _: Environment) -> Result<(), String> {
        check_condition(expression)
    }
}
