//! Parts of a definition as errors print them: as upstream's internal type, with Go field names.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/{types,types_jsonschema}.go

use serde_json::Value as Json;

use lockgate_go::quote::quote_json;

use super::versions::Version;
use crate::structural::json::compact;
use crate::structural::props::{Items, Props, SchemaOrBool};

/// A string pointer.
pub(super) fn text(text: &str) -> String {
    quote_json(text)
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn list<T>(items: impl ExactSizeIterator<Item = T>, write: impl FnMut(T) -> String) -> String {
    format!("[{}]", join(items.map(write)))
}

/// A list, or null if it is absent.
fn opt_list<'j>(props: Props<'j>, keyword: &str, write: impl FnMut(&'j Json) -> String) -> String {
    if props.has(keyword) {
        list(props.list(keyword).iter(), write)
    } else {
        "null".to_owned()
    }
}

fn opt<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "null".to_owned(), write)
}

fn opt_text(props: Props<'_>, keyword: &str) -> String {
    opt(props.opt_text(keyword), text)
}

fn fields<const N: usize>(fields: [(&str, String); N]) -> String {
    let parts = fields.into_iter();
    format!(
        "{{{}}}",
        join(parts.map(|(name, value)| format!("\"{name}\":{value}")))
    )
}

/// `spec.versions`, without the fields common to all versions.
pub(super) fn versions(versions: &[Version<'_>]) -> String {
    list(versions.iter(), |version| {
        let props = version.props;
        let rendered_list = |items: Option<&[Json]>, write: fn(Props<'_>) -> String| {
            opt(items, |items| {
                list(items.iter(), |item| opt(Props::new(item), write))
            })
        };
        fields([
            ("Name", text(props.text("name"))),
            ("Served", props.flag("served").to_string()),
            ("Storage", props.flag("storage").to_string()),
            ("Deprecated", props.flag("deprecated").to_string()),
            ("DeprecationWarning", opt_text(props, "deprecationWarning")),
            (
                "Schema",
                opt(version.schema, |validation| {
                    let schema = opt(validation.schema("openAPIV3Schema"), schema);
                    fields([("OpenAPIV3Schema", schema)])
                }),
            ),
            ("Subresources", opt(version.subresources, subresources)),
            (
                "AdditionalPrinterColumns",
                rendered_list(version.columns, column),
            ),
            (
                "SelectableFields",
                rendered_list(version.selectable, |field| {
                    fields([("JSONPath", text(field.text("jsonPath")))])
                }),
            ),
        ])
    })
}

fn subresources(subresources: Props<'_>) -> String {
    let scale = |scale: Props<'_>| {
        fields([
            ("SpecReplicasPath", text(scale.text("specReplicasPath"))),
            ("StatusReplicasPath", text(scale.text("statusReplicasPath"))),
            ("LabelSelectorPath", opt_text(scale, "labelSelectorPath")),
        ])
    };
    fields([
        (
            "Status",
            opt(subresources.schema("status"), |_| "{}".to_owned()),
        ),
        ("Scale", opt(subresources.schema("scale"), scale)),
    ])
}

fn column(column: Props<'_>) -> String {
    fields([
        ("Name", text(column.text("name"))),
        ("Type", text(column.text("type"))),
        ("Format", text(column.text("format"))),
        ("Description", text(column.text("description"))),
        (
            "Priority",
            column.integer("priority").unwrap_or(0).to_string(),
        ),
        ("JSONPath", text(column.text("jsonPath"))),
    ])
}

/// A validation rule.
pub(super) fn rule(rule: Props<'_>) -> String {
    let flag = |flag: bool| flag.to_string();
    fields([
        ("Rule", text(rule.text("rule"))),
        ("Message", text(rule.text("message"))),
        ("MessageExpression", text(rule.text("messageExpression"))),
        ("Reason", opt_text(rule, "reason")),
        ("FieldPath", text(rule.text("fieldPath"))),
        (
            "OptionalOldSelf",
            opt(rule.opt_flag("optionalOldSelf"), flag),
        ),
    ])
}

