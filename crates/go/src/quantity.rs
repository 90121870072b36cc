//! Resource quantities such as `500m`, `1.5Gi` or `12e6`.
//!
//! A quantity is exact: a 64-bit integer with a power of ten if that is in range, otherwise an arbitrary-precision
//! decimal. The representation is observable, as only the former converts to an integer, so every operation makes the
//! same choice as upstream.
// UPSTREAM: k8s.io/apimachinery/pkg/api/resource (quantity.go, amount.go, suffix.go).

mod decimal;
mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use decimal::Decimal;

/// A string that is not a quantity, or a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The string does not have the format of a quantity.
    FormatWrong,
    /// The digits are invalid.
    Numeric,
    /// The suffix is unknown.
    Suffix,
    /// The value is not an `int`, or not represented as one.
    NotAnInteger,
    /// The exact result has more digits than our limit. Upstream has no limit and runs out of memory.
    TooManyDigits,
}

impl std::fmt::Display for QuantityError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FormatWrong => {
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Numeric => "unable to parse numeric part of quantity",
            Self::Suffix => "unable to parse quantity's suffix",
            Self::NotAnInteger => "cannot convert value to integer",
            Self::TooManyDigits => "quantity has too many digits",
        })
    }
}

impl std::error::Error for QuantityError {}

/// The format of a printed quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

#[derive(Clone, Debug)]
enum Amount {
    /// `value * 10^scale`
    Int {
        value: i64,
        scale: i32,
    },
    Dec(Decimal),
}

/// A resource quantity.
///
/// ```
/// use lockgate_go::quantity::Quantity;
/// let half = Quantity::parse("512Mi").unwrap();
/// assert_eq!(half.add(&half).unwrap().to_string(), "1Gi");
/// ```
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The parsed string, if it is canonical.
    text: Option<Box<str>>,
    computed: bool,
}

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    ///
    /// A string that is not a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }

    /// `isQuantity(text)`
    #[must_use]
    pub fn is_valid(text: &str) -> bool {
        Self::parse(text).is_ok()
    }

    fn from_int(value: i64) -> Self {
        let amount = Amount::Int { value, scale: 0 };
        Self {
            amount,
            format: Format::DecimalExponent,
            text: None,
            computed: false,
        }
    }

    /// Returns true for a sum or difference.
    ///
    /// Upstream returns another Go type for these, which its equality does not support as right operand: `==` then
    /// has no overload, `!=` is true, `in` a list of such values is false, and two lists that only differ there are
    /// equal.
    // UPSTREAM: k8s.io/apiserver/pkg/cel/library/quantity.go returns a pointer from `add`,
    // pkg/cel/quantity.go compares with values only.
    #[must_use]
    pub const fn is_computed(&self) -> bool {
        self.computed
    }

    /// `sign(quantity)`: -1, 0 or 1.
    #[must_use]
    pub fn sign(&self) -> i64 {
        match &self.amount {
            Amount::Int { value, .. } => value.signum(),
            Amount::Dec(dec) => dec.sign(),
        }
    }

    /// Compares the amounts, independently of their format.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        match (&self.amount, &other.amount) {
            (Amount::Int { value: a, scale: s }, Amount::Int { value: b, scale: t }) if s == t => {
                a.cmp(b)
            }
            _ => self.decimal().compare(&other.decimal()),
        }
    }

    /// `isInteger()`: returns true if the amount is an integer, in the range of `int` and represented as one.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        self.as_integer().is_ok()
    }

    /// `asInteger()`
    ///
    /// # Errors
    ///
    /// [`QuantityError::NotAnInteger`], including integers such as `1000m` and all results with an intermediate value
    /// beyond 64 bits.
    pub fn as_integer(&self) -> Result<i64, QuantityError> {
        match self.amount {
            Amount::Int { value, scale } => scale_up(value, scale),
            Amount::Dec(_) => None,
        }
        .ok_or(QuantityError::NotAnInteger)
    }

    /// `asApproximateFloat()`
    #[must_use]
    pub fn as_approximate_float(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Int { value, scale } => (*value as f64, *scale),
            Amount::Dec(dec) => (dec.unscaled_as_double(), dec.scale().wrapping_neg()),
        };
        if exponent == 0 {
            base
        } else {
            base * pow10(exponent)
        }
    }

    /// The amount in units of `10^-places`, rounded away from zero. Out of the `i64` range, the result is Go's: zero,
    /// or the low 64 bits.
    ///
    /// ```
    /// use lockgate_go::quantity::Quantity;
    /// let cpu = Quantity::parse("1500m").unwrap();
    /// assert_eq!((cpu.rounded_up(0), cpu.rounded_up(3)), (2, 1500));
    /// ```
    // UPSTREAM: k8s.io/apimachinery/pkg/api/resource/quantity.go (Value, MilliValue).
    #[must_use]
    pub fn rounded_up(&self, places: u8) -> i64 {
        // A 64-bit amount that overflows in other units is zero.
        if let Amount::Int { value, scale } = self.amount
            && scale.saturating_add(i32::from(places)) > 0
        {
            return scale_up(value, scale.saturating_add(i32::from(places))).unwrap_or(0);
        }
        match &self.amount {
            Amount::Int { value, scale } => {
                div_ceil_away(*value, scale.saturating_add(i32::from(places)))
            }
            Amount::Dec(decimal) => decimal.in_units(places),
        }
    }

    /// `add(quantity)`
    ///
    /// # Errors
    ///
    /// [`QuantityError::TooManyDigits`]
    pub fn add(&self, other: &Self) -> Result<Self, QuantityError> {
        let sum = match (&self.amount, &other.amount) {
            (Amount::Int { value: a, scale: s }, Amount::Int { value: b, scale: t }) => {
                add_ints((*a, *s), (*b, *t))
            }
            _ => None,
        };
        let amount = match sum {
            Some((value, scale)) => Amount::Int { value, scale },
            None => Amount::Dec(self.decimal().add(&other.decimal())?),
        };
        Ok(self.computed(amount, other))
    }

    /// `sub(quantity)`
    ///
    /// # Errors
    ///
    /// [`QuantityError::TooManyDigits`]
    pub fn sub(&self, other: &Self) -> Result<Self, QuantityError> {
        let difference = match (&self.amount, &other.amount) {
            (Amount::Int { value: a, scale: s }, Amount::Int { value: b, scale: t }) => {
                add_ints((*a, *s), (b.wrapping_neg(), *t))
            }
            _ => None,
        };
        let amount = match difference {
            Some((value, scale)) => Amount::Int { value, scale },
            None => Amount::Dec(self.decimal().add(&other.decimal().negated())?),
        };
        Ok(self.computed(amount, other))
    }

    /// `add(int)`
    ///
    /// # Errors
    ///
    /// [`QuantityError::TooManyDigits`]
    pub fn add_int(&self, other: i64) -> Result<Self, QuantityError> {
        self.add(&Self::from_int(other))
    }

    /// `sub(int)`
    ///
    /// # Errors
    ///
    /// [`QuantityError::TooManyDigits`]
    pub fn sub_int(&self, other: i64) -> Result<Self, QuantityError> {
        self.sub(&Self::from_int(other))
    }

    /// Wraps the result of an operation, which has the format of its first nonzero operand.
    fn computed(&self, amount: Amount, other: &Self) -> Self {
        let format = if self.sign() == 0 {
            other.format
        } else {
            self.format
        };
        Self {
            amount,
            format,
            text: None,
            computed: true,
        }
    }

    fn decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Int { value, scale } => Decimal::from_int(*value, scale.wrapping_neg()),
            Amount::Dec(dec) => dec.clone(),
        }
    }

    /// The canonical digits, exponent and suffix.
    fn canonical(&self) -> String {
        if self.sign() == 0 {
            return "0".to_owned();
        }
        let dec = self.decimal();
        if self.format == Format::BinarySi
            && let Some((digits, exponent)) = dec.binary_form()
        {
            return digits + binary_suffix(exponent);
        }
        let (digits, exponent) = dec.decimal_form();
        match self.format {
            Format::DecimalExponent if exponent != 0 => format!("{digits}e{exponent}"),
            Format::DecimalExponent => digits,
            _ => digits + decimal_suffix(exponent),
        }
    }
}

