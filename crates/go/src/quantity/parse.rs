//! Parses quantities.

use std::cmp::Ordering;

use super::decimal::Decimal;
use super::{Amount, Format, Quantity, QuantityError};
use crate::number::parse_int;

/// The number of decimal digits that always fit 64 bits.
const INT_DIGITS: usize = 18;
/// The smallest power of ten of a quantity.
const NANO: i32 = -9;

/// The parts of a quantity string.
struct Parts<'a> {
    negative: bool,
    /// The sign, digits and decimal point.
    number: &'a str,
    /// Digits before the decimal point without leading zeros; `0` if there are none.
    whole: &'a str,
    /// Digits after the decimal point.
    fraction: &'a str,
    suffix: &'a str,
}

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::FormatWrong);
    }
    let parts = split(text)?;
    let (unit, format) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
    let quantity = |amount, format, text: Option<&str>| Quantity {
        amount,
        format,
        text: text.map(Box::from),
        computed: false,
    };
    if let Some((value, scale, canonical)) = small(&parts, unit) {
        let amount = Amount::Int { value, scale };
        return Ok(quantity(amount, format, canonical.then_some(text)));
    }
    let (dec, format) = large(&parts, unit, format)?;
    Ok(quantity(Amount::Dec(dec), format, None))
}

#[derive(Clone, Copy)]
enum Unit {
    PowerOfTen(i32),
    PowerOfTwo(u32),
}

/// The unit and format of a suffix.
fn suffix(suffix: &str) -> Option<(Unit, Format)> {
    let decimal = |exponent| Some((Unit::PowerOfTen(exponent), Format::DecimalSi));
    let binary = |exponent| Some((Unit::PowerOfTwo(exponent), Format::BinarySi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        // Upstream uses only the low 32 bits of an exponent.
        _ => parse_int(suffix.strip_prefix(['e', 'E'])?)
            .map(|exponent| (Unit::PowerOfTen(exponent as i32), Format::DecimalExponent)),
    }
}

/// Splits a quantity into its parts, without validating the suffix.
fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let negative = text.starts_with('-');
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let body = body.trim_start_matches('0');
    if body.is_empty() {
        return Ok(Parts {
            negative,
            number: "0",
            whole: "0",
            fraction: "",
            suffix: "",
        });
    }
    let (whole, rest) = split_digits(body);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    let number = text.get(..text.len() - suffix.len()).unwrap_or("");
    let after_letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    if !after_letters.is_empty() {
        let digits = after_letters
            .strip_prefix(['+', '-'])
            .unwrap_or(after_letters);
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::FormatWrong);
        }
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    Ok(Parts {
        negative,
        number,
        whole,
        fraction,
        suffix,
    })
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Parses a number that always fits 64 bits; returns true if the string is canonical.
fn small(parts: &Parts<'_>, unit: Unit) -> Option<(i64, i32, bool)> {
    let digits = parts.whole.len() + parts.fraction.len();
    let (scale, factor) = match unit {
        Unit::PowerOfTen(exponent) if digits <= INT_DIGITS => (exponent, 1),
        // Ten bits are at most three decimal digits, plus one as margin.
        Unit::PowerOfTwo(exponent)
            if parts.fraction.is_empty() && parts.whole.len() + exponent as usize * 3 / 10 < 15 =>
        {
            (0, 1i64 << exponent)
        }
        _ => return None,
    };
    let scale = scale.wrapping_sub(i32::try_from(parts.fraction.len()).ok()?);
    if scale < NANO {
        return None;
    }
    let shifted = format!("{}{}", parts.whole, parts.fraction);
    let value: i64 = shifted.parse().ok()?;
    let product = value.checked_mul(factor)?;
    let canonical = match unit {
        Unit::PowerOfTwo(_) => value & 7 != 0,
        Unit::PowerOfTen(_) => {
            scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
        }
    };
    Some((
        if parts.negative { -product } else { product },
        scale,
        canonical,
    ))
}

/// Parses a number of any length, rounded up to nanos; binary ones are capped at 2^63 - 1.
fn large(
    parts: &Parts<'_>,
    unit: Unit,
    format: Format,
) -> Result<(Decimal, Format), QuantityError> {
    let dec = Decimal::parse(parts.number).ok_or(QuantityError::Numeric)?;
    let dec = match unit {
        Unit::PowerOfTen(exponent) => {
            let scale = dec.scale().wrapping_sub(exponent);
            dec.with_scale(scale)
        }
        Unit::PowerOfTwo(exponent) => dec.shifted_left(exponent),
    };
    let negative = dec.sign() < 0;
    let mut dec = if negative { dec.negated() } else { dec };
    let mut format = format;
    if dec.sign() != 0 {
        dec = dec.rounded_up(-NANO).map_err(|_| QuantityError::Numeric)?;
    }
    if format == Format::BinarySi {
        let max = Decimal::from_int(i64::MAX, 0);
        if dec.compare(&max) == Ordering::Greater {
            dec = max;
        }
        if dec.sign() > 0 && dec.compare(&Decimal::from_int(1, 0)) == Ordering::Less {
            format = Format::DecimalSi;
        }
    }
    Ok((if negative { dec.negated() } else { dec }, format))
}
