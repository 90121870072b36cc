//! Decoding of custom resources from a request, a patch or the store.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go
//! (unstructuredSchemaCoercer)

use std::fmt;

use serde_json::Value as Json;

use lockgate_api::field::FieldError;

use super::json::verbose;
use super::metadata::{self, Malformed};
use super::path::Path;
use super::schema::Schema;

/// The source of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A client; malformed metadata is rejected.
    Request,
    /// An apply configuration merged into an object; nulls are kept.
    ///
    /// UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go: the field manager converts without
    /// unstructuredSchemaCoercer.
    Applied,
    /// The store; malformed metadata is dropped, and a missing generation is set to 1.
    Store,
}

/// The error of an invalid custom resource, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// An error of the object itself.
    Object(String),
    /// An error of an embedded resource.
    Embedded(Box<FieldError>),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(text) => f.write_str(text),
            Self::Embedded(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl Schema {
    /// Normalizes a custom resource: decodes metadata, prunes unknown fields, and removes invalid nulls. Returns the
    /// paths of the unknown fields, as strict decoding lists them.
    ///
    /// Defaults are not applied: see [`Schema::default`].
    ///
    /// # Errors
    ///
    /// [`ReadError`]; the object may be partially changed.
    pub fn read(&self, object: &mut Json, source: Source) -> Result<Vec<String>, ReadError> {
        let malformed = match source {
            Source::Request | Source::Applied => Malformed::Refuse,
            Source::Store => Malformed::Drop,
        };
        let Some(entries) = object.as_object_mut() else {
            return Err(ReadError::Object("the object must be a map".to_owned()));
        };
        for name in ["kind", "apiVersion"] {
            if let Some(value) = entries.get(name).filter(|value| !value.is_string()) {
                return Err(ReadError::Object(accessor_error(name, value)));
            }
        }
        let mut unknown = Vec::new();
        let place = Path::ROOT;
        let place = place.child("metadata");
        let tidied = match entries.remove("metadata") {
            None => None,
            Some(found) => {
                let tidied = metadata::tidy(found, malformed, &place)
                    .map_err(|error| ReadError::Object(error.into()))?;
                unknown.extend(tidied.unknown);
                Some(tidied.metadata)
            }
        };
        unknown.extend(self.prune(object));
        if source != Source::Applied {
            self.drop_nulls(object);
        }
        let in_embedded = metadata::coerce(&self.root, object, malformed, &Path::ROOT)
            .map_err(ReadError::Embedded)?;
        unknown.extend(in_embedded);
        if let (Some(mut metadata), Some(entries)) = (tidied, object.as_object_mut()) {
            if source == Source::Store
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata
                    .entry("generation")
                    .or_insert_with(|| Json::from(1));
            }
            entries.insert("metadata".to_owned(), metadata);
        }
        Ok(unknown)
    }
}

/// UPSTREAM: apimachinery pkg/apis/meta/v1/unstructured/helpers.go (NestedString)
fn accessor_error(name: &str, value: &Json) -> String {
    let go_type = match value {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    let value = verbose(value);
    format!(".{name} accessor error: {value} is of the type {go_type}, expected string")
}
