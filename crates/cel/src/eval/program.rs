//! A planned expression, for the interpreter.

use std::sync::Arc;

use lockgate_go::regex::Regex;

use crate::check::{Function, OverloadId};
use crate::eval::cost::{CallCost, tenth_of};
use crate::eval::functions::Implementation;
use crate::source::Span;
use crate::types::Type;
use crate::value::{Error, Value};

/// The index of a step in its [`Program`].
pub(crate) type StepId = u32;

/// A compiled expression, which can be evaluated any number of times and on any thread.
#[derive(Debug)]
pub struct Program {
    pub(crate) steps: Vec<Step>,
    /// For each step, its source span; empty for steps that only occur in the expansion of a macro.
    pub(crate) spans: Vec<Span>,
    pub(crate) root: StepId,
    /// The maximum nesting of steps.
    pub(crate) depth: usize,
    /// The maximum number of live loop variables.
    pub(crate) slots: usize,
    /// The used variables, as a bit set by position.
    pub(crate) variables: u64,
    pub(crate) output: Type,
}

impl Program {
    /// The type of the result.
    #[must_use]
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// Returns true if the expression uses the variable at this position of its environment. Only the
    /// first 64 are distinguished; all others count as used.
    #[must_use]
    pub fn mentions(&self, variable: usize) -> bool {
        variable >= 64 || self.variables & (1 << variable) != 0
    }

    /// The separately evaluated subexpressions; literals and steps of macro expansions are excluded, as
    /// in recordings.
    pub fn parts(&self) -> impl Iterator<Item = Span> {
        let parts = self.steps.iter().zip(&self.spans);
        parts
            .filter(|(step, span)| !matches!(step, Step::Const(_)) && !span.is_empty())
            .map(|(_, span)| *span)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "step ids are created by the planner of this program"
    )]
    pub(crate) fn step(&self, id: StepId) -> &Step {
        &self.steps[id as usize]
    }
}

/// One step of a program.
#[derive(Debug)]
pub(crate) enum Step {
    Const(Value<'static>),
    /// A constant whose evaluation failed at compile time.
    Failed(Error),
    Attribute(Attribute),
    /// A chain of fields of a variable: the most common attribute.
    Path(Box<Path>),
    Test(Test),
    Negate(StepId),
    Arithmetic(Arithmetic, StepId, StepId, CallCost),
    OptionalOr(StepId, StepId),
    OptionalOrValue(StepId, StepId),
    Call(Box<Call>),
    List(Vec<StepId>, Vec<bool>),
    Map(Vec<MapEntry>),
    Message(Box<Message>),
    /// Collects the results of `body`, a list of one element, for each item.
    Collect(Box<Loop>, Option<StepId>),
    /// Adds the results of `body` for each item to a map.
    CollectMap(Box<Loop>, Option<StepId>, MapBody),
    /// Evaluates `result` with a variable bound to `value`, which is evaluated on first use.
    Bind {
        slot: u16,
        value: StepId,
        result: StepId,
    },
}

/// A step with a boolean result or an error.
#[derive(Debug)]
pub(crate) enum Test {
    And(StepId, StepId),
    Or(StepId, StepId),
    Not(StepId),
    Equals(StepId, StepId),
    NotEquals(StepId, StepId),
    /// A comparison or search with a constant string.
    Text(Box<TextTest>),
    /// Tests the presence of the last field of a path.
    Has(Box<Path>),
    Ordered(Comparison, StepId, StepId, CallCost),
    In(StepId, StepId, CallCost),
    InSet(StepId, Box<ConstSet>),
    All(Box<Loop>),
    Exists(Box<Loop>),
    ExistsOne(Box<Loop>),
    /// A test that is first evaluated without the machine.
    Direct(StepId),
}

/// The arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Arithmetic {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
        }
    }
}

/// The ordering operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
}

impl Comparison {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Less => "_<_",
            Self::LessEquals => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterEquals => "_>=_",
        }
    }
}

/// A function call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: &'static str,
    pub(crate) args: Vec<StepId>,
    pub(crate) target: Target,
    pub(crate) cost: CallCost,
    /// True if the arguments after a failed one are not evaluated.
    pub(crate) stops_early: bool,
}

/// The implementation of a call.
#[derive(Debug)]
pub(crate) enum Target {
    /// One statically resolved overload.
    Overload(OverloadId, Implementation),
    /// The first matching overload.
    Dispatch(&'static Function),
    /// A function that checks its arguments itself.
    Any(Implementation),
    /// A search for a precompiled pattern.
    Pattern(Regex, PatternCall),
}

/// The function that uses a pattern.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PatternCall {
    Matches,
    Find,
    FindAll,
}

/// A key with its value in a map literal.
#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: StepId,
    pub(crate) value: StepId,
    pub(crate) optional: bool,
}

/// A protobuf message with a native CEL value.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) type_name: Box<str>,
    pub(crate) fields: Vec<MessageField>,
}

/// A field with its value in a message.
#[derive(Debug)]
pub(crate) struct MessageField {
    pub(crate) name: Box<str>,
    pub(crate) value: StepId,
    pub(crate) optional: bool,
}

