//! Admission policies: parameters, named expressions, and the budget they share.
//!
//! ```
//! use lockgate_cel::admission::{Composition, PolicyEvaluation, Request, Variables};
//! use lockgate_cel::{Type, Value};
//!
//! let composition = Composition::compile(true, [
//!     ("replicas", "object.spec.replicas"),
//!     ("limit", "has(params.limit) ? params.limit : 5"),
//! ]);
//! let validation = composition
//!     .compile_expression("variables.replicas <= variables.limit", Some(&Type::Bool))
//!     .unwrap();
//! let request = Request { operation: "CREATE".to_owned(), ..Request::default() }.to_json();
//! let object = serde_json::json!({ "spec": { "replicas": 7 } });
//! let variables = Variables::new(&request).object(Some(&object));
//! let params = serde_json::json!({ "limit": 3 });
//! let inputs = variables.policy_inputs(None, Some(&params));
//! let named = composition.named();
//! let mut evaluation = PolicyEvaluation::new(&named, &inputs, None);
//! let verdict = evaluation.evaluate(&validation).unwrap();
//! assert!(matches!(verdict, Ok(Value::Bool(false))));
//! ```

use std::sync::atomic::AtomicBool;

use super::conditions::OUT_OF_BUDGET;
use super::policy_environment;
use crate::check::Environment;
use crate::eval::{Evaluation, Limits, Named, NamedExpression, Program};
use crate::limits::POLICY_BUDGET;
use crate::program::{self, CompileError};
use crate::types::Type;
use crate::value::{Error, Value};

/// The named expressions of a policy, compiled, and the environment of its other expressions.
#[derive(Debug)]
pub struct Composition {
    environment: Environment,
    variables: Vec<(String, Result<Program, CompileError>)>,
}

impl Composition {
    /// Compiles named expressions, each of which can select those before it.
    ///
    /// One that does not compile can be selected; that is an error when it happens.
    #[must_use]
    pub fn compile<'v>(
        has_params: bool,
        variables: impl IntoIterator<Item = (&'v str, &'v str)>,
    ) -> Self {
        let mut environment = policy_environment(has_params, []);
        let mut fields: Vec<(String, Type)> = Vec::new();
        let mut compiled = Vec::new();
        for (name, expression) in variables {
            let program = program::compile(expression, &environment, None);
            let declared = match &program {
                Ok(program) => declared(program.output_type()),
                Err(_) => Type::Dyn,
            };
            fields.retain(|(other, _)| other != name);
            fields.push((name.to_owned(), declared));
            let known = fields.iter().map(|(name, of)| (name.as_str(), of.clone()));
            environment = policy_environment(has_params, known);
            compiled.push((name.to_owned(), program));
        }
        Self {
            environment,
            variables: compiled,
        }
    }

    /// The environment of the policy's expressions, in which all named ones can be selected.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The named expressions with their programs, in order.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &Result<Program, CompileError>)> {
        self.variables.iter().map(|(name, p)| (name.as_str(), p))
    }

    /// The program of an expression of the policy; with `expected`, its result is of that type.
    ///
    /// # Errors
    ///
    /// What Kubernetes says about the expression.
    pub fn compile_expression(
        &self,
        expression: &str,
        expected: Option<&Type>,
    ) -> Result<Program, CompileError> {
        program::compile(expression, &self.environment, expected)
    }

    /// The named expressions in the form an evaluation takes them.
    #[must_use]
    pub fn named(&self) -> Vec<NamedExpression<'_>> {
        self.variables
            .iter()
            .map(|(name, program)| NamedExpression {
                name,
                program: program.as_ref().map_err(ToString::to_string),
            })
            .collect()
    }
}

/// The type others see of a named expression: what is no plain data is checked when evaluated.
///
/// UPSTREAM: apiserver pkg/admission/plugin/cel/composition.go convertCelTypeToDeclType
fn declared(of: &Type) -> Type {
    match of {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => of.clone(),
        Type::List(element) => Type::list(declared(element)),
        Type::Map(entry) => Type::map(declared(&entry.0), declared(&entry.1)),
        _ => Type::Dyn,
    }
}

/// The expressions of a policy are more than their common budget pays for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(OUT_OF_BUDGET)
    }
}

impl std::error::Error for OutOfBudget {}

/// An evaluation of a policy's expressions on one set of inputs.
#[derive(Debug)]
pub struct PolicyEvaluation<'a> {
    named: Named<'a>,
    remaining: u64,
}

impl<'a> PolicyEvaluation<'a> {
    /// Begins an evaluation: expressions that share the named ones' values and [`POLICY_BUDGET`].
    ///
    /// `named` are those of [`Composition::named`], `inputs` those of
    /// [`Variables::policy_inputs`](super::Variables::policy_inputs).
    #[must_use]
    pub fn new(
        named: &'a [NamedExpression<'a>],
        inputs: &'a [Value<'a>],
        interrupt: Option<&'a AtomicBool>,
    ) -> Self {
        let limits = Limits {
            interrupt,
            ..Limits::default()
        };
        Self {
            named: Named::new(named, inputs, limits),
            remaining: POLICY_BUDGET,
        }
    }

    /// Spends from this instead of [`POLICY_BUDGET`].
    #[must_use]
    pub fn with_budget(mut self, units: u64) -> Self {
        self.remaining = units;
        self
    }

    /// Evaluates an expression and charges the budget with it and with the named expressions it
    /// was the first to select.
    ///
    /// # Errors
    ///
    /// The budget is spent: nothing else of the policy is to be evaluated.
    ///
    /// UPSTREAM: apiserver pkg/admission/plugin/cel/activation.go Evaluate
    pub fn evaluate(
        &mut self,
        program: &'a Program,
    ) -> Result<Result<Value<'a>, Error>, OutOfBudget> {
        let Evaluation { value, cost } = self.named.evaluate(program);
        let spent = self.named.take_cost().saturating_add(cost);
        self.remaining = self.remaining.checked_sub(spent).ok_or(OutOfBudget)?;
        Ok(value)
    }

    /// What is left of the budget.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }
}
