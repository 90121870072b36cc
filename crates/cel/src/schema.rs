//! A structural schema, as far as validation rules depend on it.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/convert.go, schema/cel/model/schemas.go

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map as Object, Value as Json};

use crate::syntax::identifier::escape;

/// The maximum depth of a schema.
///
/// Upstream has no limit; schemas are walked recursively, and ours are untrusted.
pub const MAX_SCHEMA_DEPTH: usize = 256;

/// The type of a value in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// No type, or an unknown one.
    #[default]
    Untyped,
    /// An object with properties or additional properties.
    Object,
    /// A list.
    Array,
    /// A string, possibly with a [`Format`].
    String,
    /// A floating point number.
    Number,
    /// An integer.
    Integer,
    /// A boolean.
    Boolean,
}

/// The string formats with their own CEL types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Bytes in base64.
    Byte,
    /// A date.
    Date,
    /// A timestamp.
    DateTime,
    /// A duration.
    Duration,
}

/// How lists are compared and concatenated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// As plain lists.
    #[default]
    Atomic,
    /// As sets of their elements.
    Set,
    /// As maps of their elements by these keys, which are escaped identifiers.
    Map(Vec<String>),
    /// An unknown list type.
    Unknown(String),
}

/// A structural schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub(crate) kind: Kind,
    pub(crate) format: Option<Format>,
    /// `None` without properties, which differs from an empty map.
    pub(crate) properties: Option<BTreeMap<String, Self>>,
    pub(crate) additional_properties: Option<Box<Self>>,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) required: BTreeSet<String>,
    pub(crate) nullable: bool,
    pub(crate) has_default: bool,
    /// The length in bytes of the longest string in an enum, if there is one.
    pub(crate) longest_value: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown_fields: bool,
    pub(crate) list_type: ListType,
}

/// An invalid schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaError {
    /// A keyword has a value of the wrong type.
    Keyword(&'static str),
    /// The schema is deeper than [`MAX_SCHEMA_DEPTH`].
    TooDeep,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keyword(keyword) => write!(f, "{keyword} has a value of the wrong type"),
            Self::TooDeep => write!(f, "more than {MAX_SCHEMA_DEPTH} levels"),
        }
    }
}

impl std::error::Error for SchemaError {}

impl Schema {
    /// Parses an OpenAPI v3 schema.
    ///
    /// ```
    /// use lockgate_cel::schema::Schema;
    /// let schema = serde_json::json!({ "type": "array", "items": { "type": "string" }, "maxItems": 5 });
    /// assert!(Schema::from_json(&schema).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// [`SchemaError`]. Does not validate that the schema is structural.
    pub fn from_json(schema: &Json) -> Result<Self, SchemaError> {
        Self::read(schema, 0)
    }

    /// Converts the schema to that of a custom resource's root.
    ///
    /// This declares `apiVersion`, `kind`, `metadata.name` and `metadata.generateName` even if the schema
    /// does not. Embedded resources are converted when the schema is parsed.
    #[must_use]
    pub fn into_resource_root(mut self) -> Self {
        if self.has_type_and_object_meta() {
            return self;
        }
        let properties = self.properties.get_or_insert_default();
        let text = Self {
            kind: Kind::String,
            ..Self::default()
        };
        let names = ["name", "generateName"].map(|name| (name.to_owned(), text.clone()));
        let metadata = Self {
            kind: Kind::Object,
            properties: Some(names.into()),
            ..Self::default()
        };
        properties.insert("kind".to_owned(), text.clone());
        properties.insert("apiVersion".to_owned(), text);
        properties.insert("metadata".to_owned(), metadata);
        self.items = None;
        self
    }

    fn has_type_and_object_meta(&self) -> bool {
        let is = |schema: &Self, name: &str, kind| {
            schema
                .property(name)
                .is_some_and(|found| found.kind == kind)
        };
        is(self, "kind", Kind::String)
            && is(self, "apiVersion", Kind::String)
            && is(self, "metadata", Kind::Object)
            && self.property("metadata").is_some_and(|metadata| {
                is(metadata, "name", Kind::String) && is(metadata, "generateName", Kind::String)
            })
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        self.properties.as_ref()?.get(name)
    }

