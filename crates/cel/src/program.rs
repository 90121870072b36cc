//! Compilation, and the program cache.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::check::{self, Checked, Environment, Estimate, Sizes};
use crate::eval::{self, PlanError, Program};
use crate::source::{Issue, render};
use crate::syntax;
use crate::types::Type;

/// An expression that does not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileError {
    /// The expression has syntax or type errors.
    Issues {
        /// The issues, with their positions.
        issues: Vec<Issue>,
        /// The complete error text as Kubernetes prints it.
        rendered: String,
    },
    /// The result is of none of the expected types.
    TypeOneOf {
        /// The expected types.
        expected: Vec<String>,
        /// The type of the result.
        found: String,
    },
    /// The result is not of the expected type.
    Type {
        /// The expected type.
        expected: String,
        /// The type of the result.
        found: String,
    },
    /// A constant subexpression always fails.
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

/// Like [`compile`], for a result of exactly one of several types; an empty list allows any type.
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

/// The minimum and maximum cost of an expression, without evaluating it.
///
/// `sizes` provides the sizes of inputs.
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

/// The result type of an expression, without planning it.
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

/// A program cache: equal expressions share one program.
///
/// The cache holds weak references; a program is dropped with its last user.
#[derive(Debug, Default)]
pub struct ProgramCache {
    programs: Mutex<HashMap<String, Weak<Program>>>,
}

/// The number of entries at which dropped programs are first removed, and again at each power of
/// two above it.
const SWEEP_AT: usize = 256;

impl ProgramCache {
    /// Returns the cached program of an expression, or compiles it.
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
        // Another thread may have compiled it meanwhile: use that program.
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
