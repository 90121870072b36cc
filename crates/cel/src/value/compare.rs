//! Equality and ordering.
//!
//! UPSTREAM: cel-go common/types (Equal and Compare of each type)

use std::cmp::Ordering;

use super::{Value, typed};

/// The result of an equality comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equality {
    /// The values are equal.
    Equal,
    /// The values differ.
    Different,
    /// Values of these types cannot be compared.
    Undefined,
}

impl From<bool> for Equality {
    fn from(equal: bool) -> Self {
        if equal { Self::Equal } else { Self::Different }
    }
}

/// The reason why two values cannot be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOrdered {
    /// The left type is not ordered.
    Unordered,
    /// The types differ.
    Mixed,
    /// One of them is NaN.
    Nan,
}

impl Value<'_> {
    /// Compares for equality; numbers are compared by value across types.
    #[must_use]
    pub fn equals(&self, other: &Value<'_>) -> Equality {
        match (self, other) {
            (Value::Null, _) | (_, Value::Null) => {
                matches!((self, other), (Value::Null, Value::Null)).into()
            }
            (Value::Bool(a), Value::Bool(b)) => (a == b).into(),
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => (numbers(self, other) == Some(Ordering::Equal)).into(),
            (Value::Bytes(a), Value::Bytes(b)) => (a == b).into(),
            (Value::Duration(a), Value::Duration(b)) => (a == b).into(),
            (Value::Timestamp(a), Value::Timestamp(b)) => (a == b).into(),
            (Value::Type(a), Value::Type(b)) => (a == b).into(),
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals_directly(b),
                (a, b) => (a.is_none() && b.is_none()).into(),
            },
            (Value::Opaque(a), _) => a.equals(other),
            (Value::Object(a), Value::Object(b)) => {
                let same = |(name, value): &(&str, Value<'_>)| {
                    b.field(name)
                        .is_some_and(|other| value.equals(other) == Equality::Equal)
                };
                let is_equal = a.type_name == b.type_name
                    && a.fields.len() == b.fields.len()
                    && a.fields.iter().all(same);
                is_equal.into()
            }
            (Value::Variables, Value::Variables) => Equality::Equal,
            (Value::Variables, _) => Equality::Undefined,
            _ => {
                if let Some(outcome) = typed::equals(self, other) {
                    return outcome;
                }
                if let (Some(a), Some(b)) = (self.as_str(), other.as_str()) {
                    return (a == b).into();
                }
                if let (Some(a), Some(b)) = (self.list_len(), other.list_len()) {
                    return (a == b && self.same_elements(other)).into();
                }
                if let (Some(a), Some(b)) = (self.map_len(), other.map_len()) {
                    return (a == b && self.same_entries(other)).into();
                }
                Equality::Different
            }
        }
    }

    /// Type-specific equality, without the special case for null.
    pub(crate) fn equals_directly(&self, other: &Value<'_>) -> Equality {
        match (self, other) {
            (Value::Opaque(a), _) => a.equals(other),
            (Value::Typed(..) | Value::List(_), Value::Null) => {
                typed::equals(self, other).unwrap_or(Equality::Different)
            }
            _ => self.equals(other),
        }
    }

    fn same_elements(&self, other: &Value<'_>) -> bool {
        let differ = |(a, b): (Value<'_>, Value<'_>)| a.equals(&b) == Equality::Different;
        !self.elements().zip(other.elements()).any(differ)
    }

    fn same_entries(&self, other: &Value<'_>) -> bool {
        self.entries().all(|(key, value)| {
            other
                .map_get(&key)
                .is_some_and(|found| value.equals(&found) != Equality::Different)
        })
    }

    /// Compares two values of an ordered type.
    pub(crate) fn order(&self, other: &Value<'_>) -> Result<Ordering, NotOrdered> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => numbers(self, other).ok_or(NotOrdered::Nan),
            (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
            _ => match (self.as_str(), other.as_str()) {
                (Some(a), Some(b)) => Ok(a.cmp(b)),
                (Some(_), None) => Err(NotOrdered::Mixed),
                _ if self.is_ordered() => Err(NotOrdered::Mixed),
                _ => Err(NotOrdered::Unordered),
            },
        }
    }

    /// Returns true for values of an ordered type.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(
            self,
            Value::Bool(_)
                | Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::Str(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
        )
    }
}

/// Compares two numbers of any types; `None` if one is NaN.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Int(b)) => double_with_int(*a, *b),
        (Value::Int(a), Value::Double(b)) => double_with_int(*b, *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => double_with_uint(*a, *b),
        (Value::Uint(a), Value::Double(b)) => double_with_uint(*b, *a).map(Ordering::reverse),
        _ => None,
    }
}

// UPSTREAM: cel-go common/types/compare.go: outside the integer range by magnitude, otherwise as
// doubles.
fn double_with_int(double: f64, int: i64) -> Option<Ordering> {
    if double < i64::MIN as f64 {
        return Some(Ordering::Less);
    }
    if double > i64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    double.partial_cmp(&(int as f64))
}

fn double_with_uint(double: f64, uint: u64) -> Option<Ordering> {
    if double < 0.0 {
        return Some(Ordering::Less);
    }
    if double > u64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    double.partial_cmp(&(uint as f64))
}
