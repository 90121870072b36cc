//! Structural schemas: every value has a path and type outside of `allOf`, `anyOf`, `oneOf` and `not`, which may only
//! restrict it.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/{validation,complete}.go

use serde_json::Value as Json;

use lockgate_api::field::FieldErrors;
use lockgate_go::regex::Regex;

use crate::structural::error;
use crate::structural::path::Path;
use crate::structural::props::{Props, SchemaOrBool};

/// The position of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Validates a schema, and returns the errors sorted by message.
pub(super) fn validate(schema: Props<'_>, place: &Path<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    check_structure(schema, Level::Root, place, &mut errors);
    check_completeness(schema, schema, place, place, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn check_structure(schema: Props<'_>, level: Level, place: &Path<'_>, errors: &mut FieldErrors) {
    let kind = schema.text("type");
    let items = schema.items_schema();
    if kind == "array" && items.is_none() {
        errors.push(error::required(&place.child("items"), "must be specified"));
    }
    if let Some(items) = items {
        check_structure(items, Level::Item, &place.child("items"), errors);
    }
    let properties = place.child("properties");
    for (name, property) in schema.schema_map("properties") {
        check_structure(property, Level::Field, &properties.key(name), errors);
    }
    let additional = schema.schema_or_bool("additionalProperties");
    let has_additional = !matches!(additional, SchemaOrBool::Absent);
    let additional_place = place.child("additionalProperties");
    if has_additional && level == Level::Root {
        errors.push(error::forbidden(
            &additional_place,
            "must not be used at the root",
        ));
    }
    if let SchemaOrBool::Schema(entry) = additional {
        check_structure(entry, Level::Field, &additional_place, errors);
    }
    check_extensions(schema, place, errors);
    let skips = Skips {
        any_of: is_int_or_string_pattern(schema),
        first_all_of: schema
            .schemas("allOf")
            .next()
            .is_some_and(is_int_or_string_pattern),
    };
    check_values(schema, skips, place, errors);
    check_type(schema, level, place, errors);
    if schema.flag("x-kubernetes-embedded-resource") && has_additional {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(error::forbidden(&additional_place, detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        let detail = "must be object at the root";
        errors.push(error::invalid_text(&place.child("type"), kind, detail));
    }
    check_resource(schema, level, place, errors);
}

fn check_extensions(schema: Props<'_>, place: &Path<'_>, errors: &mut FieldErrors) {
    if !schema.flag("x-kubernetes-int-or-string") {
        return;
    }
    for extension in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ] {
        if schema.flag(extension) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(error::invalid(&place.child(extension), "true", detail));
        }
    }
}

fn check_type(schema: Props<'_>, level: Level, place: &Path<'_>, errors: &mut FieldErrors) {
    let kind = schema.text("type");
    let place = place.child("type");
    if schema.flag("x-kubernetes-embedded-resource") {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        match kind {
            "object" => {}
            "" => errors.push(error::required(&place, detail)),
            other => errors.push(error::invalid_text(&place, other, detail)),
        }
        return;
    }
    let may_be_empty = schema.flag("x-kubernetes-int-or-string")
        || schema.flag("x-kubernetes-preserve-unknown-fields");
    if kind.is_empty() && !may_be_empty {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(error::required(&place, detail));
    }
}

/// Validates the root of a resource.
fn check_resource(schema: Props<'_>, level: Level, place: &Path<'_>, errors: &mut FieldErrors) {
    let is_embedded = schema.flag("x-kubernetes-embedded-resource");
    let is_resource = level == Level::Root || is_embedded;
    let properties = place.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.property(name).filter(|_| is_resource) {
            let kind = property.text("type");
            if kind != "string" {
                let place = properties.key(name);
                errors.push(error::invalid_text(
                    &place.child("type"),
                    kind,
                    "must be string",
                ));
            }
        }
    }
    if let Some(metadata) = schema.property("metadata") {
        let place = properties.key("metadata");
        let kind = metadata.text("type");
        if is_resource && kind != "object" {
            errors.push(error::invalid_text(
                &place.child("type"),
                kind,
                "must be object",
            ));
        }
        if level == Level::Root && !restricts_names_only(metadata) {
            let detail = "must not specify anything other than name and generateName, but metadata \
                          is implicitly specified";
            errors.push(error::forbidden(&place, detail));
        }
    }
    let has_properties = schema.schema_map("properties").next().is_some();
    if is_embedded && !schema.flag("x-kubernetes-preserve-unknown-fields") && !has_properties {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(error::required(&properties, detail));
    }
}

/// Returns true if the value of a keyword is its zero value.
fn is_zero(keyword: &str, value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::String(text) => text.is_empty(),
        // Upstream distinguishes empty lists from nil for these keywords.
        Json::Array(items) => {
            items.is_empty()
                && !matches!(
                    keyword,
                    "required" | "x-kubernetes-list-map-keys" | "x-kubernetes-validations"
                )
        }
        _ => false,
    }
}

fn restricts_names_only(metadata: Props<'_>) -> bool {
    metadata
        .0
        .iter()
        .all(|(keyword, value)| match keyword.as_str() {
            "type" | "default" => true,
            "properties" => value.as_object().is_none_or(|properties| {
                properties
                    .keys()
                    .all(|name| matches!(name.as_str(), "name" | "generateName"))
            }),
            "additionalProperties" => value.is_null(),
            _ => is_zero(keyword, value),
        })
}

