//! Evaluation errors.

use std::fmt;

use super::Value;

/// The error of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The cost limit is exceeded. This is fatal: the expression cannot handle it.
    CostLimit,
    /// Upstream's interpreter panics, and so the evaluation fails with its message.
    Internal(Box<String>),
    /// A step failed; `&&`, `||` and the quantifiers may still determine a result.
    Failed(Box<Failure>),
}

/// The failure of a step. The message is formatted lazily.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No overload matches the operands.
    NoSuchOverload,
    /// The function or operator does not support this first operand.
    NotApplicable(&'static str),
    /// A map does not have this key, or the value is not a map.
    NoSuchKey(String),
    /// The list index is out of bounds.
    OutOfBounds(String),
    /// Another failure, with a static message.
    Fixed(&'static str),
    /// Another failure, with a formatted message.
    Text(String),
}

impl Error {
    /// A failure with a static message.
    #[must_use]
    pub fn fixed(text: &'static str) -> Self {
        Failure::Fixed(text).into()
    }

    /// A failure with a formatted message.
    #[must_use]
    pub fn text(text: impl fmt::Display) -> Self {
        Failure::Text(text.to_string()).into()
    }

    pub(crate) fn internal(reason: impl fmt::Display) -> Self {
        Self::Internal(Box::new(reason.to_string()))
    }

    /// Returns true if the error ends the whole evaluation.
    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }

    pub(crate) fn no_such_overload() -> Self {
        Failure::NoSuchOverload.into()
    }

    /// The failure of a function with an unsupported first operand.
    ///
    /// Upstream's strings, timestamps and durations dispatch such calls themselves, without naming
    /// the function.
    pub(crate) fn not_applicable(function: &'static str, first: &Value<'_>) -> Self {
        match first {
            Value::Str(_) | Value::String(_) | Value::Duration(_) | Value::Timestamp(_) => {
                Self::no_such_overload()
            }
            _ => Failure::NotApplicable(function).into(),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = match self {
            Self::CostLimit => {
                return f.write_str("operation cancelled: actual cost limit exceeded");
            }
            Self::Internal(reason) => return write!(f, "internal error: {reason}"),
            Self::Failed(failure) => &**failure,
        };
        match failure {
            Failure::NoSuchOverload => f.write_str("no such overload"),
            Failure::NotApplicable(function) => write!(f, "no such overload: {function}"),
            Failure::NoSuchKey(key) => write!(f, "no such key: {key}"),
            Failure::OutOfBounds(index) => write!(f, "index out of bounds: {index}"),
            Failure::Fixed(text) => f.write_str(text),
            Failure::Text(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
