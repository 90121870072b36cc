//! Evaluation errors.

use std::fmt;

use super::Value;

/// An evaluation without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The cost limit is exceeded. Nothing in the expression can recover from it.
    CostLimit,
    /// Upstream's interpreter gives up on its own account, and so do we, in its words.
    Internal(Box<String>),
    /// A step failed; `&&`, `||` and the quantifiers may still find an answer.
    Failed(Box<Failure>),
}

/// The failure of a step. Its text is built only when it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Operands of these types do not go together.
    NoSuchOverload,
    /// The function or operator does not take such a first operand.
    NotApplicable(&'static str),
    /// A map has no such key, or the value is no map at all.
    NoSuchKey(String),
    /// A list has no such index.
    OutOfBounds(String),
    /// Anything else.
    Fixed(&'static str),
    /// Anything else, with particulars.
    Text(String),
}

impl Error {
    /// The failure with a fixed text.
    #[must_use]
    pub fn fixed(text: &'static str) -> Self {
        Failure::Fixed(text).into()
    }

    /// The failure with a text.
    #[must_use]
    pub fn text(text: impl fmt::Display) -> Self {
        Failure::Text(text.to_string()).into()
    }

    pub(crate) fn internal(reason: impl fmt::Display) -> Self {
        Self::Internal(Box::new(reason.to_string()))
    }

    /// Returns true if the whole evaluation ends here.
    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }

    pub(crate) fn no_such_overload() -> Self {
        Failure::NoSuchOverload.into()
    }

    /// The failure of a function whose first operand it is not made for.
    ///
    /// Texts and times answer for themselves upstream, and name no function.
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
