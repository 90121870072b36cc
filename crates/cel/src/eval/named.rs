//! Named expressions (the `variables` of policies): evaluated when first selected, and then cached.
//!
//! Each runs as a separate program with a separate limit. Its cost is not part of the selecting
//! expression's, and is counted once, here.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/cel/composition.go, pkg/cel/lazy/lazy.go

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;

use lockgate_go::quote::quote;

use crate::eval::attribute::no_such_key;
use crate::eval::cost::Argument;
use crate::eval::inputs::Inputs;
use crate::eval::machine::{Evaluation, Limits, run, run_recorded};
use crate::eval::program::Program;
use crate::eval::record::{RecordedExpression, Recording};
use crate::syntax::identifier::unescape;
use crate::value::{Error, Value};

/// The maximum nesting of steps across variables that select one another.
///
/// One expression nests at most a few hundred; the limit protects the stack.
const MAX_DEPTH: usize = 600;
/// With more variables, names are looked up in a map.
const FEW: usize = 32;
/// The steps an evaluation counts for, in addition to those of its program.
const EVALUATION: usize = 4;

/// A variable of a policy.
#[derive(Debug)]
pub struct NamedExpression<'a> {
    /// The name of the variable.
    pub name: &'a str,
    /// The program, or the compilation error.
    pub program: Result<&'a Program, &'a (dyn std::error::Error + Send + Sync)>,
}

/// The state of a variable.
#[derive(Debug, Clone)]
enum Known<'a> {
    Nothing,
    /// It is being evaluated by a caller.
    Running,
    Outcome(Argument<'a>),
}

/// The variables of one evaluation of a policy, and their inputs.
///
/// The input [`Value::Variables`] refers to them.
#[derive(Debug)]
pub struct Named<'a> {
    expressions: &'a [NamedExpression<'a>],
    inputs: Inputs<'a>,
    limits: Limits<'a>,
    known: RefCell<Vec<Known<'a>>>,
    names: OnceCell<HashMap<&'a str, usize>>,
    cost: Cell<u64>,
    depth: Cell<usize>,
    /// The evaluated variables, if they are recorded.
    records: Option<RefCell<Vec<RecordedExpression>>>,
}

impl<'a> Named<'a> {
    /// Creates the variables of an evaluation, each within `limits`. For duplicate names, the last
    /// one is used.
    #[must_use]
    pub fn new(
        expressions: &'a [NamedExpression<'a>],
        inputs: impl Into<Inputs<'a>>,
        limits: Limits<'a>,
    ) -> Self {
        Self {
            expressions,
            inputs: inputs.into(),
            limits,
            known: RefCell::new(vec![Known::Nothing; expressions.len()]),
            names: OnceCell::new(),
            cost: Cell::new(0),
            depth: Cell::new(0),
            records: None,
        }
    }

    /// Records each variable that is evaluated.
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.records = Some(RefCell::default());
        self
    }

    /// Returns true if variables are recorded.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.records.is_some()
    }

    /// Takes the variables recorded since the last call.
    #[must_use]
    pub fn take_records(&self) -> Vec<RecordedExpression> {
        let records = self.records.as_ref();
        records.map(RefCell::take).unwrap_or_default()
    }

    /// Evaluates a program that may select variables.
    ///
    /// The cost is that of the program alone; the cost of variables is in [`Self::take_cost`].
    #[must_use]
    pub fn evaluate(&self, program: &'a Program) -> Evaluation<'a> {
        self.nested(program, || {
            run(program, self.inputs, self.limits, Some(self))
        })
    }

    /// Like [`Self::evaluate`], and records each step of the program.
    #[must_use]
    pub fn evaluate_recorded(&self, program: &'a Program) -> (Evaluation<'a>, Recording) {
        self.nested(program, || {
            run_recorded(program, self.inputs, self.limits, Some(self))
        })
    }

    /// Returns the cost of variables since the last call.
    #[must_use]
    pub fn take_cost(&self) -> u64 {
        self.cost.take()
    }

    fn nested<R>(&self, program: &Program, evaluate: impl FnOnce() -> R) -> R {
        let before = self.depth.get();
        self.depth.set(before + program.depth + EVALUATION);
        let outcome = evaluate();
        self.depth.set(before);
        outcome
    }

    pub(crate) fn len(&self) -> usize {
        self.expressions.len()
    }

    /// The outcome of the variable at an index.
    pub(crate) fn at(&self, at: usize) -> Option<Argument<'a>> {
        let expression = self.expressions.get(at)?;
        let known = self.known.borrow().get(at)?.clone();
        let outcome = match known {
            Known::Outcome(outcome) => return Some(outcome),
            Known::Running => return Some(Err(unevaluated(expression.name, "it selects itself"))),
            Known::Nothing => {
                self.know(at, Known::Running);
                self.outcome(expression)
            }
        };
        self.know(at, Known::Outcome(outcome.clone()));
        Some(outcome)
    }

    /// The outcome of the variable with a name, as spelled in an expression.
    pub(crate) fn select(&self, name: &str) -> Option<Argument<'a>> {
        let name = unescape(name)?;
        let mut names = self.expressions.iter().map(|expression| expression.name);
        if self.expressions.len() <= FEW {
            return self.at(names.rposition(|known| known == name)?);
        }
        let names = self.names.get_or_init(|| names.zip(0..).collect());
        self.at(*names.get(&*name)?)
    }

    /// The outcome of the variable with a name given as a value.
    pub(crate) fn get(&self, key: &Value<'_>) -> Argument<'a> {
        let name = key.as_str().ok_or_else(Error::no_such_overload)?;
        self.select(name).unwrap_or_else(|| Err(no_such_key(key)))
    }

    fn know(&self, at: usize, known: Known<'a>) {
        if let Some(place) = self.known.borrow_mut().get_mut(at) {
            *place = known;
        }
    }

    fn outcome(&self, expression: &NamedExpression<'a>) -> Argument<'a> {
        let name = expression.name;
        let program = match &expression.program {
            Ok(program) => *program,
            Err(reason) => {
                return Err(Error::text(format_args!(
                    "composited variable {} fails to compile: {reason}",
                    quote(name)
                )));
            }
        };
        if self.depth.get() + program.depth > MAX_DEPTH {
            return Err(unevaluated(name, "variables are nested too deeply"));
        }
        let Evaluation { value, cost } = match &self.records {
            None => self.evaluate(program),
            Some(records) => {
                let (evaluation, recording) = self.evaluate_recorded(program);
                let outcome = evaluation.value.as_ref().map_err(ToString::to_string);
                let record = RecordedExpression::new(name, outcome, evaluation.cost);
                records.borrow_mut().push(RecordedExpression {
                    recording,
                    ..record
                });
                evaluation
            }
        };
        self.cost.set(self.cost.get().saturating_add(cost));
        // Even its exceeded cost limit is an ordinary error to the selecting expression.
        value.map_err(|error| unevaluated(name, error))
    }
}

fn unevaluated(name: &str, reason: impl std::fmt::Display) -> Error {
    Error::text(format_args!(
        "composited variable {} fails to evaluate: {reason}",
        quote(name)
    ))
}
