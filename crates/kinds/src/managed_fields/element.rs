//! Path elements.
//!
//! UPSTREAM: structured-merge-diff fieldpath/{element,serialize-pe}.go

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use lockgate_go::json::to_string;

use super::value;

/// A path element: a field name, or a list element by keys, value or index.
#[derive(Debug, Clone)]
pub enum Element {
    /// The field of a map or struct.
    Field(Cow<'static, str>),
    /// The list element with these key fields; sorted by name.
    Key(Box<[(Cow<'static, str>, Value)]>),
    /// The element of a set.
    Value(Value),
    /// The list element at an index.
    Index(i64),
}

/// The error of an invalid path element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ElementError {
    /// An unknown type of path element; these are skipped.
    Unknown,
    Malformed(String),
}

impl Element {
    /// The field with this name.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(Cow::Owned(name.to_owned()))
    }

    pub(super) fn key(mut keys: Vec<(Cow<'static, str>, Value)>) -> Self {
        keys.sort_by(|left, right| left.0.cmp(&right.0));
        Self::Key(keys.into())
    }

    /// Parses a path element in `FieldsV1` format.
    pub(super) fn parse(text: &str) -> Result<Self, ElementError> {
        let malformed = |error: &dyn fmt::Display| ElementError::Malformed(error.to_string());
        let Some((prefix, content)) = text.split_at_checked(2) else {
            return Err(ElementError::Malformed(String::from(
                "key must be 2 characters long:",
            )));
        };
        match prefix {
            "f:" => Ok(Self::field(content)),
            "v:" => serde_json::from_str(content)
                .map(Self::Value)
                .map_err(|error| malformed(&error)),
            "k:" => match serde_json::from_str(content) {
                Ok(Value::Object(keys)) => Ok(Self::key(
                    keys.into_iter()
                        .map(|(name, value)| (Cow::Owned(name), value))
                        .collect(),
                )),
                Ok(Value::Null) => Ok(Self::Key(Box::default())),
                Ok(_) => Err(ElementError::Malformed(String::from(
                    "ReadObjectCB: expect { or n",
                ))),
                Err(error) => Err(malformed(&error)),
            },
            "i:" => content
                .parse()
                .map(Self::Index)
                .map_err(|_| ElementError::Malformed(format!("invalid index: {content}"))),
            _ if prefix.ends_with(':') => Err(ElementError::Unknown),
            _ => Err(ElementError::Malformed(format!("missing colon: {text}"))),
        }
    }

    /// The path element in `FieldsV1` format.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(keys) => {
                let mut out = String::from("k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    out.push_str(&to_string(name));
                    out.push(':');
                    out.push_str(&to_string(value));
                }
                out.push('}');
                out
            }
            Self::Value(value) => ["v:", &to_string(value)].concat(),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => left
                .iter()
                .zip(right)
                .map(|((left_name, left), (right_name, right))| {
                    left_name
                        .cmp(right_name)
                        .then_with(|| value::order(left, right))
                })
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len())),
            (Self::Value(left), Self::Value(right)) => value::order(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

/// The path element as errors print it.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", value::shown(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", value::shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}
