//! OpenAPI v2: one document for all groups, as JSON and as protobuf.
//!
//! Types are those of v3 as far as v2 can represent them; schemas of definitions omit what OpenAPI v2 or kubectl does
//! not support. Only definitions have descriptions.
//!
//! UPSTREAM: apiextensions-apiserver pkg/controller/openapi/{v2/conversion.go,builder/builder.go}

mod protobuf;

use serde_json::{Map, Value, json};

use super::schemas::Schemas;
use super::{Descriptions, Served, Source, group_version_kind, operations};

pub use protobuf::to_protobuf;

/// The media type that clients accept.
pub const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The media type of the response, which newer clients accept, too. The older name is not a valid media type, so
/// responses must not use it.
///
/// UPSTREAM: kube-openapi pkg/handler/handler.go
pub const ANSWERED_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The maximum depth of a schema; deeper levels allow any value.
const MAX_DEPTH: usize = 200;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The document of all resources.
#[must_use]
pub fn document<'s>(
    resources: impl IntoIterator<Item = Served<'s>>,
    descriptions: &Descriptions,
) -> Value {
    let mut schemas = Schemas::new(descriptions);
    let mut paths = Map::new();
    let mut definitions = Map::new();
    for resource in resources {
        let name = match resource.schema {
            Source::Type(_) => schemas.add_kind(&resource),
            Source::Custom(schema) => {
                let name = custom_name(&resource, resource.kind);
                definitions.insert(name.clone(), custom(&resource, schema));
                let list = custom_name(&resource, &format!("{}List", resource.kind));
                definitions.insert(list, custom_list(&resource, &name));
                name
            }
        };
        operations::add(&resource, &name, &mut paths);
    }
    schemas.add_metadata();
    for (name, schema) in schemas.finish() {
        definitions.insert(name, to_v2(&schema, 0));
    }
    let paths: Map<String, Value> = paths
        .into_iter()
        .map(|(path, item)| (path, older_path(&item)))
        .collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": paths,
        "definitions": definitions,
    })
}

fn custom_name(resource: &Served<'_>, kind: &str) -> String {
    let group: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", group.join("."), resource.version)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

/// The schema of a custom resource.
fn custom(resource: &Served<'_>, declared: &Value) -> Value {
    let is_open = declared.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    // kubectl accepts any field if none is declared, and only declared ones otherwise.
    let mut schema = if !declared.is_object() || is_open {
        json!({"type": "object"})
    } else {
        let mut schema = structural(declared, 0);
        add_type_meta(&mut schema);
        schema
    };
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind([
        resource.group,
        resource.version,
        resource.kind
    ])]);
    schema
}

fn custom_list(resource: &Served<'_>, item: &str) -> Value {
    let kind = format!("{}List", resource.kind);
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": reference(item)},
            "kind": {"type": "string"},
            "metadata": reference(LIST_META),
        },
        "x-kubernetes-group-version-kind":
            [group_version_kind([resource.group, resource.version, &kind])],
    })
}

fn add_type_meta(schema: &mut Value) {
    for text in ["apiVersion", "kind"] {
        schema["properties"][text] = json!({"type": "string"});
    }
    schema["properties"]["metadata"] = reference(OBJECT_META);
}

/// Keywords that v2 shares with v3.
const KEPT: [&str; 22] = [
    "description",
    "title",
    "format",
    "maximum",
    "minimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "multipleOf",
    "enum",
    "externalDocs",
    "example",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];
/// Keywords that are kept if they are true.
const FLAGS: [&str; 4] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
];

