//! The schemas of a document: each type once, by reference.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::tree;
use crate::typed::{Field, Form, Type, type_of};

use super::{Descriptions, Served, Source, group_version_kind, reference};

/// The schemas of a document.
#[derive(Debug)]
pub(super) struct Schemas<'d> {
    descriptions: &'d Descriptions,
    names: HashMap<Type, String>,
    /// Referenced types whose schemas are still to be added.
    waiting: Vec<Type>,
    kinds: HashMap<String, Vec<Value>>,
    done: Map<String, Value>,
}

/// A type whose first fields are those of every object.
const ANY_OBJECT: &str = "io.k8s.api.core.v1.Pod";

impl<'d> Schemas<'d> {
    pub(super) fn new(descriptions: &'d Descriptions) -> Self {
        Self {
            descriptions,
            names: HashMap::new(),
            waiting: Vec::new(),
            kinds: HashMap::new(),
            done: Map::new(),
        }
    }

    /// Adds the schema of a resource's objects, and returns its name.
    pub(super) fn add_kind(&mut self, resource: &Served<'_>) -> String {
        let kind = group_version_kind([resource.group, resource.version, resource.kind]);
        let name = match resource.schema {
            Source::Type(ty) => self.name(ty),
            Source::Custom(schema) => self.add_custom(resource, schema),
        };
        self.kinds.entry(name.clone()).or_default().push(kind);
        name
    }

    /// Adds `ObjectMeta` and `ListMeta`, which schemas of definitions reference.
    pub(super) fn add_metadata(&mut self) {
        let of = |kind: &str, group: &str| type_of(group, "v1", kind)?.field("metadata");
        let fields = [of("PartialObjectMetadata", "meta.k8s.io"), of("Status", "")];
        for field in fields.into_iter().flatten() {
            self.name(field.ty());
        }
    }

