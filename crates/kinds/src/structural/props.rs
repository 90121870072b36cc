//! The keywords of an OpenAPI v3 schema in JSON.
//!
//! A keyword of the wrong type reads as absent: types are validated when the definition is decoded.

use serde_json::{Map, Value as Json};

use super::json::copy;

/// One schema of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Props<'j>(pub(crate) &'j Map<String, Json>);

/// The keyword `items`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Items<'j> {
    Absent,
    /// The same schema for every element.
    All(Props<'j>),
    /// One schema per element, which definitions do not allow.
    Each(&'j [Json]),
}

/// A keyword that is a schema or a boolean.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SchemaOrBool<'j> {
    Absent,
    Bool(bool),
    Schema(Props<'j>),
}

impl<'j> Props<'j> {
    pub(crate) fn new(schema: &'j Json) -> Option<Self> {
        schema.as_object().map(Self)
    }

    /// The schema as a value.
    pub(crate) fn to_json(self) -> Json {
        let entries = self.0.iter();
        Json::Object(
            entries
                .map(|(name, value)| (name.clone(), copy(value)))
                .collect(),
        )
    }

    /// The value of a keyword; null reads as absent.
    pub(crate) fn get(self, keyword: &str) -> Option<&'j Json> {
        self.0.get(keyword).filter(|value| !value.is_null())
    }

    pub(crate) fn has(self, keyword: &str) -> bool {
        self.get(keyword).is_some()
    }

    /// A string; empty if absent.
    pub(crate) fn text(self, keyword: &str) -> &'j str {
        self.opt_text(keyword).unwrap_or_default()
    }

    pub(crate) fn opt_text(self, keyword: &str) -> Option<&'j str> {
        self.get(keyword).and_then(Json::as_str)
    }

    pub(crate) fn flag(self, keyword: &str) -> bool {
        self.opt_flag(keyword).unwrap_or_default()
    }

    pub(crate) fn opt_flag(self, keyword: &str) -> Option<bool> {
        self.get(keyword).and_then(Json::as_bool)
    }

    pub(crate) fn integer(self, keyword: &str) -> Option<i64> {
        self.get(keyword).and_then(Json::as_i64)
    }

    pub(crate) fn number(self, keyword: &str) -> Option<f64> {
        self.get(keyword).and_then(Json::as_f64)
    }

    pub(crate) fn list(self, keyword: &str) -> &'j [Json] {
        self.get(keyword)
            .and_then(Json::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub(crate) fn texts(self, keyword: &str) -> impl Iterator<Item = &'j str> {
        self.list(keyword)
            .iter()
            .map(|text| text.as_str().unwrap_or_default())
    }

    pub(crate) fn schema(self, keyword: &str) -> Option<Self> {
        self.get(keyword).and_then(Self::new)
    }

    /// A list of schemas.
    pub(crate) fn schemas(self, keyword: &str) -> impl Iterator<Item = Self> {
        self.list(keyword).iter().filter_map(Self::new)
    }

    /// A map of schemas, ordered by name.
    pub(crate) fn schema_map(self, keyword: &str) -> impl Iterator<Item = (&'j str, Self)> {
        self.get(keyword)
            .and_then(Json::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(name, schema)| Some((name.as_str(), Self::new(schema)?)))
    }

    pub(crate) fn property(self, name: &str) -> Option<Self> {
        self.schema("properties")?.schema(name)
    }

    pub(crate) fn items(self) -> Items<'j> {
        match self.get("items") {
            Some(Json::Object(schema)) => Items::All(Props(schema)),
            Some(Json::Array(schemas)) => Items::Each(schemas),
            _ => Items::Absent,
        }
    }

    /// The schema of all elements.
    pub(crate) fn items_schema(self) -> Option<Self> {
        match self.items() {
            Items::All(schema) => Some(schema),
            Items::Absent | Items::Each(_) => None,
        }
    }

    pub(crate) fn schema_or_bool(self, keyword: &str) -> SchemaOrBool<'j> {
        match self.get(keyword) {
            Some(Json::Bool(allows)) => SchemaOrBool::Bool(*allows),
            Some(Json::Object(schema)) => SchemaOrBool::Schema(Props(schema)),
            _ => SchemaOrBool::Absent,
        }
    }
}
