//! Admission policies: parameters, variables (named expressions), and their shared budget.
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

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use super::conditions::{OUT_OF_BUDGET, PROGRAMS};
use super::{VARIABLES, match_condition_environment, policy_environment};
use crate::check::{Environment, Libraries};
use crate::eval::{
    Evaluation, Inputs, Limits, Named, NamedExpression, Program, RecordedExpression,
};
use crate::limits::POLICY_BUDGET;
use crate::program::{self, CompileError};
use crate::types::Type;
use crate::value::constructed::{JSON_PATCH, OBJECT};
use crate::value::{Error, Value};

/// The role of an expression in a policy. It determines the declared variables and the required result
/// type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A variable, of any type.
    Variable,
    /// A match condition or a validation.
    Condition,
    /// A message expression, without the authorizer.
    Message,
    /// The value of an audit annotation: a string or null.
    AuditAnnotation,
    /// The object to merge into the request's object.
    ApplyConfiguration,
    /// A list of patch operations.
    JsonPatch,
}

static ANNOTATION_TYPES: [Type; 2] = [Type::String, Type::Null];
static CONFIGURATION_TYPE: LazyLock<[Type; 1]> = LazyLock::new(|| [Type::object(OBJECT)]);
static PATCH_TYPE: LazyLock<[Type; 1]> = LazyLock::new(|| [Type::list(Type::object(JSON_PATCH))]);

impl Role {
    /// The allowed result types; empty means any type.
    fn types(self) -> &'static [Type] {
        match self {
            Self::Variable => &[],
            Self::Condition => &[Type::Bool],
            Self::Message => &[Type::String],
            Self::AuditAnnotation => &ANNOTATION_TYPES,
            Self::ApplyConfiguration => &*CONFIGURATION_TYPE,
            Self::JsonPatch => &*PATCH_TYPE,
        }
    }

    /// Adapts an environment to this role.
    fn adjust(self, environment: Environment) -> Environment {
        match self {
            Self::Message => environment.without_variable("authorizer"),
            Self::ApplyConfiguration | Self::JsonPatch => environment.with_construction(),
            Self::Variable | Self::Condition | Self::AuditAnnotation => environment,
        }
    }
}

/// A variable of a policy, compiled or not.
#[derive(Debug, Clone)]
pub struct Variable {
    /// The name, used as `variables.<name>`.
    pub name: Box<str>,
    /// The expression as written.
    pub expression: Box<str>,
    /// The program, or the compilation error.
    pub program: Result<Arc<Program>, CompileError>,
}

/// The variables of a policy during compilation, and the environment of its other expressions.
#[derive(Debug)]
pub struct Composition {
    has_params: bool,
    /// The environment with the variables, and their declared types.
    environment: Environment,
    variables: Vec<Variable>,
    libraries: Libraries,
}

impl Composition {
    /// Creates a composition without variables.
    #[must_use]
    pub fn new(has_params: bool) -> Self {
        Self {
            has_params,
            environment: policy_environment(has_params, []),
            variables: Vec::new(),
            libraries: Libraries::default(),
        }
    }

    /// Creates an environment that does not declare `variables`, as the API server validates policies
    /// without variables.
    #[must_use]
    pub fn without_variables(has_params: bool) -> Self {
        let environment = match_condition_environment().clone();
        let environment = if has_params {
            environment.variable("params", Type::Dyn)
        } else {
            environment
        };
        Self {
            environment,
            ..Self::new(has_params)
        }
    }

    /// Excludes the functions of newer libraries. Programs are then not shared.
    #[must_use]
    pub fn with_libraries(mut self, libraries: Libraries) -> Self {
        self.libraries = libraries;
        self.environment = self.environment.with_libraries(libraries);
        self
    }

