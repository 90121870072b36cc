//! The metadata of custom resources and embedded resources.
//!
//! Metadata is not part of the schema. It is decoded as its Go type and encoded again, which drops unknown and empty
//! fields and normalizes timestamps.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/objectmeta

use serde_json::{Map, Value as Json};

use lockgate_api::decode;
use lockgate_api::document;
use lockgate_api::field::{FieldError, FieldErrors, Path as FieldPath};
use lockgate_api::meta::names;
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::time::Time;
use lockgate_api::meta::validation::{PATH_SEGMENT_NAMES, validate_metadata};

use super::error::{self, MAX_ERRORS};
use super::json::{compact, shown};
use super::path::Path;
use super::schema::Node;
use crate::upstream_error::UpstreamError;

/// The maximum number of reported unknown fields of one `metadata`.
// UPSTREAM: sigs.k8s.io/json internal/golang/encoding/json/kubernetes_patch.go
const MAX_FINDINGS: usize = 100;

/// The handling of malformed metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// It is an error.
    Refuse,
    /// It is removed, field by field.
    Drop,
}

/// The types of metadata fields.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Integer,
    Flag,
    Time,
    Texts,
    TextMap,
    /// Any JSON except null.
    Any,
    Objects(&'static [Field]),
}

/// The name and type of a field, and whether it is encoded if empty.
type Field = (&'static str, Shape, Presence);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Always,
    /// Omitted if zero (`omitempty`).
    NotZero,
    /// Omitted if nil: a pointer to zero is encoded.
    IfGiven,
}

use Presence::{Always, IfGiven, NotZero};

const OWNER_REFERENCE: &[Field] = &[
    ("apiVersion", Shape::Text, Always),
    ("kind", Shape::Text, Always),
    ("name", Shape::Text, Always),
    ("uid", Shape::Text, Always),
    ("controller", Shape::Flag, IfGiven),
    ("blockOwnerDeletion", Shape::Flag, IfGiven),
];

const MANAGED_FIELDS_ENTRY: &[Field] = &[
    ("manager", Shape::Text, NotZero),
    ("operation", Shape::Text, NotZero),
    ("apiVersion", Shape::Text, NotZero),
    ("time", Shape::Time, IfGiven),
    ("fieldsType", Shape::Text, NotZero),
    ("fieldsV1", Shape::Any, IfGiven),
    ("subresource", Shape::Text, NotZero),
];

const OBJECT_META: &[Field] = &[
    ("name", Shape::Text, NotZero),
    ("generateName", Shape::Text, NotZero),
    ("namespace", Shape::Text, NotZero),
    ("selfLink", Shape::Text, NotZero),
    ("uid", Shape::Text, NotZero),
    ("resourceVersion", Shape::Text, NotZero),
    ("generation", Shape::Integer, NotZero),
    ("creationTimestamp", Shape::Time, NotZero),
    ("deletionTimestamp", Shape::Time, IfGiven),
    ("deletionGracePeriodSeconds", Shape::Integer, IfGiven),
    ("labels", Shape::TextMap, NotZero),
    ("annotations", Shape::TextMap, NotZero),
    ("ownerReferences", Shape::Objects(OWNER_REFERENCE), NotZero),
    ("finalizers", Shape::Texts, NotZero),
    (
        "managedFields",
        Shape::Objects(MANAGED_FIELDS_ENTRY),
        NotZero,
    ),
];

/// An integer, in any notation.
fn integer(value: &Json) -> Option<i64> {
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        // Within these bounds, the conversion is exact.
        let fits = number.fract() == 0.0 && (-9.2e18..9.2e18).contains(&number);
        fits.then_some(number as i64)
    })
}

fn is_text_or_null(value: &Json) -> bool {
    value.is_string() || value.is_null()
}