fn schema_map(props: Props<'_>, keyword: &str) -> String {
    if !props.has(keyword) {
        return "null".to_owned();
    }
    let entries = props.schema_map(keyword);
    let write = |(name, of): (&str, Props<'_>)| format!("{}:{}", text(name), schema(of));
    format!("{{{}}}", join(entries.map(write)))
}

fn schema_or_bool(props: Props<'_>, keyword: &str) -> String {
    match props.schema_or_bool(keyword) {
        SchemaOrBool::Absent => "null".to_owned(),
        SchemaOrBool::Bool(allows) => fields([
            ("Allows", allows.to_string()),
            ("Schema", "null".to_owned()),
        ]),
        SchemaOrBool::Schema(of) => fields([("Allows", "true".to_owned()), ("Schema", schema(of))]),
    }
}

pub(super) fn items(props: Props<'_>) -> String {
    let null = || "null".to_owned();
    let one = |of: &Json| opt(Props::new(of), schema);
    match props.items() {
        Items::Absent => null(),
        Items::All(of) => fields([("Schema", schema(of)), ("JSONSchemas", null())]),
        Items::Each(each) => fields([("Schema", null()), ("JSONSchemas", list(each.iter(), one))]),
    }
}

fn dependencies(props: Props<'_>) -> String {
    if !props.has("dependencies") {
        return "null".to_owned();
    }
    let entries = props.get("dependencies").and_then(Json::as_object);
    let write = |(name, value): (&String, &Json)| {
        let of = opt(Props::new(value), schema);
        let names = opt(value.as_array(), |names| list(names.iter(), compact));
        format!(
            "{}:{}",
            text(name),
            fields([("Schema", of), ("Property", names)])
        )
    };
    format!("{{{}}}", join(entries.into_iter().flatten().map(write)))
}

/// A schema, whose depth has been checked before.
pub(super) fn schema(props: Props<'_>) -> String {
    let one = |of: &Json| opt(Props::new(of), schema);
    let string = |keyword: &str| text(props.text(keyword));
    let flag = |keyword: &str| props.flag(keyword).to_string();
    let any = |keyword: &str| opt(props.get(keyword), compact);
    let docs = |docs: Props<'_>| {
        fields([
            ("Description", text(docs.text("description"))),
            ("URL", text(docs.text("url"))),
        ])
    };
    // Bounds are always floats.
    let float = |keyword: &str| opt(props.number(keyword), |number| compact(&number.into()));
    let preserve = props.opt_flag("x-kubernetes-preserve-unknown-fields");
    fields([
        ("ID", string("id")),
        ("Schema", string("$schema")),
        ("Ref", opt_text(props, "$ref")),
        ("Description", string("description")),
        ("Type", string("type")),
        ("Nullable", flag("nullable")),
        ("Format", string("format")),
        ("Title", string("title")),
        ("Default", any("default")),
        ("Maximum", float("maximum")),
        ("ExclusiveMaximum", flag("exclusiveMaximum")),
        ("Minimum", float("minimum")),
        ("ExclusiveMinimum", flag("exclusiveMinimum")),
        ("MaxLength", any("maxLength")),
        ("MinLength", any("minLength")),
        ("Pattern", string("pattern")),
        ("MaxItems", any("maxItems")),
        ("MinItems", any("minItems")),
        ("UniqueItems", flag("uniqueItems")),
        ("MultipleOf", float("multipleOf")),
        ("Enum", opt_list(props, "enum", compact)),
        ("MaxProperties", any("maxProperties")),
        ("MinProperties", any("minProperties")),
        ("Required", opt_list(props, "required", compact)),
        ("Items", items(props)),
        ("AllOf", opt_list(props, "allOf", one)),
        ("OneOf", opt_list(props, "oneOf", one)),
        ("AnyOf", opt_list(props, "anyOf", one)),
        ("Not", opt(props.schema("not"), schema)),
        ("Properties", schema_map(props, "properties")),
        (
            "AdditionalProperties",
            schema_or_bool(props, "additionalProperties"),
        ),
        ("PatternProperties", schema_map(props, "patternProperties")),
        ("Dependencies", dependencies(props)),
        ("AdditionalItems", schema_or_bool(props, "additionalItems")),
        ("Definitions", schema_map(props, "definitions")),
        ("ExternalDocs", opt(props.schema("externalDocs"), docs)),
        ("Example", any("example")),
        (
            "XPreserveUnknownFields",
            opt(preserve, |flag| flag.to_string()),
        ),
        ("XEmbeddedResource", flag("x-kubernetes-embedded-resource")),
        ("XIntOrString", flag("x-kubernetes-int-or-string")),
        (
            "XListMapKeys",
            opt_list(props, "x-kubernetes-list-map-keys", compact),
        ),
        ("XListType", opt_text(props, "x-kubernetes-list-type")),
        ("XMapType", opt_text(props, "x-kubernetes-map-type")),
        (
            "XValidations",
            opt_list(props, "x-kubernetes-validations", |one| {
                opt(Props::new(one), rule)
            }),
        ),
    ])
}
