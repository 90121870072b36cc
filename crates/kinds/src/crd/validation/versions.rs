//! Validation of versions, and of the fields common to all versions.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/v1/conversion.go

use std::collections::HashSet;

use serde_json::Value as Json;

use lockgate_api::field::FieldErrors;
use lockgate_api::meta::names;
use lockgate_go::quote::quote;

use super::{Options, internal, schema};
use crate::structural::error;
use crate::structural::field_path::{self, Brackets};
use crate::structural::json::equal;
use crate::structural::path::Path;
use crate::structural::props::Props;
use crate::structural::schema::Node;

/// The maximum number of selectable fields of a version.
const MAX_SELECTABLE: usize = 8;
/// The maximum length of a deprecation warning, in bytes.
const MAX_WARNING: usize = 256;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// A version, without the fields common to all versions.
#[derive(Debug)]
pub(super) struct Version<'j> {
    pub(super) props: Props<'j>,
    pub(super) schema: Option<Props<'j>>,
    pub(super) subresources: Option<Props<'j>>,
    pub(super) columns: Option<&'j [Json]>,
    pub(super) selectable: Option<&'j [Json]>,
}

/// A spec with the fields common to all versions at the top level.
#[derive(Debug)]
pub(super) struct Hoisted<'j> {
    pub(super) spec: Props<'j>,
    pub(super) validation: Option<Props<'j>>,
    pub(super) subresources: Option<Props<'j>>,
    pub(super) columns: Option<&'j [Json]>,
    pub(super) selectable: Option<&'j [Json]>,
    pub(super) versions: Vec<Version<'j>>,
}

fn same(one: Option<Props<'_>>, other: Option<Props<'_>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            one.0.len() == other.0.len()
                && one
                    .0
                    .iter()
                    .all(|(name, value)| other.0.get(name).is_some_and(|other| equal(value, other)))
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// A list; errors distinguish an empty list from an absent one.
fn given<'j>(props: Props<'j>, keyword: &str) -> Option<&'j [Json]> {
    props.has(keyword).then(|| props.list(keyword))
}

fn same_list(one: Option<&[Json]>, other: Option<&[Json]>) -> bool {
    let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
}

impl<'j> Hoisted<'j> {
    pub(super) fn new(spec: Props<'j>) -> Self {
        let versions: Vec<Version<'j>> = spec
            .schemas("versions")
            .map(|props| Version {
                props,
                schema: props.schema("schema"),
                subresources: props.schema("subresources"),
                columns: given(props, "additionalPrinterColumns"),
                selectable: given(props, "selectableFields"),
            })
            .collect();
        let mut hoisted = Self {
            spec,
            validation: None,
            subresources: None,
            columns: None,
            selectable: None,
            versions,
        };
        let Some(first) = hoisted.versions.first() else {
            return hoisted;
        };
        let versions = &hoisted.versions;
        let schema = first.schema;
        if versions.iter().all(|version| same(version.schema, schema)) {
            hoisted.validation = schema;
            hoisted
                .versions
                .iter_mut()
                .for_each(|version| version.schema = None);
        }
        let Some(first) = hoisted.versions.first() else {
            return hoisted;
        };
        let (subresources, columns, selectable) =
            (first.subresources, first.columns, first.selectable);
        let versions = &hoisted.versions;
        let same_subresources = versions
            .iter()
            .all(|version| same(version.subresources, subresources));
        let same_columns = versions
            .iter()
            .all(|version| same_list(version.columns, columns));
        let same_selectable = versions
            .iter()
            .all(|version| same_list(version.selectable, selectable));
        for version in &mut hoisted.versions {
            if same_subresources {
                version.subresources = None;
            }
            if same_columns {
                version.columns = None;
            }
            if same_selectable {
                version.selectable = None;
            }
        }
        if same_subresources {
            hoisted.subresources = subresources;
        }
        if same_columns {
            hoisted.columns = columns;
        }
        if same_selectable {
            hoisted.selectable = selectable;
        }
        hoisted
    }

