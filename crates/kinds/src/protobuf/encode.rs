//! Encodes JSON objects as messages, with the same tables as the decoder.
//!
//! Zero values of non-pointer fields are encoded; nil pointers, lists and maps are omitted. Fields are ordered by
//! number and maps by key, so that the output equals that of Go's generated code.
//!
//! UPSTREAM: the `generated.pb.go` of each package (`MarshalToSizedBuffer`).

use std::collections::BTreeMap;
use std::fmt;

use lockgate_api::meta::time::Time;
use lockgate_go::base64;
use lockgate_go::json;
use serde_json::{Map, Value};

use crate::typed::{Field, Form, Type, type_of};

use super::MAGIC;

/// The maximum depth of an encoded object. Only schemas are recursive, and realistic ones have fewer than 100 levels.
const MAX_DEPTH: usize = 500;

/// The error of an object that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodeError {
    /// The type of the object is unknown.
    UnknownType {
        /// Its `apiVersion`.
        api_version: String,
        /// Its kind.
        kind: String,
    },
    /// The object is too deep.
    TooDeep,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType { api_version, kind } => {
                write!(f, "there is no message for {kind} of `{api_version}`")
            }
            Self::TooDeep => f.write_str("the object is nested too deeply for protobuf"),
        }
    }
}

impl std::error::Error for EncodeError {}

/// The body of a response: the envelope of an object, of a list or of their metadata, according to its kind.
///
/// # Errors
///
/// The type is unknown, or the object is too deep.
pub fn encode(object: &Value) -> Result<Vec<u8>, EncodeError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let unknown = || EncodeError::UnknownType {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let message = match type_of(group, version, kind) {
        Some(ty) => message(ty, object)?,
        None => {
            let item = kind.strip_suffix("List").ok_or_else(unknown)?;
            let item = type_of(group, version, item).ok_or_else(unknown)?;
            list(item, object)?
        }
    };
    let mut type_meta = Vec::new();
    bytes(&mut type_meta, 1, api_version.as_bytes());
    bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(message.len() + 64);
    out.extend_from_slice(&MAGIC);
    bytes(&mut out, 1, &type_meta);
    bytes(&mut out, 2, &message);
    bytes(&mut out, 3, b"");
    bytes(&mut out, 4, b"");
    Ok(out)
}

/// A frame of a watch: its length, and an event that contains the body of an object.
///
/// UPSTREAM: apimachinery pkg/util/framer, pkg/apis/meta/v1/watch.go
#[must_use]
pub fn watch_frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(object.len() + 8);
    bytes(&mut raw, 1, object);
    let mut event = Vec::with_capacity(raw.len() + 16);
    bytes(&mut event, 1, kind.as_bytes());
    bytes(&mut event, 2, &raw);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&event);
    frame
}

/// The message of an object, without envelope.
pub(super) fn message(ty: Type, object: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(512);
    fields(&mut out, ty, object, 0)?;
    Ok(out)
}

/// Encodes a list: its metadata and its items.
fn list(item: Type, object: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(1024);
    let metadata = type_of("", "v1", "Status").and_then(|status| status.field("metadata"));
    if let Some(metadata) = metadata {
        let null = Value::Null;
        let told = object.get("metadata").unwrap_or(&null);
        let mut inner = Vec::new();
        fields(&mut inner, metadata.ty(), told, 1)?;
        bytes(&mut out, 1, &inner);
    }
    for object in object
        .get("items")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let mut inner = Vec::new();
        fields(&mut inner, item, object, 1)?;
        bytes(&mut out, 2, &inner);
    }
    Ok(out)
}

/// The fields of a message, and its embedded structs that are nested messages.
#[derive(Default)]
struct Layout {
    fields: BTreeMap<u16, Field>,
    embedded: BTreeMap<u16, Self>,
}

impl Layout {
    fn of(ty: Type) -> Self {
        let mut layout = Self::default();
        for field in ty.fields().filter(|field| field.protobuf_number() > 0) {
            let mut place = Some(&mut layout);
            for (_, number) in field.embedded_in() {
                // Embedded structs without a number, such as `TypeMeta`, are not encoded.
                place = match place {
                    Some(place) if number > 0 => Some(place.embedded.entry(number).or_default()),
                    _ => None,
                };
            }
            if let Some(place) = place {
                place.fields.insert(field.protobuf_number(), field);
            }
        }
        layout
    }

    fn write(&self, out: &mut Vec<u8>, object: &Value, depth: usize) -> Result<(), EncodeError> {
        let mut numbers: Vec<u16> = self
            .fields
            .keys()
            .chain(self.embedded.keys())
            .copied()
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(field) = self.fields.get(&number) {
                let value = object.get(field.name()).unwrap_or(&Value::Null);
                member(out, number, field.ty(), value, depth)?;
            } else if let Some(layout) = self.embedded.get(&number) {
                let mut inner = Vec::new();
                layout.write(&mut inner, object, depth + 1)?;
                bytes(out, number, &inner);
            }
        }
        Ok(())
    }
}

fn fields(out: &mut Vec<u8>, ty: Type, object: &Value, depth: usize) -> Result<(), EncodeError> {
    if depth > MAX_DEPTH {
        return Err(EncodeError::TooDeep);
    }
    Layout::of(ty.target()).write(out, object, depth)
}

