//! `format`, in Kubernetes' version, which predates the specification's.
//!
//! UPSTREAM: cel-go ext/formatting.go

use std::fmt;

use lockgate_go::number;
use lockgate_go::quote::quote;

use crate::eval::string_of;
use crate::limits::MAX_TEXT_BYTES;
use crate::strings::{Clause, ClauseError, Piece, pieces};
use crate::value::{Error, Value};

/// Formats the elements of a list by the clauses of a format string.
pub(crate) fn format(format: &str, args: &Value<'_>) -> Result<String, Error> {
    let mut out = String::new();
    let mut used = 0;
    for piece in pieces(format) {
        let clause = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Clause(clause) => clause,
        };
        let Some(arg) = args.list_get(used) else {
            return Err(Error::text(format_args!("index {used} out of range")));
        };
        match clause {
            Err(ClauseError::UnexpectedEnd) => return Err(Error::text(ClauseError::UnexpectedEnd)),
            Err(error) => return Err(Error::text(error)),
            Ok(clause) => {
                let text = print(clause, &arg).map_err(|reason| {
                    Error::text(format_args!("error during formatting: {reason}"))
                })?;
                out.push_str(&text);
            }
        }
        if out.len() > MAX_TEXT_BYTES {
            return Err(Error::CostLimit);
        }
        used += 1;
    }
    Ok(out)
}

/// An argument that cannot be formatted.
#[derive(Debug)]
enum FormatError {
    /// The clause does not support this type.
    Refused(Clause, String),
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// A part of a list or map of this type.
    Element(String),
    /// A key of this type.
    Key(String),
    Conversion(Error),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(clause, type_name) => f.write_str(&clause.refusal(type_name)),
            Self::InvalidUtf8 => f.write_str(
                "could not convert argument \"invalid UTF-8 in bytes, cannot convert to string\" to string",
            ),
            Self::Element(type_name) => write!(f, "no formatting function for {type_name}"),
            Self::Key(type_name) => {
                write!(f, "no formatting function for map key of type {type_name}")
            }
            Self::Conversion(error) => error.fmt(f),
        }
    }
}

fn print(clause: Clause, arg: &Value<'_>) -> Result<String, FormatError> {
    let refused = || Err(FormatError::Refused(clause, arg.type_name().to_owned()));
    match clause {
        Clause::String => string(arg),
        Clause::Decimal => match arg {
            Value::Int(i) => Ok(i.to_string()),
            Value::Uint(u) => Ok(u.to_string()),
            _ => refused(),
        },
        Clause::Fixed(precision) => match double(arg) {
            Some(d) if precision.is_none_or(|p| p <= MAX_TEXT_BYTES as u64) => {
                Ok(number::format_fixed(d, precision))
            }
            _ => refused(),
        },
        Clause::Scientific(width) => match double(arg) {
            Some(d) if width.is_none_or(|w| w <= MAX_TEXT_BYTES as u64) => {
                Ok(number::format_scientific(d, width))
            }
            _ => refused(),
        },
        Clause::Binary => match arg {
            Value::Int(i) => Ok(signed(*i, |u| format!("{u:b}"))),
            Value::Uint(u) => Ok(format!("{u:b}")),
            Value::Bool(b) => Ok(u8::from(*b).to_string()),
            _ => refused(),
        },
        Clause::Octal => match arg {
            Value::Int(i) => Ok(signed(*i, |u| format!("{u:o}"))),
            Value::Uint(u) => Ok(format!("{u:o}")),
            _ => refused(),
        },
        Clause::Hex { upper } => {
            let hex = match arg {
                Value::Int(i) => signed(*i, |u| format!("{u:x}")),
                Value::Uint(u) => format!("{u:x}"),
                Value::Bytes(bytes) => hex(bytes),
                other => match other.as_str() {
                    Some(text) => hex(text.as_bytes()),
                    None => return refused(),
                },
            };
            Ok(if upper { hex.to_uppercase() } else { hex })
        }
    }
}

fn signed(value: i64, print: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", print(value.unsigned_abs()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A double, or its name as a string, such as `NaN`.
fn double(arg: &Value<'_>) -> Option<f64> {
    match arg {
        Value::Double(d) => Some(*d),
        other => match other.as_str()? {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
    }
}

fn string(arg: &Value<'_>) -> Result<String, FormatError> {
    match arg {
        Value::Null => Ok("null".to_owned()),
        _ if arg.is_list() => list(arg),
        _ if arg.is_map() => map(arg),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(FormatError::InvalidUtf8),
        },
        Value::Optional(_) | Value::Opaque(_) => Err(FormatError::Refused(
            Clause::String,
            arg.type_name().to_owned(),
        )),
        _ => string_of(arg).map_err(FormatError::Conversion),
    }
}

/// Formats an element of a list or map.
fn nested(value: &Value<'_>) -> Result<String, FormatError> {
    Ok(match value {
        Value::Timestamp(_) | Value::Duration(_) => {
            let text = string_of(value).map_err(FormatError::Conversion)?;
            let name = if matches!(value, Value::Timestamp(_)) {
                "timestamp"
            } else {
                "duration"
            };
            format!("{name}({})", quote(&text))
        }
        Value::Double(d) if d.is_finite() => number::format_double_six(*d),
        Value::Double(d) => quote(&number::format_double_six(*d)),
        Value::Str(_) | Value::String(_) => quote(value.as_str().unwrap_or_default()),
        Value::Bytes(_) => format!("b{}", quote(&string(value)?)),
        Value::Optional(_) | Value::Opaque(_) => {
            return Err(FormatError::Element(value.type_name().to_owned()));
        }
        _ => string(value)?,
    })
}

fn list(value: &Value<'_>) -> Result<String, FormatError> {
    let elements = value
        .elements()
        .map(|e| nested(&e))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[{}]", elements.join(", ")))
}

fn map(value: &Value<'_>) -> Result<String, FormatError> {
    let mut entries = Vec::new();
    for (key, value) in value.entries() {
        let key = match &key {
            Value::Str(_) | Value::String(_) => quote(key.as_str().unwrap_or_default()),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) => key.to_string(),
            other => {
                return Err(FormatError::Key(other.type_name().to_owned()));
            }
        };
        entries.push((key, nested(&value)?));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let entries: Vec<_> = entries
        .into_iter()
        .map(|(k, v)| format!("{k}:{v}"))
        .collect();
    Ok(format!("{{{}}}", entries.join(", ")))
}