    /// All schemas of the definition.
    pub(super) fn schemas(&self) -> impl Iterator<Item = Props<'j>> {
        let of_versions = self.versions.iter().map(|version| version.schema);
        [self.validation]
            .into_iter()
            .chain(of_versions)
            .flatten()
            .filter_map(|validation| validation.schema("openAPIV3Schema"))
    }

    pub(super) fn has_schema_everywhere(&self) -> bool {
        let has = |validation: Option<Props<'_>>| {
            validation.is_some_and(|validation| validation.has("openAPIV3Schema"))
        };
        has(self.validation) || self.versions.iter().all(|version| has(version.schema))
    }

    fn schema_of(&self, version: &str) -> Option<Option<Props<'j>>> {
        let found = self
            .versions
            .iter()
            .find(|found| found.props.text("name") == version)?;
        Some(self.validation.or(found.schema))
    }

    /// The versions with the same schema as in another definition.
    pub(super) fn unchanged_since(&self, old: &Self) -> HashSet<String> {
        let names = self
            .versions
            .iter()
            .map(|version| version.props.text("name"));
        names
            .filter(|name| match (self.schema_of(name), old.schema_of(name)) {
                (Some(new), Some(old)) => same(new, old),
                _ => false,
            })
            .map(str::to_owned)
            .collect()
    }

    /// The versions that exceed the limit of selectable fields, with the same fields as before.
    pub(super) fn many_selectable_since(&self, old: &Self) -> HashSet<String> {
        let mut allowed = HashSet::new();
        let is_kept = |new: Option<&[Json]>, old: Option<&[Json]>| {
            old.is_some_and(|old| old.len() > MAX_SELECTABLE) && same_list(new, old)
        };
        if is_kept(self.selectable, old.selectable) {
            allowed.insert(String::new());
        }
        for version in &self.versions {
            let name = version.props.text("name");
            let before = old
                .versions
                .iter()
                .find(|before| before.props.text("name") == name);
            if before.is_some_and(|before| is_kept(version.selectable, before.selectable)) {
                allowed.insert(name.to_owned());
            }
        }
        allowed
    }

    fn has_status(subresources: Option<Props<'_>>) -> bool {
        subresources.is_some_and(|subresources| subresources.has("status"))
    }
}

/// Validates the versions.
pub(super) fn validate(hoisted: &Hoisted<'_>, options: &Options, errors: &mut FieldErrors) {
    let place = Path::printed("spec.versions");
    let mut seen = HashSet::new();
    let mut is_unique = true;
    let has_own_subresources = hoisted
        .versions
        .iter()
        .any(|version| version.subresources.is_some());
    for (at, version) in hoisted.versions.iter().enumerate() {
        let place = place.index(at);
        let name = version.props.text("name");
        is_unique &= seen.insert(name);
        let messages = names::check_dns1035_label(name);
        if !messages.is_empty() {
            errors.push(error::invalid_text(
                &place.child("name"),
                name,
                messages.join(","),
            ));
        }
        let subresources = if has_own_subresources {
            // Looked up by name: of two versions with one name, the first one counts.
            let mut versions = hoisted.versions.iter();
            let found = versions.find(|found| found.props.text("name") == name);
            found.and_then(|found| found.subresources)
        } else {
            hoisted.subresources
        };
        validate_version(
            version,
            Hoisted::has_status(subresources),
            options,
            &place,
            errors,
        );
    }
    // Versions with identical own fields cannot occur: these were moved to the top level.
    let stored = hoisted
        .versions
        .iter()
        .filter(|version| version.props.flag("storage"))
        .count();
    let mut invalid = |detail: &str| {
        let shown = match given(hoisted.spec, "versions") {
            Some(_) => internal::versions(&hoisted.versions),
            None => String::from("null"),
        };
        errors.push(error::invalid(&place, &shown, detail));
    };
    if !is_unique {
        invalid("must contain unique version names");
    }
    if stored != 1 {
        invalid("must have exactly one version marked as storage version");
    }
    if let Some(first) = hoisted.versions.first() {
        let name = first.props.text("name");
        let messages = names::check_dns1035_label(name);
        if !name.is_empty() && !messages.is_empty() {
            errors.push(error::invalid_text(
                &"spec.version",
                name,
                messages.join(","),
            ));
        }
    }
}

