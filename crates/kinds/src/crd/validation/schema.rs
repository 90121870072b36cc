//! Validation of schemas: unsupported OpenAPI keywords, extensions, and validation rules, which must compile within
//! the cost limits.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/validation/{validation,cel_validation}.go

use lockgate_api::field::{FieldError, FieldErrors};
use lockgate_cel::crd::{
    OldSelf, Rule, RuleError, Scope, message_too_costly, resource_too_costly, rule_too_costly,
};
use lockgate_cel::limits::ESTIMATED_RESOURCE_LIMIT;
use lockgate_cel::schema::Schema as RuleSchema;
use lockgate_go::quote::{quote, quote_json, quote_json_list};
use serde_json::Value as Json;

use super::{Options, default_values, internal, structure};
use crate::structural::SchemaError;
use crate::structural::error;
use crate::structural::field_path::{self, Brackets};
use crate::structural::path::Path;
use crate::structural::props::{Items, Props, SchemaOrBool};
use crate::structural::schema::{MAX_DEPTH, Node, check_rule_schema_limit};

const RULES: &str = "x-kubernetes-validations";

/// The types that OpenAPI defines.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// The number of most expensive rules that are named if the total cost exceeds the limit.
const NAMED_RULES: usize = 4;

/// The handling of rules whose estimated cost exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Costs {
    Limited,
    /// The schema is unchanged.
    Accepted,
}

impl Costs {
    pub(super) fn of(is_unchanged: bool) -> Self {
        if is_unchanged {
            Self::Accepted
        } else {
            Self::Limited
        }
    }
}

/// All direct subschemas of a schema.
fn below<'j>(schema: Props<'j>) -> Vec<Props<'j>> {
    let mut found = Vec::new();
    match schema.items() {
        Items::Absent => {}
        Items::All(items) => found.push(items),
        Items::Each(each) => found.extend(each.iter().filter_map(Props::new)),
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        found.extend(schema.schemas(keyword));
    }
    found.extend(schema.schema("not"));
    let of_map = |keyword| schema.schema_map(keyword).map(|(_, schema)| schema);
    let of_either = |keyword| match schema.schema_or_bool(keyword) {
        SchemaOrBool::Schema(schema) => Some(schema),
        SchemaOrBool::Absent | SchemaOrBool::Bool(_) => None,
    };
    found.extend(of_map("properties"));
    found.extend(of_either("additionalProperties"));
    found.extend(of_map("patternProperties"));
    found.extend(of_either("additionalItems"));
    found.extend(of_map("definitions"));
    found.extend(of_map("dependencies"));
    found
}

/// Returns true if `is_it` holds for a schema or a nested one. They are visited in upstream's order.
pub(super) fn any(schema: Props<'_>, is_it: &mut impl FnMut(Props<'_>) -> bool) -> bool {
    let mut stack = vec![schema];
    while let Some(schema) = stack.pop() {
        if is_it(schema) {
            return true;
        }
        stack.extend(below(schema).into_iter().rev());
    }
    false
}

/// The error of a schema beyond the size limits, if any.
pub(super) fn check_size(schema: Props<'_>) -> Option<SchemaError> {
    let mut stack = vec![(schema, 1)];
    while let Some((schema, depth)) = stack.pop() {
        if depth > MAX_DEPTH {
            return Some(SchemaError::TooDeep);
        }
        stack.extend(below(schema).into_iter().map(|below| (below, depth + 1)));
    }
    check_rule_schema_limit(schema).err()
}

/// Returns true if a schema has a type that OpenAPI does not define.
pub(super) fn has_invalid_type(schema: Props<'_>) -> bool {
    let kind = schema.text("type");
    !kind.is_empty() && !TYPES.contains(&kind)
}

/// Returns true if a schema has validation rules.
pub(super) fn has_rules(schema: Props<'_>) -> bool {
    !schema.list(RULES).is_empty()
}

