//! Formats numbers.

use std::fmt::Write as _;

/// The default precision of `%f` and `%e`.
const DEFAULT_PRECISION: u64 = 6;

/// The power of ten from which the shortest form has an exponent.
const SHORTEST_EXPONENT: i32 = 6;

/// The maximum number of fraction digits of any double.
const MAX_FRACTION: usize = 1074;

/// A positive finite double as decimal digits: `0.d1d2d3… × 10^point`.
struct Digits {
    digits: Vec<u8>,
    point: i32,
}

impl Digits {
    /// The fewest digits that parse to the same double, and of those the nearest; on a tie, Go
    /// picks the even one, Rust the larger one.
    fn shortest(value: f64) -> Self {
        let text = format!("{:e}", value.abs());
        let digits = Self::from_exponential(&text);
        let count = digits.digits.len();
        // With fewer digits the midpoint is itself the shortest form.
        if count >= 15 {
            let nearest = format!("{:.*e}", count - 1, value.abs());
            if nearest != text && nearest.parse() == Ok(value.abs()) {
                return Self::from_exponential(&nearest);
            }
        }
        digits
    }

    /// `significant` digits, correctly rounded.
    fn rounded(value: f64, significant: usize) -> Self {
        Self::from_exponential(&format!(
            "{:.*e}",
            significant.saturating_sub(1),
            value.abs()
        ))
    }

    fn from_exponential(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let digits = mantissa.bytes().filter(u8::is_ascii_digit).collect();
        let mut digits = Self {
            digits,
            point: exponent.parse::<i32>().unwrap_or(0) + 1,
        };
        digits.trim();
        digits
    }

    /// The given number of fraction digits, correctly rounded.
    fn fixed(value: f64, fraction: usize) -> Self {
        let text = format!("{:.*}", fraction.min(MAX_FRACTION), value.abs());
        let whole = text.find('.').unwrap_or(text.len());
        let digits = text.bytes().filter(u8::is_ascii_digit).collect();
        let mut digits = Self {
            digits,
            point: i32::try_from(whole).unwrap_or(0),
        };
        digits.trim();
        digits
    }

    /// Trims zeros at both ends; zero has no digits.
    fn trim(&mut self) {
        let leading = self.digits.iter().take_while(|d| **d == b'0').count();
        self.digits.drain(..leading);
        self.point -= i32::try_from(leading).unwrap_or(0);
        while self.digits.last() == Some(&b'0') {
            self.digits.pop();
        }
        if self.digits.is_empty() {
            self.point = 0;
        }
    }

    fn push_whole(&self, out: &mut String, group: Option<char>) {
        if self.point <= 0 {
            out.push('0');
            return;
        }
        for at in 0..self.point {
            let left = self.point - at;
            if let Some(group) = group
                && at > 0
                && left % 3 == 0
            {
                out.push(group);
            }
            out.push(self.digit(at));
        }
    }

    /// Pushes all fraction digits, padded to at least `count`.
    fn push_fraction(&self, out: &mut String, count: i32) {
        let have = i32::try_from(self.digits.len()).unwrap_or(0) - self.point;
        let count = count.max(have);
        if count <= 0 {
            return;
        }
        out.push('.');
        for at in 0..count {
            out.push(self.digit(self.point + at));
        }
    }

    fn digit(&self, at: i32) -> char {
        usize::try_from(at)
            .ok()
            .and_then(|at| self.digits.get(at))
            .map_or('0', |d| char::from(*d))
    }
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}

