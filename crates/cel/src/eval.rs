//! Planning and evaluation.
//!
//! `plan` turns a checked tree into a flat [`Program`]; `machine` walks it
//! over borrowed inputs and charges every step as Kubernetes does.

mod attribute;
mod convert;
mod cost;
mod error;
mod functions;
mod loops;
mod machine;
mod message;
mod named;
mod operators;
mod plan;
mod program;
mod record;

pub use error::{Error, Failure};
pub use machine::{Evaluation, Limits, evaluate, evaluate_recorded};
pub use named::{Named, NamedExpression};
pub(crate) use plan::plan;
pub use program::Program;
pub use record::{MAX_RECORDED, Recorded, Recording};

use lockgate_go::time::{Duration, Timestamp};

use crate::syntax::ast::Literal;

/// Most units one expression may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// Whether a conversion or a pattern accepts this literal.
pub(crate) fn accepts_literal(function: &str, literal: &Literal<'_>) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => Duration::parse(text).is_ok(),
        ("timestamp", Literal::String(text)) => Timestamp::parse(text).is_ok(),
        ("timestamp", Literal::Int(seconds)) => Timestamp::from_unix(*seconds).is_ok(),
        ("matches", Literal::String(pattern)) => lockgate_go::regex::Regex::new(pattern).is_ok(),
        _ => false,
    }
}

/// A value as `string()` converts it.
pub(crate) fn string_of(value: &crate::value::Value<'_>) -> Result<String, Error> {
    convert::to_string(value).map(|text| text.as_str().unwrap_or_default().to_owned())
}