/// Returns true if a schema uses extensions.
pub(super) fn has_extension(schema: Props<'_>) -> bool {
    schema.flag("x-kubernetes-embedded-resource")
        || schema.has("x-kubernetes-preserve-unknown-fields")
        || schema.flag("x-kubernetes-int-or-string")
        || !schema.list("x-kubernetes-list-map-keys").is_empty()
        || schema.has("x-kubernetes-list-type")
        || has_rules(schema)
}

/// Returns true if a schema is a `set` of lists or maps that are not atomic.
pub(super) fn is_set_of_parts(schema: Props<'_>) -> bool {
    let items = schema.items_schema();
    let items = items.filter(|_| schema.opt_text("x-kubernetes-list-type") == Some("set"));
    items.is_some_and(|items| part_type(items).is_some())
}

/// The extension by which items of this type are not atomic.
fn part_type(items: Props<'_>) -> Option<&'static str> {
    let (extension, is_atomic_unsaid) = match items.text("type") {
        "array" => ("x-kubernetes-list-type", true),
        "object" => ("x-kubernetes-map-type", false),
        _ => return None,
    };
    let is_atomic = match items.opt_text(extension) {
        None => is_atomic_unsaid,
        Some(kind) => kind == "atomic",
    };
    (!is_atomic).then_some(extension)
}

/// Returns true if keys of a list of type `map` can be absent or null.
pub(super) fn has_invalid_map_keys(schema: Props<'_>) -> bool {
    let mut errors = FieldErrors::new();
    check_map_keys(schema, &Path::ROOT, &mut errors);
    !errors.is_empty()
}

fn check_map_keys(schema: Props<'_>, place: &Path<'_>, errors: &mut FieldErrors) {
    let Some(items) = schema.items_schema() else {
        return;
    };
    let list_type = schema.text("x-kubernetes-list-type");
    if !matches!(list_type, "set" | "map") {
        return;
    }
    let place = place.child("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(error::forbidden(&place.child("nullable"), detail));
    }
    if list_type == "set" {
        return;
    }
    let properties = place.child("properties");
    for key in schema.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.property(key) else {
            continue;
        };
        let place = properties.key(key);
        let is_required = items.texts("required").any(|required| required == key);
        if !is_required && !property.has("default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a \
                          default or be a required property";
            errors.push(error::required(&place.child("default"), detail));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(error::forbidden(&place.child("nullable"), detail));
        }
    }
}

/// Validates the schema of a version, or the common schema of all versions.
pub(super) fn validate(
    validation: Option<Props<'_>>,
    has_status: bool,
    options: &Options,
    costs: Costs,
    place: &Path<'_>,
    errors: &mut FieldErrors,
) {
    let schema = validation.and_then(|validation| validation.schema("openAPIV3Schema"));
    let Some(schema) = schema else { return };
    let schema_place = place.child("openAPIV3Schema");
    let mut found = FieldErrors::new();
    if has_status {
        found.extend(check_root_keywords(schema, place));
    }
    if schema.flag("nullable") {
        let place = place.child("openAPIV3Schema.nullable");
        found.push(error::forbidden(
            &place,
            "nullable cannot be true at the root",
        ));
    }
    let mut unreadable = None;
    let mut context = None;
    if options.structural {
        match Node::read(schema) {
            Err(reason) => unreadable = Some(reason),
            Ok(_) => {
                let mut problems = structure::validate(schema, &schema_place);
                if problems.is_empty() {
                    problems =
                        default_values::validate(schema, options.pruned_defaults, &schema_place);
                }
                if problems.is_empty() {
                    context = Some(Context::root(schema));
                }
                found.extend(problems);
            }
        }
    }
    let mut checker = Checker {
        options,
        costs,
        total: Total::default(),
        schema_errors: FieldErrors::new(),
        rule_errors: FieldErrors::new(),
    };
    let standard = Standard {
        forbidden_defaults: None,
        in_metadata: false,
        uncorrelatable: None,
    };
    checker.check(schema, &schema_place, &standard, true, context.as_ref());
    found.extend(checker.schema_errors);
    found.extend(checker.rule_errors);
    if let Some(reason) = unreadable.filter(|_| found.is_empty()) {
        found.push(error::invalid_text(&schema_place, "", reason.to_string()));
    }
    found.extend(checker.total.errors(&schema_place));
    errors.extend(found);
}

