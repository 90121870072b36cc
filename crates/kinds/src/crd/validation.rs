//! Validation of CustomResourceDefinitions.
//!
//! Error paths are those of upstream's internal type, in which fields common to all versions are at the top level of
//! the spec: the schema of a single version is `spec.validation.openAPIV3Schema`.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go

mod approval;
mod conversion;
mod default_values;
mod internal;
mod schema;
mod structure;
mod versions;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value as Json};

use lockgate_api::field::{FieldError, FieldErrors, Path as FieldPath};
use lockgate_api::meta::names;
use lockgate_api::meta::validation::{
    SUBDOMAIN_NAMES, validate_metadata, validate_metadata_update,
};
use lockgate_go::quote::{quote, quote_json, quote_json_list};

use super::status::has_status;
use crate::structural::json::shown;
use crate::structural::path::Path;
use crate::structural::props::Props;
use crate::structural::{error, format, metadata};
use versions::Hoisted;

pub(super) use approval::{Approval, approval, is_protected};
pub(super) use conversion::ca_bundle_error;

/// The validation options of a definition. An update requires only what the old definition satisfies.
#[derive(Debug, Clone)]
struct Options {
    recognized_review_version: bool,
    immutable_names: bool,
    openapi_schema: bool,
    valid_types: bool,
    structural: bool,
    pruned_defaults: bool,
    atomic_sets: bool,
    map_keys: bool,
    /// Versions with unchanged schemas, whose rules are exempt from cost limits.
    unchanged: HashSet<String>,
    invalid_ca_bundle: bool,
    /// Versions that may exceed the limit of selectable fields; the empty name means all.
    many_selectable: HashSet<String>,
}

impl Options {
    fn of_create() -> Self {
        Self {
            recognized_review_version: true,
            immutable_names: false,
            openapi_schema: true,
            valid_types: true,
            structural: true,
            pruned_defaults: true,
            atomic_sets: true,
            map_keys: true,
            unchanged: HashSet::new(),
            // It is validated only once the definition is established.
            invalid_ca_bundle: true,
            many_selectable: HashSet::new(),
        }
    }

    fn of_update(new: &Hoisted<'_>, old: &Hoisted<'_>, old_definition: &Json) -> Self {
        let conversion = conversion::View::of(old.spec);
        let schemas = || old.schemas();
        let all = |check: fn(Props<'_>) -> bool| {
            schemas().all(|schema| !schema::any(schema, &mut |schema| check(schema)))
        };
        let is_established = has_status(old_definition, "Established", "True");
        Self {
            recognized_review_version: conversion.has_recognized_version_or_none(),
            immutable_names: is_established,
            openapi_schema: old.has_schema_everywhere(),
            valid_types: all(schema::has_invalid_type),
            structural: schemas().all(|schema| structure::validate(schema, &Path::ROOT).is_empty()),
            pruned_defaults: !schemas().any(default_values::has_unpruned),
            atomic_sets: all(schema::is_set_of_parts),
            map_keys: all(schema::has_invalid_map_keys),
            unchanged: new.unchanged_since(old),
            invalid_ca_bundle: !is_established || conversion.has_invalid_ca_bundle(),
            many_selectable: new.many_selectable_since(old),
        }
    }
}

/// Validates a new definition, with defaults and status set.
#[must_use]
pub fn validate_create(definition: &Json) -> FieldErrors {
    let empty = Map::new();
    let spec = spec_of(definition, &empty);
    if let Some(errors) = check_size(spec) {
        return errors;
    }
    let mut errors = validate_name(definition, spec);
    let hoisted = Hoisted::new(spec);
    errors.extend(validate_spec(&hoisted, Options::of_create()));
    errors.extend(validate_status(definition, spec));
    errors.extend(approval::validate(definition, None));
    errors.extend(validate_preserve_unknown(spec, None));
    errors
}

