//! Durations in nanoseconds.

use super::{OverflowError, quote};
use crate::number::format_double_decimal;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The maximum magnitude while parsing: that of the most negative duration.
const MAX_MAGNITUDE: u64 = 1 << 63;

/// A signed duration of at most about 292 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanos: i64,
}

/// A string that is not a duration, with the error text of Go's `time.ParseDuration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurationError {
    text: String,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Invalid,
    MissingUnit,
    UnknownUnit(String),
}

impl std::fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = quote(self.text.as_bytes());
        match &self.problem {
            Problem::Invalid => write!(f, "time: invalid duration {text}"),
            Problem::MissingUnit => write!(f, "time: missing unit in duration {text}"),
            Problem::UnknownUnit(unit) => {
                let unit = quote(unit.as_bytes());
                write!(f, "time: unknown unit {unit} in duration {text}")
            }
        }
    }
}

impl std::error::Error for ParseDurationError {}

impl Duration {
    /// Creates a duration from nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// The duration in nanoseconds, as in `int(duration)`.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.nanos
    }

    /// Parses a duration such as `1h15m30.5s`, `-1.5h` or `0`.
    ///
    /// ```
    /// use lockgate_go::time::Duration;
    /// assert_eq!(Duration::parse("1h0.5s").unwrap().to_string(), "3600.5s");
    /// assert_eq!(
    ///     Duration::parse("10").unwrap_err().to_string(),
    ///     "time: missing unit in duration \"10\"",
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// A string that is not a duration, or a duration of more than 292 years.
    pub fn parse(text: &str) -> Result<Self, ParseDurationError> {
        let error = |problem| ParseDurationError {
            text: text.to_owned(),
            problem,
        };
        let (negative, body) = match text.strip_prefix('-') {
            Some(body) => (true, body),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if body == "0" {
            return Ok(Self { nanos: 0 });
        }
        let magnitude = parse_terms(body).map_err(error)?;
        let nanos = if negative {
            0i64.checked_sub_unsigned(magnitude)
        } else {
            0i64.checked_add_unsigned(magnitude)
        };
        nanos
            .map(Self::from_nanos)
            .ok_or_else(|| error(Problem::Invalid))
    }

    /// Converts to the standard library's type; `None` if negative.
    #[must_use]
    pub fn to_std(self) -> Option<std::time::Duration> {
        let nanos = u64::try_from(self.nanos).ok()?;
        Some(std::time::Duration::from_nanos(nanos))
    }

    /// The sum of two durations.
    ///
    /// # Errors
    ///
    /// [`OverflowError::Integer`]
    pub fn plus(self, other: Self) -> Result<Self, OverflowError> {
        self.nanos
            .checked_add(other.nanos)
            .map(Self::from_nanos)
            .ok_or(OverflowError::Integer)
    }

    /// The difference of two durations.
    ///
    /// # Errors
    ///
    /// [`OverflowError::Integer`]
    pub fn minus(self, other: Self) -> Result<Self, OverflowError> {
        self.nanos
            .checked_sub(other.nanos)
            .map(Self::from_nanos)
            .ok_or(OverflowError::Integer)
    }

    /// The negated duration.
    ///
    /// # Errors
    ///
    /// [`OverflowError::Integer`]
    pub fn negated(self) -> Result<Self, OverflowError> {
        self.nanos
            .checked_neg()
            .map(Self::from_nanos)
            .ok_or(OverflowError::Integer)
    }

    /// `getHours()`: the duration in hours, truncated toward zero.
    #[must_use]
    pub fn hours(self) -> i64 {
        self.in_units_of(HOUR) as i64
    }

    /// `getMinutes()`: the duration in minutes, truncated toward zero.
    #[must_use]
    pub fn minutes(self) -> i64 {
        self.in_units_of(MINUTE) as i64
    }

    /// `getSeconds()`: the duration in seconds, truncated toward zero.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.in_units_of(SECOND) as i64
    }

    /// `getMilliseconds()`: the duration in milliseconds, truncated toward zero.
    #[must_use]
    pub fn milliseconds(self) -> i64 {
        self.nanos / MILLISECOND.cast_signed()
    }

    /// The duration in a unit, as a double. Rounding may lose a fraction close to the next whole
    /// unit, which is observable in the getters.
    // UPSTREAM: Go time.Duration.Hours, used by cel-go common/types/duration.go.
    fn in_units_of(self, unit: u64) -> f64 {
        let unit = unit.cast_signed();
        (self.nanos / unit) as f64 + (self.nanos % unit) as f64 / unit as f64
    }

    /// Formats like Go's `Duration.String`, such as `1h0m0.5s`.
    #[must_use]
    pub fn go_string(self) -> String {
        let magnitude = self.nanos.unsigned_abs();
        let sign = if self.nanos < 0 { "-" } else { "" };
        let fraction = |unit: u64| {
            let rest = magnitude % unit;
            let width = unit.ilog10() as usize;
            let digits = format!("{rest:0width$}");
            let digits = digits.trim_end_matches('0');
            if digits.is_empty() {
                String::new()
            } else {
                format!(".{digits}")
            }
        };
        match magnitude {
            0 => "0s".to_owned(),
            1..MICROSECOND => format!("{sign}{magnitude}ns"),
            MICROSECOND..MILLISECOND => {
                format!(
                    "{sign}{}{}µs",
                    magnitude / MICROSECOND,
                    fraction(MICROSECOND)
                )
            }
            MILLISECOND..SECOND => {
                format!(
                    "{sign}{}{}ms",
                    magnitude / MILLISECOND,
                    fraction(MILLISECOND)
                )
            }
            _ => {
                let seconds = format!("{}{}s", magnitude / SECOND % 60, fraction(SECOND));
                let (hours, minutes) = (magnitude / HOUR, magnitude / MINUTE % 60);
                match (hours, minutes) {
                    (0, 0) => format!("{sign}{seconds}"),
                    (0, _) => format!("{sign}{minutes}m{seconds}"),
                    _ => format!("{sign}{hours}h{minutes}m{seconds}"),
                }
            }
        }
    }
}

