//! Parsing, formatting and conversion of numbers by Go's rules.
//!
//! Responsible for the conversions between numbers and strings of CEL's `int()`, `uint()`,
//! `double()`, `bool()` and `string()`, and for the number clauses of `format`. Arithmetic is in
//! the evaluator; error texts with CEL types (`type conversion error from …`) are in the caller,
//! which knows both types.

use crate::quote::quote;

mod format;
mod parse;
#[cfg(test)]
mod tests;

pub use format::{
    format_double, format_double_decimal, format_double_six, format_fixed, format_scientific,
};
pub use parse::{atoi, int, parse_bool, parse_double, parse_int, parse_uint, uint};

/// A number out of the range of the target type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// The value is not an `int`.
    Int,
    /// The value is not a `uint`.
    Uint,
}

impl std::fmt::Display for RangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Int => "integer overflow",
            Self::Uint => "unsigned integer overflow",
        })
    }
}

impl std::error::Error for RangeError {}

/// An invalid decimal integer, with the message of Go's `strconv.NumError`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumError {
    function: &'static str,
    text: String,
    reason: &'static str,
}

impl std::fmt::Display for NumError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "strconv.{}: parsing {}: {}",
            self.function,
            quote(&self.text),
            self.reason
        )
    }
}

impl std::error::Error for NumError {}

/// Truncates a double toward zero to an `int`.
///
/// # Errors
///
/// NaN, infinities and values not strictly between the minimum and the maximum `int`.
pub fn double_to_int(value: f64) -> Result<i64, RangeError> {
    // UPSTREAM: cel-go common/types/overflow.go rejects both bounds, although -2^63 is in range.
    const LOW: f64 = i64::MIN as f64;
    const HIGH: f64 = i64::MAX as f64;
    if value > LOW && value < HIGH {
        Ok(value as i64)
    } else {
        Err(RangeError::Int)
    }
}

/// Truncates a double toward zero to a `uint`.
///
/// # Errors
///
/// NaN, infinities, negative numbers and 2^64 or more.
pub fn double_to_uint(value: f64) -> Result<u64, RangeError> {
    const END: f64 = 18_446_744_073_709_551_616.0;
    if (0.0..END).contains(&value) {
        Ok(value as u64)
    } else {
        Err(RangeError::Uint)
    }
}

/// Converts an `int` to a `uint`.
///
/// # Errors
///
/// Negative numbers.
pub fn int_to_uint(value: i64) -> Result<u64, RangeError> {
    u64::try_from(value).map_err(|_| RangeError::Uint)
}

/// Converts a `uint` to an `int`.
///
/// # Errors
///
/// Numbers above the maximum `int`.
pub fn uint_to_int(value: u64) -> Result<i64, RangeError> {
    i64::try_from(value).map_err(|_| RangeError::Int)
}