impl Shape {
    fn fits(self, value: &Json) -> bool {
        match (self, value) {
            (_, Json::Null) | (Self::Any, _) => true,
            (Self::Text, value) => value.is_string(),
            (Self::Integer, value) => integer(value).is_some(),
            (Self::Flag, value) => value.is_boolean(),
            (Self::Time, Json::String(text)) => Time::parse(text).is_ok(),
            (Self::Texts, Json::Array(items)) => items.iter().all(is_text_or_null),
            (Self::TextMap, Json::Object(entries)) => entries.values().all(is_text_or_null),
            (Self::Objects(fields), Json::Array(items)) => {
                items.iter().all(|item| fits_object(item, fields))
            }
            _ => false,
        }
    }

    /// The value as its Go type encodes it; `None` if it is omitted.
    fn tidy(
        self,
        value: Json,
        presence: Presence,
        place: &Path<'_>,
        unknown: &mut Vec<String>,
    ) -> Option<Json> {
        let value = match (self, value) {
            (Self::Text, Json::Null) if presence == Always => Json::String(String::new()),
            (_, Json::Null) => return None,
            (Self::Integer, value) => integer(&value)?.into(),
            (Self::Time, Json::String(text)) => {
                let time = Time::parse(&text).ok()?;
                if time.is_zero() {
                    return (presence == IfGiven).then_some(Json::Null);
                }
                time.to_string().into()
            }
            (Self::Texts, Json::Array(mut items)) => {
                items.iter_mut().for_each(null_to_text);
                items.into()
            }
            (Self::TextMap, Json::Object(mut entries)) => {
                entries.values_mut().for_each(null_to_text);
                entries.into()
            }
            (Self::Objects(fields), Json::Array(items)) => {
                let tidy = |(at, item)| tidy_object(item, fields, &place.index(at), unknown);
                items.into_iter().enumerate().map(tidy).collect()
            }
            (_, value) => value,
        };
        let is_zero = match &value {
            Json::String(text) => text.is_empty(),
            Json::Number(number) => number.as_i64() == Some(0),
            Json::Array(items) => items.is_empty(),
            Json::Object(entries) => entries.is_empty(),
            _ => false,
        };
        (presence != NotZero || !is_zero).then_some(value)
    }
}

fn null_to_text(value: &mut Json) {
    if value.is_null() {
        *value = Json::String(String::new());
    }
}

fn fits_object(value: &Json, fields: &[Field]) -> bool {
    match value {
        Json::Null => true,
        Json::Object(entries) => fields
            .iter()
            .all(|(name, shape, _)| entries.get(*name).is_none_or(|value| shape.fits(value))),
        _ => false,
    }
}

fn tidy_object(value: Json, fields: &[Field], place: &Path<'_>, unknown: &mut Vec<String>) -> Json {
    let mut entries = match value {
        Json::Object(entries) => entries,
        _ => Map::new(),
    };
    for name in entries.keys() {
        let is_known = fields.iter().any(|(known, ..)| known == name);
        if !is_known && unknown.len() < MAX_FINDINGS {
            unknown.push(place.child(name).as_names());
        }
    }
    let mut tidied = Map::new();
    for (name, shape, presence) in fields {
        let value = entries.remove(*name).unwrap_or_default();
        if let Some(value) = shape.tidy(value, *presence, &place.child(name), unknown) {
            tidied.insert((*name).to_owned(), value);
        }
    }
    Json::Object(tidied)
}

/// Decoded and re-encoded metadata.
#[derive(Debug, Default)]
pub(crate) struct Tidied {
    pub(crate) metadata: Json,
    /// The paths of its unknown fields.
    pub(crate) unknown: Vec<String>,
}

/// Decodes and re-encodes metadata.
///
/// # Errors
///
/// The error of Go's decoder, if malformed metadata is rejected.
pub(crate) fn tidy(
    metadata: Json,
    malformed: Malformed,
    place: &Path<'_>,
) -> Result<Tidied, UpstreamError> {
    let mut metadata = metadata;
    if let Some(reason) = malformation(&metadata) {
        let (Malformed::Drop, Json::Object(entries)) = (malformed, &mut metadata) else {
            return Err(reason);
        };
        for (name, shape, _) in OBJECT_META {
            if entries.get(*name).is_some_and(|value| !shape.fits(value)) {
                entries.remove(*name);
            }
        }
    }
    let mut unknown = Vec::new();
    let metadata = tidy_object(metadata, OBJECT_META, place, &mut unknown);
    unknown.sort_unstable();
    Ok(Tidied { metadata, unknown })
}

