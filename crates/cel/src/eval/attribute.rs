//! Variables and what is selected from them.
//!
//! UPSTREAM: cel-go interpreter/attributes.go

use serde_json::Value as Json;

use crate::eval::cost::Argument;
use crate::eval::error::{Error, Failure};
use crate::eval::machine::{Machine, Trace};
use crate::eval::program::{Attribute, Path, Qualifier, QualifierKey, Root};
use crate::value::Value;

/// A value, and whether it is still the document's own.
///
/// Upstream converts values lazily, and one message shows which side of the
/// conversion a value is on.
struct Resolved<'a> {
    value: Value<'a>,
    native: bool,
}

/// What a selection finds.
enum Found<'a> {
    Value(Value<'a>),
    Absent,
}

impl<'a, T: Trace> Machine<'a, '_, T> {
    /// The value of an attribute, charged.
    pub(crate) fn attribute(&mut self, attribute: &'a Attribute) -> Argument<'a> {
        let resolved = self.resolve(attribute);
        if let Err(error) = &resolved
            && error.is_fatal()
        {
            return Err(error.clone());
        }
        match (&attribute.root, attribute.test) {
            (Root::Conditional(..), true) => self.refund()?,
            (Root::Conditional(..), false) | (_, true) => {}
            _ => self.charge(1)?,
        }
        let value = resolved?.value;
        match value {
            Value::Optional(inner) if attribute.test => Ok(Value::Bool(inner.is_some())),
            value => Ok(value),
        }
    }

    /// Walks plain fields over the document; anything else is left to [`Self::attribute`].
    #[inline]
    pub(crate) fn path(&mut self, path: &'a Path) -> Argument<'a> {
        let start = match path.attribute.root {
            Root::Variable(nth) => match self.inputs.get(nth as usize) {
                Some(Value::Json(json)) => Some(*json),
                _ => None,
            },
            Root::Local(slot) => self.local_json(slot),
            _ => None,
        };
        let Some(mut json) = start else {
            return self.attribute(&path.attribute);
        };
        let units = path.fields.len() as u64;
        let mut left = path.fields.len();
        for field in &path.fields {
            left -= 1;
            let Json::Object(entries) = json else {
                return self.attribute(&path.attribute);
            };
            match entries.get(&**field) {
                Some(next) => json = next,
                None if left == 0 && path.attribute.test => {
                    self.charge(units)?;
                    return Ok(Value::Bool(false));
                }
                None => return self.attribute(&path.attribute),
            }
        }
        if path.attribute.test {
            self.charge(units)?;
            return Ok(Value::Bool(true));
        }
        self.charge(units + 1)?;
        Ok(Value::from(json))
    }

    fn resolve(&mut self, attribute: &'a Attribute) -> Result<Resolved<'a>, Error> {
        let (root, native) = match &attribute.root {
            Root::Variable(nth) => match self.inputs.get(*nth as usize) {
                Some(value) => (value.clone().settled()?, true),
                None => return Err(Error::text("no such attribute(s)")),
            },
            Root::Local(slot) => (self.local(*slot)?, false),
            Root::Step(step) => (self.eval(*step)?, false),
            Root::Conditional(condition, yes, no) => {
                return match self.eval(*condition)? {
                    Value::Bool(true) => self.resolve(yes),
                    Value::Bool(false) => self.resolve(no),
                    _ => Err(Error::no_such_overload()),
                };
            }
        };
        match root {
            Value::Optional(Some(inner)) => match reopened(&inner) {
                Ok(value) => self.qualify(value, true, false, &attribute.qualifiers),
                // Whoever takes the value out gets the error.
                Err(error) if attribute.qualifiers.is_empty() => {
                    let value = Value::some(Value::Failed(error.into()));
                    Ok(Resolved {
                        value,
                        native: false,
                    })
                }
                Err(error) => {
                    let presence = attribute.qualifiers.first().is_some_and(|q| q.test);
                    if presence {
                        self.charge(1)?;
                    }
                    Err(error)
                }
            },
            root if attribute.qualifiers.is_empty() => Ok(Resolved {
                value: root,
                native,
            }),
            Value::Optional(None) => Ok(Resolved {
                value: root,
                native: false,
            }),
            root => self.qualify(root, false, native, &attribute.qualifiers),
        }
    }

    fn qualify(
        &mut self,
        mut value: Value<'a>,
        mut optional: bool,
        mut native: bool,
        qualifiers: &'a [Qualifier],
    ) -> Result<Resolved<'a>, Error> {
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            // The common case first: a field of an object.
            if let (QualifierKey::Field(field), Value::Json(Json::Object(entries))) =
                (&qualifier.key, &value)
            {
                let found = entries.get(&**field);
                if qualifier.test && !optional {
                    self.charge(1)?;
                    value = Value::Bool(found.is_some());
                    native = false;
                    continue;
                }
                match found {
                    Some(json) => {
                        self.charge(1)?;
                        value = Value::from(json);
                    }
                    None if optional => {
                        return Ok(Resolved {
                            value: Value::Optional(None),
                            native: false,
                        });
                    }
                    None => {
                        self.charge(1)?;
                        return Err(Failure::NoSuchKey(field.to_string()).into());
                    }
                }
                continue;
            }
            let presence = optional || qualifier.test;
            let outcome = self.select(&value, &qualifier.key, presence);
            if let Err(error) = &outcome
                && error.is_fatal()
            {
                return Err(error.clone());
            }
            native &= stays_native(&value, &qualifier.key);
            match outcome {
                Ok(Found::Value(found)) => {
                    self.charge(1)?;
                    value = if qualifier.test && !optional {
                        Value::Bool(true)
                    } else {
                        found
                    };
                }
                Ok(Found::Absent) if qualifier.test && !optional => {
                    self.charge(1)?;
                    value = Value::Bool(false);
                }
                Ok(Found::Absent) => {
                    return Ok(Resolved {
                        value: Value::Optional(None),
                        native: false,
                    });
                }
                Err(error) if optional => return Err(error),
                Err(error) => {
                    self.charge(1)?;
                    return Err(error);
                }
            }
        }
        if optional {
            value = Value::some(value);
            native = false;
        }
        Ok(Resolved { value, native })
    }

    /// Selects from any value; with `presence`, what is not there is no error.
    fn select(
        &mut self,
        value: &Value<'a>,
        key: &'a QualifierKey,
        presence: bool,
    ) -> Result<Found<'a>, Error> {
        let dynamic;
        let key: &Value<'_> = match key {
            QualifierKey::Field(field) => {
                dynamic = Value::Str(field);
                &dynamic
            }
            QualifierKey::Constant(key) => key,
            QualifierKey::Attribute(attribute) => {
                let resolved = self.resolve(attribute)?;
                check_key(&resolved.value, resolved.native)?;
                dynamic = resolved.value;
                &dynamic
            }
            QualifierKey::Step(step) => {
                let key = self.eval(*step)?;
                check_key(&key, false)?;
                dynamic = key;
                &dynamic
            }
        };
        select(value, key, presence)
    }
}