/// With the status subresource, the status schema is extracted, and the root must not have keywords that would be
/// lost.
fn check_root_keywords(schema: Props<'_>, place: &Path<'_>) -> Option<FieldError> {
    /// In struct order: the keyword, its Go name, and whether it is allowed.
    const KEYWORDS: [(&str, &str, bool); 44] = [
        ("id", "ID", false),
        ("$schema", "Schema", false),
        ("$ref", "Ref", false),
        ("description", "Description", true),
        ("type", "Type", true),
        ("nullable", "Nullable", false),
        ("format", "Format", true),
        ("title", "Title", true),
        ("default", "Default", false),
        ("maximum", "Maximum", true),
        ("exclusiveMaximum", "ExclusiveMaximum", true),
        ("minimum", "Minimum", true),
        ("exclusiveMinimum", "ExclusiveMinimum", true),
        ("maxLength", "MaxLength", true),
        ("minLength", "MinLength", true),
        ("pattern", "Pattern", true),
        ("maxItems", "MaxItems", true),
        ("minItems", "MinItems", true),
        ("uniqueItems", "UniqueItems", true),
        ("multipleOf", "MultipleOf", true),
        ("enum", "Enum", false),
        ("maxProperties", "MaxProperties", false),
        ("minProperties", "MinProperties", false),
        ("required", "Required", true),
        ("items", "Items", true),
        ("allOf", "AllOf", false),
        ("oneOf", "OneOf", false),
        ("anyOf", "AnyOf", false),
        ("not", "Not", false),
        ("properties", "Properties", true),
        ("additionalProperties", "AdditionalProperties", false),
        ("patternProperties", "PatternProperties", false),
        ("dependencies", "Dependencies", false),
        ("additionalItems", "AdditionalItems", false),
        ("definitions", "Definitions", false),
        ("externalDocs", "ExternalDocs", true),
        ("example", "Example", true),
        (
            "x-kubernetes-preserve-unknown-fields",
            "XPreserveUnknownFields",
            true,
        ),
        ("x-kubernetes-embedded-resource", "XEmbeddedResource", false),
        ("x-kubernetes-int-or-string", "XIntOrString", false),
        ("x-kubernetes-list-map-keys", "XListMapKeys", false),
        ("x-kubernetes-list-type", "XListType", false),
        ("x-kubernetes-map-type", "XMapType", false),
        (RULES, "XValidations", true),
    ];
    /// Pointer fields, which are set even if they are empty or `false`.
    const POINTERS: [&str; 6] = [
        "$ref",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "additionalProperties",
        "additionalItems",
    ];
    for (keyword, _, is_allowed) in KEYWORDS {
        let is_given = schema.get(keyword).is_some_and(|value| match value {
            Json::Bool(false) => POINTERS.contains(&keyword),
            Json::String(text) => !text.is_empty() || POINTERS.contains(&keyword),
            _ => true,
        });
        if !is_given {
            continue;
        }
        let kind = schema.text("type");
        if keyword == "type" && kind != "object" {
            let place = place.child("openAPIV3Schema.type");
            let detail = "only \"object\" is allowed as the type at the root of the schema if the \
                          status subresource is enabled";
            return Some(error::invalid_text(&place, kind, detail));
        }
        if !is_allowed {
            let names = KEYWORDS.iter().filter(|(_, _, is_allowed)| *is_allowed);
            let names: Vec<&str> = names.map(|(_, name, _)| *name).collect();
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource \
                 is enabled",
                names.join(" ")
            );
            let place = place.child("openAPIV3Schema");
            return Some(error::invalid(&place, &internal::schema(schema), detail));
        }
    }
    None
}