/// Decodes metadata, for validation.
pub(crate) fn decode(metadata: &Json) -> Result<ObjectMeta, UpstreamError> {
    let document = document::json::parse(compact(metadata).as_bytes()).map_err(|e| e.message)?;
    match decode::decode_value::<ObjectMeta>(document.root()) {
        Ok(decoded) => Ok(decoded.value),
        Err(error) => Err(error.message.into()),
    }
}

/// The reason why metadata cannot be decoded, as Go's decoder reports it.
fn malformation(metadata: &Json) -> Option<UpstreamError> {
    if fits_object(metadata, OBJECT_META) {
        return None;
    }
    // Both decoders should agree; if they do not, the metadata is still rejected.
    let unlike = || "json: cannot unmarshal metadata".into();
    Some(decode(metadata).err().unwrap_or_else(unlike))
}

/// Normalizes the metadata of all resources embedded in a value, and returns the paths of unknown fields.
///
/// # Errors
///
/// The first malformed metadata, unless it is dropped.
pub(crate) fn coerce(
    schema: &Node,
    value: &mut Json,
    malformed: Malformed,
    path: &Path<'_>,
) -> Result<Vec<String>, Box<FieldError>> {
    let mut unknown = Vec::new();
    Coercer {
        malformed,
        unknown: &mut unknown,
    }
    .coerce(schema, value, schema.embedded, path)?;
    unknown.sort_unstable();
    Ok(unknown)
}

/// Like [`coerce`], for a value that is itself a resource.
pub(crate) fn coerce_resource(
    schema: &Node,
    value: &mut Json,
    malformed: Malformed,
    path: &Path<'_>,
) -> Result<(), Box<FieldError>> {
    Coercer {
        malformed,
        unknown: &mut Vec::new(),
    }
    .coerce(schema, value, true, path)
}

struct Coercer<'u> {
    malformed: Malformed,
    unknown: &'u mut Vec<String>,
}

