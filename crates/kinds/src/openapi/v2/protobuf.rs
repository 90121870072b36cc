//! The OpenAPI v2 document as protobuf, for clients that accept nothing else.
//!
//! UPSTREAM: gnostic-models openapiv2/OpenAPIv2.proto for the numbers of fields.

use lockgate_go::json;
use serde_json::{Map, Value};

/// Encodes a document, as far as clients read it: operations with their parameters, and schemas.
#[must_use]
pub fn to_protobuf(document: &Value) -> Vec<u8> {
    let mut out = text(1, &text_of(document, "swagger"));
    let info = document.get("info").cloned().unwrap_or_default();
    let info = [
        text(1, &text_of(&info, "title")),
        text(2, &text_of(&info, "version")),
    ];
    out.extend(field(2, &info.concat()));
    let paths: Vec<u8> = members(document, "paths")
        .flat_map(|(name, item)| {
            let path = [text(1, name), field(2, &path_item(item))].concat();
            field(2, &path)
        })
        .collect();
    out.extend(field(8, &paths));
    let definitions: Vec<u8> = members(document, "definitions")
        .flat_map(|(name, value)| named_schema(1, name, value))
        .collect();
    out.extend(field(9, &definitions));
    out
}

fn text_of(value: &Value, name: &str) -> String {
    let found = value.get(name).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

fn members<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    value
        .get(name)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn items<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn path_item(item: &Value) -> Vec<u8> {
    let methods = [
        ("get", 2),
        ("put", 3),
        ("post", 4),
        ("delete", 5),
        ("patch", 8),
    ];
    let mut out: Vec<u8> = methods
        .into_iter()
        .filter_map(|(method, number)| Some((number, item.get(method)?)))
        .flat_map(|(number, operation)| field(number, &self::operation(operation)))
        .collect();
    out.extend(parameters(9, item));
    out
}

fn operation(operation: &Value) -> Vec<u8> {
    let mut out = parameters(8, operation);
    let answers: Vec<u8> = members(operation, "responses")
        .flat_map(|(code, answer)| {
            let mut response = text(1, &text_of(answer, "description"));
            if let Some(schema) = answer.get("schema") {
                response.extend(field(2, &field(1, &self::schema(schema))));
            }
            let named = [text(1, code), field(2, &field(1, &response))].concat();
            field(1, &named)
        })
        .collect();
    out.extend(field(9, &answers));
    out.extend(extensions(13, operation));
    out
}

fn parameters(number: u32, of: &Value) -> Vec<u8> {
    items(of, "parameters")
        .flat_map(|parameter| {
            let name = text_of(parameter, "name");
            let place = text_of(parameter, "in");
            let ty = text_of(parameter, "type");
            let inner = match place.as_str() {
                "body" => {
                    let schema = parameter.get("schema").map(schema).unwrap_or_default();
                    let body = [text(2, &name), text(3, &place), flag(4), field(5, &schema)];
                    field(1, &body.concat())
                }
                "path" => {
                    let path = [flag(1), text(2, &place), text(4, &name), text(5, &ty)].concat();
                    field(2, &field(4, &path))
                }
                _ => {
                    let query = [text(2, &place), text(4, &name), text(6, &ty)].concat();
                    field(2, &field(3, &query))
                }
            };
            field(number, &field(1, &inner))
        })
        .collect()
}

fn named_schema(number: u32, name: &str, value: &Value) -> Vec<u8> {
    field(number, &[text(1, name), field(2, &schema(value))].concat())
}

/// Encodes a schema, whose depth is that of the document.
fn schema(schema: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let texts = [
        ("$ref", 1),
        ("format", 2),
        ("title", 3),
        ("description", 4),
        ("pattern", 13),
    ];
    for (name, number) in texts {
        if let Some(value) = schema.get(name).and_then(Value::as_str) {
            out.extend(text(number, value));
        }
    }
    for (name, number) in [("multipleOf", 6), ("maximum", 7), ("minimum", 9)] {
        if let Some(value) = schema.get(name).and_then(Value::as_f64) {
            out.extend(tag(number, 1));
            out.extend(value.to_bits().to_le_bytes());
        }
    }
    let numbers = [
        ("maxLength", 11),
        ("minLength", 12),
        ("maxItems", 14),
        ("minItems", 15),
        ("maxProperties", 17),
        ("minProperties", 18),
    ];
    for (name, number) in numbers {
        if let Some(value) = schema.get(name).and_then(Value::as_u64) {
            out.extend(tag(number, 0));
            out.extend(varint(value));
        }
    }
    for (name, number) in [
        ("exclusiveMaximum", 8),
        ("exclusiveMinimum", 10),
        ("uniqueItems", 16),
    ] {
        if schema.get(name) == Some(&Value::Bool(true)) {
            out.extend(flag(number));
        }
    }
    for name in items(schema, "required").filter_map(Value::as_str) {
        out.extend(text(19, name));
    }
    for value in items(schema, "enum") {
        out.extend(field(20, &any(value)));
    }
    match schema.get("additionalProperties") {
        Some(Value::Bool(allows)) => {
            let allows = [tag(2, 0), varint(u64::from(*allows))].concat();
            out.extend(field(21, &allows));
        }
        Some(others) => out.extend(field(21, &field(1, &self::schema(others)))),
        None => {}
    }
    if let Some(ty) = schema.get("type").and_then(Value::as_str) {
        out.extend(field(22, &text(1, ty)));
    }
    if let Some(items) = schema.get("items") {
        out.extend(field(23, &field(1, &self::schema(items))));
    }
    let properties: Vec<u8> = members(schema, "properties")
        .flat_map(|(name, value)| named_schema(1, name, value))
        .collect();
    if !properties.is_empty() {
        out.extend(field(25, &properties));
    }
    out.extend(extensions(31, schema));
    out
}

/// Any value, as YAML, a superset of JSON.
fn any(value: &Value) -> Vec<u8> {
    text(2, &json::value_to_string(value))
}

fn extensions(number: u32, of: &Value) -> Vec<u8> {
    let empty = Map::new();
    let members = of.as_object().unwrap_or(&empty).iter();
    members
        .filter(|(name, _)| name.starts_with("x-"))
        .flat_map(|(name, value)| field(number, &[text(1, name), field(2, &any(value))].concat()))
        .collect()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn tag(number: u32, wire_type: u32) -> Vec<u8> {
    varint(u64::from(number << 3 | wire_type))
}

fn flag(number: u32) -> Vec<u8> {
    let mut out = tag(number, 0);
    out.push(1);
    out
}

fn text(number: u32, value: &str) -> Vec<u8> {
    field(number, value.as_bytes())
}

fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = tag(number, 2);
    out.extend(varint(value.len() as u64));
    out.extend_from_slice(value);
    out
}
