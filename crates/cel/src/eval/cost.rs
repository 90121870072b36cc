//! The cost of calls.
//!
//! UPSTREAM: cel-go interpreter/runtimecost.go, ext/lists.go, ext/sets.go;
//! apiserver pkg/cel/library/cost.go

use crate::strings::code_points;
use crate::value::{Error, Value};

/// An evaluated argument: a value or an error.
pub(crate) type Argument<'a> = Result<Value<'a>, Error>;

/// The cost rule of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallCost {
    /// A constant number of units.
    Fixed(u64),
    /// A tenth of the size of the first operand, times a factor.
    Traversal(u64),
    /// A tenth of the size of the shorter operand.
    Shorter,
    /// A tenth of the size of both operands together.
    Both,
    /// The length of the second operand.
    SecondLength,
    /// The length of the string times that of the pattern.
    Pattern,
    /// The length of the string times that of the substring.
    Substring,
    /// All elements of the first operand, recursively.
    DeepTraversal,
    /// Parsing a selector.
    Selector,
    /// A fifth of the size of the result.
    Result,
    /// A network contains an address; `text` if it is given as a string.
    ContainsIp { text: bool },
    /// A network contains a network; `text` if it is given as a string.
    ContainsCidr { text: bool },
    /// Validating a string against a named format.
    Validate,
    /// Allocating a list of the result's length.
    ListResult,
    /// Allocating a list of the requested length.
    ListRange,
    /// The elements of a list of lists, level by level.
    Flatten,
    /// All pairs of elements of an operand.
    SelfCompare { operand: usize },
    /// All pairs of elements of two lists, times a factor.
    Sets(u64),
}

/// The charge for traversing a string of this length.
///
/// Upstream multiplies by 0.1 and rounds up; below 2^53 that is the same.
pub(crate) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// Like [`tenth`], for a string. Short strings are one unit, regardless of the number of code
/// points.
#[inline]
pub(crate) fn tenth_of(text: &str) -> u64 {
    match text.len() {
        0 => 0,
        1..=10 => 1,
        _ => tenth(code_points(text) as u64),
    }
}

fn quarter(size: u64) -> u64 {
    size.div_ceil(4)
}

/// The size of an argument in cost rules; scalars have size one.
pub(crate) fn size(argument: &Argument<'_>) -> u64 {
    argument
        .as_ref()
        .map_or(1, |value| value.size().unwrap_or(1))
}

/// Like [`size`], unwrapping optional values.
pub(crate) fn size_within(argument: &Argument<'_>) -> u64 {
    let Ok(mut value) = argument.as_ref() else {
        return 1;
    };
    while let Value::Optional(Some(inner)) = value {
        value = inner;
    }
    value.size().unwrap_or(1)
}

/// The cost of an equality comparison.
pub(crate) fn equality(left: &Argument<'_>, right: &Argument<'_>, not: bool) -> u64 {
    if !not && matches!(left, Ok(Value::Opaque(_))) {
        return 1;
    }
    tenth(size_within(left).min(size_within(right)))
}

impl CallCost {
    /// The cost rule of a function, by its resolved overload, if any.
    pub(crate) fn of(function: &str, overload: Option<&str>) -> Self {
        if let Some(rule) = overload.and_then(Self::tracked) {
            return rule;
        }
        if let Some(rule) = Self::of_function(function, overload) {
            return rule;
        }
        match overload.unwrap_or_default() {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => Self::Traversal(1),
            "in_list" => Self::SecondLength,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Self::Shorter,
            "add_string" | "add_bytes" => Self::Both,
            "matches_string" => Self::Pattern,
            "contains_string" => Self::Substring,
            _ => Self::Fixed(1),
        }
    }

    fn tracked(overload: &str) -> Option<Self> {
        Some(match overload {
            "list_slice" | "list_reverse" => Self::ListResult,
            "lists_range" => Self::ListRange,
            "list_flatten" | "list_flatten_int" => Self::Flatten,
            "list_distinct" => Self::SelfCompare { operand: 0 },
            "list_sets_contains_list" | "list_sets_intersects_list" => Self::Sets(1),
            "list_sets_equivalent_list" => Self::Sets(2),
            _ if overload.starts_with("list_") && overload.ends_with("_sort") => {
                Self::SelfCompare { operand: 0 }
            }
            _ if overload.ends_with("_sortByAssociatedKeys") => Self::SelfCompare { operand: 1 },
            _ => return None,
        })
    }

    fn of_function(function: &str, overload: Option<&str>) -> Option<Self> {
        Some(match function {
            "check" => Self::Fixed(350_000),
            "fieldSelector" | "labelSelector" => Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::DeepTraversal,
            "ip" if overload == Some("cidr_ip") => Self::Fixed(1),
            "url"
            | "jsonpatch.escapeKey"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "ip"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => Self::Traversal(1),
            "replace" | "split" | "ip.isCanonical" => Self::Traversal(2),
            "join" => Self::Result,
            "find" | "findAll" => Self::Pattern,
            "containsIP" => Self::ContainsIp {
                text: overload == Some("cidr_contains_ip_string"),
            },
            "containsCIDR" => Self::ContainsCidr {
                text: overload == Some("cidr_contains_cidr_string"),
            },
            "validate" => Self::Validate,
            _ => return None,
        })
    }

