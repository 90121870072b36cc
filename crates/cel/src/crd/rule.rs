//! Compiles rules, checks their cost limits, and evaluates them.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/cel/compilation.go,
//! pkg/apis/apiextensions/validation/validation.go

use std::fmt;

use serde_json::Value as Json;

use crate::check::{self, Environment};
use crate::crd::declare::Declared;
use crate::eval::{self, Evaluation, Limits, Program, evaluate};
use crate::limits::{ESTIMATED_RESOURCE_LIMIT, ESTIMATED_RULE_LIMIT};
use crate::program::CompileError;
use crate::schema::Schema;
use crate::source::{Issue, render};
use crate::syntax;
use crate::types::Type;
use crate::value::Value;
use crate::value::typed::typed;

/// The type of `oldSelf` in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OldSelf {
    /// The plain type; the rule is skipped without an old value.
    #[default]
    Value,
    /// An optional value; the rule is always evaluated (`optionalOldSelf: true`).
    Optional,
}

/// The environment of the rules of one schema, with the size bounds of its values.
#[derive(Debug, Clone)]
pub struct Scope {
    declared: Declared,
    env: Environment,
    optional_env: Environment,
}

/// A compiled rule or message expression.
#[derive(Debug)]
pub struct Rule {
    program: Program,
    max_cost: u64,
    max_cardinality: u64,
    uses_old_self: bool,
}

/// A rejected rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleError {
    /// Rules cannot access values of this schema.
    NoType,
    /// The expression is empty or white space.
    Empty,
    /// The expression does not compile.
    Rule(CompileError),
    /// The message expression does not compile.
    Message(CompileError),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoType => f.write_str("failed to convert to declType for CEL validation rules"),
            Self::Empty => f.write_str("rule is not specified"),
            Self::Rule(CompileError::Type { .. }) => {
                f.write_str("cel expression must evaluate to a bool")
            }
            Self::Rule(error) => write!(f, "{error}"),
            Self::Message(CompileError::Type { .. }) => {
                f.write_str("messageExpression must evaluate to a string")
            }
            Self::Message(CompileError::Program(reason)) => {
                write!(f, "messageExpression instantiation failed: {reason}")
            }
            Self::Message(error) => write!(f, "messageExpression {error}"),
        }
    }
}

impl std::error::Error for RuleError {}

/// Compiles one rule of a schema; for several, create a [`Scope`] and reuse it.
///
/// # Errors
///
/// [`RuleError`], with Kubernetes' error text.
pub fn compile_rule(rule: &str, schema: &Schema, old_self: OldSelf) -> Result<Rule, RuleError> {
    Scope::new(schema)
        .ok_or(RuleError::NoType)?
        .compile_rule(rule, old_self)
}

impl Scope {
    /// The scope of a schema's rules; `None` if rules cannot access its values.
    #[must_use]
    pub fn new(schema: &Schema) -> Option<Self> {
        let (declared, messages) = Declared::new(schema)?;
        let env = declared.environment(&messages, false);
        let optional_env = declared.environment(&messages, true);
        Some(Self {
            declared,
            env,
            optional_env,
        })
    }

    /// The environment of the expressions.
    #[must_use]
    pub fn environment(&self, old_self: OldSelf) -> &Environment {
        match old_self {
            OldSelf::Value => &self.env,
            OldSelf::Optional => &self.optional_env,
        }
    }

    /// Compiles a rule and estimates its cost.
    ///
    /// # Errors
    ///
    /// [`RuleError`], with Kubernetes' error text. Exceeding the cost limit is no error here,
    /// because the number of evaluations depends on the enclosing schemas: see [`rule_too_costly`].
    pub fn compile_rule(&self, rule: &str, old_self: OldSelf) -> Result<Rule, RuleError> {
        if rule.trim().is_empty() {
            return Err(RuleError::Empty);
        }
        self.compile(rule, old_self, &Type::Bool)
            .map_err(RuleError::Rule)
    }

    /// Compiles the message expression of a rule and estimates its cost.
    ///
    /// # Errors
    ///
    /// [`RuleError`], with Kubernetes' error text.
    pub fn compile_message(&self, text: &str, old_self: OldSelf) -> Result<Rule, RuleError> {
        self.compile(text, old_self, &Type::String)
            .map_err(RuleError::Message)
    }

