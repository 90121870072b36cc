//! JSON values with a schema.
//!
//! Values are converted lazily: a list or an object keeps its schema, and only scalars are
//! converted.
//!
//! UPSTREAM: apiserver pkg/cel/common/valuesunstructured.go

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map as Object, Value as Json};

use super::format;
use super::{Equality, Error, Failure, List, Value};
use crate::schema::{Format, Kind, ListType, Schema};
use crate::syntax::identifier::{escape, unescape};

/// Types a JSON value by its schema; a value that does not match is an error.
pub(crate) fn typed<'a>(json: &'a Json, schema: &'a Schema) -> Value<'a> {
    match convert(json, schema) {
        Ok(value) => value,
        Err(error) => Value::Failed(Arc::new(error)),
    }
}

fn convert<'a>(json: &'a Json, schema: &'a Schema) -> Result<Value<'a>, Error> {
    if json.is_null() {
        return if schema.nullable {
            Ok(Value::Null)
        } else {
            Err(Error::fixed(
                "invalid data, got null for schema with nullable=false",
            ))
        };
    }
    let converted = match (schema.kind, json) {
        _ if schema.int_or_string => match json {
            Json::String(text) => Some(Value::Str(text)),
            json => json.as_i64().map(Value::Int),
        },
        (Kind::Object, Json::Object(_)) => Some(Value::Typed(json, schema)),
        (Kind::Array, Json::Array(_)) => return list(json, schema),
        (Kind::String, Json::String(text)) => return formatted(text, schema.format),
        (Kind::Number, Json::Number(number)) => Some(Value::Double(match number.as_i64() {
            Some(int) => int as f64,
            None => number.as_f64().unwrap_or(f64::NAN),
        })),
        (Kind::Integer, json) => json.as_i64().map(Value::Int),
        (Kind::Boolean, json) => json.as_bool().map(Value::Bool),
        (Kind::Untyped, json) if schema.preserve_unknown_fields => Some(Value::from(json)),
        _ => None,
    };
    converted.ok_or_else(|| mismatch(schema, go_type(json)))
}

/// The error for data that does not match the type of its schema.
fn mismatch(schema: &Schema, found: &str) -> Error {
    let expected = match schema.kind {
        _ if schema.int_or_string => {
            return Error::fixed(
                "invalid data, expected XIntOrString value to be either a string or integer",
            );
        }
        Kind::Object => {
            return Error::fixed(
                "invalid data, expected a map for the provided schema with type=object",
            );
        }
        Kind::Array => {
            return Error::fixed(
                "invalid data, expected an array for the provided schema with type=array",
            );
        }
        Kind::Untyped => {
            return Error::fixed(
                "invalid type, expected object, array, number, integer, boolean or string, or no \
                 type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is \
                 true, got ",
            );
        }
        Kind::String => "string",
        Kind::Number => "float",
        Kind::Integer => "int",
        Kind::Boolean => "bool",
    };
    Error::text(format_args!(
        "invalid data, expected {expected}, got {found}"
    ))
}

fn list<'a>(json: &'a Json, schema: &'a Schema) -> Result<Value<'a>, Error> {
    if schema.items.is_none() {
        return Err(Error::fixed(
            "invalid array type, expected Items with a non-empty Schema",
        ));
    }
    match &schema.list_type {
        ListType::Unknown(other) => Err(Error::text(format_args!(
            "invalid x-kubernetes-list-type, expected 'map', 'set' or 'atomic' but got {other}"
        ))),
        _ => Ok(Value::Typed(json, schema)),
    }
}

