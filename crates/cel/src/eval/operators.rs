//! Arithmetic and comparison operators.
//!
//! UPSTREAM: cel-go common/types (Add, Subtract, … of each type)

use std::cmp::Ordering;
use std::sync::Arc;

use crate::eval::cost::{Argument, CallCost};
use crate::eval::machine::Machine;
use crate::eval::program::{Arithmetic, Comparison, StepId};
use crate::eval::record::Trace;
use crate::limits::MAX_TEXT_BYTES;
use crate::value::{Error, List, NotOrdered, Value, typed};

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";
const DIVISION: &str = "division by zero";
const MODULUS: &str = "modulus by zero";

impl<'a, T: Trace> Machine<'a, '_, T> {
    pub(crate) fn negate(&mut self, operand: StepId) -> Argument<'a> {
        let value = self.operand(operand)?;
        self.charge(1)?;
        match value? {
            Value::Int(i) => int(i.checked_neg()),
            Value::Double(d) => Ok(Value::Double(-d)),
            Value::Duration(d) => d.negated().map(Value::Duration).map_err(Error::text),
            Value::Bool(_) => Err(Error::no_such_overload()),
            other => Err(Error::not_applicable("-_", &other)),
        }
    }

    pub(crate) fn arithmetic(
        &mut self,
        op: Arithmetic,
        left: StepId,
        right: StepId,
        cost: CallCost,
    ) -> Argument<'a> {
        let left = self.operand(left)?;
        let right = self.operand(right)?;
        if let (Ok(Value::Int(a)), Ok(Value::Int(b)), CallCost::Fixed(units)) =
            (&left, &right, cost)
        {
            self.charge_once(units)?;
            return ints(op, *a, *b);
        }
        let args = [left, right];
        self.charge_once(cost.charge(&args, None)?)?;
        let [left, right] = args;
        compute(op, left?, right?)
    }

    pub(crate) fn ordered(
        &mut self,
        op: Comparison,
        left: StepId,
        right: StepId,
        cost: CallCost,
    ) -> Result<bool, Error> {
        let left = self.operand(left)?;
        let right = self.operand(right)?;
        let args = [left, right];
        self.charge_once(cost.charge(&args, None)?)?;
        let [left, right] = args;
        let left = left?;
        let order = left.order(&right?).map_err(|why| match why {
            NotOrdered::Unordered => Error::not_applicable(op.name(), &left),
            NotOrdered::Mixed => Error::no_such_overload(),
            NotOrdered::Nan => Error::fixed("NaN values cannot be ordered"),
        })?;
        Ok(holds(op, order))
    }
}

/// Returns true if a comparison is true for operands in this order.
#[inline]
pub(crate) fn holds(op: Comparison, order: Ordering) -> bool {
    match op {
        Comparison::Less => order == Ordering::Less,
        Comparison::LessEquals => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterEquals => order != Ordering::Less,
    }
}

fn int<'a>(value: Option<i64>) -> Argument<'a> {
    value
        .map(Value::Int)
        .ok_or_else(|| Error::fixed(INT_OVERFLOW))
}

fn uint<'a>(value: Option<u64>) -> Argument<'a> {
    value
        .map(Value::Uint)
        .ok_or_else(|| Error::fixed(UINT_OVERFLOW))
}

fn compute<'a>(op: Arithmetic, left: Value<'a>, right: Value<'a>) -> Argument<'a> {
    match (&left, &right) {
        (Value::Int(a), Value::Int(b)) => ints(op, *a, *b),
        (Value::Uint(a), Value::Uint(b)) => uints(op, *a, *b),
        (Value::Double(a), Value::Double(b)) if op != Arithmetic::Modulo => {
            Ok(Value::Double(match op {
                Arithmetic::Add => a + b,
                Arithmetic::Subtract => a - b,
                Arithmetic::Multiply => a * b,
                Arithmetic::Divide | Arithmetic::Modulo => a / b,
            }))
        }
        _ => match op {
            Arithmetic::Add => add(left, right),
            Arithmetic::Subtract => subtract(&left, &right),
            Arithmetic::Multiply | Arithmetic::Divide => match left {
                Value::Int(_) | Value::Uint(_) | Value::Double(_) => Err(Error::no_such_overload()),
                other => Err(Error::not_applicable(op.name(), &other)),
            },
            Arithmetic::Modulo => match left {
                Value::Int(_) | Value::Uint(_) => Err(Error::no_such_overload()),
                other => Err(Error::not_applicable(op.name(), &other)),
            },
        },
    }
}

