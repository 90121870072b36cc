//! Arbitrary-precision decimals.
//!
//! Digits are kept in decimal, so that parsing, adding, rounding and formatting are linear in the number of
//! digits.

use std::cmp::Ordering;

use super::QuantityError;

/// The maximum number of zeros that an operation appends. Exponents may be up to two billion, and such a number
/// would exhaust memory.
const MAX_ZEROS: i64 = 20_000;

/// The maximum number of digits for which factors of 1024 are determined when printing.
const MAX_BINARY_DIGITS: usize = 2_000;

/// `± digits * 10^-scale`
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    /// Digits 0 to 9, most significant first, without leading zeros; none for zero.
    digits: Vec<u8>,
    scale: i32,
}

/// The maximum number of fraction digits of a quantity.
const NANO: u8 = 9;

impl Decimal {
    pub(super) fn from_int(value: i64, scale: i32) -> Self {
        let digits = if value == 0 {
            String::new()
        } else {
            value.unsigned_abs().to_string()
        };
        let digits = digits.bytes().map(|d| d - b'0').collect();
        Self {
            negative: value < 0,
            digits,
            scale,
        }
    }

    /// Parses an optional sign, digits and at most one decimal point.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (negative, body) = match text.strip_prefix('-') {
            Some(body) => (true, body),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let digits = digits
            .into_iter()
            .map(|d| d - b'0')
            .skip_while(|d| *d == 0)
            .collect();
        Some(Self {
            negative,
            digits,
            scale: i32::try_from(fraction.len()).ok()?,
        })
    }

    pub(super) fn sign(&self) -> i64 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    pub(super) const fn scale(&self) -> i32 {
        self.scale
    }

    pub(super) fn with_scale(self, scale: i32) -> Self {
        Self { scale, ..self }
    }

    pub(super) fn negated(self) -> Self {
        Self {
            negative: !self.negative,
            ..self
        }
    }

    /// The digits as the nearest double, without the scale.
    pub(super) fn unscaled_as_double(&self) -> f64 {
        let text: String = self.digits.iter().map(|d| char::from(d + b'0')).collect();
        let magnitude = if text.is_empty() {
            0.0
        } else {
            text.parse().unwrap_or(f64::INFINITY)
        };
        if self.sign() < 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// The number in units of `10^-places`, rounded up. On overflow the low 64 bits are kept: of the result, or of
    /// the number in nanos if it is negative.
    // UPSTREAM: k8s.io/apimachinery/pkg/api/resource/math.go (scaledValue): its fast path is for numbers below the
    // maximum integer, which includes all negative numbers.
    pub(super) fn in_units(&self, places: u8) -> i64 {
        if !self.negative {
            return self.magnitude(places);
        }
        let billionths = self.magnitude(NANO).wrapping_neg();
        let unit = 10_i64.pow(u32::from(NANO.saturating_sub(places)));
        billionths / unit + i64::from(billionths % unit != 0)
    }

    /// The low 64 bits of the absolute value in units of `10^-places`, rounded up.
    fn magnitude(&self, places: u8) -> i64 {
        let shift = i64::from(places) - i64::from(self.scale);
        let dropped = usize::try_from(shift.saturating_neg()).unwrap_or(0);
        let kept = self.digits.len().saturating_sub(dropped);
        let (whole, rest) = self.digits.split_at(kept);
        // The low 64 bits of 10^64 are zero.
        let zeros = usize::try_from(shift).unwrap_or(0).min(64);
        let digits = whole.iter().copied().chain(std::iter::repeat_n(0, zeros));
        let magnitude = digits.fold(0_i64, |sum, digit| {
            sum.wrapping_mul(10).wrapping_add(i64::from(digit))
        });
        let up = i64::from(rest.iter().any(|digit| *digit != 0));
        magnitude.wrapping_add(up)
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match self.sign().cmp(&other.sign()) {
            Ordering::Equal if self.sign() < 0 => other.compare_magnitude(self),
            Ordering::Equal => self.compare_magnitude(other),
            unequal => unequal,
        }
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        // The position of the first digit decides, unless it is the same.
        let place = |d: &Self| d.digits.len() as i64 - i64::from(d.scale);
        if self.digits.is_empty() || other.digits.is_empty() {
            return self.digits.len().cmp(&other.digits.len());
        }
        place(self).cmp(&place(other)).then_with(|| {
            let longest = self.digits.len().max(other.digits.len());
            let padded = |d: &'_ [u8], at: usize| d.get(at).copied().unwrap_or(0);
            (0..longest)
                .map(|at| padded(&self.digits, at).cmp(&padded(&other.digits, at)))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        })
    }

    /// The sum, at the larger of both scales.
    pub(super) fn add(&self, other: &Self) -> Result<Self, QuantityError> {
        let scale = self.scale.max(other.scale);
        let (a, b) = (self.at_scale(scale)?, other.at_scale(scale)?);
        if self.negative == other.negative {
            return Ok(Self {
                negative: self.negative,
                digits: add_digits(&a, &b),
                scale,
            });
        }
        let (negative, digits) = match a.len().cmp(&b.len()).then_with(|| a.cmp(&b)) {
            Ordering::Less => (other.negative, subtract_digits(&b, &a)),
            _ => (self.negative, subtract_digits(&a, &b)),
        };
        Ok(Self {
            negative,
            digits,
            scale,
        })
    }

    /// The digits at a larger or equal scale.
    fn at_scale(&self, scale: i32) -> Result<Vec<u8>, QuantityError> {
        let mut digits = self.digits.clone();
        if !digits.is_empty() {
            let zeros = i64::from(scale) - i64::from(self.scale);
            if zeros > MAX_ZEROS {
                return Err(QuantityError::TooManyDigits);
            }
            digits.extend(std::iter::repeat_n(0, usize::try_from(zeros).unwrap_or(0)));
        }
        Ok(digits)
    }

    /// The value at exactly `scale`, rounded away from zero.
    pub(super) fn rounded_up(&self, scale: i32) -> Result<Self, QuantityError> {
        if scale >= self.scale {
            return Ok(Self {
                negative: self.negative,
                digits: self.at_scale(scale)?,
                scale,
            });
        }
        let dropped = usize::try_from(i64::from(self.scale) - i64::from(scale)).unwrap_or(0);
        let kept = self.digits.len().saturating_sub(dropped);
        let (head, tail) = self.digits.split_at_checked(kept).unwrap_or((&[], &[]));
        let digits = if tail.iter().all(|d| *d == 0) {
            head.to_vec()
        } else {
            add_digits(head, &[1])
        };
        Ok(Self {
            negative: self.negative,
            digits,
            scale,
        })
    }

    /// Multiplies by a power of two below 2^64.
    pub(super) fn shifted_left(&self, bits: u32) -> Self {
        let mut carry: u128 = 0;
        let mut digits: Vec<u8> = Vec::with_capacity(self.digits.len() + 20);
        for digit in self.digits.iter().rev() {
            let product = (u128::from(*digit) << bits.min(63)) + carry;
            digits.push((product % 10) as u8);
            carry = product / 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
        digits.reverse();
        Self {
            negative: self.negative,
            digits,
            scale: self.scale,
        }
    }

    /// The digits, and an exponent that is a multiple of three.
    pub(super) fn decimal_form(&self) -> (String, i64) {
        let mut digits = self.digits.clone();
        let mut exponent = -i64::from(self.scale);
        while digits.last() == Some(&0) {
            digits.pop();
            exponent += 1;
        }
        while exponent % 3 != 0 {
            digits.push(0);
            exponent -= 1;
        }
        (self.text(&digits), exponent)
    }

    /// The digits and a power of 1024, if the number is an integer of at least 1024 in magnitude.
    pub(super) fn binary_form(&self) -> Option<(String, u32)> {
        let whole = self.rounded_up(0).ok()?;
        let small = whole.digits.len() < 4
            || whole.digits.as_slice() < &[1, 0, 2, 4] && whole.digits.len() == 4;
        if small || whole.compare(self).is_ne() {
            return None;
        }
        let mut digits = whole.digits;
        let mut exponent = 0;
        while digits.len() <= MAX_BINARY_DIGITS
            && let Some(quotient) = divided_by_1024(&digits)
        {
            digits = quotient;
            exponent += 1;
        }
        Some((self.text(&digits), exponent))
    }

    fn text(&self, digits: &[u8]) -> String {
        let sign = if self.negative { "-" } else { "" };
        sign.chars()
            .chain(digits.iter().map(|d| char::from(d + b'0')))
            .collect()
    }
}

fn add_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut short = short.iter().rev();
    let mut carry = 0;
    let mut sum: Vec<u8> = Vec::with_capacity(long.len() + 1);
    for digit in long.iter().rev() {
        let total = digit + short.next().unwrap_or(&0) + carry;
        sum.push(total % 10);
        carry = total / 10;
    }
    if carry > 0 {
        sum.push(carry);
    }
    sum.reverse();
    sum
}

/// Subtracts a smaller or equal number.
fn subtract_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut small = b.iter().rev();
    let mut borrow = 0;
    let mut difference: Vec<u8> = Vec::with_capacity(a.len());
    for digit in a.iter().rev() {
        let take = small.next().unwrap_or(&0) + borrow;
        borrow = u8::from(*digit < take);
        difference.push(digit + 10 * borrow - take);
    }
    while difference.last() == Some(&0) {
        difference.pop();
    }
    difference.reverse();
    difference
}

/// Divides by 1024 if the remainder is zero.
fn divided_by_1024(digits: &[u8]) -> Option<Vec<u8>> {
    let mut remainder: u32 = 0;
    let mut quotient = Vec::with_capacity(digits.len());
    for digit in digits {
        remainder = remainder * 10 + u32::from(*digit);
        quotient.push((remainder / 1024) as u8);
        remainder %= 1024;
    }
    (remainder == 0 && !digits.is_empty())
        .then(|| quotient.into_iter().skip_while(|d| *d == 0).collect())
}
