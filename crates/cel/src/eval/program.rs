//! A planned expression: what the evaluator walks.

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

/// An expression ready to be evaluated, any number of times and on any thread.
#[derive(Debug)]
pub struct Program {
    pub(crate) steps: Vec<Step>,
    /// For each step, the text it comes from; nothing for those only a macro contains.
    pub(crate) spans: Vec<Span>,
    pub(crate) root: StepId,
    /// The deepest nesting of steps.
    pub(crate) depth: usize,
    /// Most loop variables alive at once.
    pub(crate) slots: usize,
    /// Variables the expression mentions, as bits by position.
    pub(crate) variables: u64,
    pub(crate) output: Type,
}

impl Program {
    /// The type of the result.
    #[must_use]
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// Returns true if the expression mentions the variable at this position of its environment.
    /// Only the first 64 are told apart; the others count as mentioned.
    #[must_use]
    pub fn mentions(&self, variable: usize) -> bool {
        variable >= 64 || self.variables & (1 << variable) != 0
    }

    /// The parts of the text that are evaluated on their own; literals and what only a macro contains are
    /// left out, as a recording leaves them out.
    pub fn parts(&self) -> impl Iterator<Item = Span> {
        let parts = self.steps.iter().zip(&self.spans);
        parts
            .filter(|(step, span)| !matches!(step, Step::Const(_)) && !span.is_empty())
            .map(|(_, span)| *span)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "step ids are made by the planner of this program"
    )]
    pub(crate) fn step(&self, id: StepId) -> &Step {
        &self.steps[id as usize]
    }
}

/// One step of a program.
#[derive(Debug)]
pub(crate) enum Step {
    Const(Value<'static>),
    /// A constant whose computation failed when the program was built.
    Failed(Error),
    Attribute(Attribute),
    /// Fields of a variable, one after the other: the attribute there is most of.
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
    /// Collects what `body`, a list of one element, yields for each item.
    Collect(Box<Loop>, Option<StepId>),
    /// Adds the entries `body` yields for each item to a map.
    CollectMap(Box<Loop>, Option<StepId>, MapBody),
    /// Evaluates `result` with a name for `value`, which is computed when first used.
    Bind {
        slot: u16,
        value: StepId,
        result: StepId,
    },
}

/// A step that yields true or false, or fails.
#[derive(Debug)]
pub(crate) enum Test {
    And(StepId, StepId),
    Or(StepId, StepId),
    Not(StepId),
    Equals(StepId, StepId),
    NotEquals(StepId, StepId),
    /// A comparison with a constant text, or a search for one.
    Text(Box<TextTest>),
    /// The last field of a path is present.
    Has(Box<Path>),
    Ordered(Comparison, StepId, StepId, CallCost),
    In(StepId, StepId, CallCost),
    InSet(StepId, Box<ConstSet>),
    All(Box<Loop>),
    Exists(Box<Loop>),
    ExistsOne(Box<Loop>),
    /// A test that is tried without the machine first.
    Direct(StepId),
}

/// The operators that compute.
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

/// The operators that compare by order.
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

/// The code a call runs.
#[derive(Debug)]
pub(crate) enum Target {
    /// One known overload.
    Overload(OverloadId, Implementation),
    /// The first overload that fits the arguments.
    Dispatch(&'static Function),
    /// A function that looks at its arguments itself.
    Any(Implementation),
    /// A search for a pattern known beforehand.
    Pattern(Regex, PatternCall),
}

/// The use of a pattern.
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

/// A protobuf message that stands for a plain value.
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

/// The form in which the body of a map-building loop gives its entries.
#[derive(Debug)]
pub(crate) enum MapBody {
    /// The loop's key, with the body as value.
    Value,
    /// The body is a map whose entries are added.
    Entries,
}

/// A variable or another value, and what is selected from it step by step.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) root: Root,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// True for `has()`: only the presence of the last selection matters.
    pub(crate) test: bool,
}

/// Fields selected from a variable by name.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) fields: Vec<Box<str>>,
    /// The position among the fields that inputs may know.
    pub(crate) known: Option<usize>,
    /// The same as an attribute, for values that are not what they usually are.
    pub(crate) attribute: Attribute,
}

/// A test of some text against a constant one.
#[derive(Debug)]
pub(crate) struct TextTest {
    pub(crate) kind: TextTestKind,
    pub(crate) operand: StepId,
    pub(crate) text: Arc<str>,
    /// A tenth of the constant's length.
    pub(crate) units: u64,
    /// The same as an ordinary step, for operands that are no text.
    pub(crate) general: Step,
}

impl TextTest {
    /// The answer for a text, and the charge.
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

/// The test of a text.
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
    /// True for `has()`: only presence matters.
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

/// The elements of a constant list, for quick membership tests.
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

/// Sets with more texts than this are hashed.
const SMALL_SET: usize = 8;

impl ConstSet {
    /// The set of these values, unless one of them is no scalar.
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