/// What is inside an optional value once upstream has taken it out and put it back.
///
/// It does so with every optional an attribute starts from, and not every value
/// survives: types become text, and what has no plain form is an error.
fn reopened<'a>(value: &Value<'a>) -> Result<Value<'a>, Error> {
    match value {
        Value::Optional(None) => Ok(Value::Null),
        Value::Optional(Some(inner)) => reopened(inner),
        Value::Failed(error) => Err((**error).clone()),
        Value::Type(name) => Ok(Value::String(name.clone())),
        // The plain form of what has a schema has none.
        Value::Typed(json, _) => Ok(Value::from(*json)),
        Value::Opaque(opaque) => match opaque.plain_go_type() {
            Some("cel.Format") => Ok(value.clone()),
            Some(plain) => Err(Error::text(format_args!(
                "unsupported conversion to ref.Val: ({plain}){}",
                opaque.text()
            ))),
            None => Err(Error::no_such_overload()),
        },
        other => Ok(other.clone()),
    }
}

/// Whether upstream still has the document's own value after this selection.
fn stays_native(value: &Value<'_>, key: &QualifierKey) -> bool {
    match (value, key) {
        (Value::Json(Json::Object(_)), QualifierKey::Field(_)) => true,
        (Value::Json(Json::Object(_)), QualifierKey::Constant(key)) => key.as_str().is_some(),
        (Value::Json(Json::Array(_)), QualifierKey::Constant(Value::Int(_))) => true,
        (Value::Json(_), QualifierKey::Attribute(_) | QualifierKey::Step(_)) => true,
        _ => false,
    }
}

/// Only scalars can be selected by.
pub(crate) fn check_key(key: &Value<'_>, native: bool) -> Result<(), Error> {
    match key {
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Str(_)
        | Value::String(_) => Ok(()),
        _ => {
            let go_type = match key {
                Value::Json(Json::Object(_)) if native => "map[string]interface {}",
                Value::Json(Json::Array(_)) if native => "[]interface {}",
                Value::Null if native => "<nil>",
                other => other.go_type(),
            };
            Err(Error::text(format_args!(
                "invalid qualifier type: {go_type}"
            )))
        }
    }
}

fn select<'a>(value: &Value<'a>, key: &Value<'_>, presence: bool) -> Result<Found<'a>, Error> {
    if let (Value::Typed(Json::Object(_), _), None) = (value, key.as_str()) {
        return Err(Error::no_such_overload());
    }
    if value.is_map() {
        return match value.map_get(key) {
            Some(found) => Ok(Found::Value(found.settled()?)),
            None if presence => Ok(Found::Absent),
            None => Err(Failure::NoSuchKey(key.to_string()).into()),
        };
    }
    if value.is_list() {
        let index = list_index(key)?;
        let found = usize::try_from(index)
            .ok()
            .and_then(|at| value.list_get(at));
        return match found {
            Some(found) => Ok(Found::Value(found.settled()?)),
            None if presence => Ok(Found::Absent),
            None => Err(Failure::OutOfBounds(key.to_string()).into()),
        };
    }
    if presence {
        Ok(Found::Absent)
    } else {
        Err(Failure::NoSuchKey(key.to_string()).into())
    }
}

/// The index a value stands for.
pub(crate) fn list_index(key: &Value<'_>) -> Result<i64, Error> {
    let unsupported = || {
        Err(Error::text(format_args!(
            "unsupported index value {key} in list"
        )))
    };
    match key {
        Value::Int(index) => Ok(*index),
        Value::Double(d) => match crate::number::double_to_int(*d) {
            Ok(index) if index as f64 == *d => Ok(index),
            _ => unsupported(),
        },
        Value::Uint(u) => i64::try_from(*u).or_else(|_| unsupported()),
        other => Err(Error::text(format_args!(
            "unsupported index type '{}' in list",
            other.type_name()
        ))),
    }
}
