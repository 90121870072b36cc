//! From text to a program, and programs shared by text.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::check::{self, Environment};
use crate::eval::{self, Program};
use crate::source::{Issue, render};
use crate::syntax;
use crate::types::Type;

/// Why an expression does not become a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileError {
    /// The text is no expression, or not of this environment.
    Issues {
        /// What is wrong, each with its place.
        issues: Vec<Issue>,
        /// All of it as Kubernetes prints it.
        rendered: String,
    },
    /// The result is of another type than asked for.
    Type {
        /// The type asked for.
        expected: String,
        /// The type of the result.
        found: String,
    },
    /// A constant part of the expression can never work.
    Program(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issues { rendered, .. } => write!(f, "compilation failed: {rendered}"),
            Self::Type { expected, found } => {
                write!(f, "must evaluate to {expected} but got {found}")
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
/// What Kubernetes says about the expression.
pub fn compile(
    expression: &str,
    env: &Environment,
    expected: Option<&Type>,
) -> Result<Program, CompileError> {
    let failed = |issues: Vec<Issue>| {
        let rendered = render(expression, &issues);
        CompileError::Issues { issues, rendered }
    };
    let ast = syntax::parse(expression).map_err(failed)?;
    let checked = check::check(ast, env).map_err(failed)?;
    if let Some(expected) = expected
        && !checked.output().is_exactly(expected)
    {
        return Err(CompileError::Type {
            expected: expected.to_string(),
            found: checked.output().to_string(),
        });
    }
    eval::plan(&checked, env).map_err(CompileError::Program)
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
    /// What `compile` says; errors are not remembered.
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
