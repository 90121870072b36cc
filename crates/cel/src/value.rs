//! Runtime values.
//!
//! JSON is not converted: a [`Value`] borrows from the input document, and only results of
//! functions are owned.

mod compare;
pub mod constructed;
mod error;
mod format;
mod json;
mod map;
mod opaque;
pub(crate) mod typed;

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

pub use compare::{Equality, NotOrdered};
pub use constructed::{Constructed, NotJson, TypeNameMismatches};
pub use error::{Error, Failure};
pub use map::Map;
pub use opaque::Opaque;

use lockgate_go::time::{Duration, Timestamp};

use crate::schema::Schema;
use crate::strings::code_points;

/// A value of the language.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// Signed integer.
    Int(i64),
    /// Unsigned integer.
    Uint(u64),
    /// Floating point number.
    Double(f64),
    /// A string borrowed from an input or from the program.
    Str(&'a str),
    /// A string created by a function.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A duration.
    Duration(Duration),
    /// A timestamp.
    Timestamp(Timestamp),
    /// An array or an object borrowed from an input.
    Json(&'a Json),
    /// An array or an object borrowed from an input, and its schema.
    Typed(&'a Json, &'a Schema),
    /// A list created by the expression.
    List(Arc<List<'a>>),
    /// A map created by the expression.
    Map(Arc<Map<'a>>),
    /// An object constructed by the expression.
    Object(Arc<Constructed<'a>>),
    /// A type, by name.
    Type(Arc<str>),
    /// An optional value.
    Optional(Option<Arc<Self>>),
    /// A value of a Kubernetes library type.
    Opaque(Arc<Opaque>),
    /// The variables of a policy, held by the evaluation.
    Variables,
    /// An error inside an optional value, or in place of data that does not match its schema.
    Failed(Arc<Error>),
}

/// A list created by the expression.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// The elements.
    Flat(Vec<Value<'a>>),
    /// Two concatenated lists, without copying, and their total length.
    Joined(Value<'a>, Value<'a>, usize),
    /// The elements of a list with that schema, including added ones.
    Merged(Vec<Value<'a>>, &'a Schema),
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            // Integers beyond the signed range are doubles, as in Kubernetes.
            Json::Number(n) => match n.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Double(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Str(text),
            Json::Array(_) | Json::Object(_) => Self::Json(json),
        }
    }
}

impl<'a> From<bool> for Value<'a> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl<'a> From<i64> for Value<'a> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl<'a> From<String> for Value<'a> {
    fn from(value: String) -> Self {
        Self::String(value.into())
    }
}

impl<'a> From<Vec<Self>> for Value<'a> {
    fn from(elements: Vec<Self>) -> Self {
        Self::List(Arc::new(List::Flat(elements)))
    }
}

impl From<Opaque> for Value<'_> {
    fn from(value: Opaque) -> Self {
        Self::Opaque(Arc::new(value))
    }
}

impl<'a> Value<'a> {
    /// A present optional value.
    #[must_use]
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// A list of strings.
    #[must_use]
    pub fn texts(texts: impl IntoIterator<Item = String>) -> Self {
        texts.into_iter().map(Self::from).collect::<Vec<_>>().into()
    }

    /// The value of an optional.
    pub(crate) fn to_result(&self) -> Result<Self, Error> {
        match self {
            Self::Failed(error) => Err((**error).clone()),
            value => Ok(value.clone()),
        }
    }

    /// The value, or its error for [`Value::Failed`].
    pub(crate) fn into_result(self) -> Result<Self, Error> {
        match self {
            Self::Failed(error) => Err((*error).clone()),
            value => Ok(value),
        }
    }

    /// The string, if the value is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns true for a list.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(
            self,
            Self::List(_) | Self::Json(Json::Array(_)) | Self::Typed(Json::Array(_), _)
        )
    }

    /// Returns true for a map.
    #[must_use]
    pub fn is_map(&self) -> bool {
        matches!(
            self,
            Self::Map(_) | Self::Json(Json::Object(_)) | Self::Typed(Json::Object(_), _)
        )
    }

    /// The number of elements of a list; `None` for other types.
    #[must_use]
    pub fn list_len(&self) -> Option<usize> {
        match self {
            Self::List(list) => Some(match &**list {
                List::Flat(elements) | List::Merged(elements, _) => elements.len(),
                List::Joined(_, _, len) => *len,
            }),
            Self::Json(Json::Array(elements)) | Self::Typed(Json::Array(elements), _) => {
                Some(elements.len())
            }
            _ => None,
        }
    }

    /// An element of a list.
    #[must_use]
    pub fn list_get(&self, mut index: usize) -> Option<Self> {
        let mut list = self;
        loop {
            match list {
                Self::Json(Json::Array(elements)) => return elements.get(index).map(Self::from),
                Self::Typed(Json::Array(elements), schema) => {
                    return typed::element(elements, schema, index);
                }
                Self::List(owned) => match &**owned {
                    List::Flat(elements) | List::Merged(elements, _) => {
                        return elements.get(index).cloned();
                    }
                    List::Joined(left, right, _) => {
                        let size = left.list_len()?;
                        if index < size {
                            list = left;
                        } else {
                            index -= size;
                            list = right;
                        }
                    }
                },
                _ => return None,
            }
        }
    }

    /// The elements of a list; empty for other types.
    pub fn elements(&self) -> impl Iterator<Item = Self> + '_ {
        (0..self.list_len().unwrap_or(0)).map(|at| {
            self.list_get(at)
                .expect("a list has as many elements as its length says")
        })
    }

    /// The number of entries of a map; `None` for other types.
    #[must_use]
    pub fn map_len(&self) -> Option<usize> {
        match self {
            Self::Map(map) => Some(map.len()),
            Self::Json(Json::Object(entries)) | Self::Typed(Json::Object(entries), _) => {
                Some(entries.len())
            }
            _ => None,
        }
    }

    /// The value of a key in a map.
    #[must_use]
    pub fn map_get(&self, key: &Value<'_>) -> Option<Self> {
        match self {
            Self::Map(map) => map.get(key).cloned(),
            Self::Json(Json::Object(entries)) => {
                key.as_str().and_then(|k| entries.get(k)).map(Self::from)
            }
            Self::Typed(Json::Object(entries), schema) => {
                typed::find(entries, schema, key.as_str()?)
            }
            _ => None,
        }
    }

    /// The entries of a map, in a fixed order; empty for other types.
    pub fn entries(&self) -> Box<dyn Iterator<Item = (Self, Self)> + '_> {
        match self {
            Self::Map(map) => Box::new(map.entries().map(|(k, v)| (k.clone(), v.clone()))),
            Self::Json(Json::Object(entries)) => {
                Box::new(entries.iter().map(|(k, v)| (Self::Str(k), Self::from(v))))
            }
            Self::Typed(Json::Object(entries), schema) => Box::new(typed::entries(entries, schema)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// The number of code points, bytes, elements or entries, for types with a size.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        let size = match self {
            Self::Str(text) => code_points(text),
            Self::String(text) => code_points(text),
            Self::Bytes(bytes) => bytes.len(),
            Self::Opaque(opaque) => return opaque.size(),
            _ => self.list_len().or_else(|| self.map_len())?,
        };
        Some(size as u64)
    }

    /// The name of the value's type.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) | Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Json(Json::Array(_)) | Self::Typed(Json::Array(_), _) | Self::List(_) => "list",
            Self::Json(_) | Self::Typed(..) | Self::Map(_) => "map",
            Self::Object(object) => object.type_name,
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Opaque(opaque) => opaque.type_name(),
            Self::Variables => "kubernetes.variables",
            Self::Failed(_) => "error",
        }
    }

    /// The Go type in upstream's interpreter, for error messages.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::Str(_) | Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Duration(_) => "types.Duration",
            Self::Timestamp(_) => "types.Timestamp",
            Self::List(list) if matches!(**list, List::Joined(..)) => "*types.concatList",
            Self::Json(Json::Array(_)) | Self::List(_) => "*types.baseList",
            Self::Json(_) | Self::Map(_) => "*types.baseMap",
            Self::Typed(json, schema) => typed::upstream_name(json, schema),
            Self::Object(object) if object.type_name == constructed::JSON_PATCH => {
                "*mutation.JSONPatchVal"
            }
            Self::Object(_) => "*dynamic.ObjectVal",
            Self::Type(_) => "*types.Type",
            Self::Optional(_) => "*types.Optional",
            Self::Opaque(opaque) => opaque.go_type(),
            Self::Variables => "*lazy.MapValue",
            Self::Failed(_) => "*types.Err",
        }
    }

    /// Returns true for a zero value, for which `optional.ofNonZeroValue` returns none.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(b) => !b,
            Self::Int(i) => *i == 0,
            Self::Uint(u) => *u == 0,
            Self::Double(d) => *d == 0.0,
            Self::Duration(d) => d.nanos() == 0,
            Self::Timestamp(t) => t.is_zero(),
            Self::Opaque(_)
            | Self::Variables
            | Self::Type(_)
            | Self::Optional(_)
            | Self::Failed(_) => false,
            // Upstream does not implement this for values with a schema.
            Self::Typed(..) => false,
            Self::Object(object) => {
                object.type_name != constructed::JSON_PATCH && object.fields.is_empty()
            }
            _ => self.size() == Some(0),
        }
    }
}

