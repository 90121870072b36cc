//! Where the registration API and the expression language meet.

use lockgate_api::registration::validation::policies::{
    self, ComposedExpressions, PolicyExpressions,
};
use lockgate_api::registration::validation::{Environment, ExpressionChecker};
use lockgate_cel::admission::{Composition, Role, check_condition};

/// Compiles match conditions for the validation of registrations, as a v1.36 server does.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatchConditionChecker;

impl ExpressionChecker for MatchConditionChecker {
    /// New and stored expressions have the same language in this release.
    fn check(&self, expression: &str, _: Environment) -> Result<(), String> {
        check_condition(expression)
    }
}

/// Compiles the expressions of policies for their validation, as a v1.36 server does.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyExpressionChecker;

impl PolicyExpressions for PolicyExpressionChecker {
    fn begin(&self, composition: policies::Composition) -> Box<dyn ComposedExpressions> {
        Box::new(Composed(if composition.variables {
            Composition::new(composition.params)
        } else {
            Composition::without_variables(composition.params)
        }))
    }
}

/// The expressions of one policy.
struct Composed(Composition);

impl ComposedExpressions for Composed {
    fn declare(&mut self, name: &str, expression: &str) -> Result<(), String> {
        let declared = self.0.declare(name, expression);
        declared.map_err(|error| error.to_string())
    }

    fn check(&mut self, expression: &str, role: policies::Role) -> Result<(), String> {
        let checked = match role {
            policies::Role::MatchCondition => self.0.check_match_condition(expression),
            policies::Role::Validation => self.0.check(expression, Role::Condition),
            policies::Role::Message => self.0.check(expression, Role::Message),
            policies::Role::AuditAnnotation => self.0.check(expression, Role::AuditAnnotation),
            policies::Role::ApplyConfiguration => {
                self.0.check(expression, Role::ApplyConfiguration)
            }
            policies::Role::JsonPatch => self.0.check(expression, Role::JsonPatch),
        };
        checked.map_err(|error| error.to_string())
    }
}
