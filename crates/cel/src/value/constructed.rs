//! Objects that an expression constructs: `Object.spec{…}` and `JSONPatch{…}`.
//!
//! UPSTREAM: apiserver pkg/cel/mutation/{jsonpatch,typeresolver}.go, pkg/cel/mutation/dynamic/objects.go

use std::fmt;

use lockgate_go::quote::quote;
use serde_json::{Map, Value as Json};

use super::Value;

/// The type of patch operations.
pub const JSON_PATCH: &str = "JSONPatch";
/// The type of the mutated object; field types are this name with the field path appended.
pub const OBJECT: &str = "Object";

/// A constructed object.
#[derive(Debug, Clone)]
pub struct Constructed<'a> {
    /// The type name in the expression.
    pub type_name: &'a str,
    /// Its fields, in source order.
    pub fields: Vec<(&'a str, Value<'a>)>,
}

/// Returns true if mutations can construct this type.
pub(crate) fn is_constructible(name: &str) -> bool {
    name == JSON_PATCH
        || name
            .strip_prefix(OBJECT)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl<'a> Constructed<'a> {
    /// A field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value<'a>> {
        let found = self.fields.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value)
    }

    /// Checks that the type name of every nested object is its field path.
    ///
    /// # Errors
    ///
    /// The objects with other type names.
    pub fn check_type_names(&self) -> Result<(), TypeNameMismatches> {
        let mut mismatches = Vec::new();
        check_object(self, self.type_name, &mut mismatches);
        if mismatches.is_empty() {
            Ok(())
        } else {
            Err(TypeNameMismatches(mismatches))
        }
    }

    /// Converts the object to JSON.
    ///
    /// # Errors
    ///
    /// A value cannot be represented in JSON.
    pub fn to_tree(&self) -> Result<Json, NotJson> {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| Ok(((*name).to_owned(), tree(value)?)));
        fields
            .collect::<Result<Map<_, _>, NotJson>>()
            .map(Json::Object)
    }
}

/// Objects whose type names differ from their field paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeNameMismatches(Vec<TypeNameMismatch>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct TypeNameMismatch {
    found: String,
    expected: String,
}

impl fmt::Display for TypeNameMismatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, TypeNameMismatch { found, expected }) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(
                f,
                "unexpected type name {}, expected {}, which matches field name path from root \
                 Object type",
                quote(found),
                quote(expected)
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for TypeNameMismatches {}

/// A value that cannot be represented in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJson;

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid return type: *dynamic.ObjectVal")
    }
}

impl std::error::Error for NotJson {}

fn check_object(object: &Constructed<'_>, path: &str, errors: &mut Vec<TypeNameMismatch>) {
    if object.type_name != path {
        errors.push(TypeNameMismatch {
            found: object.type_name.to_owned(),
            expected: path.to_owned(),
        });
    }
    for (name, value) in &object.fields {
        check_value(value, &format!("{path}.{name}"), errors);
    }
}

fn check_value(value: &Value<'_>, path: &str, errors: &mut Vec<TypeNameMismatch>) {
    match value {
        Value::Object(object) => check_object(object, path, errors),
        // Values borrowed from a document contain no constructed objects.
        Value::List(_) => {
            for element in value.elements() {
                check_value(&element, path, errors);
            }
        }
        Value::Map(_) => {
            for (_, entry) in value.entries() {
                check_value(&entry, path, errors);
            }
        }
        _ => {}
    }
}

/// Converts a value for an object. Numbers keep their types.
fn tree(value: &Value<'_>) -> Result<Json, NotJson> {
    Ok(match value {
        Value::Int(int) => Json::from(*int),
        Value::Uint(uint) => Json::from(*uint),
        Value::Object(object) => return object.to_tree(),
        Value::Json(json) | Value::Typed(json, _) => (*json).clone(),
        _ if value.is_list() => {
            let elements = value.elements().map(|element| tree(&element));
            Json::Array(elements.collect::<Result<_, _>>()?)
        }
        _ if value.is_map() => {
            let mut map = Map::new();
            for (key, entry) in value.entries() {
                let Some(name) = key.as_str() else {
                    return Err(NotJson);
                };
                map.insert(name.to_owned(), tree(&entry)?);
            }
            Json::Object(map)
        }
        other => other.to_json().ok_or(NotJson)?,
    })
}
