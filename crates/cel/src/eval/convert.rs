//! Conversions between types.
//!
//! UPSTREAM: cel-go common/types (ConvertToType of each type)

use lockgate_go::number;
use lockgate_go::time::{Duration, ParseTimestampError, Timestamp};

use crate::eval::cost::Argument;
use crate::value::{Error, Opaque, Value};

fn impossible<'a>(from: &Value<'_>, to: &str) -> Argument<'a> {
    let from = from.type_name();
    Err(Error::text(format_args!(
        "type conversion error from '{from}' to '{to}'"
    )))
}

pub(crate) fn to_bool<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Bool(b) => Ok(Value::Bool(*b)),
        _ => match value.as_str().and_then(number::parse_bool) {
            Some(b) => Ok(Value::Bool(b)),
            None => impossible(value, "bool"),
        },
    }
}

pub(crate) fn to_bytes<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        _ => match value.as_str() {
            Some(text) => Ok(Value::Bytes(text.as_bytes().into())),
            None => impossible(value, "bytes"),
        },
    }
}

pub(crate) fn to_int<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Int(i) => Ok(Value::Int(*i)),
        Value::Uint(u) => number::uint_to_int(*u).map(Value::Int).map_err(Error::text),
        Value::Double(d) => number::double_to_int(*d)
            .map(Value::Int)
            .map_err(Error::text),
        Value::Duration(d) => Ok(Value::Int(d.nanos())),
        Value::Timestamp(t) => Ok(Value::Int(t.unix_seconds())),
        _ => match value.as_str().and_then(number::parse_int) {
            Some(i) => Ok(Value::Int(i)),
            None => impossible(value, "int"),
        },
    }
}

pub(crate) fn to_uint<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Uint(u) => Ok(Value::Uint(*u)),
        Value::Int(i) => number::int_to_uint(*i)
            .map(Value::Uint)
            .map_err(Error::text),
        Value::Double(d) => number::double_to_uint(*d)
            .map(Value::Uint)
            .map_err(Error::text),
        _ => match value.as_str().and_then(number::parse_uint) {
            Some(u) => Ok(Value::Uint(u)),
            None => impossible(value, "uint"),
        },
    }
}

pub(crate) fn to_double<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Double(d) => Ok(Value::Double(*d)),
        Value::Int(i) => Ok(Value::Double(*i as f64)),
        Value::Uint(u) => Ok(Value::Double(*u as f64)),
        _ => match value.as_str().and_then(number::parse_double) {
            Some(d) => Ok(Value::Double(d)),
            None => impossible(value, "double"),
        },
    }
}

pub(crate) fn to_string<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Str(_) | Value::String(_) => Ok(value.clone()),
        Value::Bool(b) => Ok(b.to_string().into()),
        Value::Int(i) => Ok(i.to_string().into()),
        Value::Uint(u) => Ok(u.to_string().into()),
        Value::Double(d) => Ok(number::format_double(*d).into()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned().into()),
            Err(_) => Err(Error::fixed(
                "invalid UTF-8 in bytes, cannot convert to string",
            )),
        },
        Value::Duration(d) => Ok(d.to_string().into()),
        Value::Timestamp(t) => Ok(t.to_string().into()),
        Value::Type(name) => Ok(Value::String(name.clone())),
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Ip(_) | Opaque::Cidr(_) => Ok(opaque.text().into()),
            _ => impossible(value, "string"),
        },
        _ => impossible(value, "string"),
    }
}

pub(crate) fn to_duration<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Duration(d) => Ok(Value::Duration(*d)),
        _ => match value.as_str() {
            Some(text) => Duration::parse(text)
                .map(Value::Duration)
                .or_else(|_| impossible(value, "google.protobuf.Duration")),
            None => impossible(value, "google.protobuf.Duration"),
        },
    }
}

pub(crate) fn to_timestamp<'a>(value: &Value<'a>) -> Argument<'a> {
    match value {
        Value::Timestamp(t) => Ok(Value::Timestamp(*t)),
        Value::Int(i) => Timestamp::from_unix(*i)
            .map(Value::Timestamp)
            .map_err(Error::text),
        _ => match value.as_str() {
            Some(text) => match Timestamp::parse(text) {
                Ok(timestamp) => Ok(Value::Timestamp(timestamp)),
                Err(ParseTimestampError::Form(_)) => impossible(value, "google.protobuf.Timestamp"),
                Err(ParseTimestampError::Range(error)) => Err(Error::text(error)),
            },
            None => impossible(value, "google.protobuf.Timestamp"),
        },
    }
}
