//! Equality and order of values: numbers are compared by value.
//!
//! UPSTREAM: structured-merge-diff value/{value,list,map}.go

use std::cmp::Ordering;

use serde_json::Value;

use lockgate_go::number::format_double;
use lockgate_go::quote::quote;

use crate::structural::json::Go;

/// The order of values is not determined below this depth. Only keys of list elements are ordered, and valid keys are
/// scalars.
const ORDER_DEPTH: usize = 32;

/// Returns true if two values are equal. Iterative, so depth uses the heap only.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    let mut rest = vec![(left, right)];
    while let Some((left, right)) = rest.pop() {
        let same = match (left, right) {
            (Value::Array(left), Value::Array(right)) => {
                rest.extend(left.iter().zip(right));
                left.len() == right.len()
            }
            (Value::Object(left), Value::Object(right)) => {
                let mut same = left.len() == right.len();
                for ((left_key, left), (right_key, right)) in left.iter().zip(right) {
                    same &= left_key == right_key;
                    rest.push((left, right));
                }
                same
            }
            (Value::Number(_), Value::Number(_)) => order(left, right) == Ordering::Equal,
            (left, right) => left == right,
        };
        if !same {
            return false;
        }
    }
    true
}

/// The order of values in field sets: numbers, strings, booleans, lists, maps, null.
pub(super) fn order(left: &Value, right: &Value) -> Ordering {
    order_within(left, right, ORDER_DEPTH)
}

fn order_within(left: &Value, right: &Value, depth: usize) -> Ordering {
    if depth == 0 {
        return Ordering::Equal;
    }
    match (Go::from(left), Go::from(right)) {
        (Go::Int(left), Go::Int(right)) => left.cmp(&right),
        (Go::Int(left), Go::Float(right)) => order_floats(as_float(left), right),
        (Go::Float(left), Go::Int(right)) => order_floats(left, as_float(right)),
        (Go::Float(left), Go::Float(right)) => order_floats(left, right),
        (Go::Text(left), Go::Text(right)) => left.cmp(right),
        (Go::Bool(left), Go::Bool(right)) => left.cmp(&right),
        (Go::List(left), Go::List(right)) => left
            .iter()
            .zip(right)
            .map(|(left, right)| order_within(left, right, depth - 1))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| left.len().cmp(&right.len())),
        (Go::Map(left), Go::Map(right)) => left
            .iter()
            .zip(right)
            .map(|((left_key, left), (right_key, right))| {
                left_key
                    .cmp(right_key)
                    .then_with(|| order_within(left, right, depth - 1))
            })
            .find(|order| order.is_ne())
            .unwrap_or_else(|| left.len().cmp(&right.len())),
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

/// Integers are compared with floats after Go's conversion.
fn as_float(integer: i64) -> f64 {
    integer as f64
}

fn order_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

fn rank(value: Go<'_>) -> u8 {
    match value {
        Go::Int(_) | Go::Float(_) => 0,
        Go::Text(_) => 1,
        Go::Bool(_) => 2,
        Go::List(_) => 3,
        Go::Map(_) => 4,
        Go::Nil => 5,
    }
}

/// A value as paths print it. Values in paths are [shallow](is_shallow).
pub(super) fn shown(value: &Value) -> String {
    match Go::from(value) {
        Go::Nil => String::from("null"),
        Go::Int(number) => number.to_string(),
        Go::Float(number) => format_double(number),
        Go::Text(text) => quote(text),
        Go::Bool(flag) => flag.to_string(),
        Go::List(items) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("[{}]", items.join(","))
        }
        Go::Map(entries) => entries
            .iter()
            .map(|(key, value)| format!("{key}={}", shown(value)))
            .collect(),
    }
}

/// Returns true if a value is shallow enough to print and order by recursion.
pub(super) fn is_shallow(value: &Value) -> bool {
    is_within(value, ORDER_DEPTH)
}

/// Returns true if a value has at most `depth` levels.
pub(super) fn is_within(value: &Value, depth: usize) -> bool {
    depth > 0
        && match value {
            Value::Array(items) => items.iter().all(|item| is_within(item, depth - 1)),
            Value::Object(entries) => entries.values().all(|item| is_within(item, depth - 1)),
            _ => true,
        }
}

/// A value in Go syntax, as printed by `%#v`.
pub(super) fn go_syntax(value: &Value) -> String {
    enum Step<'v> {
        Value(&'v Value),
        Text(String),
    }
    let mut out = String::new();
    let mut rest = vec![Step::Value(value)];
    while let Some(step) = rest.pop() {
        let value = match step {
            Step::Text(text) => {
                out.push_str(&text);
                continue;
            }
            Step::Value(value) => value,
        };
        match Go::from(value) {
            Go::Nil => out.push_str("interface {}(nil)"),
            Go::List(items) => {
                out.push_str("[]interface {}{");
                rest.push(Step::Text(String::from("}")));
                for (at, item) in items.iter().enumerate().rev() {
                    rest.push(Step::Value(item));
                    if at > 0 {
                        rest.push(Step::Text(String::from(", ")));
                    }
                }
            }
            Go::Map(entries) => {
                out.push_str("map[string]interface {}{");
                rest.push(Step::Text(String::from("}")));
                for (at, (key, item)) in entries.iter().enumerate().rev() {
                    rest.push(Step::Value(item));
                    let comma = if at > 0 { ", " } else { "" };
                    rest.push(Step::Text(format!("{comma}{}:", quote(key))));
                }
            }
            Go::Bool(_) | Go::Int(_) | Go::Float(_) | Go::Text(_) => out.push_str(&shown(value)),
        }
    }
    out
}
