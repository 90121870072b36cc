//! Values that are decoded at once: numbers, strings, and messages that are scalars in JSON.

use serde_json::{Number, Value};

use lockgate_api::document::json;
use lockgate_api::meta::time::Time;
use lockgate_go::base64;

use crate::tree;
use crate::typed::{Form, Type};

use super::error::DecodeError;
use super::wire::{Input, Wire, text, wrong_wire_type};

/// Go's zero time, which is `null` in normal form.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";
const ZERO_MICRO_TIME: &str = "0001-01-01T00:00:00.000000Z";

/// Decodes a value that is not an open message. `name` is that of the field; `levels` is its maximum depth.
pub(super) fn read(
    ty: Type,
    wire: Wire<'_>,
    name: &str,
    levels: usize,
) -> Result<Value, DecodeError> {
    match (ty.form(), wire) {
        (Form::Text, Wire::Bytes(bytes)) => Ok(Value::String(text(bytes))),
        (Form::Bytes, Wire::Bytes(bytes)) => Ok(Value::String(base64::encode(bytes))),
        (Form::Bool, Wire::Varint(number)) => Ok(Value::Bool(number != 0)),
        (Form::Integer(32), Wire::Varint(number)) => Ok(Value::from(low_bits(number))),
        (Form::Integer(_), Wire::Varint(number)) => Ok(Value::from(signed(number))),
        (Form::Double, Wire::Fixed64(bits)) => Number::from_f64(f64::from_bits(bits))
            .map(Value::Number)
            .ok_or_else(|| DecodeError::NotFinite(not_finite(f64::from_bits(bits)))),
        (Form::Time, Wire::Bytes(bytes)) => time(bytes),
        (Form::MicroTime, Wire::Bytes(bytes)) => micro_time(bytes),
        (Form::Quantity, Wire::Bytes(bytes)) => quantity(bytes),
        (Form::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes),
        (Form::Raw, Wire::Bytes(bytes)) => raw(bytes, levels),
        (Form::List(element), Wire::Bytes(bytes)) => items(element, bytes, levels),
        (_, other) => Err(wrong_wire_type(other, name)),
    }
}

fn signed(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

/// A number truncated to 32 bits, as upstream does.
fn low_bits(number: u64) -> i32 {
    (number & u64::from(u32::MAX)) as u32 as i32
}

fn not_finite(number: f64) -> &'static str {
    if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "+Inf"
    } else {
        "-Inf"
    }
}

/// The seconds and nanoseconds of a `Timestamp`.
fn timestamp(bytes: &[u8]) -> Result<(i64, i32), DecodeError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut input = Input(bytes);
    while let Some((number, value)) = input.field("Timestamp")? {
        match (number, value) {
            (1, Wire::Varint(number)) => seconds = signed(number),
            (2, Wire::Varint(number)) => nanos = low_bits(number),
            (1, other) => return Err(wrong_wire_type(other, "seconds")),
            (2, other) => return Err(wrong_wire_type(other, "nanos")),
            _ => {}
        }
    }
    Ok((seconds, nanos))
}

fn time(bytes: &[u8]) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::from(ZERO_TIME));
    }
    let (seconds, _) = timestamp(bytes)?;
    Ok(Value::from(Time::from_unix_seconds(seconds).to_string()))
}

fn micro_time(bytes: &[u8]) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::from(ZERO_MICRO_TIME));
    }
    let (seconds, nanos) = timestamp(bytes)?;
    let nanos = nanos / 1000 * 1000;
    let seconds = seconds.saturating_add(i64::from(nanos.div_euclid(1_000_000_000)));
    let micros = nanos.rem_euclid(1_000_000_000) / 1000;
    let text = Time::from_unix_seconds(seconds).to_string();
    let whole = text.strip_suffix('Z').unwrap_or(&text);
    Ok(Value::from(format!("{whole}.{micros:06}Z")))
}

fn quantity(bytes: &[u8]) -> Result<Value, DecodeError> {
    // An unset quantity is zero.
    let mut quantity = Value::from("0");
    let mut input = Input(bytes);
    while let Some((number, value)) = input.field("Quantity")? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => quantity = Value::String(text(bytes)),
            (1, other) => return Err(wrong_wire_type(other, "String_")),
            _ => {}
        }
    }
    Ok(quantity)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut kind, mut integer, mut string) = (0, 0, String::new());
    let mut input = Input(bytes);
    while let Some((number, value)) = input.field("IntOrString")? {
        match (number, value) {
            (1, Wire::Varint(number)) => kind = signed(number),
            (2, Wire::Varint(number)) => integer = low_bits(number),
            (3, Wire::Bytes(bytes)) => string = text(bytes),
            (1, other) => return Err(wrong_wire_type(other, "type")),
            (2, other) => return Err(wrong_wire_type(other, "intVal")),
            (3, other) => return Err(wrong_wire_type(other, "strVal")),
            _ => {}
        }
    }
    match kind {
        0 => Ok(Value::from(integer)),
        1 => Ok(Value::String(string)),
        _ => Err(DecodeError::IntOrString),
    }
}

/// Raw JSON, which is kept unchanged.
fn raw(bytes: &[u8], levels: usize) -> Result<Value, DecodeError> {
    let mut raw: &[u8] = &[];
    let mut input = Input(bytes);
    while let Some((number, value)) = input.field("RawExtension")? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => raw = bytes,
            (1, other) => return Err(wrong_wire_type(other, "raw")),
            _ => {}
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let document = json::parse(raw)?;
    tree::from_document_within(document.root(), levels).ok_or(DecodeError::TooDeep)
}

/// A list that is the value of a map. Protobuf does not support this, so it is a message whose first field is
/// repeated.
fn items(element: Type, bytes: &[u8], levels: usize) -> Result<Value, DecodeError> {
    let mut items = Vec::new();
    let mut input = Input(bytes);
    while let Some((number, value)) = input.field("ExtraValue")? {
        if number == 1 {
            items.push(read(element, value, "items", levels)?);
        }
    }
    Ok(Value::Array(items))
}
