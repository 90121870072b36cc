//! Custom resources: the served resources of a CustomResourceDefinition.

pub(crate) mod conversion;

use std::sync::Arc;

use lockgate_api::document;
use lockgate_api::field::FieldErrors;
use lockgate_go::quote::quote;
use lockgate_kinds::crd::{Column, CustomResource, ScalePaths, Scope, Version};
use lockgate_kinds::kind::{Context, Kind, Written};
use lockgate_kinds::structural::{Schema, Source};
use lockgate_kinds::tree;
use serde_json::Value;

use crate::metadata;
use crate::registry::kube_version::VersionRank;
use crate::registry::shape_error::ShapeError;
use crate::registry::{Names, Resource, Rules, Shape, Subresource};
use conversion::Conversion;

/// The verbs of every custom resource.
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// The verbs of its subresources.
const PART_VERBS: [&str; 3] = ["get", "patch", "update"];

/// One version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    resource: Arc<CustomResource>,
    version: Version,
    conversion: Arc<Conversion>,
    /// True while the CustomResourceDefinition is being deleted and accepts no new objects.
    terminating: bool,
    /// The schema of the CustomResourceDefinition, for documents.
    told: Value,
}

impl CustomVersion {
    /// Decodes an object with its defaults, and returns the strict decoding findings.
    pub(crate) fn decode(
        &self,
        root: document::Value<'_>,
    ) -> Result<(Value, Vec<String>), ShapeError> {
        tree::check_numbers(root)?;
        let mut findings = document::duplicates(root);
        let (mut object, unknown) = self.decode_value(tree::from_document(root))?;
        findings.extend(unknown);
        self.apply_defaults(&mut object);
        Ok((object, findings))
    }

    /// Decodes an object from a tree, without defaults.
    pub(crate) fn decode_value(&self, object: Value) -> Result<(Value, Vec<String>), ShapeError> {
        self.decode_from(object, Source::Request)
    }

    /// Decodes the result of an apply configuration merged into an object.
    pub(crate) fn decode_applied(&self, object: Value) -> Result<(Value, Vec<String>), ShapeError> {
        self.decode_from(object, Source::Applied)
    }

    fn decode_from(
        &self,
        mut object: Value,
        source: Source,
    ) -> Result<(Value, Vec<String>), ShapeError> {
        tree::read_numbers(&mut object);
        let unknown = self.version.schema.read(&mut object, source)?;
        let findings = unknown
            .iter()
            .map(|path| format!("unknown field {}", quote(path)))
            .collect();
        Ok((object, findings))
    }

    /// Returns true while the CustomResourceDefinition is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// The schema of the CustomResourceDefinition.
    pub(crate) fn declared_schema(&self) -> &Value {
        &self.told
    }

    /// The columns of tables.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.version.columns
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.version.schema
    }

    fn prune(&self, object: &mut Value) {
        if !self.resource.preserve_unknown_fields {
            self.version.schema.prune(object);
        }
    }

    pub(crate) fn scale_paths(&self) -> Option<&ScalePaths> {
        self.version.scale.as_ref()
    }

    pub(crate) fn supports_field_label(&self, label: &str) -> bool {
        matches!(label, "metadata.name" | "metadata.namespace")
            || self
                .version
                .selectable_fields
                .iter()
                .any(|path| path.trim_start_matches('.') == label)
    }

    pub(crate) fn read_field(&self, label: &str, object: &Value) -> String {
        let value = label
            .split('.')
            .try_fold(object, |value, member| value.get(member));
        match value {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
            _ => String::new(),
        }
    }

    pub(crate) fn conversion(&self) -> &Conversion {
        &self.conversion
    }

    /// Applies the current schema to a stored object.
    pub(crate) fn read_stored(&self, object: &mut Value) {
        self.prune(object);
        self.version.schema.drop_nulls(object);
        self.apply_defaults(object);
    }

    /// Applies the schema to a converted object. Defaults are those of the storage version.
    ///
    /// UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go (schemaCoercingConverter)
    pub(crate) fn coerce(&self, object: &mut Value) -> Result<(), ShapeError> {
        self.version.schema.read(object, Source::Request)?;
        Ok(())
    }

    /// Converts an admitted object to the form in which it is read from the store.
    pub(crate) fn complete(&self, object: &mut Value) -> Result<(), ShapeError> {
        self.version.schema.read(object, Source::Store)?;
        self.apply_defaults(object);
        Ok(())
    }
}