/// Validates an update of a definition, with defaults and status set.
#[must_use]
pub fn validate_update(definition: &Json, old: &Json) -> FieldErrors {
    let empty = Map::new();
    let (spec, old_spec) = (spec_of(definition, &empty), spec_of(old, &empty));
    if let Some(errors) = check_size(spec) {
        return errors;
    }
    let mut errors = validate_metadata_change(definition, old);
    let (hoisted, old_hoisted) = (Hoisted::new(spec), Hoisted::new(old_spec));
    let options = Options::of_update(&hoisted, &old_hoisted, old);
    let immutable_names = options.immutable_names;
    errors.extend(validate_spec(&hoisted, options));
    let names = |spec: Props<'_>, name: &str| {
        let names = spec.schema("names");
        names
            .map(|names| names.text(name).to_owned())
            .unwrap_or_default()
    };
    let mut immutable = |place: &str, new: &str, old: &str, shown: fn(&str) -> String| {
        if new != old {
            errors.push(error::invalid(&place, &shown(new), "field is immutable"));
        }
    };
    if immutable_names {
        immutable(
            "spec.scope",
            spec.text("scope"),
            old_spec.text("scope"),
            quote_json,
        );
        immutable(
            "spec.names.kind",
            &names(spec, "kind"),
            &names(old_spec, "kind"),
            quote,
        );
    }
    immutable(
        "spec.group",
        spec.text("group"),
        old_spec.text("group"),
        quote,
    );
    immutable(
        "spec.names.plural",
        &names(spec, "plural"),
        &names(old_spec, "plural"),
        quote,
    );
    errors.extend(validate_status(definition, spec));
    errors.extend(approval::validate(definition, Some(old)));
    errors.extend(validate_preserve_unknown(spec, Some(old_spec)));
    errors
}

/// Validates a status update of a definition.
#[must_use]
pub fn validate_status_update(definition: &Json, old: &Json) -> FieldErrors {
    let mut errors = validate_metadata_change(definition, old);
    errors.extend(validate_accepted_names(definition));
    errors
}

/// The warnings about a new definition: unrecognized formats.
#[must_use]
pub fn warnings_on_create(definition: &Json) -> Vec<String> {
    let formats = unrecognized_formats(definition);
    formats.iter().map(|name| warning(name)).collect()
}

/// The warnings about an updated definition.
#[must_use]
pub fn warnings_on_update(definition: &Json, old: &Json) -> Vec<String> {
    let had: HashSet<String> = unrecognized_formats(old).into_iter().collect();
    let formats = unrecognized_formats(definition);
    let is_new = |name: &&String| !had.contains(*name);
    formats
        .iter()
        .filter(is_new)
        .map(|name| warning(name))
        .collect()
}

fn warning(format: &str) -> String {
    format!("unrecognized format {}", quote(format))
}

fn unrecognized_formats(definition: &Json) -> Vec<String> {
    let empty = Map::new();
    let spec = spec_of(definition, &empty);
    let mut formats = Vec::new();
    if check_size(spec).is_some() {
        return formats;
    }
    for schema in Hoisted::new(spec).schemas() {
        schema::any(schema, &mut |schema| {
            let name = schema.text("format");
            if !name.is_empty() && !format::is_recognized(name, schema.text("type")) {
                formats.push(name.to_owned());
            }
            false
        });
    }
    formats
}

/// The errors of non-structural schemas, for the condition `NonStructuralSchema`.
pub(super) fn non_structural(definition: &Json) -> FieldErrors {
    let empty = Map::new();
    let spec = spec_of(definition, &empty);
    if let Some(errors) = check_size(spec) {
        return errors;
    }
    let mut errors = FieldErrors::new();
    if spec.flag("preserveUnknownFields") {
        errors.push(error::invalid(
            &"spec.preserveUnknownFields",
            "true",
            "must be false",
        ));
    }
    for (at, version) in spec.schemas("versions").enumerate() {
        let schema = version.schema("schema");
        if let Some(schema) = schema.and_then(|schema| schema.schema("openAPIV3Schema")) {
            let place = format!("spec.versions[{at}].schema.openAPIV3Schema");
            errors.extend(structure::validate(schema, &Path::printed(&place)));
        }
    }
    errors
}

fn spec_of<'j>(definition: &'j Json, empty: &'j Map<String, Json>) -> Props<'j> {
    let spec = definition.get("spec").and_then(Json::as_object);
    Props(spec.unwrap_or(empty))
}

/// Rejects schemas beyond the limits of depth and size.
fn check_size(spec: Props<'_>) -> Option<FieldErrors> {
    for (at, version) in spec.schemas("versions").enumerate() {
        let schema = version.schema("schema");
        let schema = schema.and_then(|schema| schema.schema("openAPIV3Schema"));
        if let Some(reason) = schema.and_then(schema::check_size) {
            let place = format!("spec.versions[{at}].schema.openAPIV3Schema");
            return Some(vec![error::invalid(&place, "\"\"", reason.to_string())]);
        }
    }
    None
}

