//! Validation of numbers: bounds and formats.
//!
//! UPSTREAM: kube-openapi pkg/validation/validate/validator.go (numberValidator), values.go

use lockgate_go::number::{format_double, format_double_decimal};

use super::format::Format;
use super::json::Go;
use super::path::Path;
use super::schema::{Checks, Node, Type};

/// The largest integer that a float represents exactly.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
const EPSILON: f64 = 1e-9;

/// The constraint that a number violates.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Reported on the object as a whole.
    OfObject(String),
    /// The printed value, and the message after the field name.
    At(String, String),
    /// The printed value, and the whole message.
    Whole(String, String),
}

/// Returns true if a float is treated as an integer.
///
/// UPSTREAM: go-openapi/swag convert.go (IsFloat64AJSONInteger)
pub(crate) fn is_whole(float: f64) -> bool {
    if float.is_nan() || float.abs() > MAX_SAFE {
        return false;
    }
    // Within these bounds, both Go conversions are exact for integers; a negative float wraps around in the
    // comparison below, and is never close to itself.
    if float.fract() == 0.0 {
        return true;
    }
    let wrapped = if float < 0.0 {
        truncate(float) as u64 as f64
    } else {
        float.trunc()
    };
    let difference = (float - wrapped).abs();
    if wrapped == 0.0 {
        return false;
    }
    difference / (float.abs() + wrapped.abs()) < EPSILON
}

/// Go's conversion of a float to `int64`, on amd64.
pub(crate) fn truncate(float: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float) {
        float as i64
    } else {
        i64::MIN
    }
}

/// Validates a number; `None` if there are no constraints.
pub(crate) fn check(
    schema: &Node,
    checks: Option<&Checks>,
    value: Go<'_>,
    path: &Path<'_>,
) -> Option<Vec<Failure>> {
    let range = Range::of(schema, checks);
    let default = Checks::default();
    let checks = match (checks, range) {
        (Some(checks), _) => checks,
        (None, Range::Any) => return None,
        (None, _) => &default,
    };
    let mut failures = Vec::new();
    let in_range = |value: Go<'_>, what: &str, failures: &mut Vec<Failure>| {
        let fits = range.holds(value);
        if !fits {
            let message = format!(
                "{what} value must be of type {} in {}",
                range.name(),
                path.in_body()
            );
            failures.push(Failure::OfObject(message));
        }
        fits
    };
    in_range(value, "Checked", &mut failures);
    if let Some(factor) = checks.multiple_of {
        let native = in_range(Go::Float(factor), "MultipleOf", &mut failures);
        failures.extend(multiple_of(value, factor, native, path));
    }
    if let Some(min) = checks.minimum {
        let native = in_range(Go::Float(min), "Minimum boundary", &mut failures);
        let bound = Bound::Minimum(checks.exclusive_minimum);
        failures.extend(bound.check(value, min, native));
    }
    if let Some(max) = checks.maximum {
        let native = in_range(Go::Float(max), "Maximum boundary", &mut failures);
        let bound = Bound::Maximum(checks.exclusive_maximum);
        failures.extend(bound.check(value, max, native));
    }
    Some(failures)
}

/// The numeric types of a schema's type and format.
#[derive(Debug, Clone, Copy)]
enum Range {
    Any,
    Integer,
    Int32,
    Int64,
    Float,
}

impl Range {
    fn of(schema: &Node, checks: Option<&Checks>) -> Self {
        if schema.either_type {
            return Self::Any;
        }
        let format = checks.and_then(|checks| checks.format.as_ref());
        match (&schema.kind, format.map(Format::name)) {
            (Type::Integer, Some("int32")) => Self::Int32,
            (Type::Integer, Some("int64")) => Self::Int64,
            (Type::Integer, _) => Self::Integer,
            (Type::Number, Some("float")) => Self::Float,
            _ => Self::Any,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Integer => "integer (default format)",
            Self::Int32 => "integer with format int32",
            Self::Int64 => "integer with format int64",
            Self::Float => "number with format float",
        }
    }

    fn holds(self, value: Go<'_>) -> bool {
        // Upstream formats the number and parses it as the type.
        let text = match value {
            Go::Int(number) => number.to_string(),
            Go::Float(number) => format_double_decimal(number),
            _ => return true,
        };
        match self {
            Self::Any => true,
            Self::Integer | Self::Int64 => text.parse::<i64>().is_ok(),
            Self::Int32 => text.parse::<i32>().is_ok(),
            Self::Float => text.parse::<f32>().is_ok_and(f32::is_finite),
        }
    }
}

fn shown(value: Go<'_>) -> String {
    match value {
        Go::Int(number) => number.to_string(),
        Go::Float(number) => format_double(number),
        _ => String::new(),
    }
}

fn as_float(value: Go<'_>) -> f64 {
    match value {
        Go::Int(number) => number as f64,
        Go::Float(number) => number,
        _ => 0.0,
    }
}

fn multiple_of(value: Go<'_>, factor: f64, native: bool, path: &Path<'_>) -> Option<Failure> {
    let not_positive = |factor: String| {
        let place = path.in_body();
        let message = format!("factor MultipleOf declared for {place} must be positive: {factor}");
        Some(Failure::Whole(factor, message))
    };
    if let (Go::Int(number), true) = (value, native) {
        let factor = truncate(factor);
        if factor <= 0 {
            return not_positive(factor.to_string());
        }
        return (number % factor != 0).then(|| {
            let rest = format!("should be a multiple of {factor}");
            Failure::At(number.to_string(), rest)
        });
    }
    if factor <= 0.0 {
        return not_positive(format_double(factor));
    }
    let number = as_float(value);
    let times = if factor < 1.0 {
        1.0 / factor * number
    } else {
        number / factor
    };
    (!is_whole(times)).then(|| {
        let rest = format!("should be a multiple of {}", format_double(factor));
        Failure::At(format_double(number), rest)
    })
}

/// A bound, and whether it is exclusive.
#[derive(Debug, Clone, Copy)]
enum Bound {
    Minimum(bool),
    Maximum(bool),
}

impl Bound {
    fn check(self, value: Go<'_>, bound: f64, native: bool) -> Option<Failure> {
        if let (Go::Int(number), true) = (value, native) {
            let bound = truncate(bound);
            return self
                .is_broken(&number, &bound)
                .then(|| Failure::At(number.to_string(), self.says(&bound.to_string())));
        }
        let number = as_float(value);
        self.is_broken(&number, &bound).then(|| {
            // If the integer was converted to a float for the comparison, the float is printed.
            let number = if native {
                shown(value)
            } else {
                format_double(number)
            };
            Failure::At(number, self.says(&format_double(bound)))
        })
    }

    fn is_broken<T: PartialOrd>(self, number: &T, bound: &T) -> bool {
        match self {
            Self::Minimum(false) => number < bound,
            Self::Minimum(true) => number <= bound,
            Self::Maximum(false) => number > bound,
            Self::Maximum(true) => number >= bound,
        }
    }

    fn says(self, bound: &str) -> String {
        let comparison = match self {
            Self::Minimum(false) => "greater than or equal to",
            Self::Minimum(true) => "greater than",
            Self::Maximum(false) => "less than or equal to",
            Self::Maximum(true) => "less than",
        };
        format!("should be {comparison} {bound}")
    }
}
