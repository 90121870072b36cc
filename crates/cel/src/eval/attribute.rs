//! Variables and selections from them.
//!
//! UPSTREAM: cel-go interpreter/attributes.go

use serde_json::{Map as Object, Value as Json};

use crate::eval::cost::Argument;
use crate::eval::machine::Machine;
use crate::eval::program::{Attribute, Path, Qualifier, QualifierKey, Root};
use crate::eval::record::Trace;
use crate::value::{Error, Failure, Value};

/// A value, and whether it is still a native value of the document.
///
/// Upstream converts values lazily, and one error message depends on whether a value is converted.
struct Resolved<'a> {
    value: Value<'a>,
    native: bool,
}

/// The result of a selection.
enum Found<'a> {
    Value(Value<'a>),
    Absent,
}

impl<'a, T: Trace> Machine<'a, '_, T> {
    /// The value of an attribute, with its charge.
    #[inline(never)]
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

    /// The start of a path, if it is in a document.
    #[inline]
    fn start(&self, path: &Path) -> Option<&'a Json> {
        match path.attribute.root {
            Root::Variable(nth) => match self.inputs.values.get(nth as usize) {
                Some(Value::Json(json)) => Some(json),
                _ => None,
            },
            Root::Local(slot) => self.local_json(slot),
            _ => None,
        }
    }

    /// The value at the end of a path, if it is in a document. Charges nothing.
    #[inline]
    pub(crate) fn walk(&self, path: &Path) -> Option<&'a Json> {
        walk(self.start(path)?, &path.fields)
    }

    /// Selects fields of a document; otherwise falls back to [`Self::attribute`].
    #[inline]
    pub(crate) fn path(&mut self, path: &'a Path) -> Argument<'a> {
        match self.walk(path) {
            Some(json) => {
                self.charge(path.fields.len() as u64 + 1)?;
                Ok(Value::from(json))
            }
            None => self.attribute(&path.attribute),
        }
    }

    /// Returns true if the last field of a path is present.
    #[inline]
    pub(crate) fn has(&mut self, path: &'a Path) -> Result<bool, Error> {
        if let Some((last, fields)) = path.fields.split_last()
            && let Some(json) = self.start(path)
            && let Some(Json::Object(entries)) = walk(json, fields)
        {
            self.charge(path.fields.len() as u64)?;
            return Ok(member(entries, last).is_some());
        }
        self.presence(path)
    }

    #[cold]
    fn presence(&mut self, path: &'a Path) -> Result<bool, Error> {
        match self.attribute(&path.attribute)? {
            Value::Bool(present) => Ok(present),
            _ => Err(Error::no_such_overload()),
        }
    }

    fn resolve(&mut self, attribute: &'a Attribute) -> Result<Resolved<'a>, Error> {
        let (root, native) = match &attribute.root {
            Root::Variable(nth) => match self.inputs.values.get(*nth as usize) {
                Some(value) => (value.clone().into_result()?, true),
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
            Value::Optional(Some(inner)) => match native_round_trip(&inner) {
                Ok(value) => self.qualify(value, true, false, &attribute.qualifiers),
                // Selecting the value returns the error.
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
            // Fast path: a field of an object.
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

    /// Selects from any value; with `presence`, a missing field is no error.
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
        match value {
            Value::Variables => self.named(key, presence),
            _ => select(value, key, presence),
        }
    }

    /// Selects a policy variable, evaluating it if necessary.
    fn named(&self, key: &Value<'_>, presence: bool) -> Result<Found<'a>, Error> {
        let name = key.as_str().ok_or_else(Error::no_such_overload)?;
        match self.named.and_then(|named| named.select(name)) {
            Some(outcome) => outcome.map(Found::Value),
            None if presence => Ok(Found::Absent),
            None => Err(no_such_key(key)),
        }
    }
}

/// The value at the end of a chain of fields, if each of them is in an object.
#[inline]
pub(crate) fn walk<'a>(mut json: &'a Json, fields: &[Box<str>]) -> Option<&'a Json> {
    for field in fields {
        json = member(json.as_object()?, field)?;
    }
    Some(json)
}

/// Objects with more members than this are searched by key order instead of scanned.
const SCANNED: usize = 24;

/// A member of an object.
///
/// Most objects are small, and most of their names differ in length: comparing lengths first is
/// faster than comparing strings.
#[inline]
pub(crate) fn member<'a>(entries: &'a Object<String, Json>, name: &str) -> Option<&'a Json> {
    if entries.len() > SCANNED {
        return entries.get(name);
    }
    entries
        .iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// The content of an optional value after upstream's conversion to a native value and back.
///
/// Upstream converts every optional at the start of an attribute, which is lossy: types become
/// strings, and values without a native form are errors.
fn native_round_trip<'a>(value: &Value<'a>) -> Result<Value<'a>, Error> {
    match value {
        Value::Optional(None) => Ok(Value::Null),
        Value::Optional(Some(inner)) => native_round_trip(inner),
        Value::Failed(error) => Err((**error).clone()),
        Value::Type(name) => Ok(Value::String(name.clone())),
        // The native form of a value with a schema has no schema.
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

/// Returns true if upstream still has the document's native value after this selection.
fn stays_native(value: &Value<'_>, key: &QualifierKey) -> bool {
    match (value, key) {
        (Value::Json(Json::Object(_)), QualifierKey::Field(_)) => true,
        (Value::Json(Json::Object(_)), QualifierKey::Constant(key)) => key.as_str().is_some(),
        (Value::Json(Json::Array(_)), QualifierKey::Constant(Value::Int(_))) => true,
        (Value::Json(_), QualifierKey::Attribute(_) | QualifierKey::Step(_)) => true,
        _ => false,
    }
}

/// Checks that the key of a selection is a scalar.
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
            Some(found) => Ok(Found::Value(found.into_result()?)),
            None if presence => Ok(Found::Absent),
            None => Err(no_such_key(key)),
        };
    }
    if value.is_list() {
        let index = list_index(key)?;
        let found = usize::try_from(index)
            .ok()
            .and_then(|at| value.list_get(at));
        return match found {
            Some(found) => Ok(Found::Value(found.into_result()?)),
            None if presence => Ok(Found::Absent),
            None => Err(Failure::OutOfBounds(key.to_string()).into()),
        };
    }
    if presence {
        Ok(Found::Absent)
    } else {
        Err(no_such_key(key))
    }
}

/// The error of a selection without a result.
pub(crate) fn no_such_key(key: &Value<'_>) -> Error {
    Failure::NoSuchKey(key.to_string()).into()
}

/// Converts a value to a list index.
pub(crate) fn list_index(key: &Value<'_>) -> Result<i64, Error> {
    let unsupported = || {
        Err(Error::text(format_args!(
            "unsupported index value {key} in list"
        )))
    };
    match key {
        Value::Int(index) => Ok(*index),
        Value::Double(d) => match lockgate_go::number::double_to_int(*d) {
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
