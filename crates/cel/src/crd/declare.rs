//! Schema types, and the size bounds of their values.
//!
//! UPSTREAM: apiserver pkg/cel/common/schemas.go, pkg/cel/types.go, pkg/cel/limits.go

use std::collections::BTreeMap;

use crate::check::{Environment, Estimate, Sizes};
use crate::schema::{Format, Kind, Schema};
use crate::syntax::identifier::escape;
use crate::types::Type;

/// The maximum request size in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// The maximum string length in a request, without the quotes.
const MAX_TEXT: u64 = MAX_REQUEST - 2;
/// The maximum length in bytes of a timestamp or duration, quotes included.
const MAX_TIME: u64 = 32;
/// The length in bytes of a date, quotes included.
const DATE: u64 = 12;

/// The type name of `self`; upstream's ends in a timestamp.
const SELF_TYPE: &str = "selfType0";

/// The type of a schema, with its size bounds.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    of: Type,
    /// The maximum size of the value: elements, entries or bytes.
    max: u64,
    /// The minimum size in bytes of the value as JSON.
    min_bytes: u64,
    parts: Parts,
}

#[derive(Debug, Clone)]
enum Parts {
    None,
    Fields(BTreeMap<String, Declared>),
    Items(Box<Declared>),
    Entries(Box<Declared>),
}

/// A message type of a schema: its name and its fields.
pub(crate) type Message = (String, Vec<(String, Type)>);

/// Adds message types to an environment.
pub(crate) fn with_messages(mut env: Environment, messages: &[Message]) -> Environment {
    for (name, fields) in messages {
        let fields = fields.iter().map(|(name, of)| (name.as_str(), of.clone()));
        env = env.object(name, fields);
    }
    env
}

impl Declared {
    /// The type of `self`, with its message types; `None` if rules cannot access values of the
    /// schema.
    pub(crate) fn new(schema: &Schema) -> Option<(Self, Vec<Message>)> {
        Self::named(schema, SELF_TYPE)
    }

    /// Like [`Self::new`], with another name for the root type.
    pub(crate) fn named(schema: &Schema, name: &str) -> Option<(Self, Vec<Message>)> {
        let mut messages = Vec::new();
        let declared = declare(schema, name, &mut messages)?;
        Some((declared, messages))
    }

    /// The root type.
    pub(crate) fn type_of(&self) -> &Type {
        &self.of
    }

    /// The environment with `self` and `oldSelf`.
    pub(crate) fn environment(&self, messages: &[Message], optional_old_self: bool) -> Environment {
        let env = with_messages(Environment::new(), messages);
        let old_self = if optional_old_self {
            Type::optional(self.of.clone())
        } else {
            self.of.clone()
        };
        env.variable("self", self.of.clone())
            .variable("oldSelf", old_self)
    }

    /// The maximum number of such values in a request, each followed by a comma.
    pub(crate) fn max_cardinality(&self) -> u64 {
        MAX_REQUEST / (self.min_bytes + 1)
    }

    fn part(&self, name: &str) -> Option<&Self> {
        match (&self.parts, name) {
            (Parts::Items(element) | Parts::Entries(element), "@items" | "@values") => {
                Some(element)
            }
            (Parts::Fields(fields), name) => fields.get(name),
            _ => None,
        }
    }
}

impl Sizes for Declared {
    fn size(&self, path: &[String], _: &Type) -> Option<Estimate> {
        // All variables are of this type.
        let (_, mut rest) = path.split_first()?;
        let mut declared = self;
        while let Some((name, deeper)) = rest.split_first() {
            if name == "@keys" && matches!(declared.parts, Parts::Entries(_)) {
                // Keys are declared without a size, and are scalars.
                return deeper.is_empty().then_some(Estimate { min: 0, max: 0 });
            }
            declared = declared.part(name)?;
            rest = deeper;
        }
        let max = declared.max;
        Some(Estimate { min: 0, max })
    }
}