    fn read(schema: &Json, depth: usize) -> Result<Self, SchemaError> {
        if depth >= MAX_SCHEMA_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        let keywords = Keywords(schema.as_object().ok_or(SchemaError::Keyword("schema"))?);
        let child = |schema: &Json| Self::read(schema, depth + 1);
        let properties = match keywords.object("properties")? {
            Some(properties) if !properties.is_empty() => Some(
                properties
                    .iter()
                    .map(|(name, schema)| Ok((name.clone(), child(schema)?)))
                    .collect::<Result<_, SchemaError>>()?,
            ),
            _ => None,
        };
        let boxed = |keyword| match keywords.get(keyword) {
            None | Some(Json::Bool(_)) => Ok(None),
            Some(schema) => child(schema).map(|schema| Some(Box::new(schema))),
        };
        let read = Self {
            kind: keywords.kind()?,
            format: keywords.format()?,
            properties,
            additional_properties: boxed("additionalProperties")?,
            items: boxed("items")?,
            required: keywords.texts("required")?.into_iter().collect(),
            nullable: keywords.flag("nullable")?,
            has_default: keywords.get("default").is_some(),
            longest_value: keywords.longest_value()?,
            max_length: keywords.limit("maxLength")?,
            max_items: keywords.limit("maxItems")?,
            max_properties: keywords.limit("maxProperties")?,
            int_or_string: keywords.flag("x-kubernetes-int-or-string")?,
            preserve_unknown_fields: keywords.flag("x-kubernetes-preserve-unknown-fields")?,
            list_type: keywords.list_type()?,
        };
        Ok(if keywords.flag("x-kubernetes-embedded-resource")? {
            read.into_resource_root()
        } else {
            read
        })
    }
}

/// The keywords of one schema.
struct Keywords<'j>(&'j Object<String, Json>);

impl<'j> Keywords<'j> {
    /// The value of a keyword; null counts as missing.
    fn get(&self, keyword: &str) -> Option<&'j Json> {
        self.0.get(keyword).filter(|value| !value.is_null())
    }

    fn as_type<T>(
        &self,
        keyword: &'static str,
        read: impl FnOnce(&'j Json) -> Option<T>,
    ) -> Result<Option<T>, SchemaError> {
        let value = self.get(keyword);
        value
            .map(|value| read(value).ok_or(SchemaError::Keyword(keyword)))
            .transpose()
    }

    fn object(
        &self,
        keyword: &'static str,
    ) -> Result<Option<&'j Object<String, Json>>, SchemaError> {
        self.as_type(keyword, Json::as_object)
    }

    fn text(&self, keyword: &'static str) -> Result<&'j str, SchemaError> {
        Ok(self.as_type(keyword, Json::as_str)?.unwrap_or_default())
    }

    fn flag(&self, keyword: &'static str) -> Result<bool, SchemaError> {
        Ok(self.as_type(keyword, Json::as_bool)?.unwrap_or_default())
    }

    fn texts(&self, keyword: &'static str) -> Result<Vec<String>, SchemaError> {
        let texts = self.as_type(keyword, |value| {
            let texts = value.as_array()?.iter();
            texts.map(|text| text.as_str().map(str::to_owned)).collect()
        })?;
        Ok(texts.unwrap_or_default())
    }

    /// A limit; negative ones are zero.
    fn limit(&self, keyword: &'static str) -> Result<Option<u64>, SchemaError> {
        self.as_type(keyword, |value| {
            value.as_i64().map(|limit| limit.max(0).unsigned_abs())
        })
    }

    fn kind(&self) -> Result<Kind, SchemaError> {
        Ok(match self.text("type")? {
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "number" => Kind::Number,
            "integer" => Kind::Integer,
            "boolean" => Kind::Boolean,
            _ => Kind::Untyped,
        })
    }

    fn format(&self) -> Result<Option<Format>, SchemaError> {
        Ok(match self.text("format")? {
            "byte" => Some(Format::Byte),
            "date" => Some(Format::Date),
            "date-time" => Some(Format::DateTime),
            "duration" => Some(Format::Duration),
            _ => None,
        })
    }

    fn longest_value(&self) -> Result<Option<u64>, SchemaError> {
        let values = self.as_type("enum", Json::as_array)?;
        Ok(values.filter(|values| !values.is_empty()).map(|values| {
            let texts = values.iter().filter_map(Json::as_str);
            texts.map(|text| text.len() as u64).max().unwrap_or(0)
        }))
    }

    fn list_type(&self) -> Result<ListType, SchemaError> {
        Ok(match self.text("x-kubernetes-list-type")? {
            "" | "atomic" => ListType::Atomic,
            "set" => ListType::Set,
            "map" => {
                let keys = self.texts("x-kubernetes-list-map-keys")?;
                let spelled = |key: String| match escape(&key) {
                    Some(escaped) => escaped.into_owned(),
                    None => key,
                };
                ListType::Map(keys.into_iter().map(spelled).collect())
            }
            other => ListType::Unknown(other.to_owned()),
        })
    }
}