pub(crate) fn ints<'a>(op: Arithmetic, a: i64, b: i64) -> Argument<'a> {
    match op {
        Arithmetic::Add => int(a.checked_add(b)),
        Arithmetic::Subtract => int(a.checked_sub(b)),
        Arithmetic::Multiply => int(a.checked_mul(b)),
        Arithmetic::Divide if b == 0 => Err(Error::fixed(DIVISION)),
        Arithmetic::Divide => int(a.checked_div(b)),
        Arithmetic::Modulo if b == 0 => Err(Error::fixed(MODULUS)),
        Arithmetic::Modulo => int(a.checked_rem(b)),
    }
}

fn uints<'a>(op: Arithmetic, a: u64, b: u64) -> Argument<'a> {
    match op {
        Arithmetic::Add => uint(a.checked_add(b)),
        Arithmetic::Subtract => uint(a.checked_sub(b)),
        Arithmetic::Multiply => uint(a.checked_mul(b)),
        Arithmetic::Divide if b == 0 => Err(Error::fixed(DIVISION)),
        Arithmetic::Divide => Ok(Value::Uint(a / b)),
        Arithmetic::Modulo if b == 0 => Err(Error::fixed(MODULUS)),
        Arithmetic::Modulo => Ok(Value::Uint(a % b)),
    }
}

/// Checks the length of a concatenation.
fn check_size(left: usize, right: usize) -> Result<(), Error> {
    match left + right > MAX_TEXT_BYTES {
        true => Err(Error::CostLimit),
        false => Ok(()),
    }
}

/// `+` on operands other than two equal numeric types.
pub(crate) fn add<'a>(left: Value<'a>, right: Value<'a>) -> Argument<'a> {
    if let Some(a) = left.as_str() {
        let b = right.as_str().ok_or_else(Error::no_such_overload)?;
        check_size(a.len(), b.len())?;
        let mut joined = String::with_capacity(a.len() + b.len());
        joined.push_str(a);
        joined.push_str(b);
        return Ok(joined.into());
    }
    if let Some(sum) = typed::add(&left, &right) {
        return sum;
    }
    if let Some(size) = left.list_len() {
        let more = right.list_len().ok_or_else(Error::no_such_overload)?;
        return Ok(match (size, more) {
            (0, _) => right,
            (_, 0) => left,
            _ => Value::List(Arc::new(List::Joined(left, right, size + more))),
        });
    }
    match (&left, &right) {
        (Value::Bytes(a), Value::Bytes(b)) => {
            check_size(a.len(), b.len())?;
            Ok(Value::Bytes([&a[..], &b[..]].concat().into()))
        }
        (Value::Duration(a), Value::Duration(b)) => {
            a.plus(*b).map(Value::Duration).map_err(Error::text)
        }
        (Value::Duration(d), Value::Timestamp(t)) | (Value::Timestamp(t), Value::Duration(d)) => {
            t.plus(*d).map(Value::Timestamp).map_err(Error::text)
        }
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _)
        | (Value::Bytes(_) | Value::Duration(_) | Value::Timestamp(_), _) => {
            Err(Error::no_such_overload())
        }
        _ => Err(Error::not_applicable("_+_", &left)),
    }
}

fn subtract<'a>(left: &Value<'a>, right: &Value<'a>) -> Argument<'a> {
    match (left, right) {
        (Value::Duration(a), Value::Duration(b)) => {
            a.minus(*b).map(Value::Duration).map_err(Error::text)
        }
        (Value::Timestamp(t), Value::Duration(d)) => {
            t.minus(*d).map(Value::Timestamp).map_err(Error::text)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            a.since(*b).map(Value::Duration).map_err(Error::text)
        }
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Duration(_)
            | Value::Timestamp(_),
            _,
        ) => Err(Error::no_such_overload()),
        _ => Err(Error::not_applicable("_-_", left)),
    }
}

/// Adds two values as `sum` does.
pub(crate) fn sum<'a>(left: Value<'a>, right: Value<'a>) -> Argument<'a> {
    compute(Arithmetic::Add, left, right)
}
