//! Evaluates the validations and audit annotations of a policy.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/validating/validator.go

use std::cell::RefCell;
use std::time::Duration;

use lockgate_cel::admission::{OutOfBudget, PolicyEvaluation, Variable, Variables, named};
use lockgate_cel::eval::{NamedExpression, RecordedExpression};
use lockgate_cel::value::Error as EvalError;
use lockgate_cel::{Program, Value};
use serde_json::Value as Json;

use super::version::Version;
use crate::conditions::{ConditionsTrace, ConditionsVerdict, ExpressionRole, ExpressionTrace};
use crate::configuration::{CompiledPolicy, CompiledValidation};

/// Longer messages are dropped.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// The result of evaluating a policy once.
#[derive(Debug, Default)]
pub(super) struct Evaluated {
    pub(super) conditions: Option<ConditionsTrace>,
    /// The validations that are not simply true.
    pub(super) decisions: Vec<Decided>,
    pub(super) annotations: Vec<Annotated>,
    pub(super) elapsed: Duration,
    /// The evaluated expressions, if recorded.
    pub(super) expressions: Vec<ExpressionTrace>,
}

/// A validation that is not true.
#[derive(Debug)]
pub(super) struct Decided {
    /// Its index.
    pub(super) index: usize,
    pub(super) message: String,
    pub(super) reason: Option<Box<str>>,
    /// True if evaluation failed, so that the failure policy decides.
    pub(super) is_error: bool,
}

/// The result of one audit annotation.
#[derive(Debug)]
pub(super) struct Annotated {
    pub(super) index: usize,
    pub(super) value: Result<Option<String>, ExpressionFailure>,
}

/// A failed expression.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ExpressionFailure {
    #[error("compilation error: {0}")]
    Compilation(Box<str>),
    #[error("expression '{expression}' resulted in error: {error}")]
    Evaluation {
        expression: Box<str>,
        error: EvalError,
    },
}

/// The variables of one evaluation.
struct Subject<'s> {
    named: &'s [NamedExpression<'s>],
    variables: Variables<'s>,
    namespace: Option<&'s Json>,
    params: Option<&'s Json>,
    policy: &'s CompiledPolicy,
    /// The expressions evaluated so far, if recorded.
    records: Option<RefCell<Vec<ExpressionTrace>>>,
}

impl Subject<'_> {
    /// Evaluates programs in order within one cost budget, and returns the remaining budget. Variables are evaluated
    /// anew in every list.
    fn list<'l, T>(
        &'l self,
        role: ExpressionRole,
        bound: AuthorizerAccess,
        budget: Option<u64>,
        items: impl Iterator<
            Item = (
                T,
                Option<&'l Result<std::sync::Arc<Program>, Box<str>>>,
                &'l str,
            ),
        >,
        mut take: impl FnMut(T, Option<Result<Value<'_>, ExpressionFailure>>),
    ) -> Result<u64, OutOfBudget> {
        let variables = match bound {
            AuthorizerAccess::Authorizer => self.variables.clone(),
            AuthorizerAccess::NoAuthorizer => self.variables.clone().without_authorizer(),
        };
        let inputs = variables.policy_inputs(self.namespace, self.params);
        let mut evaluation =
            PolicyEvaluation::new(self.named, variables.with_known_fields(&inputs), None);
        if let Some(units) = budget {
            evaluation = evaluation.with_budget(units);
        }
        if self.records.is_some() {
            evaluation = evaluation.recording();
        }
        for (index, (item, program, expression)) in items.enumerate() {
            let outcome = match program {
                None => None,
                Some(Err(error)) => Some(Err(ExpressionFailure::Compilation(error.clone()))),
                Some(Ok(program)) => {
                    let evaluated = evaluation.evaluate(program);
                    if let Some(records) = &self.records {
                        let taken = evaluation.take_records();
                        let traced = traced(self.policy, role, index, expression, taken);
                        records.borrow_mut().extend(traced);
                    }
                    Some(evaluated?.map_err(|error| ExpressionFailure::Evaluation {
                        expression: expression.into(),
                        error,
                    }))
                }
            };
            take(item, outcome);
        }
        Ok(evaluation.remaining())
    }
}

/// The records of an expression and of the variables it was the first to use, for the trace.
pub(super) fn traced(
    policy: &CompiledPolicy,
    role: ExpressionRole,
    index: usize,
    expression: &str,
    records: Vec<RecordedExpression>,
) -> impl Iterator<Item = ExpressionTrace> {
    records.into_iter().map(move |recorded| {
        if recorded.name.is_empty() {
            return ExpressionTrace {
                role,
                index,
                expression: expression.to_owned(),
                recorded,
            };
        }
        let named = |variable: &Variable| *variable.name == *recorded.name;
        let index = policy.variables.iter().rposition(named).unwrap_or_default();
        let variable = policy.variables.get(index);
        ExpressionTrace {
            role: ExpressionRole::Variable,
            index,
            expression: variable.map_or_else(String::new, |it| it.expression.to_string()),
            recorded,
        }
    })
}

/// The availability of the authorizer in expressions.
#[derive(Clone, Copy)]
enum AuthorizerAccess {
    Authorizer,
    NoAuthorizer,
}

