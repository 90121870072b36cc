//! Records the results of subexpressions, for explanations.
//!
//! The evaluator is monomorphised twice: with [`NoTrace`], which is a no-op, and with a
//! [`Recording`].

use std::fmt::{self, Write as _};

use serde_json::Value as Json;

use lockgate_go::quote::{quote, quote_bytes};

use crate::eval::cost::Argument;
use crate::source::Span;
use crate::value::Value;

/// The maximum number of steps in a recording.
pub const MAX_RECORDED: usize = 10_000;
/// The maximum bytes of a recorded value, without the ellipsis.
const MAX_TEXT: usize = 500;

/// Observes every step of an evaluation.
pub(crate) trait Trace {
    /// True if steps may be fused, where that is not observable.
    const FUSES: bool;
    /// The handle from the start of a step to its end.
    type Place: Copy;

    fn enter(&mut self, span: impl FnOnce() -> Span, cost: u64) -> Self::Place;
    fn leave(&mut self, place: Self::Place, outcome: &Argument<'_>, cost: u64);
}

/// A no-op trace, without cost.
#[derive(Debug)]
pub(crate) struct NoTrace;

impl Trace for NoTrace {
    const FUSES: bool = true;
    type Place = ();

    #[inline(always)]
    fn enter(&mut self, _: impl FnOnce() -> Span, _: u64) {}

    #[inline(always)]
    fn leave(&mut self, (): (), _: &Argument<'_>, _: u64) {}
}

/// One step of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The subexpression.
    pub span: Span,
    /// The number of recorded enclosing subexpressions.
    pub depth: u32,
    /// The value or the error.
    pub outcome: RecordedOutcome,
    /// Units charged before it started.
    pub before: u64,
    /// Units charged for it, its subexpressions included.
    pub cost: u64,
}

/// The outcome of a step as a string, truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// The value, as written in an expression.
    Value(String),
    /// The message of the error.
    Error(String),
}

/// The steps of an evaluation in the order they started, each followed by its subexpressions.
///
/// Literals and folded constants are not recorded. The body of a loop is recorded for each
/// iteration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// The first steps, at most [`MAX_RECORDED`].
    pub steps: Vec<Recorded>,
    /// The number of omitted steps.
    pub omitted: u64,
    depth: u32,
}

/// An expression with its outcome and those of its subexpressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedExpression {
    /// The name, if any.
    pub name: String,
    /// The value or the error.
    pub outcome: RecordedOutcome,
    /// Units charged for it. Variables that it selects are charged separately.
    pub cost: u64,
    /// The subexpressions.
    pub recording: Recording,
}

impl RecordedExpression {
    pub(crate) fn new(name: &str, outcome: Result<&Value<'_>, String>, cost: u64) -> Self {
        Self {
            name: name.to_owned(),
            outcome: match outcome {
                Ok(value) => RecordedOutcome::Value(clipped(|text| write_value(value, text))),
                Err(error) => RecordedOutcome::Error(error),
            },
            cost,
            recording: Recording::default(),
        }
    }
}

/// The position of a step in the recording.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// The step is not in the source.
    Hidden,
    /// The recording is full.
    Omitted,
    At(usize),
}

impl Trace for Recording {
    const FUSES: bool = false;
    type Place = Place;

    fn enter(&mut self, span: impl FnOnce() -> Span, cost: u64) -> Place {
        let span = span();
        if span.is_empty() {
            return Place::Hidden;
        }
        self.depth += 1;
        if self.steps.len() >= MAX_RECORDED {
            self.omitted += 1;
            return Place::Omitted;
        }
        self.steps.push(Recorded {
            span,
            depth: self.depth - 1,
            outcome: RecordedOutcome::Value(String::new()),
            before: cost,
            cost: 0,
        });
        Place::At(self.steps.len() - 1)
    }

    fn leave(&mut self, place: Place, outcome: &Argument<'_>, cost: u64) {
        let at = match place {
            Place::Hidden => return,
            Place::Omitted => usize::MAX,
            Place::At(at) => at,
        };
        self.depth -= 1;
        if let Some(step) = self.steps.get_mut(at) {
            step.outcome = match outcome {
                Ok(value) => RecordedOutcome::Value(clipped(|text| write_value(value, text))),
                Err(error) => RecordedOutcome::Error(clipped(|text| write!(text, "{error}"))),
            };
            step.cost = cost.saturating_sub(step.before);
        }
    }
}

/// A string with a maximum length, beyond which formatting stops.
struct Clipped(String);

impl fmt::Write for Clipped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_TEXT.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let cut = text.floor_char_boundary(room);
        self.0.push_str(text.get(..cut).unwrap_or_default());
        Err(fmt::Error)
    }
}

fn clipped(write: impl FnOnce(&mut Clipped) -> fmt::Result) -> String {
    let mut text = Clipped(String::new());
    let whole = write(&mut text).is_ok();
    let Clipped(mut text) = text;
    if !whole {
        text.push('…');
    }
    text
}

/// Writes a value as a literal, if it has one.
fn write_value(value: &Value<'_>, text: &mut Clipped) -> fmt::Result {
    match value {
        Value::Null => text.write_str("null"),
        Value::Uint(u) => write!(text, "{u}u"),
        Value::Str(_) | Value::String(_) => write_text(value.as_str().unwrap_or_default(), text),
        Value::Bytes(bytes) => {
            let cut = bytes.get(..MAX_TEXT).unwrap_or(bytes);
            write!(text, "b{}", quote_bytes(cut))
        }
        Value::Duration(_) => write!(text, "duration(\"{value}\")"),
        Value::Timestamp(_) => write!(text, "timestamp(\"{value}\")"),
        Value::Optional(Some(inner)) => {
            text.write_str("optional.of(")?;
            write_value(inner, text)?;
            text.write_str(")")
        }
        Value::Json(Json::Array(_)) | Value::Typed(Json::Array(_), _) | Value::List(_) => {
            text.write_str("[")?;
            for (nth, element) in value.elements().enumerate() {
                text.write_str(if nth == 0 { "" } else { ", " })?;
                write_value(&element, text)?;
            }
            text.write_str("]")
        }
        Value::Json(_) | Value::Typed(..) | Value::Map(_) => {
            text.write_str("{")?;
            for (nth, (key, value)) in value.entries().enumerate() {
                text.write_str(if nth == 0 { "" } else { ", " })?;
                write_value(&key, text)?;
                text.write_str(": ")?;
                write_value(&value, text)?;
            }
            text.write_str("}")
        }
        other => write!(text, "{other}"),
    }
}

fn write_text(value: &str, text: &mut Clipped) -> fmt::Result {
    let cut = value.floor_char_boundary(MAX_TEXT);
    text.write_str(&quote(value.get(..cut).unwrap_or_default()))
}