fn validate_name(definition: &Json, spec: Props<'_>) -> FieldErrors {
    let raw = definition.get("metadata").unwrap_or(&Json::Null);
    let meta = match metadata::decode(raw) {
        Ok(meta) => meta,
        Err(reason) => return vec![error::invalid(&"metadata", &shown(raw), reason)],
    };
    let mut errors = validate_metadata(&meta, SUBDOMAIN_NAMES, &FieldPath::root("metadata"));
    let plural = spec
        .schema("names")
        .map(|names| names.text("plural"))
        .unwrap_or_default();
    let want = format!("{plural}.{}", spec.text("group"));
    // Both must equal this name, in addition to being valid.
    for (field, name) in [
        ("metadata.name", &meta.name),
        ("metadata.generateName", &meta.generate_name),
    ] {
        if !name.is_empty() && *name != want {
            let last = errors.iter().rposition(|error| error.field == field);
            let fallback = match field {
                "metadata.generateName" => 0,
                _ => errors
                    .iter()
                    .rposition(|error| error.field == "metadata.generateName")
                    .map_or(0, |at| at + 1),
            };
            let detail = "must be spec.names.plural+\".\"+spec.group";
            let error = error::invalid_text(&field, name, detail);
            errors.insert(last.map_or(fallback, |at| at + 1), error);
        }
    }
    errors
}

fn validate_metadata_change(definition: &Json, old: &Json) -> FieldErrors {
    let decode = |definition: &Json| {
        let raw = definition.get("metadata").unwrap_or(&Json::Null);
        metadata::decode(raw)
            .map_err(|reason| vec![error::invalid(&"metadata", &shown(raw), reason)])
    };
    match (decode(definition), decode(old)) {
        (Ok(new), Ok(old)) => validate_metadata_update(&new, &old, &FieldPath::root("metadata")),
        (Err(errors), _) | (_, Err(errors)) => errors,
    }
}

fn validate_status(definition: &Json, spec: Props<'_>) -> FieldErrors {
    let mut errors = validate_accepted_names(definition);
    let place = "status.storedVersions";
    let stored = definition.pointer("/status/storedVersions");
    let stored: Vec<&str> = stored
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    if stored.is_empty() {
        let is_list = definition
            .pointer("/status/storedVersions")
            .is_some_and(Json::is_array);
        let shown = if is_list { "[]" } else { "null" };
        errors.push(error::invalid(
            &place,
            shown,
            "must have at least one stored version",
        ));
        return errors;
    }
    // The index of each stored version; versions found in the spec are removed.
    let mut left: HashMap<&str, usize> = stored
        .iter()
        .zip(0..)
        .map(|(name, at)| (*name, at))
        .collect();
    for version in spec.schemas("versions") {
        let name = version.text("name");
        if left.remove(name).is_none() && version.flag("storage") {
            let detail = format!("must have the storage version {name}");
            errors.push(error::invalid(&place, &quote_json_list(&stored), detail));
        }
    }
    let mut left: Vec<(usize, &str)> = left.into_iter().map(|(name, at)| (at, name)).collect();
    left.sort_unstable();
    for (at, name) in left {
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain \
             in spec.versions until a storage migration ensures no data remains persisted in \
             {name} and removes {name} from status.storedVersions"
        );
        errors.push(error::invalid_text(&format!("{place}[{at}]"), name, detail));
    }
    errors
}

fn validate_accepted_names(definition: &Json) -> FieldErrors {
    let accepted = definition.pointer("/status/acceptedNames");
    match accepted.and_then(Props::new) {
        Some(names) => validate_names(names, &Path::printed("status.acceptedNames")),
        None => FieldErrors::new(),
    }
}

fn validate_preserve_unknown(spec: Props<'_>, old: Option<Props<'_>>) -> Option<FieldError> {
    let had = old.is_some_and(|old| old.flag("preserveUnknownFields"));
    (!had && spec.flag("preserveUnknownFields")).then(|| {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        error::invalid(&"spec.preserveUnknownFields", "true", detail)
    })
}