    fn compile(
        &self,
        text: &str,
        old_self: OldSelf,
        expected: &Type,
    ) -> Result<Rule, CompileError> {
        let env = self.environment(old_self);
        let failed = |issues: Vec<Issue>| {
            let rendered = render(text, &issues);
            CompileError::Issues { issues, rendered }
        };
        let ast = syntax::parse(text).map_err(failed)?;
        let checked = check::check(ast, env).map_err(failed)?;
        if !checked.output().is_exactly(expected) {
            return Err(CompileError::Type {
                expected: expected.to_string(),
                found: checked.output().to_string(),
            });
        }
        let program = eval::plan(&checked, env).map_err(CompileError::Program)?;
        Ok(Rule {
            program,
            max_cost: check::estimate(&checked, &self.declared).max,
            max_cardinality: self.declared.max_cardinality(),
            uses_old_self: checked.names("oldSelf"),
        })
    }
}

impl Rule {
    /// The program of the rule, for recorded evaluations.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The maximum cost of one evaluation of the rule, given the size bounds of its schema.
    #[must_use]
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// The maximum number of evaluations of the rule per request if no enclosing schema is bounded.
    #[must_use]
    pub fn max_cardinality(&self) -> u64 {
        self.max_cardinality
    }

    /// The maximum cost of all evaluations of the rule per request.
    ///
    /// `cardinality` is the product of `maxItems` and `maxProperties` of the enclosing schemas, or
    /// `None` if one of them is unbounded.
    #[must_use]
    pub fn total_cost(&self, cardinality: Option<u64>) -> u64 {
        self.max_cost
            .saturating_mul(cardinality.unwrap_or(self.max_cardinality))
    }

    /// Returns true if the rule uses `oldSelf`, or a loop variable of that name.
    #[must_use]
    pub fn uses_old_self(&self) -> bool {
        self.uses_old_self
    }

    /// Evaluates the rule.
    ///
    /// A rule that [uses](Self::uses_old_self) `oldSelf` must be skipped without an old value,
    /// unless `oldSelf` is optional.
    #[must_use]
    pub fn evaluate<'a>(&'a self, inputs: &'a Inputs<'a>, limits: Limits<'_>) -> Evaluation<'a> {
        evaluate(&self.program, &inputs.0, limits)
    }
}

/// The variables of a rule.
#[derive(Debug)]
pub struct Inputs<'a>(Vec<Value<'a>>);

impl<'a> Inputs<'a> {
    /// The values in order of declaration.
    #[must_use]
    pub fn values(&self) -> &[Value<'a>] {
        &self.0
    }

    /// Borrows values of a schema; for the root of a resource, the schema must be [a root
    /// schema](Schema::into_resource_root).
    #[must_use]
    pub fn new(schema: &'a Schema, value: &'a Json, old: Option<&'a Json>, as_: OldSelf) -> Self {
        let old = old.filter(|old| !old.is_null());
        let old = old.map(|old| typed(old, schema));
        let mut inputs = vec![typed(value, schema)];
        match as_ {
            OldSelf::Value => inputs.extend(old),
            OldSelf::Optional => inputs.push(old.map_or(Value::Optional(None), Value::some)),
        }
        Self(inputs)
    }
}

/// The error for a rule whose total cost exceeds the limit.
///
/// ```
/// use lockgate_cel::crd::rule_too_costly;
/// assert_eq!(rule_too_costly(10_000_000), None);
/// assert!(rule_too_costly(20_000_000).unwrap().starts_with(
///     "estimated rule cost exceeds budget by factor of 2.0x (try simplifying the rule, "));
/// ```
#[must_use]
pub fn rule_too_costly(cost: u64) -> Option<String> {
    too_costly("estimated rule cost", cost, ESTIMATED_RULE_LIMIT)
}

/// The error for a message expression whose cost exceeds the limit.
#[must_use]
pub fn message_too_costly(cost: u64) -> Option<String> {
    too_costly(
        "estimated messageExpression cost",
        cost,
        ESTIMATED_RULE_LIMIT,
    )
}

/// The error for a custom resource whose total rule cost exceeds the limit.
#[must_use]
pub fn resource_too_costly(cost: u64) -> Option<String> {
    const ALL: &str =
        "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
    too_costly(ALL, cost, ESTIMATED_RESOURCE_LIMIT)
}

fn too_costly(what: &str, cost: u64, limit: u64) -> Option<String> {
    if cost <= limit {
        return None;
    }
    let times = cost as f64 / limit as f64;
    let factor = if times > 100.0 {
        "more than 100x".to_owned()
    } else if times < 1.5 {
        // With one digit, the message would say that the budget is exceeded by 1.0x.
        format!("{times:.6}x")
    } else {
        format!("{times:.1}x")
    };
    Some(format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding \
         maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    ))
}
