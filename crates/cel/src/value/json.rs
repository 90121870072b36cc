//! Converts values to JSON: plain, and in the protobuf form of CEL values.

use serde_json::{Map as Object, Value as Json, json};

use super::Value;

/// The largest integer that is exact in JSON; protobuf writes larger ones as strings.
const MAX_EXACT: i64 = (1 << 53) - 1;

impl Value<'_> {
    /// The value as a `cel.expr.Value` in protobuf's JSON form, if it has one.
    #[must_use]
    pub fn to_proto_json(&self) -> Option<Json> {
        Some(match self {
            Value::Null => json!({ "nullValue": null }),
            Value::Bool(b) => json!({ "boolValue": b }),
            Value::Int(i) => json!({ "int64Value": i.to_string() }),
            Value::Uint(u) => json!({ "uint64Value": u.to_string() }),
            Value::Double(d) => json!({ "doubleValue": double(*d) }),
            Value::Bytes(bytes) => json!({ "bytesValue": base64(bytes) }),
            Value::Type(name) => json!({ "typeValue": &**name }),
            Value::Str(_) | Value::String(_) => json!({ "stringValue": self.as_str() }),
            Value::Duration(_) | Value::Timestamp(_) => json!({ "objectValue": self.to_any()? }),
            Value::Optional(Some(value)) => json!({ "objectValue": value.to_any()? }),
            Value::Optional(None)
            | Value::Object(_)
            | Value::Opaque(_)
            | Value::Variables
            | Value::Failed(_) => {
                return None;
            }
            _ if self.is_list() => {
                let values: Option<Vec<_>> = self.elements().map(|e| e.to_proto_json()).collect();
                json!({ "listValue": without_empty("values", values?) })
            }
            _ => {
                let mut entries = self
                    .entries()
                    .map(|(key, value)| {
                        let (key, value) = (key.to_proto_json()?, value.to_proto_json()?);
                        Some(json!({ "key": key, "value": value }))
                    })
                    .collect::<Option<Vec<_>>>()?;
                entries.sort_by_key(|entry| entry["key"].to_string());
                json!({ "mapValue": without_empty("entries", entries) })
            }
        })
    }

    /// The value as the well-known message in a protobuf `Any`.
    fn to_any(&self) -> Option<Json> {
        let (name, value) = match self {
            Value::Null => ("Value", Json::Null),
            Value::Bool(b) => ("BoolValue", json!(b)),
            Value::Int(i) => ("Int64Value", json!(i.to_string())),
            Value::Uint(u) => ("UInt64Value", json!(u.to_string())),
            Value::Double(d) => ("DoubleValue", double(*d)),
            Value::Bytes(bytes) => ("BytesValue", json!(base64(bytes))),
            Value::Str(_) | Value::String(_) => ("StringValue", json!(self.as_str())),
            Value::Duration(d) => ("Duration", json!(duration(d.nanos()))),
            Value::Timestamp(t) => ("Timestamp", json!(t.to_string())),
            Value::Type(_)
            | Value::Object(_)
            | Value::Opaque(_)
            | Value::Variables
            | Value::Failed(_) => return None,
            Value::Optional(Some(inner)) => return inner.to_any(),
            Value::Optional(None) => return None,
            _ if self.is_list() => ("ListValue", self.to_json()?),
            _ => ("Struct", self.to_json()?),
        };
        Some(
            json!({ "@type": format!("type.googleapis.com/google.protobuf.{name}"), "value": value }),
        )
    }

    /// The approximate JSON size of the value in bytes; `None` if it exceeds `most`. Values share their contents,
    /// but JSON does not: a small list may have large JSON.
    #[must_use]
    pub fn json_bytes(&self, most: usize) -> Option<usize> {
        let mut room = most;
        self.take_room(&mut room)?;
        Some(most - room)
    }

    fn take_room(&self, room: &mut usize) -> Option<()> {
        take(room, 2)?;
        match self {
            Value::Json(json) | Value::Typed(json, _) => take_room_for_tree(json, room),
            Value::Bytes(bytes) => take(room, bytes.len().saturating_mul(4) / 3),
            Value::Str(_) | Value::String(_) => take(room, self.as_str().map_or(0, str::len)),
            Value::Object(object) => object.fields.iter().try_for_each(|(name, value)| {
                take(room, name.len() + 4)?;
                value.take_room(room)
            }),
            Value::Optional(Some(inner)) => inner.take_room(room),
            _ if self.is_list() => self
                .elements()
                .try_for_each(|element| element.take_room(room)),
            _ if self.is_map() => self.entries().try_for_each(|(key, value)| {
                take(room, 4)?;
                key.take_room(room)?;
                value.take_room(room)
            }),
            _ => take(room, 4),
        }
    }

    /// The value as plain JSON, if it can be represented.
    #[must_use]
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Value::Null => Json::Null,
            Value::Bool(b) => json!(b),
            Value::Int(i) if i.unsigned_abs() <= MAX_EXACT as u64 => json!(i),
            Value::Int(i) => json!(i.to_string()),
            Value::Uint(u) if *u <= MAX_EXACT as u64 => json!(u),
            Value::Uint(u) => json!(u.to_string()),
            Value::Double(d) => double(*d),
            Value::Bytes(bytes) => json!(base64(bytes)),
            Value::Str(_) | Value::String(_) => json!(self.as_str()),
            Value::Duration(d) => json!(d.to_string()),
            Value::Timestamp(t) => json!(t.to_string()),
            Value::Type(name) => json!(&**name),
            Value::Object(object) => Json::Object(
                object
                    .fields
                    .iter()
                    .map(|(name, value)| Some(((*name).to_owned(), value.to_json()?)))
                    .collect::<Option<Object<_, _>>>()?,
            ),
            Value::Optional(Some(inner)) => inner.to_json()?,
            Value::Optional(None) | Value::Opaque(_) | Value::Variables | Value::Failed(_) => {
                return None;
            }
            _ if self.is_list() => Json::Array(
                self.elements()
                    .map(|e| e.to_json())
                    .collect::<Option<_>>()?,
            ),
            _ => Json::Object(
                self.entries()
                    .map(|(key, value)| Some((key.to_string(), value.to_json()?)))
                    .collect::<Option<Object<_, _>>>()?,
            ),
        })
    }
}