fn validate_spec(hoisted: &Hoisted<'_>, mut options: Options) -> FieldErrors {
    let spec = hoisted.spec;
    let root = Path::printed("spec");
    let mut errors = FieldErrors::new();
    validate_group(spec.text("group"), &mut errors);
    errors.extend(validate_choice(
        &root.child("scope"),
        spec.text("scope"),
        &["Cluster", "Namespaced"],
        quote,
    ));
    let preserves = spec.flag("preserveUnknownFields");
    options.structural |= !preserves;
    validate_presence(hoisted, &options, preserves, &mut errors);
    if hoisted
        .schemas()
        .any(|schema| schema::any(schema, &mut |schema| schema.has("default")))
    {
        options.structural = true;
        if preserves {
            let detail = "must be false in order to use defaults in the schema";
            errors.push(error::invalid(
                &root.child("preserveUnknownFields"),
                "true",
                detail,
            ));
        }
    }
    options.structural |= hoisted
        .schemas()
        .any(|schema| schema::any(schema, &mut |schema| schema::has_extension(schema)));
    versions::validate(hoisted, &options, &mut errors);

    let names = spec.schema("names");
    let names_place = root.child("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if names.is_none_or(|names| names.text(name).is_empty()) {
            errors.push(error::required(&names_place.child(name), ""));
        }
    }
    if let Some(names) = names {
        errors.extend(validate_names(names, &names_place));
    }
    versions::validate_common(hoisted, &options, &mut errors);
    conversion::validate(spec, &options, preserves, &mut errors);
    errors
}

fn validate_group(group: &str, errors: &mut FieldErrors) {
    let place = "spec.group";
    let messages = names::check_subdomain(group);
    if group.is_empty() {
        errors.push(error::required(&place, ""));
    } else if !messages.is_empty() {
        errors.push(error::invalid_text(&place, group, messages.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(error::invalid_text(&place, group, detail));
    }
}

/// All versions require a schema, or at least served versions with pruning.
fn validate_presence(
    hoisted: &Hoisted<'_>,
    options: &Options,
    preserves: bool,
    errors: &mut FieldErrors,
) {
    let has_schema = |validation: Option<Props<'_>>| {
        validation.is_some_and(|validation| validation.has("openAPIV3Schema"))
    };
    if has_schema(hoisted.validation) || !options.openapi_schema && preserves {
        return;
    }
    for (at, version) in hoisted.versions.iter().enumerate() {
        let detail = if options.openapi_schema {
            ""
        } else if version.props.flag("served") {
            "because otherwise all fields are pruned"
        } else {
            continue;
        };
        if !has_schema(version.schema) {
            let place = format!("spec.versions[{at}].schema.openAPIV3Schema");
            errors.push(error::required(&place, detail));
        }
    }
}

/// Validates an enum value.
fn validate_choice(
    place: &Path<'_>,
    value: &str,
    accepted: &[&str],
    shown: fn(&str) -> String,
) -> Option<FieldError> {
    if value.is_empty() {
        Some(error::required(place, ""))
    } else if accepted.contains(&value) {
        None
    } else {
        Some(error::not_supported(place, &shown(value), accepted))
    }
}

fn validate_names(names: Props<'_>, place: &Path<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut check = |place: &Path<'_>, name: &str, is_kind: bool| {
        let messages = if is_kind {
            names::check_dns1035_label(&name.to_lowercase())
        } else {
            names::check_dns1035_label(name)
        };
        if !messages.is_empty() {
            let mixed = if is_kind {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            let detail = format!("{mixed}{}", messages.join(","));
            errors.push(error::invalid_text(place, name, detail));
        }
    };
    for (field, is_kind) in [
        ("plural", false),
        ("singular", false),
        ("kind", true),
        ("listKind", true),
    ] {
        let name = names.text(field);
        if !name.is_empty() {
            check(&place.child(field), name, is_kind);
        }
    }
    let short_names = place.child("shortNames");
    for (at, name) in names.texts("shortNames").enumerate() {
        check(&short_names.index(at), name, false);
    }
    let kind = names.text("kind");
    if !kind.is_empty() && kind == names.text("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(error::invalid_text(&place.child("listKind"), kind, detail));
    }
    let categories = place.child("categories");
    for (at, name) in names.texts("categories").enumerate() {
        let messages = names::check_dns1035_label(name);
        if !messages.is_empty() {
            errors.push(error::invalid_text(
                &categories.index(at),
                name,
                messages.join(","),
            ));
        }
    }
    errors
}