/// The CEL context of a field.
#[derive(Debug)]
struct Context<'j> {
    schema: Props<'j>,
    is_root: bool,
    /// True if this schema or an enclosing one has validation rules.
    in_scope: bool,
    /// True if rules can access values here, including rules of enclosing schemas.
    is_visible: bool,
    /// The maximum number of values at this position; `None` if unbounded.
    cardinality: Option<u64>,
}

impl<'j> Context<'j> {
    fn root(schema: Props<'j>) -> Self {
        Self {
            schema,
            is_root: true,
            in_scope: !schema.list(RULES).is_empty(),
            is_visible: is_visible(schema),
            cardinality: Some(1),
        }
    }

    fn below(&self, child: Props<'j>) -> Self {
        let cardinality = self.cardinality.zip(most_children(self.schema));
        Self {
            schema: child,
            is_root: false,
            in_scope: self.in_scope || !child.list(RULES).is_empty(),
            is_visible: is_visible(child) && (self.is_visible || !self.in_scope),
            cardinality: cardinality.map(|(here, times)| here.saturating_mul(times)),
        }
    }
}

/// Returns true if rules can access values of a schema.
fn is_visible(schema: Props<'_>) -> bool {
    if schema.flag("x-kubernetes-int-or-string") {
        return true;
    }
    match schema.text("type") {
        "string" | "number" | "integer" | "boolean" => true,
        "array" => schema.items_schema().is_some_and(is_visible),
        "object" => match schema.schema_or_bool("additionalProperties") {
            SchemaOrBool::Schema(entry) => is_visible(entry),
            SchemaOrBool::Absent | SchemaOrBool::Bool(_) => true,
        },
        _ => false,
    }
}