fn scalar(of: Type, min_bytes: u64, max: u64) -> Declared {
    Declared {
        of,
        max,
        min_bytes,
        parts: Parts::None,
    }
}

fn declare(schema: &Schema, name: &str, messages: &mut Vec<Message>) -> Option<Declared> {
    if schema.int_or_string {
        let max = schema.max_length.map_or(MAX_TEXT, code_points_as_bytes);
        return Some(scalar(Type::Dyn, 1, max));
    }
    match schema.kind {
        Kind::Array => {
            let element = declare(schema.items.as_ref()?, &format!("{name}.@idx"), messages)?;
            let room = || MAX_TEXT / (element.min_bytes + 1);
            Some(Declared {
                of: Type::list(element.of.clone()),
                max: schema.max_items.unwrap_or_else(room),
                min_bytes: 2,
                parts: Parts::Items(Box::new(element)),
            })
        }
        Kind::Object => match &schema.additional_properties {
            Some(values) => {
                let value = declare(values, &format!("{name}.@elem"), messages)?;
                // Each entry has at least a key in quotes, a colon, a comma and a value.
                let room = || MAX_TEXT / (value.min_bytes + 6);
                Some(Declared {
                    of: Type::map(Type::String, value.of.clone()),
                    max: schema.max_properties.unwrap_or_else(room),
                    min_bytes: 2,
                    parts: Parts::Entries(Box::new(value)),
                })
            }
            None => Some(object(schema, name, messages)),
        },
        Kind::String => Some(text(schema)),
        Kind::Boolean => Some(scalar(Type::Bool, 4, 0)),
        Kind::Number => Some(scalar(Type::Double, 1, 0)),
        Kind::Integer => Some(scalar(Type::Int, 1, 0)),
        Kind::Untyped => None,
    }
}

fn object(schema: &Schema, name: &str, messages: &mut Vec<Message>) -> Declared {
    let mut fields = BTreeMap::new();
    let mut min_bytes = 2;
    for (property, schema_of_property) in schema.properties.iter().flatten() {
        let escaped = escape(property);
        let inner = format!("{name}.{}", escaped.as_deref().unwrap_or_default());
        // The types of a property without a valid identifier are not used.
        let mut unnamed = Vec::new();
        let found = if escaped.is_some() {
            declare(schema_of_property, &inner, messages)
        } else {
            declare(schema_of_property, &inner, &mut unnamed)
        };
        let Some(declared) = found else { continue };
        // Properties with a default need not be in the request.
        if schema.required.contains(property) && !schema_of_property.has_default {
            min_bytes += property.len() as u64 + declared.min_bytes + 4;
        }
        if let Some(escaped) = escaped {
            fields.insert(escaped.into_owned(), declared);
        }
    }
    let types = fields.iter().map(|(n, d)| (n.clone(), d.of.clone()));
    messages.push((name.to_owned(), types.collect()));
    Declared {
        of: Type::object(name),
        max: 0,
        min_bytes,
        parts: Parts::Fields(fields),
    }
}

fn text(schema: &Schema) -> Declared {
    match schema.format {
        Some(Format::Byte) => scalar(Type::Bytes, 2, schema.max_length.unwrap_or(MAX_TEXT)),
        Some(Format::Duration) => scalar(Type::Duration, 3, MAX_TIME),
        Some(Format::Date) => scalar(Type::Timestamp, DATE, DATE),
        Some(Format::DateTime) => scalar(Type::Timestamp, 21, MAX_TIME),
        None => {
            let max = match (schema.max_length, schema.longest_value) {
                (Some(length), _) => code_points_as_bytes(length),
                (None, Some(longest)) => longest,
                (None, None) => MAX_TEXT,
            };
            scalar(Type::String, 2, max)
        }
    }
}

/// The maximum number of bytes of this many code points.
fn code_points_as_bytes(length: u64) -> u64 {
    length.saturating_mul(4)
}