/// Encodes a field of a struct.
fn member(
    out: &mut Vec<u8>,
    number: u16,
    ty: Type,
    value: &Value,
    depth: usize,
) -> Result<(), EncodeError> {
    match ty.form() {
        Form::List(element) => {
            for item in value.as_array().into_iter().flatten() {
                single(out, number, element, item, depth)?;
            }
            Ok(())
        }
        Form::Map(element) => {
            let empty = Map::new();
            for (key, item) in value.as_object().unwrap_or(&empty) {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                if let Form::List(element) = element.form() {
                    let mut items = Vec::new();
                    for item in item.as_array().into_iter().flatten() {
                        single(&mut items, 1, element, item, depth + 1)?;
                    }
                    bytes(&mut entry, 2, &items);
                } else {
                    single(&mut entry, 2, element, item, depth + 1)?;
                }
                bytes(out, number, &entry);
            }
            Ok(())
        }
        // Nil pointers, nil byte slices and nil raw JSON are not encoded.
        _ if value.is_null() && ty != ty.target() => Ok(()),
        Form::Bytes if value.is_null() => Ok(()),
        _ => single(out, number, ty, value, depth),
    }
}

/// Encodes a single value.
fn single(
    out: &mut Vec<u8>,
    number: u16,
    ty: Type,
    value: &Value,
    depth: usize,
) -> Result<(), EncodeError> {
    let text = || value.as_str().unwrap_or_default();
    match ty.form() {
        Form::Text => bytes(out, number, text().as_bytes()),
        Form::Bytes => bytes(out, number, &base64::decode(text()).unwrap_or_default()),
        Form::Bool => varint_field(out, number, u64::from(value.as_bool().unwrap_or_default())),
        Form::Integer(_) => varint_field(out, number, bits(value.as_i64().unwrap_or_default())),
        Form::Double => {
            tag(out, number, 1);
            let double = value.as_f64().unwrap_or_default();
            out.extend_from_slice(&double.to_bits().to_le_bytes());
        }
        Form::Time | Form::MicroTime => bytes(out, number, &timestamp(text())),
        Form::Quantity => {
            let amount = if text().is_empty() { "0" } else { text() };
            let mut inner = Vec::new();
            bytes(&mut inner, 1, amount.as_bytes());
            bytes(out, number, &inner);
        }
        Form::IntOrString => {
            let mut inner = Vec::new();
            varint_field(&mut inner, 1, u64::from(value.is_string()));
            varint_field(&mut inner, 2, bits(value.as_i64().unwrap_or_default()));
            bytes(&mut inner, 3, text().as_bytes());
            bytes(out, number, &inner);
        }
        Form::Raw => {
            let mut inner = Vec::new();
            if !value.is_null() {
                bytes(&mut inner, 1, json::value_to_string(value).as_bytes());
            }
            bytes(out, number, &inner);
        }
        Form::SchemaOrBool(schema) => {
            let mut inner = Vec::new();
            varint_field(
                &mut inner,
                1,
                u64::from(value.as_bool().unwrap_or_else(|| value.is_object())),
            );
            if value.is_object() {
                nested(&mut inner, 2, schema, value, depth + 1)?;
            }
            bytes(out, number, &inner);
        }
        Form::SchemaOrArray(schema) => {
            let mut inner = Vec::new();
            if value.is_object() {
                nested(&mut inner, 1, schema, value, depth + 1)?;
            }
            for item in value.as_array().into_iter().flatten() {
                nested(&mut inner, 2, schema, item, depth + 1)?;
            }
            bytes(out, number, &inner);
        }
        Form::SchemaOrTexts(schema) => {
            let mut inner = Vec::new();
            if value.is_object() {
                nested(&mut inner, 1, schema, value, depth + 1)?;
            }
            for item in value.as_array().into_iter().flatten() {
                bytes(&mut inner, 2, item.as_str().unwrap_or_default().as_bytes());
            }
            bytes(out, number, &inner);
        }
        Form::Struct => nested(out, number, ty, value, depth + 1)?,
        Form::List(_) | Form::Map(_) => member(out, number, ty, value, depth)?,
    }
    Ok(())
}

fn nested(
    out: &mut Vec<u8>,
    number: u16,
    ty: Type,
    value: &Value,
    depth: usize,
) -> Result<(), EncodeError> {
    let mut inner = Vec::new();
    fields(&mut inner, ty, value, depth)?;
    bytes(out, number, &inner);
    Ok(())
}

/// The message of a timestamp; empty for the zero time.
fn timestamp(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (format!("{whole}Z"), fraction.trim_end_matches('Z')),
        None => (text.to_owned(), ""),
    };
    let Ok(time) = Time::parse(&whole) else {
        return out;
    };
    let digits = fraction.chars().chain(std::iter::repeat('0')).take(9);
    let nanos: String = digits.collect();
    varint_field(&mut out, 1, bits(time.unix_seconds()));
    varint_field(&mut out, 2, nanos.parse().unwrap_or_default());
    out
}

/// Negative numbers are encoded as 64-bit varints.
fn bits(number: i64) -> u64 {
    u64::from_ne_bytes(number.to_ne_bytes())
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn tag(out: &mut Vec<u8>, number: u16, wire_type: u8) {
    varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

fn varint_field(out: &mut Vec<u8>, number: u16, value: u64) {
    tag(out, number, 0);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, number: u16, value: &[u8]) {
    tag(out, number, 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}
