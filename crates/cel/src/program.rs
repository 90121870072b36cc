//! From text to a program, and programs shared by text.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::check::{self, Checked, Environment, Estimate, Sizes};
use crate::eval::{self, PlanError, Program};
use crate::source::{Issue, render};
use crate::syntax;
use crate::types::Type;

/// An expression that does not become a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileError {
    /// The text is no expression, or not of this environment.
    Issues {
        /// The issues, each with its place.
        issues: Vec<Issue>,
        /// All of it as Kubernetes prints it.
        rendered: String,
    },
    /// The result is of none of the types asked for.
    TypeOneOf {
        /// The types asked for.
        expected: Vec<String>,
        /// The type of the result.
        found: String,
    },
    /// The result is of another type than asked for.
    Type {
        /// The type asked for.
        expected: String,
        /// The type of the result.
        found: String,
    },
    /// A constant part of the expression can never work.
    Program(PlanError),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issues { rendered, .. } => write!(f, "compilation failed: {rendered}"),
            Self::Type { expected, found } => {
                write!(f, "must evaluate to {expected} but got {found}")
            }
            Self::TypeOneOf { expected, found } => {
                let expected = expected.join(" ");
                write!(f, "must evaluate to one of [{expected}] but got {found}")
            }
            Self::Program(reason) => write!(f, "program instantiation failed: {reason}"),
        }
    }
}

impl std::error::Error for CompileError {}

/// Parses, checks and plans an expression.
///
/// With `expected`, the result must be of exactly that type.
///
/// # Errors
///
/// The error Kubernetes reports for the expression.
pub fn compile(
    expression: &str,
    env: &Environment,
    expected: Option<&Type>,
) -> Result<Program, CompileError> {
    compile_one_of(expression, env, expected.map_or(&[], std::slice::from_ref))
}

/// The same for a result that must be of exactly one of some types; of any type without any.
///
/// # Errors
///
/// The error Kubernetes reports for the expression.
pub fn compile_one_of(
    expression: &str,
    env: &Environment,
    expected: &[Type],
) -> Result<Program, CompileError> {
    let checked = checked(expression, env)?;
    let fits = |expected: &Type| checked.output().is_exactly(expected);
    if !expected.is_empty() && !expected.iter().any(fits) {
        let found = checked.output().to_string();
        return Err(match expected {
            [expected] => CompileError::Type {
                expected: expected.to_string(),
                found,
            },
            expected => CompileError::TypeOneOf {
                expected: expected.iter().map(ToString::to_string).collect(),
                found,
            },
        });
    }
    eval::plan(&checked, env).map_err(CompileError::Program)
}

/// The least and the most an expression can cost, before it runs.
///
/// `sizes` knows how large the inputs can be.
///
/// # Errors
///
/// The error Kubernetes reports for an expression that does not compile.
pub fn estimate_cost(
    expression: &str,
    env: &Environment,
    sizes: &dyn Sizes,
) -> Result<Estimate, CompileError> {
    Ok(check::estimate(&checked(expression, env)?, sizes))
}

/// The type of an expression's result. No program is made.
///
/// # Errors
///
/// The error Kubernetes reports for an expression that does not compile.
pub fn type_of(expression: &str, env: &Environment) -> Result<Type, CompileError> {
    checked(expression, env).map(|checked| checked.output().clone())
}

fn checked<'e>(expression: &'e str, env: &Environment) -> Result<Checked<'e>, CompileError> {
    let failed = |issues: Vec<Issue>| {
        let rendered = render(expression, &issues);
        CompileError::Issues { issues, rendered }
    };
    let ast = syntax::parse(expression).map_err(failed)?;
    check::check(ast, env).map_err(failed)
}

/// Programs by text: identical expressions share one.
///
/// A program lives as long as somebody uses it; the cache only remembers it.
#[derive(Debug, Default)]
pub struct ProgramCache {
    programs: Mutex<HashMap<String, Weak<Program>>>,
}

/// Forgotten programs are swept out when there are this many entries, and then at twice that.
const SWEEP_AT: usize = 256;

impl ProgramCache {
    /// The program of an expression, from the cache or from `compile`.
    ///
    /// # Errors
    ///
    /// The error of `compile`; errors are not cached.
    pub fn get_or_compile<E>(
        &self,
        expression: &str,
        compile: impl FnOnce(&str) -> Result<Program, E>,
    ) -> Result<Arc<Program>, E> {
        let lock = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = lock().get(expression).and_then(Weak::upgrade) {
            return Ok(program);
        }
        let program = Arc::new(compile(expression)?);
        let mut programs = lock();
        // Somebody else may have been as quick: then there is one all the same.
        if let Some(program) = programs.get(expression).and_then(Weak::upgrade) {
            return Ok(program);
        }
        if programs.len() >= SWEEP_AT && programs.len().is_power_of_two() {
            programs.retain(|_, program| program.strong_count() > 0);
        }
        programs.insert(expression.to_owned(), Arc::downgrade(&program));
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identical_expressions_share_a_program() {
        let cache = ProgramCache::default();
        let env = Environment::new();
        let get = || {
            cache
                .get_or_compile("1 + 1", |text| compile(text, &env, None))
                .unwrap()
        };
        let first = get();
        assert!(Arc::ptr_eq(&first, &get()));
    }

    #[test]
    fn the_type_is_looked_at_before_the_constants() {
        let error = compile("int('x')", &Environment::new(), Some(&Type::Bool)).unwrap_err();
        assert_eq!(error.to_string(), "must evaluate to bool but got int");
    }
}