fn validate_version(
    version: &Version<'_>,
    has_status: bool,
    options: &Options,
    place: &Path<'_>,
    errors: &mut FieldErrors,
) {
    let warning = version.props.opt_text("deprecationWarning");
    for detail in warning_problems(version.props.flag("deprecated"), warning) {
        let shown = warning.map_or_else(|| "null".to_owned(), internal::text);
        errors.push(error::invalid(
            &place.child("deprecationWarning"),
            &shown,
            detail,
        ));
    }
    let name = version.props.text("name");
    let costs = schema::Costs::of(options.unchanged.contains(name));
    schema::validate(
        version.schema,
        has_status,
        options,
        costs,
        &place.child("schema"),
        errors,
    );
    validate_subresources(version.subresources, &place.child("subresources"), errors);
    let columns = place.child("additionalPrinterColumns");
    let given = version.columns.unwrap_or_default();
    for (at, column) in given.iter().filter_map(Props::new).enumerate() {
        validate_column(column, &columns.index(at), errors);
    }
    let fields = version.selectable.unwrap_or_default();
    if fields.is_empty() {
        return;
    }
    let selectable = place.child("selectableFields");
    let schema = version
        .schema
        .and_then(|schema| schema.schema("openAPIV3Schema"));
    match schema {
        None => {
            let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.push(error::invalid_text(&selectable, "", detail));
        }
        Some(schema) => {
            let may_have_many = options.many_selectable.contains(name);
            let places = (&selectable, &place.child("schema.openAPIV3Schema"));
            validate_selectable(fields, schema, may_have_many, places, errors);
        }
    }
}

/// Validates the fields common to all versions.
pub(super) fn validate_common(hoisted: &Hoisted<'_>, options: &Options, errors: &mut FieldErrors) {
    let root = Path::printed("spec");
    let first = hoisted.versions.first();
    let version = first
        .map(|first| first.props.text("name"))
        .unwrap_or_default();
    let mut all_subresources = hoisted.versions.iter().map(|version| version.subresources);
    let has_status =
        Hoisted::has_status(hoisted.subresources) || all_subresources.any(Hoisted::has_status);
    let costs = schema::Costs::of(options.unchanged.contains(version));
    let place = root.child("validation");
    schema::validate(
        hoisted.validation,
        has_status,
        options,
        costs,
        &place,
        errors,
    );
    validate_subresources(hoisted.subresources, &root.child("subresources"), errors);
    let columns = root.child("additionalPrinterColumns");
    let given = hoisted.columns.unwrap_or_default();
    for (at, column) in given.iter().filter_map(Props::new).enumerate() {
        validate_column(column, &columns.index(at), errors);
    }
    let fields = hoisted.selectable.unwrap_or_default();
    if fields.is_empty() {
        return;
    }
    let selectable = root.child("selectableFields");
    let empty = serde_json::Map::new();
    // A validation without a schema counts as an empty schema.
    let schema = hoisted.validation.map(|validation| {
        let schema = validation.schema("openAPIV3Schema");
        schema.unwrap_or(Props(&empty))
    });
    match schema {
        None => {
            let detail = "may only be set when validations.schema is included";
            errors.push(error::invalid_text(&selectable, "", detail));
        }
        Some(schema) => {
            let may_have_many = options.many_selectable.contains("");
            let places = (&selectable, &root.child("schema.openAPIV3Schema"));
            validate_selectable(fields, schema, may_have_many, places, errors);
        }
    }
}

fn warning_problems(is_deprecated: bool, warning: Option<&str>) -> Vec<String> {
    let Some(warning) = warning else {
        return Vec::new();
    };
    if !is_deprecated {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut problems = Vec::new();
    if warning.len() > MAX_WARNING {
        problems.push(format!("must be <= {MAX_WARNING} characters long"));
    }
    if warning.is_empty() {
        problems.push("must not be an empty string".to_owned());
    }
    // Unprintable characters are escaped in quotes.
    let is_printable = |c: char| {
        let quoted = quote(c.encode_utf8(&mut [0; 4]));
        matches!(c, '"' | '\\') || quoted.chars().nth(1) == Some(c)
    };
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| !is_printable(*c)) {
        problems.push(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index \
             {at}"
        ));
    }
    problems
}

