//! Decodes messages into JSON objects, in a loop over the open messages.

use serde_json::Value;
use serde_json::map::Map;

use crate::tree;
use crate::typed::{Field, Form, Type};

use super::error::DecodeError;
use super::value::read;
use super::wire::{Input, Wire, text, wrong_wire_type};

/// The maximum number of messages in an object. An empty message of two bytes becomes a JSON object of several hundred
/// bytes, so the input size alone is no bound; the largest storable object has far fewer messages.
pub const MAX_MESSAGES: usize = 1 << 18;

/// Decodes a message of this type into Go's JSON encoding of the struct. The message does not contain kind and API
/// version; the [`Envelope`](super::Envelope) does.
///
/// # Errors
///
/// The message is invalid; the error is that of upstream's decoder.
pub fn decode(ty: Type, bytes: &[u8]) -> Result<Value, DecodeError> {
    let tree = Reader::default().run(ty, bytes)?;
    // Presence follows the rules of JSON: zero values are on the wire, and absent fields may have to be set.
    Ok(ty.decode_value(&tree)?.value)
}

/// An open message.
enum Open<'b> {
    Struct {
        ty: Type,
        /// The message itself, and its embedded structs.
        parts: Vec<Part<'b>>,
        out: Map<String, Value>,
        /// The position of the next child.
        place: Option<Place>,
    },
    /// A JSON schema, or another type in its place.
    Schema {
        ty: Type,
        schema: Type,
        input: Input<'b>,
        single: Option<Value>,
        several: Vec<Value>,
        allows: bool,
        /// True if the next child is an element of a repeated field.
        repeated: bool,
    },
}

/// A message with the fields of one struct.
struct Part<'b> {
    input: Input<'b>,
    /// The field numbers of the enclosing embedded structs, outermost first.
    path: Vec<u16>,
}

/// The position of a child in a struct.
struct Place {
    field: Field,
    /// The key of a map entry.
    key: Option<String>,
}

/// The next step in decoding a message.
enum Next<'b> {
    /// Opens a child: its type, its bytes, and the value that it is merged into.
    Child(Type, &'b [u8], Option<Value>),
    /// A field was decoded.
    Continue,
    End,
}

#[derive(Default)]
struct Reader<'b> {
    open: Vec<Open<'b>>,
    messages: usize,
}

impl<'b> Reader<'b> {
    fn run(mut self, ty: Type, bytes: &'b [u8]) -> Result<Value, DecodeError> {
        self.begin(ty, bytes, None)?;
        loop {
            let levels = tree::MAX_DEPTH.saturating_sub(self.open.len());
            let Some(top) = self.open.last_mut() else {
                return Ok(Value::Null);
            };
            match top.advance(levels)? {
                Next::Continue => {}
                Next::Child(ty, bytes, before) => self.begin(ty, bytes, before)?,
                Next::End => {
                    let done = self.open.pop().map(Open::finish).unwrap_or_default();
                    match self.open.last_mut() {
                        None => return Ok(done),
                        Some(parent) => parent.place(done),
                    }
                }
            }
        }
    }

    fn begin(
        &mut self,
        ty: Type,
        bytes: &'b [u8],
        before: Option<Value>,
    ) -> Result<(), DecodeError> {
        self.messages += 1;
        if self.messages > MAX_MESSAGES {
            return Err(DecodeError::TooManyMessages);
        }
        if self.open.len() >= tree::MAX_DEPTH {
            return Err(DecodeError::TooDeep);
        }
        let input = Input(bytes);
        self.open.push(match ty.form() {
            Form::SchemaOrBool(schema)
            | Form::SchemaOrArray(schema)
            | Form::SchemaOrTexts(schema) => Open::Schema {
                ty,
                schema,
                input,
                single: None,
                several: Vec::new(),
                allows: false,
                repeated: false,
            },
            _ => Open::Struct {
                ty,
                parts: vec![Part {
                    input,
                    path: Vec::new(),
                }],
                out: match before {
                    Some(Value::Object(members)) => members,
                    _ => Map::new(),
                },
                place: None,
            },
        });
        Ok(())
    }
}

/// Returns true if a value of this type is decoded as an open message.
fn opens(ty: Type) -> bool {
    matches!(
        ty.form(),
        Form::Struct | Form::SchemaOrBool(_) | Form::SchemaOrArray(_) | Form::SchemaOrTexts(_)
    )
}