/// The maximum number of children of a value.
fn most_children(schema: Props<'_>) -> Option<u64> {
    let limit = |keyword: &str| {
        let limit = schema.integer(keyword)?;
        Some(u64::try_from(limit).unwrap_or(0))
    };
    match schema.text("type") {
        "object" if schema.has("additionalProperties") => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

/// The total estimated cost of all rules of a schema.
#[derive(Debug, Default)]
struct Total {
    cost: u64,
    most_expensive: Vec<(String, u64)>,
}

impl Total {
    fn observe(&mut self, place: &Path<'_>, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
        if cost < ESTIMATED_RESOURCE_LIMIT / 100 {
            return;
        }
        self.most_expensive.push((place.to_string(), cost));
        self.most_expensive
            .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.most_expensive.truncate(NAMED_RULES);
    }

    fn errors(self, place: &Path<'_>) -> FieldErrors {
        let Some(detail) = resource_too_costly(self.cost) else {
            return FieldErrors::new();
        };
        let contributed = "contributed to estimated rule cost total exceeding cost limit for \
                           entire OpenAPIv3 schema";
        let named = self.most_expensive.iter();
        let mut errors: FieldErrors = named
            .map(|(place, _)| error::forbidden(place, contributed))
            .collect();
        errors.push(error::forbidden(place, detail));
        errors
    }
}

/// The constraints of enclosing schemas on a field.
#[derive(Debug, Clone)]
struct Standard {
    /// The reason why defaults are forbidden, if they are.
    forbidden_defaults: Option<String>,
    in_metadata: bool,
    /// The path of the nearest enclosing schema whose values cannot be correlated with those of the old object.
    uncorrelatable: Option<String>,
}

impl Standard {
    fn uncorrelatable_at(&self, place: &Path<'_>) -> Self {
        let mut standard = self.clone();
        standard
            .uncorrelatable
            .get_or_insert_with(|| place.to_string());
        standard
    }
}

struct Checker<'o> {
    options: &'o Options,
    costs: Costs,
    total: Total,
    schema_errors: FieldErrors,
    rule_errors: FieldErrors,
}

impl Checker<'_> {
    fn check(
        &mut self,
        schema: Props<'_>,
        place: &Path<'_>,
        standard: &Standard,
        is_root: bool,
        context: Option<&Context<'_>>,
    ) {
        let before = self.schema_errors.len();
        self.check_keywords(schema, place, standard);
        self.check_additional(schema, place, standard, context);
        self.check_properties(schema, place, standard, is_root, context);
        if let Some(not) = schema.schema("not") {
            self.check(not, &place.child("not"), standard, false, None);
        }
        for keyword in ["allOf", "oneOf", "anyOf"] {
            let place = place.child(keyword);
            for (at, nested) in schema.schemas(keyword).enumerate() {
                self.check(nested, &place.index(at), standard, false, None);
            }
        }
        self.check_map(schema, place, "definitions", standard);
        self.check_items(schema, place, standard, context);
        self.check_map(schema, place, "dependencies", standard);
        self.check_extensions(schema, place);
        self.check_list_map(schema, place);
        if self.options.map_keys {
            check_map_keys(schema, place, &mut self.schema_errors);
        }
        let rules: Vec<Props<'_>> = schema.schemas(RULES).collect();
        if rules.is_empty() {
            return;
        }
        let rules_place = place.child(RULES);
        for (at, rule) in rules.iter().enumerate() {
            self.check_rule_text(*rule, schema, &rules_place.index(at));
        }
        // An invalid schema may not have a CEL type.
        if let Some(context) = context.filter(|_| self.schema_errors.len() == before) {
            self.check_rules(&rules, schema, &rules_place, standard, context);
        }
    }

    /// UPSTREAM: specStandardValidatorV3
    fn check_keywords(&mut self, schema: Props<'_>, place: &Path<'_>, standard: &Standard) {
        let errors = &mut self.schema_errors;
        let kind = schema.text("type");
        if self.options.valid_types && has_invalid_type(schema) {
            errors.push(error::not_supported(
                &place.child("type"),
                &quote(kind),
                &TYPES,
            ));
        }
        if let Some(reason) = standard.forbidden_defaults.as_ref()
            && schema.has("default")
        {
            let detail = format!("must not be set {reason}");
            errors.push(error::forbidden(&place.child("default"), detail));
        }
        let has_entries = |keyword: &str| {
            let map = schema.get(keyword).and_then(Json::as_object);
            map.is_some_and(|map| !map.is_empty())
        };
        for (keyword, is_given) in [
            ("id", !schema.text("id").is_empty()),
            ("additionalItems", schema.has("additionalItems")),
            ("patternProperties", has_entries("patternProperties")),
            ("definitions", has_entries("definitions")),
            ("dependencies", schema.has("dependencies")),
            ("$ref", schema.has("$ref")),
        ] {
            if is_given {
                let detail = format!("{keyword} is not supported");
                errors.push(error::forbidden(&place.child(keyword), detail));
            }
        }
        if kind == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.push(error::forbidden(&place.child("type"), detail));
        }
        if matches!(schema.items(), Items::Each(each) if !each.is_empty()) {
            let detail = "items must be a schema object and not an array";
            errors.push(error::forbidden(&place.child("items"), detail));
        }
        if standard.in_metadata && schema.flag("x-kubernetes-embedded-resource") {
            let place = place.child("x-kubernetes-embedded-resource");
            errors.push(error::forbidden(
                &place,
                "must not be used inside of resource meta",
            ));
        }
        if schema.flag("uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes \
                          quadratic";
            errors.push(error::forbidden(&place.child("uniqueItems"), detail));
        }
    }

    fn check_additional(
        &mut self,
        schema: Props<'_>,
        place: &Path<'_>,
        standard: &Standard,
        context: Option<&Context<'_>>,
    ) {
        let additional = schema.schema_or_bool("additionalProperties");
        let has_properties = schema.schema_map("properties").next().is_some();
        let place = place.child("additionalProperties");
        let excludes = matches!(
            additional,
            SchemaOrBool::Bool(false) | SchemaOrBool::Schema(_)
        );
        if has_properties && excludes {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.schema_errors.push(error::forbidden(&place, detail));
        }
        if let SchemaOrBool::Schema(entry) = additional {
            let mut standard = standard.clone();
            if standard.in_metadata {
                let reason = "inside additionalProperties applying to object metadata";
                standard.forbidden_defaults = Some(reason.to_owned());
            }
            let context = context.map(|context| context.below(entry));
            self.check(entry, &place, &standard, false, context.as_ref());
        }
    }

    fn check_properties(
        &mut self,
        schema: Props<'_>,
        place: &Path<'_>,
        standard: &Standard,
        is_root: bool,
        context: Option<&Context<'_>>,
    ) {
        let is_resource = is_root || schema.flag("x-kubernetes-embedded-resource");
        let is_correlatable = matches!(
            schema.opt_text("x-kubernetes-map-type"),
            None | Some("granular" | "atomic")
        );
        let properties = place.child("properties");
        for (name, property) in schema.schema_map("properties") {
            let mut standard = if is_correlatable {
                standard.clone()
            } else {
                standard.uncorrelatable_at(place)
            };
            if is_resource && matches!(name, "metadata" | "kind" | "apiVersion") {
                standard.in_metadata = true;
                if is_root {
                    standard.forbidden_defaults = Some(format!("in top-level {name}"));
                }
            }
            let context = context.map(|context| context.below(property));
            self.check(
                property,
                &properties.key(name),
                &standard,
                false,
                context.as_ref(),
            );
        }
    }

    fn check_map(
        &mut self,
        schema: Props<'_>,
        place: &Path<'_>,
        keyword: &str,
        standard: &Standard,
    ) {
        let place = place.child(keyword);
        for (name, nested) in schema.schema_map(keyword) {
            self.check(nested, &place.key(name), standard, false, None);
        }
    }

    fn check_items(
        &mut self,
        schema: Props<'_>,
        place: &Path<'_>,
        standard: &Standard,
        context: Option<&Context<'_>>,
    ) {
        let standard = if schema.opt_text("x-kubernetes-list-type") == Some("map") {
            standard.clone()
        } else {
            standard.uncorrelatable_at(place)
        };
        let place = place.child("items");
        match schema.items() {
            Items::Absent => {}
            Items::All(items) => {
                let context = context.map(|context| context.below(items));
                self.check(items, &place, &standard, false, context.as_ref());
            }
            Items::Each(each) => {
                for (at, items) in each.iter().filter_map(Props::new).enumerate() {
                    let context = context.map(|context| context.below(items));
                    self.check(items, &place.index(at), &standard, false, context.as_ref());
                }
            }
        }
    }

    fn check_extensions(&mut self, schema: Props<'_>, place: &Path<'_>) {
        let errors = &mut self.schema_errors;
        let preserve = "x-kubernetes-preserve-unknown-fields";
        if schema.opt_flag(preserve) == Some(false) {
            let detail = "must be true or undefined";
            errors.push(error::invalid(&place.child(preserve), "false", detail));
        }
        let kind = schema.text("type");
        let mut needs_type = |extension: &str, want: &str| {
            if schema.opt_text(extension).is_none() || kind == want {
                return;
            }
            let detail = format!("must be {want} if {extension} is specified");
            let place = place.child("type");
            errors.push(if kind.is_empty() {
                error::required(&place, detail)
            } else {
                error::invalid_text(&place, kind, detail)
            });
        };
        needs_type("x-kubernetes-map-type", "object");
        check_known(
            schema,
            "x-kubernetes-map-type",
            &["atomic", "granular"],
            place,
            errors,
        );
        let mut needs_type = |extension: &str, want: &str| {
            if schema.opt_text(extension).is_none() || kind == want {
                return false;
            }
            let detail = format!("must be {want} if {extension} is specified");
            let place = place.child("type");
            errors.push(if kind.is_empty() {
                error::required(&place, detail)
            } else {
                error::invalid_text(&place, kind, detail)
            });
            true
        };
        let is_mistyped = needs_type("x-kubernetes-list-type", "array");
        if !is_mistyped && self.options.atomic_sets && is_set_of_parts(schema) {
            let items = schema.items_schema();
            if let Some((items, extension)) =
                items.and_then(|items| Some((items, part_type(items)?)))
            {
                let place = place.child("items");
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                // Upstream prints the list type instead of the map type.
                let list_type = items.opt_text("x-kubernetes-list-type");
                let shown = list_type.map_or_else(|| "null".to_owned(), internal::text);
                errors.push(error::invalid(&place.child(extension), &shown, detail));
            }
        }
        check_known(
            schema,
            "x-kubernetes-list-type",
            &["atomic", "set", "map"],
            place,
            errors,
        );
    }

    fn check_list_map(&mut self, schema: Props<'_>, place: &Path<'_>) {
        let errors = &mut self.schema_errors;
        let list_type = schema.opt_text("x-kubernetes-list-type");
        let keys: Vec<&str> = schema.texts("x-kubernetes-list-map-keys").collect();
        let type_place = place.child("x-kubernetes-list-type");
        let keys_place = place.child("x-kubernetes-list-map-keys");
        if !keys.is_empty() && list_type != Some("map") {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(match list_type {
                None => error::required(&type_place, detail),
                Some(other) => error::invalid_text(&type_place, other, detail),
            });
        }
        if list_type != Some("map") {
            return;
        }
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.push(error::required(&keys_place, detail));
        }
        let place = place.child("items");
        let items = match schema.items() {
            Items::Absent => {
                let detail = "must have a schema if x-kubernetes-list-type is map";
                errors.push(error::required(&place, detail));
                return;
            }
            Items::Each(_) => {
                let detail = "must only have a single schema if x-kubernetes-list-type is map";
                errors.push(error::invalid(&place, &internal::items(schema), detail));
                return;
            }
            Items::All(items) => items,
        };
        let kind = items.text("type");
        if kind != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            errors.push(error::invalid_text(&place.child("type"), kind, detail));
            return;
        }
        let properties = place.child("properties");
        for (at, key) in keys.iter().enumerate() {
            match items.property(key) {
                Some(property) if matches!(property.text("type"), "array" | "object") => {
                    let place = properties.key(key);
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is \
                                  map";
                    errors.push(error::invalid_text(&place.child("type"), kind, detail));
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    errors.push(error::invalid(&keys_place, &quote_json_list(&keys), detail));
                }
            }
            if keys.iter().take(at).any(|before| before == key) {
                let detail = "must not contain duplicate entries";
                errors.push(error::invalid(&keys_place, &quote_json_list(&keys), detail));
            }
        }
    }

    fn check_rule_text(&mut self, rule: Props<'_>, schema: Props<'_>, place: &Path<'_>) {
        let errors = &mut self.schema_errors;
        let has_newline = |text: &str| text.contains(['\n', '\r']);
        let (text, message) = (rule.text("rule").trim(), rule.text("message"));
        let message_place = place.child("message");
        if text.is_empty() {
            errors.push(error::required(
                &place.child("rule"),
                "rule is not specified",
            ));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(error::invalid_text(&message_place, message, detail));
        } else if has_newline(message.trim()) {
            let detail = "must not contain line breaks";
            errors.push(error::invalid_text(&message_place, message, detail));
        } else if has_newline(text) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(error::required(&message_place, detail));
        }
        let expression = rule.text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(error::required(&place.child("messageExpression"), detail));
        }
        if let Some(reason) = rule
            .opt_text("reason")
            .filter(|reason| !REASONS.contains(reason))
        {
            let place = place.child("reason");
            errors.push(error::not_supported(&place, &quote_json(reason), &REASONS));
        }
        let path = rule.text("fieldPath");
        let place = place.child("fieldPath");
        let mut invalid = |detail: &str| errors.push(error::invalid_text(&place, path, detail));
        if !path.is_empty() && path.trim().is_empty() {
            invalid("must be non-empty if specified");
        }
        if has_newline(path) {
            invalid("must not contain line breaks");
        }
        if !path.is_empty() && field_path::resolve(path, schema, Brackets::Allow).is_err() {
            // An invalid schema is reported elsewhere.
            if Node::read(schema).is_ok() {
                invalid("must be a valid path");
            }
        }
    }

    fn check_rules(
        &mut self,
        rules: &[Props<'_>],
        schema: Props<'_>,
        place: &Path<'_>,
        standard: &Standard,
        context: &Context<'_>,
    ) {
        let read = RuleSchema::from_json(&schema.to_json());
        let scope = read.ok().filter(|_| context.is_visible).and_then(|read| {
            Scope::new(&if context.is_root {
                read.into_resource_root()
            } else {
                read
            })
        });
        let Some(scope) = scope else {
            let detail = "internal error: failed to construct type information for \
                          x-kubernetes-validations rules: unable to convert structural schema to \
                          CEL declarations";
            self.rule_errors.push(error::internal(place, detail));
            return;
        };
        for (at, rule) in rules.iter().enumerate() {
            self.check_rule(*rule, &scope, &place.index(at), standard, context);
        }
    }

    fn check_rule(
        &mut self,
        rule: Props<'_>,
        scope: &Scope,
        place: &Path<'_>,
        standard: &Standard,
        context: &Context<'_>,
    ) {
        let (rule_place, message_place) = (place.child("rule"), place.child("messageExpression"));
        let old_self = if rule.flag("optionalOldSelf") {
            OldSelf::Optional
        } else {
            OldSelf::Value
        };
        let is_limited = self.costs == Costs::Limited;
        let compiled = scope.compile_rule(rule.text("rule"), old_self);
        let cost = compiled
            .as_ref()
            .map_or(0, |compiled| compiled.total_cost(context.cardinality));
        if let Some(detail) = rule_too_costly(cost).filter(|_| is_limited) {
            self.rule_errors.push(error::forbidden(&rule_place, detail));
        }
        self.total.observe(&rule_place, cost);
        let mut message = None;
        match &compiled {
            Err(RuleError::Empty) => {}
            Err(reason) => {
                let shown = internal::rule(rule);
                self.rule_errors
                    .push(error::invalid(&rule_place, &shown, reason.to_string()));
            }
            Ok(_) if !rule.text("messageExpression").is_empty() => {
                message = Some(scope.compile_message(rule.text("messageExpression"), old_self));
            }
            Ok(_) => {}
        }
        match message {
            Some(Err(reason)) => {
                let shown = internal::rule(rule);
                let error = error::invalid(&message_place, &shown, reason.to_string());
                self.rule_errors.push(error);
            }
            Some(Ok(message)) => {
                let cost = message.max_cost();
                if let Some(detail) = message_too_costly(cost).filter(|_| is_limited) {
                    self.rule_errors
                        .push(error::forbidden(&message_place, detail));
                }
                self.total.observe(&message_place, cost);
            }
            None => {}
        }
        if compiled.as_ref().is_ok_and(Rule::uses_old_self) {
            if let Some(uncorrelatable) = &standard.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                     {uncorrelatable}"
                );
                let error = error::invalid_text(&rule_place, rule.text("rule"), detail);
                self.rule_errors.push(error);
            }
        } else if let Some(optional) = rule.opt_flag("optionalOldSelf") {
            let detail = "may not be set if oldSelf is not used in rule";
            let place = place.child("optionalOldSelf");
            self.rule_errors
                .push(error::invalid(&place, &optional.to_string(), detail));
        }
    }
}

fn check_known(
    schema: Props<'_>,
    extension: &str,
    known: &[&str],
    place: &Path<'_>,
    errors: &mut FieldErrors,
) {
    if let Some(kind) = schema
        .opt_text(extension)
        .filter(|kind| !known.contains(kind))
    {
        let place = place.child(extension);
        errors.push(error::not_supported(&place, &quote(kind), known));
    }
}