impl Kind for CustomVersion {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" => &[&["status"]],
            "status" => &[&["metadata"], &["spec"]],
            _ => &[],
        }
    }

    fn apply_defaults(&self, value: &mut Value) {
        self.version.schema.default(value);
    }

    fn canonicalize(&self, value: &mut Value) {
        tree::store_numbers(value);
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        self.version.prepare_create(value);
    }

    fn validate_create(&self, new: &Written<'_>, _context: &Context<'_>) -> FieldErrors {
        self.resource
            .validate_create(&self.version, new.value)
            .errors
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if subresource == "status" {
            self.version.prepare_status_update(value, old);
        } else {
            self.version.prepare_update(value, old);
        }
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> FieldErrors {
        let (new, old) = (new.value, old.value);
        let findings = if subresource == "status" {
            self.resource
                .validate_status_update(&self.version, new, old)
        } else {
            self.resource.validate_update(&self.version, new, old)
        };
        findings.errors
    }

    fn unsupported_field_label(&self, label: &str) -> String {
        format!("field label not supported: {label}")
    }
}

/// The resources of a CustomResourceDefinition, one per version; none before it is established.
pub(crate) fn resources(definition: &Value) -> Vec<Arc<Resource>> {
    if !lockgate_kinds::crd::has_status(definition, "Established", "True") {
        return Vec::new();
    }
    let custom = match CustomResource::compile(definition) {
        Ok(custom) => Arc::new(custom),
        Err(error) => {
            let name = metadata::text(definition, "name");
            tracing::error!(%error, definition = name, "cannot compile the schema of a stored CustomResourceDefinition");
            return Vec::new();
        }
    };
    let names = Names {
        group: custom.group.clone(),
        plural: custom.plural.clone(),
        singular: custom.singular.clone(),
        kind: custom.kind.clone(),
        list_kind: custom.list_kind.clone(),
        namespaced: custom.scope == Scope::Namespaced,
        short_names: custom.short_names.clone(),
        categories: custom.categories.clone(),
        verbs: VERBS.map(String::from).to_vec(),
    };
    let conversion = Arc::new(Conversion::read(&custom.conversion));
    let terminating = lockgate_kinds::crd::has_status(definition, "Terminating", "True");
    let storage = custom
        .storage_version()
        .map_or_else(String::new, |version| version.name.clone());
    let mut versions: Vec<&Version> = custom.versions.iter().collect();
    versions.sort_by_key(|version| VersionRank::of(&version.name));
    versions
        .into_iter()
        .map(|version| {
            let schema = declared_schema(definition, &version.name);
            let mut resource = resource(
                &names,
                CustomVersion {
                    resource: Arc::clone(&custom),
                    version: version.clone(),
                    conversion: Arc::clone(&conversion),
                    terminating,
                    told: schema,
                },
            );
            resource.storage_version = (names.group.clone(), storage.clone());
            Arc::new(resource)
        })
        .collect()
}

/// The schema of a version in a CustomResourceDefinition.
fn declared_schema(definition: &Value, version: &str) -> Value {
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let found = versions
        .into_iter()
        .flatten()
        .find(|found| found.get("name").and_then(Value::as_str) == Some(version));
    let schema = found.and_then(|found| found.pointer("/schema/openAPIV3Schema"));
    schema.map(tree::copy).unwrap_or_default()
}

fn resource(names: &Names, custom: CustomVersion) -> Resource {
    let version = custom.version.clone();
    let part = |name: &str, group: &str, version: &str, kind: &str| Subresource {
        name: name.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: PART_VERBS.map(String::from).to_vec(),
    };
    let mut parts = Vec::new();
    if version.scale.is_some() {
        parts.push(part("scale", "autoscaling", "v1", "Scale"));
    }
    if version.status {
        parts.push(part("status", &names.group, &version.name, &names.kind));
    }
    let rules = Rules {
        create_on_update: false,
        unconditional_update: false,
        graceful: false,
    };
    let shape = Shape::Custom(Arc::new(custom));
    let mut resource = Resource::new(names.clone(), &version.name, parts, rules, shape);
    resource.served = version.served;
    resource.warning.clone_from(&version.deprecation_warning);
    resource
}
