//! Compiles and evaluates the match conditions of a webhook or policy.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/matchconditions/matcher.go,
//! pkg/admission/plugin/cel/activation.go

use std::sync::{Arc, LazyLock};

use super::compile_condition;
use super::request::Evaluator;
use crate::eval::{Program, RecordedExpression};
use crate::limits::MATCH_CONDITIONS_BUDGET;
use crate::program::{CompileError, ProgramCache};
use crate::value::Error;

pub(super) const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, \
                             no further validation rules will be run";

/// The program cache shared by all webhooks and policies.
pub(super) static PROGRAMS: LazyLock<ProgramCache> = LazyLock::new(ProgramCache::default);

/// The failure policy for conditions that cannot be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is rejected.
    Fail,
    /// The webhook is not called.
    Ignore,
}

/// The result of a list of conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The webhook is called.
    Match,
    /// The webhook is not called; contains the name of the false condition, if any.
    NoMatch(Option<String>),
    /// The request is rejected with this message.
    Reject(String),
}

/// The result of a list of conditions, before the failure policy applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    /// The result.
    pub outcome: Outcome,
    /// The number of conditions with evaluation errors, up to the first false one. Zero if the
    /// budget is exceeded.
    pub errors: usize,
}

/// A condition with its name.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The name, unique within the webhook.
    pub name: String,
    /// The expression as written.
    pub expression: String,
    program: Result<Arc<Program>, CompileError>,
}

impl Condition {
    /// The program, if the condition compiles.
    #[must_use]
    pub fn program(&self) -> Option<&Program> {
        self.program.as_deref().ok()
    }
}

/// The compiled conditions of one webhook.
#[derive(Debug, Clone, Default)]
pub struct MatchConditions {
    conditions: Vec<Condition>,
}

impl MatchConditions {
    /// Compiles conditions given by name and expression.
    ///
    /// A condition that does not compile is kept, and evaluates to an error.
    #[must_use]
    pub fn compile<'c>(conditions: impl IntoIterator<Item = (&'c str, &'c str)>) -> Self {
        Self::compile_with(conditions, |expression| {
            PROGRAMS.get_or_compile(expression, compile_condition)
        })
    }

    /// Like [`Self::compile`], with another compile function, such as one for a policy's
    /// environment.
    #[must_use]
    pub fn compile_with<'c>(
        conditions: impl IntoIterator<Item = (&'c str, &'c str)>,
        compile: impl Fn(&str) -> Result<Arc<Program>, CompileError>,
    ) -> Self {
        let compiled = conditions.into_iter().map(|(name, expression)| Condition {
            name: name.to_owned(),
            expression: expression.to_owned(),
            program: compile(expression),
        });
        Self {
            conditions: compiled.collect(),
        }
    }

    /// The conditions, in order.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Returns true for an empty list, which matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Returns true if the condition at this index has the same program instance.
    #[must_use]
    pub fn shares_program(&self, at: usize, program: &Arc<Program>) -> bool {
        let condition = self.conditions.get(at);
        let own = condition.and_then(|condition| condition.program.as_ref().ok());
        own.is_some_and(|own| Arc::ptr_eq(own, program))
    }

    /// Evaluates all conditions and applies the failure policy.
    #[must_use]
    pub fn matches(&self, evaluator: &Evaluator<'_>, policy: FailurePolicy) -> Outcome {
        match (self.evaluate(evaluator).outcome, policy) {
            (Outcome::Reject(_), FailurePolicy::Ignore) => Outcome::NoMatch(None),
            (outcome, _) => outcome,
        }
    }

    /// Evaluates all conditions, with errors as rejections.
    ///
    /// All conditions are evaluated within one budget. A false condition takes precedence over
    /// errors of others.
    #[must_use]
    pub fn evaluate(&self, evaluator: &Evaluator<'_>) -> Evaluated {
        self.evaluate_with(|_, program| evaluator.condition(program))
    }

    /// Like [`Self::evaluate`], and records each evaluated condition.
    #[must_use]
    pub fn evaluate_recorded(
        &self,
        evaluator: &Evaluator<'_>,
    ) -> (Evaluated, Vec<RecordedExpression>) {
        let mut records = Vec::new();
        let evaluated = self.evaluate_with(|condition, program| {
            let (known, record) = evaluator.condition_recorded(program, &condition.name);
            records.push(record);
            known
        });
        (evaluated, records)
    }

    fn evaluate_with(
        &self,
        mut evaluate: impl FnMut(&Condition, &Arc<Program>) -> (Result<bool, Error>, u64),
    ) -> Evaluated {
        let mut left = MATCH_CONDITIONS_BUDGET;
        let mut excluded: Option<(&str, usize)> = None;
        let mut errors: Vec<String> = Vec::new();
        for condition in &self.conditions {
            let program = match &condition.program {
                Ok(program) => program,
                Err(error) => {
                    errors.push(format!("compilation error: {error}"));
                    continue;
                }
            };
            let (outcome, cost) = evaluate(condition, program);
            match left.checked_sub(cost) {
                Some(rest) => left = rest,
                None => {
                    let outcome = Outcome::Reject(OUT_OF_BUDGET.to_owned());
                    return Evaluated { outcome, errors: 0 };
                }
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => {
                    excluded.get_or_insert((&condition.name, errors.len()));
                }
                Err(error) => errors.push(format!(
                    "expression '{}' resulted in error: {error}",
                    condition.expression
                )),
            }
        }
        if let Some((name, errors)) = excluded {
            let outcome = Outcome::NoMatch(Some(name.to_owned()));
            return Evaluated { outcome, errors };
        }
        let count = errors.len();
        let outcome = match count {
            0 => Outcome::Match,
            _ => Outcome::Reject(aggregate(errors)),
        };
        Evaluated {
            outcome,
            errors: count,
        }
    }
}