fn formatted(text: &str, format: Option<Format>) -> Result<Value<'_>, Error> {
    let invalid = |what: &str, reason: String| {
        Err(Error::text(format_args!("Invalid {what} {text}: {reason}")))
    };
    match format {
        None => Ok(Value::Str(text)),
        Some(Format::Byte) => match format::base64(text) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(at) => invalid(
                "byte formatted string",
                format!("illegal base64 data at input byte {at}"),
            ),
        },
        Some(Format::Duration) => match format::duration(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => invalid("duration", format!("unable to parse {text} as duration")),
        },
        Some(Format::Date) => match format::date(text) {
            Some(date) => Ok(Value::Timestamp(date)),
            None => invalid("date formatted string", format!("parsing time {text:?}")),
        },
        Some(Format::DateTime) => match format::date_time(text) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => invalid(
                "date-time formatted string",
                format!("parsing time {text:?}"),
            ),
        },
    }
}

/// The Go type of a decoded JSON value.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(n) if n.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

/// The type of an array or an object with a schema in upstream's interpreter.
pub(crate) fn upstream_name(json: &Json, schema: &Schema) -> &'static str {
    match (json, &schema.list_type) {
        (Json::Array(_), ListType::Set) => "*common.unstructuredSetList",
        (Json::Array(_), ListType::Map(_)) => "*common.unstructuredMapList",
        (Json::Array(_), _) => "*common.unstructuredList",
        _ => "*common.unstructuredMap",
    }
}

/// The schema of an object's field, by its name in the document.
fn entry_schema<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    match &schema.properties {
        Some(properties) => properties.get(name),
        None => schema.additional_properties.as_deref(),
    }
}

/// The value of a field, by its escaped name.
pub(crate) fn find<'a>(
    entries: &'a Object<String, Json>,
    schema: &'a Schema,
    key: &str,
) -> Option<Value<'a>> {
    let is_object = schema.properties.is_some();
    let name = if is_object {
        unescape(key)?
    } else {
        Cow::Borrowed(key)
    };
    let json = entries.get(&*name)?;
    // A null property counts as missing; a null entry of a map does not.
    if is_object && json.is_null() {
        return None;
    }
    entry_schema(schema, &name).map(|schema| typed(json, schema))
}

/// The entries of an object that are in the schema.
pub(crate) fn entries<'a>(
    entries: &'a Object<String, Json>,
    schema: &'a Schema,
) -> impl Iterator<Item = (Value<'a>, Value<'a>)> {
    entries.iter().filter_map(move |(name, _)| {
        entry_schema(schema, name)?;
        let key = match escape(name).filter(|_| schema.properties.is_some()) {
            Some(Cow::Owned(escaped)) => Value::from(escaped),
            _ => Value::Str(name),
        };
        let missing = || Value::Failed(Arc::new(Failure::NoSuchKey(key.to_string()).into()));
        let value = key.as_str().and_then(|key| find(entries, schema, key));
        let value = value.unwrap_or_else(missing);
        Some((key, value))
    })
}

/// An element of a list.
pub(crate) fn element<'a>(
    elements: &'a [Json],
    schema: &'a Schema,
    index: usize,
) -> Option<Value<'a>> {
    let items = schema.items.as_deref()?;
    elements.get(index).map(|json| typed(json, items))
}

/// Type-specific equality of a value with a schema.
///
/// `None` for values without a schema.
pub(crate) fn equals(left: &Value<'_>, right: &Value<'_>) -> Option<Equality> {
    if let Value::Typed(Json::Object(entries), schema) = left {
        return Some(same_object(left, entries, schema, right));
    }
    let schema = list_schema(left)?;
    Some(match (left.list_len(), right.list_len()) {
        (Some(a), Some(b)) if a != b => Equality::Different,
        (_, None) => Equality::Undefined,
        _ => match &schema.list_type {
            ListType::Set => {
                let set: HashSet<_> = raw_keys(left).into_iter().flatten().collect();
                let has = |element: Value<'_>| Key::of(&element).is_some_and(|k| set.contains(&k));
                right.elements().all(has).into()
            }
            ListType::Map(keys) => same_map_list(left, keys, right),
            _ => first_difference(
                left.elements()
                    .zip(right.elements())
                    .map(|(a, b)| same(&a, &b)),
            ),
        },
    })
}