fn validate_subresources(
    subresources: Option<Props<'_>>,
    place: &Path<'_>,
    errors: &mut FieldErrors,
) {
    let scale = subresources.and_then(|subresources| subresources.schema("scale"));
    let Some(scale) = scale else { return };
    for (field, keyword, under) in [
        ("scale.specReplicasPath", "specReplicasPath", "spec"),
        ("scale.statusReplicasPath", "statusReplicasPath", "status"),
    ] {
        let place = place.child(field);
        let path = scale.text(keyword);
        if path.is_empty() {
            errors.push(error::required(&place, ""));
        } else if let Some(detail) = json_path_problem(path) {
            errors.push(error::invalid_text(&place, path, detail));
        } else if !path.starts_with(&format!(".{under}.")) {
            let detail = format!("should be a json path under .{under}");
            errors.push(error::invalid_text(&place, path, detail));
        }
    }
    let path = scale.text("labelSelectorPath");
    if path.is_empty() {
        return;
    }
    let place = place.child("scale.labelSelectorPath");
    if let Some(detail) = json_path_problem(path) {
        errors.push(error::invalid_text(&place, path, detail));
    } else if !path.starts_with(".spec.") && !path.starts_with(".status.") {
        let detail = "should be a json path under either .spec or .status";
        errors.push(error::invalid(&place, &internal::text(path), detail));
    }
}

fn json_path_problem(path: &str) -> Option<&'static str> {
    (!path.starts_with('.')).then_some("must be a simple json path starting with .")
}

fn validate_column(column: Props<'_>, place: &Path<'_>, errors: &mut FieldErrors) {
    if column.text("name").is_empty() {
        errors.push(error::required(&place.child("name"), ""));
    }
    let kind = column.text("type");
    let types = || format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(error::required(&place.child("type"), types()));
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.push(error::invalid_text(&place.child("type"), kind, types()));
    }
    let format = column.text("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(error::invalid_text(&place.child("format"), format, detail));
    }
    let path = column.text("jsonPath");
    let place = place.child("JSONPath");
    if path.is_empty() {
        errors.push(error::required(&place, ""));
    } else if let Some(detail) = json_path_problem(path) {
        errors.push(error::invalid_text(&place, path, detail));
    }
}

fn validate_selectable(
    fields: &[Json],
    schema: Props<'_>,
    may_have_many: bool,
    (place, schema_place): (&Path<'_>, &Path<'_>),
    errors: &mut FieldErrors,
) {
    let mut seen = HashSet::new();
    let empty = serde_json::Map::new();
    let schema = match Node::read(schema) {
        Ok(_) => schema,
        Err(reason) => {
            // All paths are then invalid.
            errors.push(error::invalid_text(schema_place, "", reason.to_string()));
            Props(&empty)
        }
    };
    for (at, field) in fields.iter().filter_map(Props::new).enumerate() {
        let place = place.index(at);
        let place = place.child("jsonPath");
        let path = field.text("jsonPath");
        if path.is_empty() {
            errors.push(error::required(&place, ""));
            continue;
        }
        let found = match field_path::resolve(path, schema, Brackets::Refuse) {
            Ok(found) => found,
            Err(reason) => {
                let detail = format!("is an invalid path: {reason}");
                errors.push(error::invalid_text(&place, path, detail));
                continue;
            }
        };
        if found.first == "metadata" {
            let detail = "must not point to fields in metadata";
            errors.push(error::invalid_text(&place, path, detail));
        }
        let kind = found.schema.map(|schema| schema.text("type"));
        if !matches!(kind, Some("string" | "boolean" | "integer")) {
            let detail = "must point to a field of type string, boolean or integer. Enum string \
                          fields and strings with formats are allowed.";
            errors.push(error::invalid_text(&place, path, detail));
        }
        if !seen.insert(found.printed) {
            errors.push(error::duplicate(&place, &quote(path)));
        }
    }
    if seen.len() > MAX_SELECTABLE && !may_have_many {
        let limit = i64::try_from(MAX_SELECTABLE).unwrap_or(i64::MAX);
        errors.push(error::too_many(place, seen.len(), limit));
    }
}