    /// Returns true if the charge depends on the result.
    pub(crate) fn needs_result(self) -> bool {
        matches!(self, Self::Result | Self::ListResult)
    }

    /// The cost of a call with these arguments, and its result where it is needed.
    ///
    /// For some rules, upstream's interpreter panics if arguments have unexpected types.
    pub(crate) fn charge(
        self,
        args: &[Argument<'_>],
        result: Option<&Argument<'_>>,
    ) -> Result<u64, Error> {
        let none = Ok(Value::Null);
        let first = args.first().unwrap_or(&none);
        let second = args.get(1).unwrap_or(&none);
        Ok(match self {
            Self::Fixed(units) => units,
            Self::Traversal(times) => tenth(size(first) * times),
            Self::Shorter => tenth(size_within(first).min(size_within(second))),
            Self::Both => tenth(size_within(first) + size_within(second)),
            Self::SecondLength => size_within(second),
            Self::Pattern => tenth(1 + size_within(first)) * quarter(size_within(second)),
            Self::Substring => tenth(size_within(first)) * tenth(size_within(second)),
            Self::DeepTraversal => first.as_ref().map_or(1, deep),
            Self::Selector => selector(size(second)),
            Self::Result => tenth(result.map_or(1, size) * 2),
            Self::ContainsIp { text } => {
                let base = tenth(size(first) * 2);
                if text {
                    base + tenth(size(second))
                } else {
                    base
                }
            }
            Self::ContainsCidr { text } => {
                let base = tenth(size(first) * 2) + tenth(size(first)) + 1;
                if text {
                    base + tenth(size(second))
                } else {
                    base
                }
            }
            Self::Validate => match first {
                Ok(Value::Opaque(opaque)) => match opaque.pattern_size() {
                    Some(pattern) => tenth(1 + size(second)) * quarter(pattern),
                    None => 1,
                },
                _ => 1,
            },
            Self::ListResult => allocated(1.0, result.map_or(1, size)),
            Self::ListRange => match first {
                Ok(Value::Int(count)) => allocated(1.0, u64::try_from(*count).unwrap_or(0)),
                _ => allocated(1.0, 1),
            },
            Self::Flatten => {
                let depth = match second {
                    _ if args.len() < 2 => 1.0,
                    Ok(Value::Int(depth)) => *depth as f64,
                    other => {
                        let found = other.as_ref().map_or("*types.Err", Value::go_type);
                        return Err(Error::internal(format_args!(
                            "interface conversion: ref.Val is {found}, not types.Int"
                        )));
                    }
                };
                allocated(depth, size(first))
            }
            Self::SelfCompare { operand } => self_compare(args.get(operand).unwrap_or(&none))?,
            Self::Sets(times) => {
                1 + size(first)
                    .saturating_mul(size(second))
                    .saturating_mul(times)
            }
        })
    }
}

fn allocated(factor: f64, size: u64) -> u64 {
    let units = size as f64 * factor;
    if units < 0.0 {
        // A negative depth wraps around upstream, and then fails.
        return (units as i64 as u64).wrapping_add(11);
    }
    if units >= u64::MAX as f64 {
        // The overflow of Go's conversion on amd64.
        return (1 << 63) + 11;
    }
    (units as u64).saturating_add(11)
}

fn self_compare(list: &Argument<'_>) -> Result<u64, Error> {
    let size = match list {
        Ok(value) if value.is_list() => size(list),
        other => {
            let found = other.as_ref().map_or("*types.Err", Value::go_type);
            let missing = match other {
                Ok(
                    Value::Int(_)
                    | Value::Uint(_)
                    | Value::Double(_)
                    | Value::Str(_)
                    | Value::String(_)
                    | Value::Bytes(_)
                    | Value::Duration(_)
                    | Value::Timestamp(_),
                ) => "Contains",
                _ => "Add",
            };
            return Err(Error::internal(format_args!(
                "interface conversion: {found} is not traits.Lister: missing method {missing}"
            )));
        }
    };
    if size == 0 {
        return Ok(allocated(2.0, 0));
    }
    let first = list.as_ref().ok().and_then(|list| list.list_get(0));
    let factor = match first {
        Some(Value::Str(_) | Value::String(_) | Value::Bytes(_)) => 2.1,
        _ => 2.0,
    };
    Ok(allocated(factor, size.saturating_mul(size)))
}

fn selector(length: u64) -> u64 {
    let requirements = (length as f64 * 0.5).ceil();
    10 + tenth(length) + (requirements * 50.0).ceil() as u64
}

/// The cost of traversing a value recursively.
///
/// The recursion is bounded, as documents and literals have a maximum depth.
fn deep(value: &Value<'_>) -> u64 {
    match value {
        Value::Str(text) => (text.len() as f64 * 0.1) as u64,
        Value::String(text) => (text.len() as f64 * 0.1) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * 0.1) as u64,
        _ if value.is_list() => value.elements().map(|e| deep(&e)).sum(),
        _ if value.is_map() => value.entries().map(|(k, v)| deep(&k) + deep(&v)).sum(),
        _ => 1,
    }
}