/// Formats in seconds, as in `string(duration)`.
impl std::fmt::Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}s", format_double_decimal(self.in_units_of(SECOND)))
    }
}

/// Parses one or more terms of number and unit, and sums them.
///
/// UPSTREAM: Go time/format.go (ParseDuration).
fn parse_terms(mut rest: &str) -> Result<u64, Problem> {
    if rest.is_empty() {
        return Err(Problem::Invalid);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (digits, after) = split_digits(rest);
        let whole = whole_number(digits).ok_or(Problem::Invalid)?;
        let mut fraction = (0, 1.0);
        let mut has_digits = !digits.is_empty();
        rest = after;
        if let Some(after_point) = rest.strip_prefix('.') {
            let (digits, after) = split_digits(after_point);
            fraction = fraction_of(digits);
            has_digits |= !digits.is_empty();
            rest = after;
        }
        if !has_digits {
            return Err(Problem::Invalid);
        }
        let end = rest
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return Err(Problem::MissingUnit);
        }
        let unit = unit_of(name).ok_or_else(|| Problem::UnknownUnit(name.to_owned()))?;
        rest = after;
        let term = in_nanos(whole, fraction, unit).ok_or(Problem::Invalid)?;
        let sum = total.checked_add(term).filter(|t| *t <= MAX_MAGNITUDE);
        total = sum.ok_or(Problem::Invalid)?;
    }
    Ok(total)
}

fn in_nanos(whole: u64, (numerator, scale): (u64, f64), unit: u64) -> Option<u64> {
    let mut term = whole.checked_mul(unit).filter(|t| *t <= MAX_MAGNITUDE)?;
    if numerator > 0 {
        // The product is less than one unit, which is at most 3.6e12.
        term += (numerator as f64 * (unit as f64 / scale)) as u64;
    }
    Some(term)
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn whole_number(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|n| *n <= MAX_MAGNITUDE)
}

/// The fraction digits as numerator and power of ten. Digits beyond the precision are dropped.
fn fraction_of(digits: &str) -> (u64, f64) {
    let mut numerator: u64 = 0;
    let mut scale = 1.0;
    for digit in digits.bytes() {
        if numerator > (MAX_MAGNITUDE - 1) / 10 {
            break;
        }
        let next = numerator * 10 + u64::from(digit - b'0');
        if next > MAX_MAGNITUDE {
            break;
        }
        numerator = next;
        scale *= 10.0;
    }
    (numerator, scale)
}

fn unit_of(name: &str) -> Option<u64> {
    match name {
        "ns" => Some(1),
        // The micro sign and the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(MICROSECOND),
        "ms" => Some(MILLISECOND),
        "s" => Some(SECOND),
        "m" => Some(MINUTE),
        "h" => Some(HOUR),
        _ => None,
    }
}