/// Formats the value as in messages.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("0"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(i) => write!(f, "{i}"),
            Self::Uint(u) => write!(f, "{u}"),
            Self::Double(d) => f.write_str(&lockgate_go::number::format_double(*d)),
            Self::Str(text) => f.write_str(text),
            Self::String(text) => f.write_str(text),
            Self::Bytes(bytes) => {
                let numbers: Vec<_> = bytes.iter().map(u8::to_string).collect();
                write!(f, "[{}]", numbers.join(" "))
            }
            Self::Duration(d) => f.write_str(&d.go_string()),
            Self::Timestamp(t) => f.write_str(&t.to_string()),
            Self::Object(object) => {
                write!(f, "{}{{", object.type_name)?;
                for (nth, (name, value)) in object.fields.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if nth == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::Type(name) => f.write_str(name),
            Self::Optional(None) => f.write_str("optional.none()"),
            Self::Optional(Some(value)) => write!(f, "optional({value})"),
            Self::Opaque(opaque) => f.write_str(&opaque.text()),
            Self::Variables => f.write_str("kubernetes.variables"),
            Self::Failed(error) => write!(f, "{error}"),
            Self::Json(Json::Array(_)) | Self::Typed(Json::Array(_), _) | Self::List(_) => {
                f.write_str("[")?;
                for (nth, element) in self.elements().enumerate() {
                    write!(f, "{}{element}", if nth == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Json(_) | Self::Typed(..) | Self::Map(_) => {
                f.write_str("{")?;
                for (nth, (key, value)) in self.entries().enumerate() {
                    write!(f, "{}{key}: {value}", if nth == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}