    /// The schemas by name.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        while let Some(ty) = self.waiting.pop() {
            let mut schema = self.definition(ty);
            let name = self.name(ty);
            if let Some(text) = self.descriptions.of(&name, "") {
                schema["description"] = text.into();
            }
            self.done.insert(name, schema);
        }
        for (name, kinds) in self.kinds {
            if let Some(Value::Object(schema)) = self.done.get_mut(&name) {
                schema.insert(
                    String::from("x-kubernetes-group-version-kind"),
                    kinds.into(),
                );
            }
        }
        self.done
    }

    fn name(&mut self, ty: Type) -> String {
        let ty = ty.target();
        if let Some(name) = self.names.get(&ty) {
            return name.clone();
        }
        let name = ty.model_name().to_owned();
        self.names.insert(ty, name.clone());
        self.waiting.push(ty);
        name
    }

    fn add_custom(&mut self, resource: &Served<'_>, schema: &Value) -> String {
        let group: Vec<&str> = resource.group.rsplit('.').collect();
        let name = format!("{}.{}.{}", group.join("."), resource.version, resource.kind);
        let mut schema = match tree::copy(schema) {
            schema @ Value::Object(_) => schema,
            // Without a schema, all fields are preserved.
            _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        };
        let metadata = type_of("meta.k8s.io", "v1", "PartialObjectMetadata")
            .and_then(|ty| ty.field("metadata"))
            .map(|field| self.schema_of(field.ty()));
        if let Some(members) = schema.as_object_mut() {
            let properties = members.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                let text = Some(json!({"type": "string"}));
                let members = [
                    ("apiVersion", &text),
                    ("kind", &text),
                    ("metadata", &metadata),
                ];
                for (member, schema) in members {
                    if let Some(mut schema) = schema.clone() {
                        let said = self.descriptions.of(ANY_OBJECT, member);
                        add_keywords(&mut schema, said.map(|said| ("description", said.into())));
                        properties.insert(member.to_owned(), schema);
                    }
                }
            }
        }
        self.done.insert(name.clone(), schema);
        name
    }

    /// The schema of a field of this type.
    fn schema_of(&mut self, ty: Type) -> Value {
        match ty.form() {
            Form::Text => match ty.enumeration() {
                [] => json!({"type": "string"}),
                values => json!({"type": "string", "enum": values}),
            },
            Form::Bool => json!({"type": "boolean"}),
            Form::Integer(bits) => json!({"type": "integer", "format": format!("int{bits}")}),
            Form::Double => json!({"type": "number", "format": "double"}),
            Form::Bytes => json!({"type": "string", "format": "byte"}),
            Form::List(element) => json!({"type": "array", "items": self.schema_of(element)}),
            Form::Map(element) => {
                json!({"type": "object", "additionalProperties": self.schema_of(element)})
            }
            Form::Time
            | Form::MicroTime
            | Form::Quantity
            | Form::IntOrString
            | Form::Raw
            | Form::SchemaOrBool(_)
            | Form::SchemaOrArray(_)
            | Form::SchemaOrTexts(_)
            | Form::Struct => reference(&self.name(ty)),
        }
    }

    /// The schema of a referenced type.
    fn definition(&mut self, ty: Type) -> Value {
        match ty.form() {
            Form::Time | Form::MicroTime => json!({"type": "string", "format": "date-time"}),
            Form::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            Form::IntOrString => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            Form::Raw if ty.go_name() == "v1.JSON" => json!({}),
            Form::Raw => json!({"type": "object"}),
            Form::Struct => self.object(ty),
            _ => json!({}),
        }
    }

    fn object(&mut self, ty: Type) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in ty.fields() {
            if field.is_required() {
                required.push(Value::from(field.name()));
            }
            let member = self.member(ty, field);
            properties.insert(field.name().to_owned(), member);
        }
        let mut schema = json!({"type": "object"});
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if ty.is_atomic_struct() {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        schema
    }

    /// The schema of a field with its merge strategy and description.
    fn member(&mut self, ty: Type, field: Field) -> Value {
        let mut schema = self.schema_of(field.ty());
        let strategies: Vec<&str> = field.patch_strategies().collect();
        let extensions = [
            ("x-kubernetes-patch-strategy", strategies.join(",")),
            (
                "x-kubernetes-patch-merge-key",
                field.patch_merge_key().to_owned(),
            ),
            ("x-kubernetes-list-type", field.list_type().to_owned()),
            ("x-kubernetes-map-type", field.map_type().to_owned()),
        ];
        let mut told: Vec<(&str, Value)> = extensions
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, value.into()))
            .collect();
        if !field.list_map_keys().is_empty() {
            told.push(("x-kubernetes-list-map-keys", json!(field.list_map_keys())));
        }
        if let Some(said) = self.descriptions.of(ty.model_name(), field.name()) {
            told.push(("description", (said + &enum_description(field.ty())).into()));
        }
        add_keywords(&mut schema, told);
        schema
    }
}

/// Enums whose values have no comments upstream.
const WITHOUT_COMMENTS: [&str; 11] = [
    "v1.AllocationConfigSource",
    "v1.AzureDataDiskCachingMode",
    "v1.AzureDataDiskKind",
    "v1.DeviceAllocationMode",
    "v1.DeviceTolerationOperator",
    "v1.NodeSelectorOperator",
    "v1.PodFailurePolicyOnExitCodesOperator",
    "v1.RestartPolicy",
    "v1.ScopeSelectorOperator",
    "v1.Signal",
    "v1.TolerationOperator",
];

/// The list of values that ends the description of an enum field. It is empty for enums whose values have comments
/// upstream: the published OpenAPI, the source of descriptions, contains neither.
// UPSTREAM: kube-openapi/pkg/generators/enum.go DescriptionLines.
fn enum_description(ty: Type) -> String {
    if ty.enumeration().is_empty() || !WITHOUT_COMMENTS.contains(&ty.go_name()) {
        return String::new();
    }
    let lines = ty
        .enumeration()
        .iter()
        .map(|value| format!("\n - `\"{value}\"`"));
    format!("\n\nPossible enum values:{}", lines.collect::<String>())
}

/// Adds keywords to a schema. Siblings of `$ref` are ignored, so a reference is wrapped in `allOf`.
fn add_keywords<'k>(schema: &mut Value, told: impl IntoIterator<Item = (&'k str, Value)>) {
    for (name, value) in told {
        if schema.get("$ref").is_some() {
            *schema = json!({"allOf": [schema.take()]});
        }
        schema[name] = value;
    }
}