/// Joins errors into one message, without duplicates.
fn aggregate(errors: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [only] => only.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Request, Variables};
    use super::*;

    fn decide(conditions: &[&str], policy: FailurePolicy) -> Outcome {
        let request = Request {
            operation: "CREATE".to_owned(),
            ..Request::default()
        }
        .to_json();
        let object = json!({ "metadata": { "name": "web" } });
        let variables = Variables::new(&request).object(Some(&object));
        let named = conditions
            .iter()
            .map(|expression| ("condition", *expression));
        MatchConditions::compile(named).matches(&variables.evaluator(), policy)
    }

    #[test]
    fn a_false_condition_prevails_over_errors() {
        let outcome = decide(&["object.nope == 1", "false"], FailurePolicy::Fail);
        assert_eq!(outcome, Outcome::NoMatch(Some("condition".to_owned())));
    }

    #[test]
    fn errors_follow_the_failure_policy() {
        let conditions = ["true", "object.nope == 1", "object.nope == 1"];
        let error = "expression 'object.nope == 1' resulted in error: no such key: nope";
        assert_eq!(
            decide(&conditions, FailurePolicy::Fail),
            Outcome::Reject(error.to_owned())
        );
        assert_eq!(
            decide(&conditions, FailurePolicy::Ignore),
            Outcome::NoMatch(None)
        );
    }

    #[test]
    fn several_errors_are_listed_once_each() {
        let outcome = decide(
            &["object.a == 1", "1 +", "object.a == 1"],
            FailurePolicy::Fail,
        );
        let Outcome::Reject(text) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            text.starts_with(
                "[expression 'object.a == 1' resulted in error: no such key: a, \
                 compilation error: compilation failed: ERROR: <input>:1:4: Syntax error:"
            ),
            "{text}"
        );
        assert!(text.ends_with(']'), "{text}");
    }

    #[test]
    fn the_budget_is_shared_and_even_a_false_condition_does_not_save_it() {
        let dear = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, \
                    [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, \
                    [1,2,3,4,5,6,7,8,9,10].all(e, a + b + c + d + e > 0)))))";
        let outcome = decide(&["false", dear, dear, dear], FailurePolicy::Fail);
        assert_eq!(outcome, Outcome::Reject(OUT_OF_BUDGET.to_owned()));
    }

    #[test]
    fn nothing_to_check_matches() {
        assert_eq!(decide(&[], FailurePolicy::Fail), Outcome::Match);
    }
}
