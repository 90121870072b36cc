//! A span of time in nanoseconds.

use super::TimeError;
use crate::number::format_double_decimal;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The largest magnitude while reading: that of the most negative duration.
const MAX_MAGNITUDE: u64 = 1 << 63;

/// A signed span of time, at most about 292 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanos: i64,
}

impl Duration {
    /// A duration of that many nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// The whole span in nanoseconds; `int(duration)` is this.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.nanos
    }

    /// Reads a duration such as `1h15m30.5s`, `-1.5h` or `0`.
    ///
    /// ```
    /// use lockgate_cel::time::Duration;
    /// assert_eq!(Duration::parse("1h0.5s").unwrap().to_string(), "3600.5s");
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimeError::NotADuration`], also for one that is too long.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let (negative, body) = match text.strip_prefix('-') {
            Some(body) => (true, body),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if body == "0" {
            return Ok(Self { nanos: 0 });
        }
        let magnitude = parse_terms(body).ok_or(TimeError::NotADuration)?;
        let nanos = if negative {
            0i64.checked_sub_unsigned(magnitude)
        } else {
            0i64.checked_add_unsigned(magnitude)
        };
        nanos.map(Self::from_nanos).ok_or(TimeError::NotADuration)
    }

    /// The sum of two durations.
    ///
    /// # Errors
    ///
    /// [`TimeError::IntegerOverflow`]
    pub fn plus(self, other: Self) -> Result<Self, TimeError> {
        self.nanos
            .checked_add(other.nanos)
            .map(Self::from_nanos)
            .ok_or(TimeError::IntegerOverflow)
    }

    /// The difference of two durations.
    ///
    /// # Errors
    ///
    /// [`TimeError::IntegerOverflow`]
    pub fn minus(self, other: Self) -> Result<Self, TimeError> {
        self.nanos
            .checked_sub(other.nanos)
            .map(Self::from_nanos)
            .ok_or(TimeError::IntegerOverflow)
    }

    /// The duration with its sign turned.
    ///
    /// # Errors
    ///
    /// [`TimeError::IntegerOverflow`]
    pub fn negated(self) -> Result<Self, TimeError> {
        self.nanos
            .checked_neg()
            .map(Self::from_nanos)
            .ok_or(TimeError::IntegerOverflow)
    }

    /// `getHours()`: the whole span in hours, toward zero.
    #[must_use]
    pub fn hours(self) -> i64 {
        self.in_units_of(HOUR) as i64
    }

    /// `getMinutes()`: the whole span in minutes, toward zero.
    #[must_use]
    pub fn minutes(self) -> i64 {
        self.in_units_of(MINUTE) as i64
    }

    /// `getSeconds()`: the whole span in seconds, toward zero.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.in_units_of(SECOND) as i64
    }

    /// `getMilliseconds()`: the whole span in milliseconds, toward zero.
    #[must_use]
    pub fn milliseconds(self) -> i64 {
        self.nanos / MILLISECOND.cast_signed()
    }

    /// The span in a unit, as a double. A fraction close enough to the next whole unit is lost to
    /// rounding, and the getters show it.
    // UPSTREAM: Go time.Duration.Hours, used by cel-go common/types/duration.go.
    fn in_units_of(self, unit: u64) -> f64 {
        let unit = unit.cast_signed();
        (self.nanos / unit) as f64 + (self.nanos % unit) as f64 / unit as f64
    }

    /// The span as Go's `Duration.String` shows it, such as `1h0m0.5s`.
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

/// Prints the span in seconds, as `string(duration)` does.
impl std::fmt::Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}s", format_double_decimal(self.in_units_of(SECOND)))
    }
}

/// Reads one or more terms of number and unit and adds them up.
fn parse_terms(mut rest: &str) -> Option<u64> {
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (digits, after) = split_digits(rest);
        let whole = whole_number(digits)?;
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
            return None;
        }
        let end = rest
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at_checked(end)?;
        let unit = unit_of(name)?;
        rest = after;
        let mut term = whole.checked_mul(unit).filter(|t| *t <= MAX_MAGNITUDE)?;
        let (numerator, scale) = fraction;
        if numerator > 0 {
            // The product stays below one unit, which is at most 3.6e12.
            term += (numerator as f64 * (unit as f64 / scale)) as u64;
        }
        total = total.checked_add(term).filter(|t| *t <= MAX_MAGNITUDE)?;
    }
    Some(total)
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn whole_number(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|n| *n <= MAX_MAGNITUDE)
}

/// Digits after the point as numerator and power of ten. Digits beyond the precision are dropped.
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
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(MICROSECOND),
        "ms" => Some(MILLISECOND),
        "s" => Some(SECOND),
        "m" => Some(MINUTE),
        "h" => Some(HOUR),
        _ => None,
    }
}