/// Prints the canonical form.
impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

/// `value * 10^scale` for a nonpositive scale, rounded away from zero.
fn div_ceil_away(value: i64, scale: i32) -> i64 {
    match 10_i64.checked_pow(scale.unsigned_abs()) {
        Some(unit) if value % unit == 0 => value / unit,
        Some(unit) => value / unit + value.signum(),
        None => value.signum(),
    }
}

/// Multiplies by a power of ten; negative powers are `None`.
fn scale_up(value: i64, scale: i32) -> Option<i64> {
    if value == 0 && scale >= 0 {
        return Some(0);
    }
    value.checked_mul(10i64.checked_pow(u32::try_from(scale).ok()?)?)
}

/// Adds two scaled integers in 64 bits, at the smaller scale unless one of them is zero.
fn add_ints((a, s): (i64, i32), (b, t): (i64, i32)) -> Option<(i64, i32)> {
    if b == 0 {
        return Some((a, s));
    }
    if a == 0 {
        return Some((b, t));
    }
    let scale = s.min(t);
    let a = scale_up(a, s.wrapping_sub(scale))?;
    let b = scale_up(b, t.wrapping_sub(scale))?;
    Some((a.checked_add(b)?, scale))
}

/// Go's `math.Pow10`, the product of two table entries; its rounding error affects products.
fn pow10(exponent: i32) -> f64 {
    let entry = |n: i32| format!("1e{n}").parse::<f64>().unwrap_or(0.0);
    match exponent {
        0..=308 => entry(exponent / 32 * 32) * entry(exponent % 32),
        -323..0 => entry(exponent / 32 * 32) / entry(-exponent % 32),
        309.. => f64::INFINITY,
        _ => 0.0,
    }
}

/// Unsupported exponents have no suffix, although the printed number is then wrong.
fn decimal_suffix(exponent: i64) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
}

fn binary_suffix(exponent: u32) -> &'static str {
    match exponent {
        1 => "Ki",
        2 => "Mi",
        3 => "Gi",
        4 => "Ti",
        5 => "Pi",
        6 => "Ei",
        _ => "",
    }
}