/// A loop over a list or map.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) range: StepId,
    pub(crate) slot: u16,
    pub(crate) slot2: Option<u16>,
    pub(crate) body: StepId,
}

/// The form of the entries in the body of a map-building loop.
#[derive(Debug)]
pub(crate) enum MapBody {
    /// The loop's key, with the body as value.
    Value,
    /// The body is a map whose entries are added.
    Entries,
}

/// A variable or another value, and a chain of selections from it.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) root: Root,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// True for `has()`: only the presence of the last selection is tested.
    pub(crate) test: bool,
}

/// Fields selected from a variable by name.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) fields: Vec<Box<str>>,
    /// The index among the precomputed fields of inputs.
    pub(crate) known: Option<usize>,
    /// The same as an attribute, as fallback for unusual values.
    pub(crate) attribute: Attribute,
}

/// A test of a string against a constant.
#[derive(Debug)]
pub(crate) struct TextTest {
    pub(crate) kind: TextTestKind,
    pub(crate) operand: StepId,
    pub(crate) text: Arc<str>,
    /// A tenth of the constant's length.
    pub(crate) units: u64,
    /// The same as a general step, as fallback for operands of other types.
    pub(crate) general: Step,
}

impl TextTest {
    /// The result for a string, and its cost.
    #[inline(always)]
    pub(crate) fn compare(&self, text: &str) -> (bool, u64) {
        let wanted = &*self.text;
        let units = tenth_of(text);
        match self.kind {
            TextTestKind::Equal => (text == wanted, units.min(self.units)),
            TextTestKind::NotEqual => (text != wanted, units.min(self.units)),
            TextTestKind::StartsWith => (text.starts_with(wanted), units),
            TextTestKind::EndsWith => (text.ends_with(wanted), units),
            TextTestKind::Contains => (text.contains(wanted), units * self.units),
        }
    }
}

/// The kind of a string test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextTestKind {
    Equal,
    NotEqual,
    StartsWith,
    EndsWith,
    Contains,
}

/// The start of an attribute.
#[derive(Debug, Clone)]
pub(crate) enum Root {
    Variable(u16),
    Local(u16),
    Step(StepId),
    Conditional(StepId, Box<Attribute>, Box<Attribute>),
}

/// One selection.
#[derive(Debug, Clone)]
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    pub(crate) optional: bool,
    /// True for `has()`: only presence is tested.
    pub(crate) test: bool,
}

/// The key of a selection.
#[derive(Debug, Clone)]
pub(crate) enum QualifierKey {
    Field(Arc<str>),
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    Step(StepId),
}

/// The elements of a constant list, for fast membership tests.
#[derive(Debug, Default)]
pub(crate) struct ConstSet {
    texts: Vec<Box<str>>,
    index: std::collections::HashSet<Box<str>>,
    ints: Vec<i64>,
    uints: Vec<u64>,
    doubles: Vec<f64>,
    yes: bool,
    no: bool,
}

/// Sets with more strings than this are hashed.
const SMALL_SET: usize = 8;

impl ConstSet {
    /// Creates the set of these values, unless one of them is not a scalar.
    ///
    /// UPSTREAM: cel-go interpreter/decorators.go maybeOptimizeSetMembership
    pub(crate) fn new<'v>(values: impl Iterator<Item = Value<'v>>) -> Option<Self> {
        let mut set = Self::default();
        for value in values {
            match &value {
                Value::Bool(true) => set.yes = true,
                Value::Bool(false) => set.no = true,
                Value::Double(d) => {
                    set.doubles.push(*d);
                    let int = lockgate_go::number::double_to_int(*d).ok();
                    set.ints.extend(int.filter(|i| *i as f64 == *d));
                    let uint = lockgate_go::number::double_to_uint(*d).ok();
                    set.uints.extend(uint.filter(|u| *u as f64 == *d));
                }
                Value::Int(i) => {
                    set.ints.push(*i);
                    set.doubles.push(*i as f64);
                    set.uints.extend(u64::try_from(*i));
                }
                Value::Uint(u) => {
                    set.uints.push(*u);
                    set.doubles.push(*u as f64);
                    set.ints.extend(i64::try_from(*u));
                }
                other => set.texts.push(other.as_str()?.into()),
            }
        }
        if set.texts.len() > SMALL_SET {
            set.index = set.texts.drain(..).collect();
        }
        Some(set)
    }

    pub(crate) fn contains(&self, value: &Value<'_>) -> bool {
        match value {
            Value::Bool(true) => self.yes,
            Value::Bool(false) => self.no,
            Value::Int(i) => self.ints.contains(i),
            Value::Uint(u) => self.uints.contains(u),
            Value::Double(d) => self.doubles.contains(d),
            other => other.as_str().is_some_and(|text| self.contains_text(text)),
        }
    }

    pub(crate) fn contains_text(&self, text: &str) -> bool {
        self.texts.iter().any(|t| **t == *text) || self.index.contains(text)
    }
}
