//! Validation of an object against its shape.
//!
//! UPSTREAM: structured-merge-diff typed/{validate,helpers}.go

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::structural::json::verbose;

use super::Problem;
use super::shape::{Atom, List, MapOf, Ref, Scalar};

/// The maximum total length of errors. Many errors at deep paths with long keys would take gigabytes.
const TEXT_BUDGET: usize = 1 << 20;

/// The handling of duplicate list elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duplicates {
    Allowed,
    Refused,
}

/// Validates a whole object.
pub(super) fn validate(ty: Ref<'_>, value: &Value, duplicates: Duplicates) -> Result<(), Problem> {
    let mut walker = Walker {
        duplicates,
        nulls: Nulls::Absent,
        errors: Vec::new(),
    };
    walker.check(ty, value);
    collected(walker)
}

/// Validates a whole object that an expression constructed, in which null is an invalid value.
pub(super) fn validate_constructed(ty: Ref<'_>, value: &Value) -> Result<(), Problem> {
    let mut walker = Walker {
        duplicates: Duplicates::Refused,
        nulls: Nulls::Values,
        errors: Vec::new(),
    };
    walker.check(ty, value);
    collected(walker)
}

fn collected(walker: Walker) -> Result<(), Problem> {
    if walker.errors.is_empty() {
        return Ok(());
    }
    Err(Problem(worded(&walker.errors)))
}

struct ShapeError {
    path: String,
    message: String,
}

fn worded(errors: &[ShapeError]) -> String {
    let one = |error: &ShapeError| {
        if error.path.is_empty() {
            error.message.clone()
        } else {
            format!("{}: {}", error.path, error.message)
        }
    };
    match errors {
        [error] => one(error),
        errors => errors
            .iter()
            .fold(String::from("errors:"), |mut text, error| {
                let _ = write!(text, "\n  {}", one(error));
                text
            }),
    }
}

/// The meaning of null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// The field is absent.
    Absent,
    /// The `NullValue` of protobuf, an enum number.
    Values,
}

struct Walker {
    duplicates: Duplicates,
    nulls: Nulls,
    errors: Vec<ShapeError>,
}

impl Walker {
    fn fail(&mut self, message: String) {
        self.errors.push(ShapeError {
            path: String::new(),
            message,
        });
    }

    /// Prepends a path element to all errors from `start` on.
    fn prefix(&mut self, start: usize, step: &dyn Fn() -> String) {
        if self.errors.len() == start {
            return;
        }
        let step = step();
        let mut left = TEXT_BUDGET;
        let mut kept = start;
        for error in self.errors.iter_mut().skip(start) {
            error.path.insert_str(0, &step);
            let size = error.path.len() + error.message.len();
            if size > left && kept > start {
                break;
            }
            left = left.saturating_sub(size);
            kept += 1;
        }
        self.errors.truncate(kept);
    }

    fn check(&mut self, ty: Ref<'_>, value: &Value) {
        if ty.takes_anything() || ty.is_plain(value) {
            return;
        }
        if value.is_null() && self.nulls == Nulls::Values {
            return self.fail_on_null(ty);
        }
        match ty.resolve().deduce(Some(value)) {
            Atom { map: Some(map), .. } => match value {
                Value::Object(_) => self.members(&map, value),
                Value::Null => {}
                other => self.fail(format!("expected map, got &{{{}}}", verbose(other))),
            },
            Atom {
                scalar: Some(scalar),
                ..
            } => {
                if let Some(message) = scalar_error(scalar, value) {
                    self.fail(message);
                }
            }
            Atom {
                list: Some(list), ..
            } => match value {
                Value::Array(_) => self.elements(&list, value),
                Value::Null => {}
                other => self.fail(format!("expected list, got &{{{}}}", verbose(other))),
            },
            Atom { .. } => self.fail(String::from("schema error: invalid atom: inlined")),
        }
    }

    fn fail_on_null(&mut self, ty: Ref<'_>) {
        let null = "&{NULL_VALUE}";
        let message = match ty.resolve() {
            Atom {
                scalar: Some(Scalar::Text),
                ..
            } => String::from("expected string, got &value.valueUnstructured{Value:0}"),
            Atom {
                scalar: Some(Scalar::Numeric),
                ..
            } => String::from("expected numeric (int or float), got structpb.NullValue"),
            Atom {
                scalar: Some(Scalar::Boolean),
                ..
            } => format!("expected boolean, got {null}"),
            Atom {
                scalar: Some(Scalar::Any),
                ..
            } => format!("expected any scalar, got {null}"),
            Atom { map: Some(_), .. } => format!("expected map, got {null}"),
            Atom { .. } => format!("expected list, got {null}"),
        };
        self.fail(message);
    }

    fn members(&mut self, map: &MapOf<'_>, value: &Value) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let start = self.errors.len();
            let ty = map.member(name);
            if matches!(ty, Ref::Undeclared) {
                self.fail(String::from("field not declared in schema"));
                self.prefix(start, &|| format!(".{name}"));
                // Upstream stops validating this map.
                return;
            }
            self.check(ty, value);
            self.prefix(start, &|| format!(".{name}"));
        }
    }

    fn elements(&mut self, list: &List<'_>, value: &Value) {
        let mut seen = BTreeSet::new();
        for (at, value) in value.as_array().into_iter().flatten().enumerate() {
            if list.is_atomic() {
                let start = self.errors.len();
                self.check(list.element, value);
                self.prefix(start, &|| format!("[{at}]"));
                continue;
            }
            let element = match list.step(value) {
                Ok(element) => element,
                // Elements without a path element are not validated further.
                Err(message) => return self.fail(format!("element {at}: {message}")),
            };
            if self.duplicates == Duplicates::Refused && seen.contains(&element) {
                self.fail(format!("duplicate entries for key {element}"));
            }
            let start = self.errors.len();
            self.check(list.element, value);
            self.prefix(start, &|| element.to_string());
            if self.duplicates == Duplicates::Refused {
                seen.insert(element);
            }
        }
    }
}

fn scalar_error(scalar: Scalar, value: &Value) -> Option<String> {
    let go_type = |value: &Value| match value {
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    };
    match (scalar, value) {
        (_, Value::Null)
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::Text, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Any, Value::Bool(_) | Value::Number(_) | Value::String(_)) => None,
        (Scalar::Numeric, other) => Some(format!(
            "expected numeric (int or float), got {}",
            go_type(other)
        )),
        (Scalar::Text, other) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            super::value::go_syntax(other)
        )),
        (Scalar::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", verbose(other))),
        (Scalar::Any, other) => Some(format!("expected any scalar, got &{{{}}}", verbose(other))),
    }
}
