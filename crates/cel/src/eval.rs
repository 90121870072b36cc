//! Planning and evaluation.
//!
//! `plan` compiles a checked tree into a flat [`Program`]; `machine` interprets it on borrowed
//! inputs and charges every step as Kubernetes does. `direct` is a fast path for the most common
//! conditions, and falls back to `machine`.

mod attribute;
mod convert;
mod cost;
mod direct;
mod functions;
mod inputs;
mod loops;
mod machine;
mod message;
mod named;
mod operators;
mod plan;
mod program;
mod record;

pub use inputs::{Inputs, PrecomputedField};
pub use machine::{Evaluation, Limits, evaluate, evaluate_recorded};
pub use named::{Named, NamedExpression};
pub use plan::PlanError;
pub(crate) use plan::plan;
pub use program::Program;
pub use record::{MAX_RECORDED, Recorded, RecordedExpression, RecordedOutcome, Recording};

use crate::value::Error;

/// Converts a value as `string()` does.
pub(crate) fn string_of(value: &crate::value::Value<'_>) -> Result<String, Error> {
    convert::to_string(value).map(|text| text.as_str().unwrap_or_default().to_owned())
}