/// The schema of a definition without parts that kubectl does not support: alternatives, defaults, and nested schemas
/// of nullable values or of values with unknown fields.
fn structural(declared: &Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return json!({});
    }
    let is = |name: &str| declared.get(name) == Some(&Value::Bool(true));
    let (is_nullable, is_open) = (is("nullable"), is("x-kubernetes-preserve-unknown-fields"));
    let hides = is_nullable || is_open;
    let items = declared.get("items").filter(|_| !hides);
    let properties = declared.get("properties").and_then(Value::as_object);
    let properties = properties.filter(|_| !hides);
    let mut out = Map::new();
    for name in KEPT {
        if let Some(value) = declared.get(name) {
            out.insert(name.to_owned(), value.clone());
        }
    }
    for name in FLAGS.into_iter().filter(|name| is(name)) {
        out.insert(name.to_owned(), true.into());
    }
    if let Some(ty) = declared.get("type").and_then(Value::as_str) {
        let is_told = match ty {
            _ if is_nullable => false,
            "array" => items.is_some(),
            "object" => !is_open,
            _ => true,
        };
        if is_told {
            out.insert(String::from("type"), ty.into());
        }
    }
    if let Some(items) = items {
        out.insert(String::from("items"), structural(items, depth + 1));
    }
    if let Some(properties) = properties.filter(|properties| !properties.is_empty()) {
        let told: Map<String, Value> = properties
            .iter()
            .map(|(name, schema)| (name.clone(), structural(schema, depth + 1)))
            .collect();
        out.insert(String::from("properties"), told.into());
    }
    let others = declared.get("additionalProperties");
    if let Some(others) = others {
        let told = match others {
            Value::Object(_) => structural(others, depth + 1),
            other => other.clone(),
        };
        out.insert(String::from("additionalProperties"), told);
    }
    let is_null = |schema: Option<&Value>| {
        schema.and_then(|schema| schema.get("nullable")) == Some(&Value::Bool(true))
    };
    let required = declared.get("required").and_then(Value::as_array);
    let required: Vec<Value> = required
        .into_iter()
        .flatten()
        .filter(|_| !is_null(others))
        .filter(|name| {
            let member = properties.and_then(|all| all.get(name.as_str()?));
            !is_null(member)
        })
        .cloned()
        .collect();
    if !required.is_empty() {
        out.insert(String::from("required"), required.into());
    }
    let mut schema = Value::Object(out);
    if is("x-kubernetes-embedded-resource") && !is_open {
        add_type_meta(&mut schema);
        add_required(&mut schema);
    }
    schema
}

/// Embedded resources require `kind` and `apiVersion`.
fn add_required(schema: &mut Value) {
    let told = schema.get("required").and_then(Value::as_array);
    let mut required = told.cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(name.into());
        }
    }
    schema["required"] = required.into();
}

/// A schema of the tables in v2: references have another path and may have siblings, and there are no alternatives.
fn to_v2(schema: &Value, depth: usize) -> Value {
    let Some(members) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else {
        return schema.clone();
    };
    let mut out = Map::new();
    for (name, value) in members {
        match (name.as_str(), value) {
            ("$ref", Value::String(place)) => {
                let place = place.replace("#/components/schemas/", "#/definitions/");
                out.insert(name.clone(), place.into());
            }
            ("allOf", Value::Array(parts)) => {
                let parts = parts.iter().map(|part| to_v2(part, depth + 1));
                for part in parts {
                    if let Value::Object(part) = part {
                        out.extend(part);
                    }
                }
            }
            // Quantities and int-or-string values are published as strings.
            ("oneOf", _) => {
                out.insert(String::from("type"), "string".into());
            }
            ("properties", Value::Object(properties)) => {
                let told: Map<String, Value> = properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), to_v2(schema, depth + 1)))
                    .collect();
                out.insert(name.clone(), told.into());
            }
            ("items" | "additionalProperties", schema) => {
                out.insert(name.clone(), to_v2(schema, depth + 1));
            }
            (_, value) => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    out.into()
}

/// A parameter, with its schema inlined.
fn parameter_to_v2(parameter: &Value) -> Value {
    let mut out = parameter.clone();
    if let Some(members) = out.as_object_mut()
        && let Some(Value::Object(schema)) = members.remove("schema")
    {
        members.extend(schema);
        members.insert(String::from("uniqueItems"), true.into());
    }
    out
}

fn parameters_of(item: &Value) -> Vec<Value> {
    let told = item.get("parameters").and_then(Value::as_array);
    let told = told.into_iter().flatten();
    told.map(parameter_to_v2).collect()
}

fn older_path(item: &Value) -> Value {
    let empty = Map::new();
    let methods = item.as_object().unwrap_or(&empty).iter();
    let mut out: Map<String, Value> = methods
        .filter(|(name, _)| *name != "parameters")
        .map(|(method, operation)| (method.clone(), older_operation(operation)))
        .collect();
    let parameters = parameters_of(item);
    if !parameters.is_empty() {
        out.insert(String::from("parameters"), parameters.into());
    }
    out.into()
}