/// Returns true if a schema has the alternatives integer and string.
fn is_int_or_string_pattern(schema: Props<'_>) -> bool {
    let is_only = |alternative: Props<'_>, kind: &str| {
        alternative.text("type") == kind
            && alternative
                .0
                .iter()
                .all(|(keyword, value)| keyword == "type" || is_zero(keyword, value))
    };
    let alternatives: Vec<Props<'_>> = schema.schemas("anyOf").collect();
    match alternatives.as_slice() {
        [integer, string] => is_only(*integer, "integer") && is_only(*string, "string"),
        _ => false,
    }
}

/// The alternatives that may have types.
#[derive(Debug, Clone, Copy, Default)]
struct Skips {
    any_of: bool,
    first_all_of: bool,
}

fn check_values(schema: Props<'_>, skips: Skips, place: &Path<'_>, errors: &mut FieldErrors) {
    for keyword in ["anyOf", "allOf", "oneOf"] {
        if keyword == "anyOf" && skips.any_of {
            continue;
        }
        let place = place.child(keyword);
        for (at, nested) in schema.schemas(keyword).enumerate() {
            let skips = Skips {
                any_of: keyword == "allOf" && at == 0 && skips.first_all_of,
                first_all_of: false,
            };
            check_nested(nested, skips, &place.index(at), errors);
        }
    }
    if let Some(not) = schema.schema("not") {
        check_nested(not, Skips::default(), &place.child("not"), errors);
    }
    let pattern = schema.text("pattern");
    if !pattern.is_empty()
        && let Err(reason) = Regex::check(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {reason}");
        errors.push(error::invalid_text(
            &place.child("pattern"),
            pattern,
            detail,
        ));
    }
}

fn check_nested(schema: Props<'_>, skips: Skips, place: &Path<'_>, errors: &mut FieldErrors) {
    check_values(schema, skips, place, errors);
    if let Some(items) = schema.items_schema() {
        check_nested(items, Skips::default(), &place.child("items"), errors);
    }
    let properties = place.child("properties");
    for (name, property) in schema.schema_map("properties") {
        check_nested(property, Skips::default(), &properties.key(name), errors);
    }
    let mut forbid = |keyword: &str, is_given: bool, detail: &str| {
        if is_given {
            let detail = format!("must be {detail} to be structural");
            errors.push(error::forbidden(&place.child(keyword), detail));
        }
    };
    let has_text = |keyword: &str| !schema.text(keyword).is_empty();
    forbid("type", has_text("type"), "empty");
    let allows_more = match schema.schema_or_bool("additionalProperties") {
        SchemaOrBool::Absent => false,
        SchemaOrBool::Bool(allows) => allows,
        SchemaOrBool::Schema(_) => true,
    };
    forbid("additionalProperties", allows_more, "undefined");
    forbid("default", schema.has("default"), "undefined");
    forbid("title", has_text("title"), "empty");
    forbid("description", has_text("description"), "empty");
    forbid("nullable", schema.flag("nullable"), "false");
    for extension in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        forbid(extension, schema.flag(extension), "false");
    }
    let has_list = |keyword: &str| !schema.list(keyword).is_empty();
    let keys = "x-kubernetes-list-map-keys";
    forbid(keys, has_list(keys), "empty");
    for extension in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        forbid(extension, schema.has(extension), "undefined");
    }
    let rules = "x-kubernetes-validations";
    forbid(rules, has_list(rules), "empty");
    if schema.property("metadata").is_some() {
        let detail = "must not be specified in a nested context";
        errors.push(error::forbidden(&properties.key("metadata"), detail));
    }
}

/// Validates that every field restricted in `values` is declared in `structure`.
fn check_completeness(
    values: Props<'_>,
    structure: Props<'_>,
    structure_place: &Path<'_>,
    place: &Path<'_>,
    errors: &mut FieldErrors,
) {
    if let Some(not) = values.schema("not") {
        check_nested_completeness(not, structure, structure_place, &place.child("not"), errors);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let place = place.child(keyword);
        for (at, nested) in values.schemas(keyword).enumerate() {
            let place = place.index(at);
            check_nested_completeness(nested, structure, structure_place, &place, errors);
        }
    }
}

fn check_nested_completeness(
    values: Props<'_>,
    structure: Props<'_>,
    structure_place: &Path<'_>,
    place: &Path<'_>,
    errors: &mut FieldErrors,
) {
    check_completeness(values, structure, structure_place, place, errors);
    let mut descend = |values: Props<'_>,
                       structure: Option<Props<'_>>,
                       structure_place: &Path<'_>,
                       place: &Path<'_>| match structure {
        Some(structure) => {
            check_nested_completeness(values, structure, structure_place, place, errors);
        }
        None => {
            let detail = format!("because it is defined in {place}");
            errors.push(error::required(structure_place, detail));
        }
    };
    if let Some(items) = values.items_schema() {
        let (structure_place, place) = (structure_place.child("items"), place.child("items"));
        descend(items, structure.items_schema(), &structure_place, &place);
    }
    let (structure_place, place) = (
        structure_place.child("properties"),
        place.child("properties"),
    );
    for (name, property) in values.schema_map("properties") {
        let (structure_place, place) = (structure_place.key(name), place.key(name));
        descend(property, structure.property(name), &structure_place, &place);
    }
}