/// Compares two values; one that does not match its schema is not comparable.
fn same(left: &Value<'_>, right: &Value<'_>) -> Equality {
    match left {
        Value::Failed(_) => Equality::Undefined,
        left => left.equals_directly(right),
    }
}

/// The error of a comparison, if data does not match its schema.
pub(crate) fn failure(value: &Value<'_>) -> Option<Error> {
    let of_part = |part: Value<'_>| match part {
        Value::Failed(error) => Some((*error).clone()),
        part => failure(&part),
    };
    if let Value::Typed(Json::Object(entries), schema) = value {
        let mut parts = entries
            .keys()
            .filter_map(|name| find(entries, schema, name));
        return parts.find_map(of_part);
    }
    list_schema(value)?;
    value.elements().find_map(of_part)
}

/// `Equal` if all are; otherwise the first other outcome.
fn first_difference(mut outcomes: impl Iterator<Item = Equality>) -> Equality {
    outcomes
        .find(|outcome| *outcome != Equality::Equal)
        .unwrap_or(Equality::Equal)
}

fn same_object(
    left: &Value<'_>,
    entries: &Object<String, Json>,
    schema: &Schema,
    right: &Value<'_>,
) -> Equality {
    match right.map_len() {
        None => return Equality::Undefined,
        Some(len) if len != entries.len() => return Equality::Different,
        Some(_) => {}
    }
    let other = match right {
        Value::Typed(Json::Object(other), _) => Some(other),
        _ => None,
    };
    first_difference(entries.iter().map(|(name, json)| {
        let of_entry = entry_schema(schema, name);
        let is_opaque = |s: &Schema| s.kind == Kind::Untyped && !s.int_or_string;
        if of_entry.is_some_and(|schema| !is_opaque(schema)) {
            let key = Value::Str(name);
            return match (left.map_get(&key), right.map_get(&key)) {
                (Some(a), Some(b)) => same(&a, &b),
                (None, None) => Equality::Equal,
                _ => Equality::Different,
            };
        }
        // Fields that are not in the schema are compared as raw JSON.
        match (other, other.and_then(|other| other.get(name))) {
            (None, _) => Equality::Undefined,
            (_, Some(found)) => (found == json).into(),
            (_, None) => of_entry.is_none().into(),
        }
    }))
}

fn same_map_list(left: &Value<'_>, keys: &[String], right: &Value<'_>) -> Equality {
    let by_key: HashMap<_, _> = left
        .elements()
        .map(|element| (composite_key(&element, keys), element))
        .collect();
    first_difference(right.elements().map(|element| {
        let key = composite_key(&element, keys);
        match key.as_ref().and_then(|_| by_key.get(&key)) {
            Some(found) => same(found, &element),
            None => Equality::Different,
        }
    }))
}

/// The schema of a list, if it has one.
fn list_schema<'a>(list: &Value<'a>) -> Option<&'a Schema> {
    match list {
        Value::Typed(Json::Array(_), schema) => Some(schema),
        Value::List(list) => match &**list {
            List::Merged(_, schema) => Some(schema),
            _ => None,
        },
        _ => None,
    }
}