impl<'b> Open<'b> {
    /// Decodes the next field.
    fn advance(&mut self, levels: usize) -> Result<Next<'b>, DecodeError> {
        match self {
            Self::Struct {
                ty,
                parts,
                out,
                place,
            } => {
                let Some(part) = parts.last_mut() else {
                    return Ok(Next::End);
                };
                let Some((number, wire)) = part.input.field(message_name(*ty))? else {
                    parts.pop();
                    return Ok(Next::Continue);
                };
                match find(*ty, &part.path, number) {
                    Found::Nothing => Ok(Next::Continue),
                    Found::Embedded(number, name) => {
                        let Wire::Bytes(bytes) = wire else {
                            return Err(wrong_wire_type(wire, name));
                        };
                        let mut path = part.path.clone();
                        path.push(number);
                        let input = Input(bytes);
                        parts.push(Part { input, path });
                        Ok(Next::Continue)
                    }
                    Found::Field(field) => member(field, wire, out, place, levels),
                }
            }
            Self::Schema {
                ty,
                schema,
                input,
                several,
                allows,
                repeated,
                ..
            } => {
                let Some((number, wire)) = input.field(message_name(*ty))? else {
                    return Ok(Next::End);
                };
                match (ty.form(), number, wire) {
                    (Form::SchemaOrBool(_), 1, Wire::Varint(number)) => *allows = number != 0,
                    (Form::SchemaOrTexts(_), 2, Wire::Bytes(bytes)) => {
                        several.push(Value::String(text(bytes)));
                    }
                    (Form::SchemaOrBool(_), 2, Wire::Bytes(bytes))
                    | (Form::SchemaOrArray(_) | Form::SchemaOrTexts(_), 1, Wire::Bytes(bytes)) => {
                        *repeated = false;
                        return Ok(Next::Child(*schema, bytes, None));
                    }
                    (Form::SchemaOrArray(_), 2, Wire::Bytes(bytes)) => {
                        *repeated = true;
                        return Ok(Next::Child(*schema, bytes, None));
                    }
                    (_, 1 | 2, other) => return Err(wrong_wire_type(other, "schema")),
                    _ => {}
                }
                Ok(Next::Continue)
            }
        }
    }

    /// Stores a child.
    fn place(&mut self, child: Value) {
        match self {
            Self::Struct { out, place, .. } => {
                if let Some(Place { field, key }) = place.take() {
                    insert(out, field, key, child);
                }
            }
            Self::Schema {
                single,
                several,
                repeated,
                ..
            } => {
                if *repeated {
                    several.push(child);
                } else {
                    *single = Some(child);
                }
            }
        }
    }

    fn finish(self) -> Value {
        match self {
            Self::Struct { out, .. } => Value::Object(out),
            Self::Schema {
                ty,
                single,
                several,
                allows,
                ..
            } => match single {
                _ if !several.is_empty() => Value::Array(several),
                Some(schema) => schema,
                None if matches!(ty.form(), Form::SchemaOrBool(_)) => Value::Bool(allows),
                None => Value::Null,
            },
        }
    }
}

/// The name of a message in errors: the type name without its package.
fn message_name(ty: Type) -> &'static str {
    let name = ty.target().go_name();
    name.rsplit_once('.').map_or(name, |(_, name)| name)
}

/// The field with a number.
enum Found {
    Field(Field),
    /// An embedded struct: its number and its name.
    Embedded(u16, &'static str),
    Nothing,
}

/// Finds a field by its number, in the embedded struct at this path.
fn find(ty: Type, path: &[u16], number: u32) -> Found {
    let Ok(number) = u16::try_from(number) else {
        return Found::Nothing;
    };
    'fields: for field in ty.fields() {
        let mut rest = path.iter();
        for (name, embedded) in field.embedded_in() {
            match rest.next() {
                Some(&step) if step == embedded => {}
                // Embedded structs without a number, such as `TypeMeta`, are not encoded.
                None if embedded != 0 && embedded == number => {
                    return Found::Embedded(embedded, name);
                }
                _ => continue 'fields,
            }
        }
        if rest.next().is_none() && field.protobuf_number() == number {
            return Found::Field(field);
        }
    }
    Found::Nothing
}

/// Decodes the value of a field, or returns the message to open for it.
fn member<'b>(
    field: Field,
    wire: Wire<'b>,
    out: &mut Map<String, Value>,
    place: &mut Option<Place>,
    levels: usize,
) -> Result<Next<'b>, DecodeError> {
    let ty = field.ty();
    let name = field.name();
    let (element, key, wire) = match ty.form() {
        Form::Map(element) => {
            let Wire::Bytes(bytes) = wire else {
                return Err(wrong_wire_type(wire, name));
            };
            let (key, value) = entry(bytes, element)?;
            (element, Some(key), value)
        }
        Form::List(element) => {
            if let (Form::Integer(_) | Form::Bool, Wire::Bytes(bytes)) = (element.form(), wire) {
                // Repeated numbers may be packed.
                let mut input = Input(bytes);
                while !input.0.is_empty() {
                    let number = Wire::Varint(input.varint()?);
                    let value = read(element, number, name, levels)?;
                    insert(out, field, None, value);
                }
                return Ok(Next::Continue);
            }
            (element, None, wire)
        }
        _ => (ty, None, wire),
    };
    if !opens(element) {
        let value = read(element, wire, name, levels)?;
        insert(out, field, key, value);
        return Ok(Next::Continue);
    }
    let Wire::Bytes(bytes) = wire else {
        return Err(wrong_wire_type(wire, name));
    };
    // A repeated occurrence of a singular message is merged into the earlier one.
    let before = match (ty.form(), &key) {
        (Form::List(_) | Form::Map(_), _) => None,
        _ => out.remove(name),
    };
    *place = Some(Place { field, key });
    Ok(Next::Child(element, bytes, before))
}

/// The key and value of a map entry.
fn entry(bytes: &[u8], element: Type) -> Result<(String, Wire<'_>), DecodeError> {
    let mut key = String::new();
    let mut value = match element.form() {
        Form::Integer(_) | Form::Bool => Wire::Varint(0),
        Form::Double => Wire::Fixed64(0),
        _ => Wire::Bytes(&[]),
    };
    let mut input = Input(bytes);
    while let Some((number, wire)) = input.field("Entry")? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes),
            (1, other) => return Err(wrong_wire_type(other, "key")),
            (2, wire) => value = wire,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Stores the value of a field.
fn insert(out: &mut Map<String, Value>, field: Field, key: Option<String>, value: Value) {
    match (field.ty().form(), key) {
        (Form::List(_), _) => {
            let slot = out
                .entry(field.name())
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = slot {
                items.push(value);
            }
        }
        (Form::Map(_), Some(key)) => {
            let slot = out
                .entry(field.name())
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(members) = slot {
                members.insert(key, value);
            }
        }
        _ => {
            out.insert(field.name().to_owned(), value);
        }
    }
}
