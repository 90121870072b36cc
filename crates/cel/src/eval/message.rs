//! Literals of protobuf messages with a native CEL value.
//!
//! UPSTREAM: cel-go common/types/provider.go NewValue, common/types/object.go

use std::sync::Arc;

use lockgate_go::time::{Duration, Timestamp};

use crate::eval::cost::Argument;
use crate::eval::machine::Machine;
use crate::eval::program::{Message, MessageField};
use crate::eval::record::Trace;
use crate::value::constructed::is_constructible;
use crate::value::{Constructed, Error, Map, Value};

impl<'a, T: Trace> Machine<'a, '_, T> {
    pub(crate) fn message(&mut self, message: &'a Message) -> Argument<'a> {
        let fields = self.fields(&message.fields);
        if let Err(error) = &fields
            && error.is_fatal()
        {
            return Err(error.clone());
        }
        self.charge_once(40)?;
        if is_constructible(&message.type_name) {
            return Ok(Value::Object(Arc::new(Constructed {
                type_name: &message.type_name,
                fields: fields?,
            })));
        }
        build(&message.type_name, &fields?)
    }

    fn fields(&mut self, fields: &'a [MessageField]) -> Result<Vec<(&'a str, Value<'a>)>, Error> {
        let mut values: Vec<(&str, Value<'_>)> = Vec::with_capacity(fields.len());
        for field in fields {
            let mut value = self.eval(field.value)?;
            values.retain(|(name, _)| *name != &*field.name);
            if field.optional {
                value = match value {
                    Value::Optional(None) => continue,
                    Value::Optional(Some(inner)) => inner.to_result()?,
                    other => {
                        return Err(Error::text(format_args!(
                            "cannot initialize optional entry '{}' from non-optional value {other}",
                            field.name
                        )));
                    }
                };
            }
            values.push((&field.name, value));
        }
        Ok(values)
    }
}

/// The CEL value of a message.
fn build<'a>(type_name: &str, fields: &[(&str, Value<'a>)]) -> Argument<'a> {
    let unknown = || Err(Error::text(format_args!("unknown type '{type_name}'")));
    let Some(name) = type_name.strip_prefix("google.protobuf.") else {
        return unknown();
    };
    let get = |wanted: &str| {
        fields
            .iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, v)| v)
    };
    let value = get("value").cloned();
    let too_large = |overflow: &str| {
        Err(Error::text(format_args!(
            "field type conversion error for {type_name}.value value type: {overflow}"
        )))
    };
    Ok(match name {
        "BoolValue" => value.unwrap_or(Value::Bool(false)),
        "BytesValue" => value.unwrap_or_else(|| Value::Bytes(Arc::new([]))),
        "DoubleValue" => value.unwrap_or(Value::Double(0.0)),
        "FloatValue" => match value {
            Some(Value::Double(d)) => Value::Double(f64::from(d as f32)),
            other => other.unwrap_or(Value::Double(0.0)),
        },
        "Int64Value" => value.unwrap_or(Value::Int(0)),
        "Int32Value" => match value {
            Some(Value::Int(i)) if i32::try_from(i).is_err() => {
                return too_large("integer overflow");
            }
            other => other.unwrap_or(Value::Int(0)),
        },
        "UInt64Value" => value.unwrap_or(Value::Uint(0)),
        "UInt32Value" => match value {
            Some(Value::Uint(u)) if u32::try_from(u).is_err() => {
                return too_large("unsigned integer overflow");
            }
            other => other.unwrap_or(Value::Uint(0)),
        },
        "StringValue" => value.unwrap_or(Value::Str("")),
        "Struct" => get("fields").map_or_else(|| Value::Map(Arc::default()), as_json),
        "ListValue" => get("values").map_or_else(|| Value::from(Vec::new()), as_json),
        "Value" => fields
            .first()
            .map_or(Value::Null, |(name, value)| match *name {
                "null_value" => Value::Null,
                _ => as_json(value),
            }),
        "Duration" => {
            let nanos = whole(get("seconds"))
                .checked_mul(1_000_000_000)
                .and_then(|n| n.checked_add(whole(get("nanos"))));
            let nanos = nanos.ok_or_else(|| Error::fixed("integer overflow"))?;
            Value::Duration(Duration::from_nanos(nanos))
        }
        "Timestamp" => {
            let nanos = Duration::from_nanos(whole(get("nanos")));
            let moment = Timestamp::from_unix(whole(get("seconds"))).and_then(|t| t.plus(nanos));
            Value::Timestamp(moment.map_err(Error::text)?)
        }
        "Any" => {
            return Err(Error::fixed(
                "unsupported conversion to ref.Val: (*dynamicpb.Message)",
            ));
        }
        _ => return unknown(),
    })
}

fn whole(value: Option<&Value<'_>>) -> i64 {
    match value {
        Some(Value::Int(i)) => *i,
        _ => 0,
    }
}

/// Converts a value as in a JSON message, where every number is a double.
fn as_json<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Int(i) => Value::Double(*i as f64),
        Value::Uint(u) => Value::Double(*u as f64),
        _ if value.is_list() => value
            .elements()
            .map(|e| as_json(&e))
            .collect::<Vec<_>>()
            .into(),
        _ if value.is_map() => {
            let mut map = Map::default();
            for (key, value) in value.entries() {
                map.insert(key, as_json(&value));
            }
            Value::Map(Arc::new(map))
        }
        other => other.clone(),
    }
}