/// Evaluates a policy for a matching request. The caller provides the clock.
pub(super) fn evaluate(
    policy: &CompiledPolicy,
    version: &mut Version,
    namespace: Option<&Json>,
    params: Option<&Json>,
) -> Evaluated {
    let mut evaluated = Evaluated::default();
    if !policy.conditions.is_empty() {
        let failure_policy = policy.failure_policy();
        let trace = version.check_conditions(&policy.conditions, params, failure_policy);
        let verdict = trace.verdict.clone();
        evaluated.conditions = Some(trace);
        match verdict {
            ConditionsVerdict::Matched => {}
            ConditionsVerdict::Excluded { .. } | ConditionsVerdict::Ignored { .. } => {
                return evaluated;
            }
            ConditionsVerdict::Refused { error } => {
                evaluated.decisions = vec![failed(error)];
                return evaluated;
            }
        }
    }
    let named = named(&policy.variables);
    let subject = Subject {
        named: &named,
        variables: version.variables(),
        namespace,
        params,
        policy,
        records: version.is_recording().then(RefCell::default),
    };
    match subject.judge(policy) {
        Ok((decisions, annotations)) => {
            evaluated.decisions = decisions;
            evaluated.annotations = annotations;
        }
        Err(OutOfBudget) => evaluated.decisions = vec![failed(OutOfBudget.to_string())],
    }
    evaluated.expressions = subject.records.map(RefCell::into_inner).unwrap_or_default();
    evaluated
}

/// An error in place of all decisions.
fn failed(message: String) -> Decided {
    Decided {
        index: 0,
        message,
        reason: None,
        is_error: true,
    }
}

impl Subject<'_> {
    fn judge(
        &self,
        policy: &CompiledPolicy,
    ) -> Result<(Vec<Decided>, Vec<Annotated>), OutOfBudget> {
        let decisions = self.validate(&policy.validations)?;
        Ok((decisions, self.annotate(policy)?))
    }

    fn validate(&self, validations: &[CompiledValidation]) -> Result<Vec<Decided>, OutOfBudget> {
        let mut verdicts: Vec<Result<bool, ExpressionFailure>> =
            Vec::with_capacity(validations.len());
        let items = validations
            .iter()
            .map(|validation| ((), Some(&validation.program), &*validation.expression));
        let role = ExpressionRole::Validation;
        let left = self.list(
            role,
            AuthorizerAccess::Authorizer,
            None,
            items,
            |(), outcome| {
                verdicts.push(match outcome {
                    Some(Ok(value)) => Ok(matches!(value, Value::Bool(true))),
                    Some(Err(error)) => Err(error),
                    None => Ok(true),
                });
            },
        )?;
        // Message expressions of validations that are true are evaluated too, and may exceed the budget.
        let mut messages: Vec<Option<String>> = Vec::new();
        let mut out_of_budget = false;
        if validations.iter().any(|v| v.message_program.is_some()) {
            let items = validations.iter().map(|validation| {
                (
                    (),
                    validation.message_program.as_ref(),
                    &*validation.message_expression,
                )
            });
            let role = ExpressionRole::Message;
            let bound = AuthorizerAccess::NoAuthorizer;
            let made = self.list(role, bound, Some(left), items, |(), outcome| {
                let text = match outcome {
                    Some(Ok(value)) => value.as_str().map(str::to_owned),
                    Some(Err(_)) | None => None,
                };
                messages.push(text);
            });
            out_of_budget = made.is_err();
        }
        let decided = validations.iter().zip(verdicts).enumerate();
        let decided = decided.filter_map(|(index, (validation, verdict))| {
            let error = |message| Decided {
                index,
                ..failed(message)
            };
            match verdict {
                Err(failure) => Some(error(failure.to_string())),
                Ok(_) if out_of_budget => {
                    Some(error(format!("failed messageExpression: {OutOfBudget}")))
                }
                Ok(true) => None,
                Ok(false) => Some(Decided {
                    index,
                    message: message(validation, messages.get(index).cloned().flatten()),
                    reason: validation.reason.clone(),
                    is_error: false,
                }),
            }
        });
        Ok(decided.collect())
    }

    fn annotate(&self, policy: &CompiledPolicy) -> Result<Vec<Annotated>, OutOfBudget> {
        let mut annotations = Vec::with_capacity(policy.annotations.len());
        if policy.annotations.is_empty() {
            return Ok(annotations);
        }
        let items = policy.annotations.iter().enumerate();
        let items = items
            .map(|(index, annotation)| (index, Some(&annotation.program), &*annotation.expression));
        let role = ExpressionRole::AuditAnnotation;
        self.list(
            role,
            AuthorizerAccess::NoAuthorizer,
            None,
            items,
            |index, outcome| {
                let value = match outcome {
                    Some(Ok(value)) => {
                        let text = value.as_str().map(str::trim);
                        Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
                    }
                    Some(Err(error)) => Err(error),
                    None => Ok(None),
                };
                annotations.push(Annotated { index, value });
            },
        )?;
        Ok(annotations)
    }
}

/// The message of a validation that failed.
fn message(validation: &CompiledValidation, made: Option<String>) -> String {
    let made = made.as_deref().map(str::trim).unwrap_or_default();
    let written = validation.message.trim();
    if !made.is_empty() && made.len() <= MAX_MESSAGE_BYTES && !made.contains('\n') {
        made.to_owned()
    } else if !written.is_empty() {
        written.to_owned()
    } else {
        format!("failed expression: {}", validation.expression.trim())
    }
}
