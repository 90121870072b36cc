//! Parses exactly the numbers that Go's `strconv` accepts.

use super::NumError;

/// Parses a decimal `int`: an optional sign and ASCII digits.
#[must_use]
pub fn parse_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !is_digits(digits) {
        return None;
    }
    text.parse().ok()
}

/// Parses a decimal `uint`: ASCII digits without a sign.
#[must_use]
pub fn parse_uint(text: &str) -> Option<u64> {
    if !is_digits(text) {
        return None;
    }
    text.parse().ok()
}

/// Parses a bool in Go's spellings.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a decimal integer like `strconv.Atoi`.
///
/// # Errors
///
/// Anything [`parse_int`] rejects.
pub fn atoi(text: &str) -> Result<i64, NumError> {
    parse_int(text).ok_or_else(|| NumError::new("Atoi", text, without_sign(text)))
}

/// Parses a decimal integer like `strconv.ParseInt`.
///
/// # Errors
///
/// Anything [`parse_int`] rejects.
pub fn int(text: &str) -> Result<i64, NumError> {
    parse_int(text).ok_or_else(|| NumError::new("ParseInt", text, without_sign(text)))
}

/// Parses a decimal integer like `strconv.ParseUint`.
///
/// # Errors
///
/// Anything [`parse_uint`] rejects.
pub fn uint(text: &str) -> Result<u64, NumError> {
    parse_uint(text).ok_or_else(|| NumError::new("ParseUint", text, text))
}

fn without_sign(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

impl NumError {
    fn new(function: &'static str, text: &str, digits: &str) -> Self {
        Self {
            function,
            text: text.to_owned(),
            reason: match is_digits(digits) {
                true => "value out of range",
                false => "invalid syntax",
            },
        }
    }
}

/// Parses a double: decimal or hexadecimal, with Go's digit separators, `inf`, `infinity` and `nan`
/// in any case. Overflow is rejected, underflow is zero.
#[must_use]
pub fn parse_double(text: &str) -> Option<f64> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let sign = |value: f64| if negative { -value } else { value };
    if body.eq_ignore_ascii_case("inf") || body.eq_ignore_ascii_case("infinity") {
        return Some(sign(f64::INFINITY));
    }
    if body.len() == text.len() && body.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    if !underscores_separate_digits(body) {
        return None;
    }
    let plain: String;
    let body = if body.contains('_') {
        plain = body.replace('_', "");
        &plain
    } else {
        body
    };
    let value = match body.get(..2) {
        // A prefix without digits is always a syntax error.
        Some("0x" | "0X") => parse_hex(body.get(2..)?)?,
        _ => parse_decimal(body)?,
    };
    value.is_finite().then(|| sign(value))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns true if each underscore is between two digits; a base prefix counts as a digit.
fn underscores_separate_digits(body: &str) -> bool {
    if !body.contains('_') {
        return true;
    }
    let bytes = body.as_bytes();
    let prefixed = matches!(bytes, [b'0', b'b' | b'B' | b'o' | b'O' | b'x' | b'X', ..]);
    let hex = matches!(bytes, [b'0', b'x' | b'X', ..]);
    let is_digit = |b: u8| b.is_ascii_digit() || (hex && b.is_ascii_hexdigit());
    let mut after_digit = prefixed;
    let mut after_underscore = false;
    for &b in bytes.iter().skip(if prefixed { 2 } else { 0 }) {
        if b == b'_' {
            if !after_digit {
                return false;
            }
            (after_digit, after_underscore) = (false, true);
        } else if is_digit(b) {
            (after_digit, after_underscore) = (true, false);
        } else if after_underscore {
            return false;
        } else {
            after_digit = false;
        }
    }
    !after_underscore
}

fn parse_decimal(body: &str) -> Option<f64> {
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (body.get(..at)?, Some(body.get(at + 1..)?)),
        None => (body, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    if let Some(exponent) = exponent
        && !is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
    {
        return None;
    }
    body.parse().ok()
}

/// Parses the digits after `0x`; the binary exponent is required.
fn parse_hex(body: &str) -> Option<f64> {
    let at = body.find(['p', 'P'])?;
    let (mantissa, exponent) = (body.get(..at)?, body.get(at + 1..)?);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_hex = |s: &str| s.bytes().all(|b| b.is_ascii_hexdigit());
    if (whole.is_empty() && fraction.is_empty()) || !all_hex(whole) || !all_hex(fraction) {
        return None;
    }
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !is_digits(digits) {
        return None;
    }
    // Large enough for any mantissa to overflow or underflow, and prevents an overflow of the sum
    // below.
    let magnitude = digits
        .parse::<i64>()
        .unwrap_or(i64::MAX)
        .min(1_000_000_000_000);
    let mut power = if exponent.starts_with('-') {
        -magnitude
    } else {
        magnitude
    };

    let mut bits: u64 = 0;
    let mut lost = false;
    let mut fraction_started = false;
    for part in [whole, fraction] {
        for digit in part.chars().filter_map(|c| c.to_digit(16)) {
            if bits >> 60 == 0 {
                bits = bits << 4 | u64::from(digit);
                power -= if fraction_started { 4 } else { 0 };
            } else {
                lost |= digit != 0;
                power += if fraction_started { 0 } else { 4 };
            }
        }
        fraction_started = true;
    }
    Some(scale(bits, lost, power))
}

/// Rounds `bits * 2^power` to the nearest double, ties to even; `lost` is true if nonzero bits
/// below the last one were dropped.
fn scale(bits: u64, lost: bool, power: i64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    let shift_up = i64::from(bits.leading_zeros());
    let bits = bits << shift_up;
    // The value is `bits * 2^power` with the top bit set, so it lies in [2^e, 2^(e+1)).
    let power = power - shift_up;
    let e = power + 63;
    if e > 1023 {
        return f64::INFINITY;
    }
    // The mantissa bits of a double: 53, fewer for subnormal numbers.
    let kept = if e >= -1022 { 53 } else { 53 - (-1022 - e) };
    if kept < 0 {
        return 0.0;
    }
    let drop = 64 - kept;
    let (head, tail) = if drop >= 64 {
        (0, bits)
    } else {
        (bits >> drop, bits << (64 - drop))
    };
    const HALF: u64 = 1 << 63;
    let up = tail > HALF || (tail == HALF && (lost || head & 1 == 1));
    let head = head + u64::from(up);
    // `head` has at most 53 bits and one carry, so the product is exact unless it overflows.
    let exponent = power + drop;
    if exponent >= -1022 {
        head as f64 * pow2(exponent)
    } else {
        head as f64 * pow2(-1022) * pow2(exponent + 1022)
    }
}

fn pow2(exponent: i64) -> f64 {
    match u64::try_from(exponent + 1023) {
        Ok(biased @ 1..=2046) => f64::from_bits(biased << 52),
        Ok(biased) if biased > 2046 => f64::INFINITY,
        _ => 0.0,
    }
}