fn older_operation(operation: &Value) -> Value {
    let mut out = Map::new();
    let mut parameters = parameters_of(operation);
    let content = operation
        .pointer("/requestBody/content")
        .and_then(Value::as_object);
    if let Some(content) = content {
        let schema = content.values().find_map(|form| form.get("schema"));
        let schema = schema.map(|schema| to_v2(schema, 0)).unwrap_or_default();
        let body = json!({"name": "body", "in": "body", "required": true, "schema": schema});
        parameters.insert(0, body);
        let forms: Vec<&String> = content.keys().collect();
        out.insert(String::from("consumes"), json!(forms));
    }
    if !parameters.is_empty() {
        out.insert(String::from("parameters"), parameters.into());
    }
    let mut answer = json!({"description": "OK"});
    let schema = operation.pointer("/responses/200/content/application~1json/schema");
    if let Some(schema) = schema {
        answer["schema"] = to_v2(schema, 0);
    }
    out.insert(String::from("responses"), json!({"200": answer}));
    out.insert(
        String::from("produces"),
        json!(["application/json", "application/yaml"]),
    );
    out.insert(String::from("schemes"), json!(["https"]));
    for name in ["x-kubernetes-action", "x-kubernetes-group-version-kind"] {
        if let Some(value) = operation.get(name) {
            out.insert(name.to_owned(), value.clone());
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gadget(schema: &Value) -> Served<'_> {
        Served {
            group: "example.com",
            version: "v1",
            plural: "gadgets",
            kind: "Gadget",
            namespaced: true,
            verbs: vec!["get", "list", "create", "patch"],
            parts: Vec::new(),
            schema: Source::Custom(schema),
        }
    }

    #[test]
    fn leaves_out_what_kubectl_cannot_read() {
        for (declared, told) in [
            (
                json!({"type": "string", "default": "x"}),
                json!({"type": "string"}),
            ),
            (json!({"type": "string", "nullable": true}), json!({})),
            (
                json!({"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}}),
                json!({}),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            ),
            (
                json!({"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {}}),
                json!({"x-kubernetes-preserve-unknown-fields": true}),
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
                json!({"x-kubernetes-preserve-unknown-fields": true}),
            ),
            (
                json!({"type": "object", "anyOf": [{}], "oneOf": [{}], "allOf": [{}], "not": {}}),
                json!({"type": "object"}),
            ),
            (
                json!({
                    "type": "object", "required": ["a", "b"],
                    "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "integer"}},
                }),
                json!({
                    "type": "object", "required": ["b"],
                    "properties": {"a": {}, "b": {"type": "integer"}},
                }),
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string", "description": "d"}}),
                json!({"type": "object", "additionalProperties": {"type": "string", "description": "d"}}),
            ),
        ] {
            assert_eq!(structural(&declared, 0), told, "{declared}");
        }
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true});
        let told = structural(&embedded, 0);
        assert_eq!(told["required"], json!(["kind", "apiVersion"]));
        assert_eq!(told["properties"]["metadata"], reference(OBJECT_META));
    }

    #[test]
    fn tells_definitions_with_their_kinds() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
        let document = document([gadget(&schema)], &Descriptions::default());
        let kind = json!([{"group": "example.com", "version": "v1", "kind": "Gadget"}]);
        let told = &document["definitions"]["com.example.v1.Gadget"];
        assert_eq!(told["x-kubernetes-group-version-kind"], kind);
        assert_eq!(told["properties"]["spec"], json!({"type": "object"}));
        assert!(document["definitions"][OBJECT_META]["properties"]["name"].is_object());
        assert!(document["definitions"][LIST_META].is_object());
        let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}"]
            ["patch"];
        assert_eq!(patch["parameters"][0]["in"], "body");
        assert_eq!(patch["x-kubernetes-action"], "patch");
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let told = custom(&gadget(&open), &open);
        assert_eq!(
            told,
            json!({"type": "object", "x-kubernetes-group-version-kind": kind})
        );
    }

    #[test]
    fn refers_to_definitions_alone() {
        let ty = crate::typed::type_of("", "v1", "Pod").unwrap();
        let pods = Served {
            group: "",
            version: "v1",
            plural: "pods",
            kind: "Pod",
            schema: Source::Type(ty),
            ..gadget(&Value::Null)
        };
        let document = document([pods], &Descriptions::default());
        let text = document.to_string();
        for newer in ["#/components", "oneOf", "allOf", "requestBody"] {
            assert!(!text.contains(newer), "{newer}");
        }
        let container =
            &document["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(container["x-kubernetes-patch-merge-key"], "name");
        assert!(to_protobuf(&document).len() > 1000);
    }
}