fn take(room: &mut usize, bytes: usize) -> Option<()> {
    *room = room.checked_sub(bytes)?;
    Some(())
}

/// Like `take_room`, for JSON documents, which may be deep.
fn take_room_for_tree(tree: &Json, room: &mut usize) -> Option<()> {
    let mut open = vec![tree];
    while let Some(value) = open.pop() {
        take(room, 2)?;
        match value {
            Json::String(text) => take(room, text.len())?,
            Json::Array(items) => open.extend(items),
            Json::Object(members) => {
                for (name, value) in members {
                    take(room, name.len() + 4)?;
                    open.push(value);
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => take(room, 4)?,
        }
    }
    Some(())
}

fn without_empty(name: &str, values: Vec<Json>) -> Json {
    if values.is_empty() {
        json!({})
    } else {
        json!({ name: values })
    }
}

/// NaN and infinities are strings; integral numbers have no fraction.
fn double(d: f64) -> Json {
    if d.is_nan() {
        json!("NaN")
    } else if d.is_infinite() {
        json!(if d > 0.0 { "Infinity" } else { "-Infinity" })
    } else if d == d.trunc() && d.abs() < 1e15 && !(d == 0.0 && d.is_sign_negative()) {
        json!(d as i64)
    } else {
        json!(d)
    }
}

/// Seconds with three, six or nine decimal places.
fn duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    let mut text = format!("{sign}{seconds}.{rest:09}");
    for _ in 0..3 {
        if let Some(shorter) = text.strip_suffix("000") {
            text = shorter.to_owned();
        }
    }
    format!("{}s", text.trim_end_matches('.'))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for nth in 0..4 {
            let digit = ALPHABET.get((group >> (18 - 6 * nth)) as usize & 63);
            let letter = if nth <= chunk.len() {
                digit.copied().unwrap_or(b'=')
            } else {
                b'='
            };
            out.push(char::from(letter));
        }
    }
    out
}
