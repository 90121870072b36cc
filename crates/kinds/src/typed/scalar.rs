//! Decoding and encoding of scalars, as in Go.

use serde_json::{Number, Value};

use lockgate_api::document::Kind;
use lockgate_api::meta::time::Time;
use lockgate_go::base64;
use lockgate_go::quantity::Quantity;

use super::data::Shape;
use super::micro_time;

/// The error of a value.
pub(super) enum Refusal {
    /// The value has the wrong type: the actual and the expected one. Decoding continues.
    Type(String, &'static str),
    /// Another error, after which decoding continues.
    Other(String),
    /// Like `Type`, but ends decoding.
    FinalType(String, &'static str),
    /// Ends decoding.
    Final(String),
}

/// A scalar, or the kind of a container.
#[derive(Clone, Copy)]
pub(super) enum Scalar<'s> {
    Null,
    Bool(bool),
    /// The number as written.
    Number(&'s str),
    Text(&'s str),
    Array,
    Object,
}

impl Scalar<'_> {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// The kind, for containers.
    pub(super) fn container(self) -> Option<Kind> {
        match self {
            Self::Array => Some(Kind::Array),
            Self::Object => Some(Kind::Object),
            _ => None,
        }
    }
}

/// Decodes `value` as a type of this shape; `before` is the earlier value of a duplicate field. Nested containers are
/// decoded elsewhere.
pub(super) fn read(
    shape: Shape,
    go_name: &'static str,
    value: Scalar<'_>,
    before: Option<Value>,
) -> Result<Value, Refusal> {
    let wrong = || Refusal::Type(value.describe().to_owned(), go_name);
    let kept = |before: Option<Value>| before.unwrap_or_else(|| zero(shape));
    match (shape, value) {
        (Shape::Text, Scalar::Text(text)) => Ok(Value::String(text.to_owned())),
        (Shape::Bool, Scalar::Bool(flag)) => Ok(Value::Bool(flag)),
        (Shape::Int32, Scalar::Number(text)) => integer::<i32>(text, go_name),
        (Shape::Int64, Scalar::Number(text)) => integer::<i64>(text, go_name),
        (Shape::Float64, Scalar::Number(text)) => double(text, go_name),
        (Shape::Bytes, Scalar::Text(text)) => base64::decode(text)
            .map(|bytes| Value::String(base64::encode(&bytes)))
            .map_err(|error| Refusal::Other(error.to_string())),
        (Shape::Bytes, Scalar::Null) => Ok(Value::Null),
        (
            Shape::Text | Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Float64,
            Scalar::Null,
        ) => Ok(kept(before)),
        (Shape::Bytes, _) => Err(Refusal::Type(value.describe().to_owned(), "[]uint8")),
        (Shape::Time, Scalar::Null) | (Shape::MicroTime, Scalar::Null) => Ok(Value::Null),
        (Shape::Time, Scalar::Text(text)) => time(text),
        (Shape::MicroTime, Scalar::Text(text)) => {
            micro_time::read(text).map_err(|error| Refusal::Final(error.to_string()))
        }
        (Shape::Time | Shape::MicroTime, _) => {
            Err(Refusal::FinalType(value.describe().to_owned(), "string"))
        }
        (Shape::Quantity, _) => quantity(value),
        (Shape::IntOrString, _) => int_or_string(value),
        _ => Err(wrong()),
    }
}

/// The JSON of Go's zero value; structs are handled elsewhere.
pub(super) fn zero(shape: Shape) -> Value {
    match shape {
        Shape::Text => Value::String(String::new()),
        Shape::Bool | Shape::SchemaOrBool(_) => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString => Value::from(0),
        Shape::Quantity => Value::from("0"),
        _ => Value::Null,
    }
}

fn integer<N: TryFrom<i64>>(text: &str, go_name: &'static str) -> Result<Value, Refusal> {
    text.parse::<i64>()
        .ok()
        .filter(|&number| N::try_from(number).is_ok())
        .map(Value::from)
        .ok_or_else(|| Refusal::Type(format!("number {text}"), go_name))
}

fn double(text: &str, go_name: &'static str) -> Result<Value, Refusal> {
    text.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())
        .map(|number| Value::Number(plain(number)))
        .ok_or_else(|| Refusal::Type(format!("number {text}"), go_name))
}

/// An integral number is encoded without a fraction.
fn plain(number: f64) -> Number {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Number::from(number as i64);
    }
    Number::from_f64(number).unwrap_or_else(|| Number::from(0))
}

fn time(text: &str) -> Result<Value, Refusal> {
    match Time::parse(text) {
        Ok(time) if time.is_zero() => Ok(Value::Null),
        Ok(time) => Ok(Value::String(time.to_string())),
        Err(error) => Err(Refusal::Final(error.to_string())),
    }
}

fn quantity(value: Scalar<'_>) -> Result<Value, Refusal> {
    let text = match value {
        Scalar::Null => return Ok(zero(Shape::Quantity)),
        Scalar::Text(text) | Scalar::Number(text) => text,
        Scalar::Bool(true) => "true",
        Scalar::Bool(false) => "false",
        // The JSON of a container is never a quantity.
        Scalar::Array => "[]",
        Scalar::Object => "{}",
    };
    match Quantity::parse(text.trim()) {
        Ok(quantity) => Ok(Value::String(quantity.to_string())),
        Err(error) => Err(Refusal::Final(error.to_string())),
    }
}

fn int_or_string(value: Scalar<'_>) -> Result<Value, Refusal> {
    match value {
        Scalar::Null => Ok(zero(Shape::IntOrString)),
        Scalar::Text(text) => Ok(Value::String(text.to_owned())),
        Scalar::Number(text) => text
            .parse::<i32>()
            .map(Value::from)
            .map_err(|_| Refusal::FinalType(format!("number {text}"), "int32")),
        _ => Err(Refusal::FinalType(value.describe().to_owned(), "int32")),
    }
}