impl Coercer<'_> {
    fn coerce(
        &mut self,
        schema: &Node,
        value: &mut Json,
        embedded: bool,
        path: &Path<'_>,
    ) -> Result<(), Box<FieldError>> {
        match value {
            Json::Object(entries) => {
                if embedded {
                    self.coerce_meta(entries, path)?;
                }
                for (name, value) in entries {
                    if let Some(property) = schema.properties.get(name.as_str()) {
                        self.coerce(property, value, property.embedded, &path.child(name))?;
                    } else if let Some(entry) = schema.entries() {
                        self.coerce(entry, value, entry.embedded, &path.key(name))?;
                    }
                }
            }
            Json::Array(elements) => {
                if let Some(items) = &schema.items {
                    for (at, element) in elements.iter_mut().enumerate() {
                        self.coerce(items, element, items.embedded, &path.index(at))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn coerce_meta(
        &mut self,
        entries: &mut Map<String, Json>,
        path: &Path<'_>,
    ) -> Result<(), Box<FieldError>> {
        for name in ["apiVersion", "kind"] {
            match entries.get(name) {
                Some(value) if !value.is_string() => match self.malformed {
                    Malformed::Drop => drop(entries.remove(name)),
                    Malformed::Refuse => {
                        let place = path.child(name);
                        let error = error::invalid(&place, &shown(value), "must be a string");
                        return Err(Box::new(error));
                    }
                },
                _ => {}
            }
        }
        if let Some(metadata) = entries.get_mut("metadata") {
            let place = path.child("metadata");
            // Paths of unknown fields have the printed field path as prefix.
            let printed = place.to_string();
            if self.malformed == Malformed::Refuse
                && let Some(reason) = malformation(metadata)
            {
                let error = error::invalid(&place, &shown(metadata), reason);
                return Err(Box::new(error));
            }
            // Other values have no fields to drop.
            if metadata.is_object() || metadata.is_null() {
                let place = Path::printed(&printed);
                if let Ok(tidied) = tidy(metadata.take(), self.malformed, &place) {
                    self.unknown.extend(tidied.unknown);
                    *metadata = tidied.metadata;
                }
            }
        }
        Ok(())
    }
}

/// Validates the type and the metadata of all resources embedded in a value.
pub(crate) fn validate(schema: &Node, value: &Json, path: &Path<'_>, errors: &mut FieldErrors) {
    validate_as(schema, value, schema.embedded, path, errors);
}

/// Like [`validate`], for a value that is itself a resource.
pub(crate) fn validate_resource(
    schema: &Node,
    value: &Json,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    validate_as(schema, value, true, path, errors);
}

fn validate_as(
    schema: &Node,
    value: &Json,
    embedded: bool,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    if errors.len() >= MAX_ERRORS {
        return;
    }
    match value {
        Json::Object(entries) => {
            if embedded {
                validate_meta(entries, path, errors);
            }
            for (name, value) in entries {
                if let Some(property) = schema.properties.get(name.as_str()) {
                    validate(property, value, &path.child(name), errors);
                } else if let Some(entry) = schema.entries() {
                    validate(entry, value, &path.key(name), errors);
                }
            }
        }
        Json::Array(elements) => {
            if let Some(items) = &schema.items {
                for (at, element) in elements.iter().enumerate() {
                    validate(items, element, &path.index(at), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_meta(entries: &Map<String, Json>, path: &Path<'_>, errors: &mut FieldErrors) {
    for name in ["apiVersion", "kind"] {
        if !entries.contains_key(name) {
            errors.push(error::required(&path.child(name), ""));
        }
    }
    for (name, check) in [
        (
            "apiVersion",
            check_api_version as fn(&str) -> Option<String>,
        ),
        ("kind", check_kind),
    ] {
        let place = path.child(name);
        match entries.get(name) {
            None => {}
            Some(Json::String(text)) if text.is_empty() => {
                errors.push(error::invalid_text(&place, "", "must not be empty"));
            }
            Some(Json::String(text)) => {
                errors.extend(check(text).map(|detail| error::invalid_text(&place, text, detail)))
            }
            Some(other) => errors.push(error::invalid(&place, &shown(other), "must be a string")),
        }
    }
    let Some(metadata) = entries.get("metadata") else {
        return;
    };
    let place = path.child("metadata");
    match decode(metadata) {
        Ok(meta) => errors.extend(validate_object_meta(meta, &place.to_string())),
        Err(reason) => errors.push(error::invalid(&place, &shown(metadata), reason)),
    }
}

fn check_api_version(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn check_kind(text: &str) -> Option<String> {
    let messages = names::check_dns1035_label(&text.to_lowercase());
    (!messages.is_empty()).then(|| {
        format!(
            "may have mixed case, but should otherwise match: {}",
            messages.join(",")
        )
    })
}

/// Validates metadata with optional name and namespace.
fn validate_object_meta(mut meta: ObjectMeta, place: &str) -> FieldErrors {
    if meta.name.is_empty() {
        // The name is optional, and this one is valid.
        "fakename".clone_into(&mut meta.name);
    }
    let namespace = std::mem::take(&mut meta.namespace);
    let path = FieldPath::root(place);
    let mut errors = validate_metadata(&meta, PATH_SEGMENT_NAMES, &path);
    if !namespace.is_empty() {
        // The namespace is validated right after the names.
        let names = [path.child("generateName"), path.child("name")].map(|path| path.to_string());
        let after = errors
            .iter()
            .take_while(|error| names.contains(&error.field))
            .count();
        let messages =
            lockgate_cel::ext::named_format::NamedFormat::Dns1123Label.validate(&namespace);
        let place = path.child("namespace").to_string();
        let invalid = messages
            .into_iter()
            .map(|message| error::invalid_text(&place, &namespace, message));
        errors.splice(after..after, invalid);
    }
    errors
}