/// Formats a double like CEL's `string(double)`: Go's `%g`.
///
/// ```
/// use lockgate_go::number::format_double;
/// assert_eq!(format_double(1e21), "1e+21");
/// assert_eq!(format_double(123456.0), "123456");
/// ```
#[must_use]
pub fn format_double(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let digits = Digits::shortest(value);
    let mut out = String::new();
    if value.is_sign_negative() {
        out.push('-');
    }
    let exponent = digits.point - 1;
    // UPSTREAM: Go fmt's `%g` uses an exponent from a million; only `%v` from 10^21.
    if !digits.digits.is_empty() && !(-4..SHORTEST_EXPONENT).contains(&exponent) {
        out.push(digits.digit(0));
        if digits.digits.len() > 1 {
            out.push('.');
            out.extend(digits.digits.iter().skip(1).map(|d| char::from(*d)));
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a String cannot fail.
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    } else {
        digits.push_whole(&mut out, None);
        digits.push_fraction(&mut out, 0);
    }
    out
}

/// Formats a double without an exponent and with the fewest digits, like Go's `FormatFloat(value,
/// 'f', -1, 64)`; used for the seconds of `string(duration)`.
#[must_use]
pub fn format_double_decimal(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let digits = Digits::shortest(value);
    let mut out = String::new();
    if value.is_sign_negative() {
        out.push('-');
    }
    digits.push_whole(&mut out, None);
    digits.push_fraction(&mut out, 0);
    out
}

/// Formats a double with six decimals and no grouping, like `format` for doubles in lists and maps.
#[must_use]
pub fn format_double_six(value: f64) -> String {
    special(value).map_or_else(|| format!("{value:.6}"), str::to_owned)
}

/// Formats a double for the `%f` clause: grouped by thousands, `∞` for infinity.
///
/// `precision` is the number in the clause (`%.2f` is `Some(2)`). Values beyond the small integers
/// of Go's printer overflow like there.
// UPSTREAM: golang.org/x/text message/print.go (initDecimal) and internal/number/format.go.
#[must_use]
pub fn format_fixed(value: f64, precision: Option<u64>) -> String {
    let precision = precision.unwrap_or(DEFAULT_PRECISION);
    if !printer_reads(precision) {
        return NO_VERB.to_owned();
    }
    if let Some(text) = localised_special(value) {
        return text.to_owned();
    }
    let min_fraction = i32::from(precision as u8);
    let digits = match usize::try_from(precision as i16) {
        Ok(max_fraction) => Digits::fixed(value, max_fraction),
        // A negative maximum means unlimited.
        Err(_) => Digits::shortest(value),
    };
    let mut out = String::new();
    if value < 0.0 {
        out.push('-');
    }
    digits.push_whole(&mut out, Some(','));
    digits.push_fraction(&mut out, min_fraction);
    out
}

/// Formats a double for the `%e` clause: six decimals and a superscript power of ten.
///
/// The number in the clause is the minimum *width* of the result, not its precision: upstream
/// passes it in the wrong position.
// UPSTREAM: cel-go ext/formatting.go (Scientific builds `%6e`), x/text internal/number/format.go.
#[must_use]
pub fn format_scientific(value: f64, width: Option<u64>) -> String {
    let width = width.unwrap_or(DEFAULT_PRECISION);
    if !printer_reads(width) {
        return NO_VERB.to_owned();
    }
    let body = match localised_special(value) {
        Some(text) => text.to_owned(),
        None => scientific_body(value),
    };
    let width = usize::from(width as u16);
    format!("{body:>width$}")
}

fn scientific_body(value: f64) -> String {
    let digits = Digits::rounded(value, 7);
    let mut out = String::new();
    if value < 0.0 {
        out.push('-');
    }
    out.push(digits.digit(0));
    out.push('.');
    out.extend((1..7).map(|at| digits.digit(at)));
    out.push_str("×10");
    let exponent = if digits.digits.is_empty() {
        0
    } else {
        digits.point - 1
    };
    if exponent < 0 {
        out.push('⁻');
    }
    out.extend(format!("{:02}", exponent.abs()).chars().map(superscript));
    out
}

fn superscript(digit: char) -> char {
    match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    }
}

fn localised_special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

/// Go's output for a clause with an unparsable number.
const NO_VERB: &str = "%!(NOVERB)";

/// Returns true if Go's printer parses the complete number of a clause: it stops at the digit after
/// a number above a million.
fn printer_reads(number: u64) -> bool {
    number / 10 <= 1_000_000
}