/// Concatenates two lists, if the left one has a schema: sets are united, map lists are merged.
///
/// # Errors
///
/// The right operand is not a list.
pub(crate) fn add<'a>(left: &Value<'a>, right: &Value<'a>) -> Option<Result<Value<'a>, Error>> {
    let schema = list_schema(left)?;
    let Some(more) = right.list_len() else {
        return Some(Err(Error::no_such_overload()));
    };
    let items = schema.items.as_deref()?;
    let is_read_anew = items.nullable || items.kind == Kind::String && items.format.is_some();
    let merged = |elements| Value::List(Arc::new(List::Merged(elements, schema)));
    Some(Ok(match &schema.list_type {
        ListType::Set => {
            let mut set: HashSet<_> = raw_keys(left).into_iter().flatten().collect();
            let mut elements: Vec<_> = left.elements().collect();
            for element in right.elements() {
                if Key::of(&element).is_none_or(|key| set.insert(key)) {
                    elements.push(convert_added(element, items));
                }
            }
            merged(elements)
        }
        ListType::Map(keys) => {
            let mut elements: Vec<_> = left.elements().collect();
            let places: HashMap<_, _> = elements
                .iter()
                .enumerate()
                .map(|(at, element)| (composite_key(element, keys), at))
                .collect();
            for element in right.elements() {
                let key = composite_key(&element, keys);
                match places.get(&key).and_then(|at| elements.get_mut(*at)) {
                    Some(place) => *place = element,
                    None => elements.push(element),
                }
            }
            merged(elements)
        }
        _ if is_read_anew => {
            let added = right
                .elements()
                .map(|element| convert_added(element, items));
            merged(left.elements().chain(added).collect())
        }
        _ => {
            let size = left.list_len().unwrap_or(0).saturating_add(more);
            Value::List(Arc::new(List::Joined(left.clone(), right.clone(), size)))
        }
    }))
}

/// Converts an added element by the schema of the list.
///
/// Strings with a format are already converted and cannot be converted again, nor can null.
fn convert_added<'a>(element: Value<'a>, items: &Schema) -> Value<'a> {
    let is_text = items.kind == Kind::String && !items.int_or_string;
    let go_type = match &element {
        Value::Timestamp(_) if is_text => "time.Time",
        Value::Duration(_) if is_text => "time.Duration",
        Value::Bytes(_) if is_text => "[]uint8",
        Value::Null => "structpb.NullValue",
        _ => return element,
    };
    Value::Failed(Arc::new(mismatch(items, go_type)))
}

/// Searches a list with a schema for an element; `None` for other lists.
pub(crate) fn contains(list: &Value<'_>, value: &Value<'_>) -> Option<Result<bool, Error>> {
    list_schema(list)?;
    let mut undefined = false;
    for element in list.elements() {
        match element.equals_directly(value) {
            Equality::Equal => return Some(Ok(true)),
            Equality::Different => {}
            Equality::Undefined => undefined = true,
        }
    }
    Some(if undefined {
        Err(failure(list).unwrap_or_else(Error::no_such_overload))
    } else {
        Ok(false)
    })
}

/// A scalar as a key of upstream's hash tables: by type, then by value.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(u64),
    Text(Cow<'a, str>),
}

impl<'a> Key<'a> {
    fn double(d: f64) -> Self {
        // Both zeros are equal.
        Self::Double(if d == 0.0 { 0 } else { d.to_bits() })
    }

    fn of(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(b) => Some(Self::Bool(*b)),
            Value::Int(i) => Some(Self::Int(*i)),
            Value::Double(d) => Some(Self::double(*d)),
            Value::Str(text) => Some(Self::Text(Cow::Borrowed(text))),
            Value::String(text) => Some(Self::Text(text.to_string().into())),
            _ => None,
        }
    }

    fn of_json(json: &'a Json) -> Option<Self> {
        match json {
            Json::Null => Some(Self::Null),
            Json::Array(_) | Json::Object(_) => None,
            scalar => Self::of(&Value::from(scalar)),
        }
    }
}

/// The elements of a set as hash keys, in the document's representation.
fn raw_keys<'a>(list: &Value<'a>) -> Vec<Option<Key<'a>>> {
    match list {
        Value::Typed(Json::Array(elements), _) => elements.iter().map(Key::of_json).collect(),
        other => other.elements().map(|element| Key::of(&element)).collect(),
    }
}

/// The key of an element in a map list.
fn composite_key<'a>(element: &Value<'a>, keys: &[String]) -> Option<Vec<Key<'a>>> {
    let Value::Typed(Json::Object(entries), _) = element else {
        return None;
    };
    keys.iter()
        .map(|key| entries.get(key).map_or(Some(Key::Null), Key::of_json))
        .collect()
}