    /// Compiles variables, each of which can refer to the preceding ones.
    ///
    /// A variable that does not compile can still be selected, which is an error at evaluation.
    #[must_use]
    pub fn compile<'v>(
        has_params: bool,
        variables: impl IntoIterator<Item = (&'v str, &'v str)>,
    ) -> Self {
        let mut composition = Self::new(has_params);
        for (name, expression) in variables {
            // A compilation error is kept, and returned when the variable is selected.
            let _ = composition.declare(name, expression);
        }
        composition
    }

    /// Compiles a variable, which subsequent ones can refer to.
    ///
    /// # Errors
    ///
    /// The compilation error as kube-apiserver words it. The variable is declared even then.
    pub fn declare(&mut self, name: &str, expression: &str) -> Result<(), CompileError> {
        let program = self.program(expression, Role::Variable);
        let declared = match &program {
            Ok(program) => declared(program.output_type()),
            Err(_) => Type::Dyn,
        };
        self.environment.declare_field(VARIABLES, name, declared);
        let outcome = program.as_ref().map(|_| ()).map_err(Clone::clone);
        self.variables.push(Variable {
            name: name.into(),
            expression: expression.into(),
            program,
        });
        outcome
    }

    /// The environment of the policy's expressions, with all variables.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The variables with their programs, in order.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Returns the variables and drops the compilation state.
    #[must_use]
    pub fn into_variables(self) -> Vec<Variable> {
        self.variables
    }

    /// Compiles an expression of the policy; with `expected`, its result must be of that type.
    ///
    /// # Errors
    ///
    /// The compilation error as kube-apiserver words it.
    pub fn compile_expression(
        &self,
        expression: &str,
        expected: Option<&Type>,
    ) -> Result<Program, CompileError> {
        program::compile(expression, &self.environment, expected)
    }

    /// Compiles an expression in a role. Policies with the same declarations share the programs of
    /// equal expressions, and expressions that use only the variables of match conditions share those
    /// of webhooks.
    ///
    /// # Errors
    ///
    /// The compilation error as kube-apiserver words it.
    pub fn program(&self, expression: &str, role: Role) -> Result<Arc<Program>, CompileError> {
        let compile = || {
            let environment = role.adjust(self.environment.clone());
            program::compile_one_of(expression, &environment, role.types())
        };
        if self.libraries != Libraries::default() {
            return compile().map(Arc::new);
        }
        let key = self.key(expression, role);
        PROGRAMS.get_or_compile(&key, |_| compile())
    }

    /// The cache key of a program: its source, its role, and the policy variables whose names occur in
    /// the source.
    fn key(&self, expression: &str, role: Role) -> String {
        use std::fmt::Write as _;
        let refers = expression.contains("variables") || expression.contains("params");
        if role == Role::Condition && !refers {
            return expression.to_owned();
        }
        let mut key = format!("{role:?}\0");
        if refers {
            let _ = write!(key, "{}\0", self.has_params);
            let fields = self.environment.fields(VARIABLES);
            let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
            let words: BTreeSet<&str> = expression.split(|c| !is_part(c)).collect();
            for name in words {
                // The escaped name of a keyword contains the plain name.
                for name in [name, &format!("__{name}__")] {
                    if let Some(of) = fields.and_then(|fields| fields.get(name)) {
                        let _ = write!(key, "{name}:{of}\0");
                    }
                }
            }
        }
        key.push_str(expression);
        key
    }

    /// Validates a condition in the plain environment of match conditions, without `variables`.
    ///
    /// # Errors
    ///
    /// The compilation error as kube-apiserver words it.
    pub fn check_match_condition(&self, expression: &str) -> Result<(), CompileError> {
        let plain = Self::without_variables(self.has_params).with_libraries(self.libraries);
        program::compile(expression, &plain.environment, Some(&Type::Bool)).map(drop)
    }

    /// Validates an expression without keeping its program.
    ///
    /// # Errors
    ///
    /// The compilation error as kube-apiserver words it.
    pub fn check(&self, expression: &str, role: Role) -> Result<(), CompileError> {
        let environment = role.adjust(self.environment.clone());
        program::compile_one_of(expression, &environment, role.types()).map(drop)
    }

    /// The variables in the form for evaluation.
    #[must_use]
    pub fn named(&self) -> Vec<NamedExpression<'_>> {
        named(&self.variables)
    }
}

/// Converts variables to the form for evaluation.
#[must_use]
pub fn named(variables: &[Variable]) -> Vec<NamedExpression<'_>> {
    variables
        .iter()
        .map(|variable| NamedExpression {
            name: &variable.name,
            program: match &variable.program {
                Ok(program) => Ok(program),
                Err(error) => Err(error),
            },
        })
        .collect()
}

/// The declared type of a variable; anything but plain data is `dyn`, and checked at evaluation.
///
/// UPSTREAM: apiserver pkg/admission/plugin/cel/composition.go convertCelTypeToDeclType
pub(super) fn declared(of: &Type) -> Type {
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

/// The expressions of a policy exceed their shared budget.
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
    records: Vec<RecordedExpression>,
}

impl<'a> PolicyEvaluation<'a> {
    /// Begins an evaluation: the expressions share the values of variables and [`POLICY_BUDGET`].
    ///
    /// `named` is from [`Composition::named`], `inputs` from
    /// [`Variables::policy_inputs`](super::Variables::policy_inputs).
    #[must_use]
    pub fn new(
        named: &'a [NamedExpression<'a>],
        inputs: impl Into<Inputs<'a>>,
        interrupt: Option<&'a AtomicBool>,
    ) -> Self {
        let limits = Limits {
            interrupt,
            ..Limits::default()
        };
        Self {
            named: Named::new(named, inputs, limits),
            remaining: POLICY_BUDGET,
            records: Vec::new(),
        }
    }

    /// Records each expression, preceded by the variables that it was the first to select.
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.named = self.named.recording();
        self
    }

    /// Takes the recorded expressions since the last call.
    #[must_use]
    pub fn take_records(&mut self) -> Vec<RecordedExpression> {
        std::mem::take(&mut self.records)
    }

    /// Uses this budget instead of [`POLICY_BUDGET`].
    #[must_use]
    pub fn with_budget(mut self, units: u64) -> Self {
        self.remaining = units;
        self
    }

    /// Evaluates an expression and charges the budget for it and for the variables that it was the
    /// first to select.
    ///
    /// # Errors
    ///
    /// The budget is exceeded: no other expression of the policy may be evaluated.
    ///
    /// UPSTREAM: apiserver pkg/admission/plugin/cel/activation.go Evaluate
    pub fn evaluate(
        &mut self,
        program: &'a Program,
    ) -> Result<Result<Value<'a>, Error>, OutOfBudget> {
        let Evaluation { value, cost } = if self.named.is_recording() {
            self.record(program)
        } else {
            self.named.evaluate(program)
        };
        let spent = self.named.take_cost().saturating_add(cost);
        self.remaining = self.remaining.checked_sub(spent).ok_or(OutOfBudget)?;
        Ok(value)
    }

    fn record(&mut self, program: &'a Program) -> Evaluation<'a> {
        let (evaluation, recording) = self.named.evaluate_recorded(program);
        self.records.extend(self.named.take_records());
        let outcome = evaluation.value.as_ref().map_err(ToString::to_string);
        let record = RecordedExpression::new("", outcome, evaluation.cost);
        self.records.push(RecordedExpression {
            recording,
            ..record
        });
        evaluation
    }

    /// The remaining budget.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }
}
