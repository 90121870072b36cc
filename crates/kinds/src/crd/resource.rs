//! Compiled definitions: the schemas and rules of custom resources, by version.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value as Json;

use lockgate_api::field::{FieldErrors, Path as FieldPath};
use lockgate_api::meta::names;
use lockgate_api::meta::validation::{
    SUBDOMAIN_NAMES, validate_metadata, validate_metadata_update,
};
use lockgate_cel::ext::named_format::NamedFormat;
use lockgate_go::quote::quote;

use super::scale::ScalePaths;
use crate::structural::json::{copy, equal, shown, verbose};
use crate::structural::props::Props;
use crate::structural::{Findings, Schema, SchemaError, error, metadata};

/// The scope of a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Objects belong to a namespace.
    Namespaced,
    /// Objects are cluster-scoped.
    Cluster,
}

/// The conversion between versions.
#[derive(Debug, Clone, PartialEq)]
pub enum Conversion {
    /// Only `apiVersion` is changed.
    None,
    /// A webhook converts, configured by `spec.conversion.webhook`.
    Webhook(Json),
}

/// A printer column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its title.
    pub name: String,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub kind: String,
    /// The format of the type; may be empty.
    pub format: String,
    /// The description; may be empty.
    pub description: String,
    /// The priority; columns above zero are printed in wide tables only.
    pub priority: i64,
    /// The JSONPath of the value.
    pub json_path: String,
}

/// One version of a custom resource.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its name, such as `v1beta1`.
    pub name: String,
    /// True if this version is served.
    pub served: bool,
    /// True for the storage version.
    pub storage: bool,
    /// The warning to clients of a deprecated version.
    pub deprecation_warning: Option<String>,
    /// The schema of its objects.
    pub schema: Schema,
    /// True if there is a status subresource.
    pub status: bool,
    /// The paths of the scale subresource, if enabled.
    pub scale: Option<ScalePaths>,
    /// The printer columns; without any, the age is printed.
    pub columns: Vec<Column>,
    /// The paths of selectable fields, such as `.spec.color`.
    pub selectable_fields: Vec<String>,
}

/// A custom resource.
#[derive(Debug, Clone)]
pub struct CustomResource {
    /// Its API group.
    pub group: String,
    /// Its plural name, as in URLs.
    pub plural: String,
    /// Its singular name.
    pub singular: String,
    /// Its short names.
    pub short_names: Vec<String>,
    /// The kind of its objects.
    pub kind: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// Its categories, such as `all`.
    pub categories: Vec<String>,
    /// The scope of its objects.
    pub scope: Scope,
    /// True if unknown fields are preserved, which `v1beta1` definitions could request.
    pub preserve_unknown_fields: bool,
    /// The conversion between versions.
    pub conversion: Conversion,
    /// The versions, in the order of the definition.
    pub versions: Vec<Version>,
}

impl CustomResource {
    /// Compiles a definition. Its names are the accepted names, or the requested ones if none was accepted yet.
    ///
    /// # Errors
    ///
    /// A schema is invalid. Validated definitions do not fail.
    pub fn compile(definition: &Json) -> Result<Self, SchemaError> {
        let empty = serde_json::Map::new();
        let spec = definition.get("spec").and_then(Json::as_object);
        let spec = Props(spec.unwrap_or(&empty));
        let names = spec.schema("names").unwrap_or(Props(&empty));
        let accepted = definition
            .pointer("/status/acceptedNames")
            .and_then(Props::new)
            .filter(|accepted| !accepted.text("plural").is_empty())
            .unwrap_or(names);
        let texts = |names: Props<'_>, name: &str| names.texts(name).map(str::to_owned).collect();
        let versions = spec
            .schemas("versions")
            .map(|version| Version::compile(version, spec))
            .collect::<Result<_, SchemaError>>()?;
        let conversion = spec.schema("conversion");
        Ok(Self {
            group: spec.text("group").to_owned(),
            plural: names.text("plural").to_owned(),
            singular: accepted.text("singular").to_owned(),
            short_names: texts(accepted, "shortNames"),
            kind: names.text("kind").to_owned(),
            list_kind: accepted.text("listKind").to_owned(),
            categories: texts(accepted, "categories"),
            scope: match spec.text("scope") {
                "Cluster" => Scope::Cluster,
                _ => Scope::Namespaced,
            },
            preserve_unknown_fields: spec.flag("preserveUnknownFields"),
            conversion: match conversion {
                Some(conversion) if conversion.text("strategy") == "Webhook" => {
                    Conversion::Webhook(conversion.get("webhook").map(copy).unwrap_or_default())
                }
                _ => Conversion::None,
            },
            versions,
        })
    }

    /// The version with this name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The storage version.
    #[must_use]
    pub fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// Validates a new object: type, metadata, schema, replicas, embedded resources, lists and validation rules, in
    /// upstream's order.
    #[must_use]
    pub fn validate_create(&self, version: &Version, object: &Json) -> Findings {
        let mut errors = self.validate_type(version, object);
        if !errors.is_empty() {
            return refused(errors);
        }
        let metadata = object.get("metadata").unwrap_or(&Json::Null);
        errors.extend(self.validate_metadata(metadata));
        let mut replicas = FieldErrors::new();
        if let Some(scale) = &version.scale {
            scale.validate_spec(object, &mut replicas);
            scale.validate_status(object, &mut replicas);
        }
        version.schema.validate_with(object, errors, replicas)
    }

    /// Validates an update.
    #[must_use]
    pub fn validate_update(&self, version: &Version, object: &Json, old: &Json) -> Findings {
        let mut errors = self.validate_type(version, object);
        if !errors.is_empty() {
            return refused(errors);
        }
        errors.extend(validate_new_metadata(object, old));
        let mut replicas = FieldErrors::new();
        if let Some(scale) = &version.scale {
            scale.validate_spec(object, &mut replicas);
            scale.validate_status(object, &mut replicas);
        }
        version
            .schema
            .validate_update_with(object, old, errors, replicas)
    }

    /// Validates a status update.
    #[must_use]
    pub fn validate_status_update(&self, version: &Version, object: &Json, old: &Json) -> Findings {
        let mut errors = self.validate_type(version, object);
        if !errors.is_empty() {
            return refused(errors);
        }
        errors.extend(validate_new_metadata(object, old));
        let mut replicas = FieldErrors::new();
        if let Some(scale) = &version.scale {
            scale.validate_status(object, &mut replicas);
        }
        version
            .schema
            .validate_status_update_with(object, old, errors, replicas)
    }

    /// The warnings about a created or updated object: finalizers with names that may collide.
    ///
    /// UPSTREAM: apiextensions-apiserver pkg/registry/customresource/validator.go
    #[must_use]
    pub fn warnings(object: &Json, old: Option<&Json>) -> Vec<String> {
        let finalizers = |object: &Json| -> BTreeSet<String> {
            let finalizers = object.pointer("/metadata/finalizers");
            let finalizers = finalizers.and_then(Json::as_array).into_iter().flatten();
            finalizers
                .filter_map(Json::as_str)
                .map(str::to_owned)
                .collect()
        };
        let had = old.map(finalizers).unwrap_or_default();
        let added = finalizers(object);
        let mut warnings = Vec::new();
        for name in added.difference(&had) {
            let mut warn = |text: &str| {
                warnings.push(format!("metadata.finalizers: {}: {text}", quote(name)));
            };
            names::check_qualified_name(name)
                .iter()
                .for_each(|text| warn(text));
            let is_known = matches!(&**name, "orphan" | "foregroundDeletion" | "kubernetes");
            if name.contains('/') || is_known {
                continue;
            }
            let path = if name.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            warn(&format!(
                "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with \
                 other finalizer writers"
            ));
        }
        warnings
    }

    fn validate_type(&self, version: &Version, object: &Json) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let text = |name: &str| object.get(name).and_then(Json::as_str).unwrap_or_default();
        let mut check = |name: &str, want: &str| {
            if text(name) != want {
                let detail = format!("must be {want}");
                errors.push(error::invalid_text(&name, text(name), detail));
            }
        };
        check("kind", &self.kind);
        check("apiVersion", &format!("{}/{}", self.group, version.name));
        errors
    }

    fn validate_metadata(&self, metadata: &Json) -> FieldErrors {
        let path = FieldPath::root("metadata");
        let mut meta = match metadata::decode(metadata) {
            Ok(meta) => meta,
            Err(reason) => return vec![error::invalid(&"metadata", &shown(metadata), reason)],
        };
        if self.scope == Scope::Cluster {
            return validate_metadata(&meta, SUBDOMAIN_NAMES, &path);
        }
        let namespace = std::mem::take(&mut meta.namespace);
        let mut errors = validate_metadata(&meta, SUBDOMAIN_NAMES, &path);
        // The namespace is validated right after the names.
        let names = ["metadata.generateName", "metadata.name"];
        let after = errors
            .iter()
            .take_while(|error| names.contains(&error.field.as_str()))
            .count();
        let place = "metadata.namespace";
        let found: FieldErrors = if namespace.is_empty() {
            vec![error::required(&place, "")]
        } else {
            let messages = NamedFormat::Dns1123Label.validate(&namespace).into_iter();
            messages
                .map(|message| error::invalid_text(&place, &namespace, message))
                .collect()
        };
        errors.splice(after..after, found);
        errors
    }
}

fn refused(errors: FieldErrors) -> Findings {
    Findings {
        errors,
        warnings: Vec::new(),
    }
}

fn validate_new_metadata(object: &Json, old: &Json) -> FieldErrors {
    let decode = |object: &Json| {
        let metadata = object.get("metadata").unwrap_or(&Json::Null);
        metadata::decode(metadata)
            .map_err(|reason| vec![error::invalid(&"metadata", &shown(metadata), reason)])
    };
    match (decode(object), decode(old)) {
        (Ok(new), Ok(old)) => validate_metadata_update(&new, &old, &FieldPath::root("metadata")),
        (Err(errors), _) | (_, Err(errors)) => errors,
    }
}

impl Version {
    fn compile(version: Props<'_>, spec: Props<'_>) -> Result<Self, SchemaError> {
        let schema = version
            .schema("schema")
            .and_then(|schema| schema.get("openAPIV3Schema"));
        let schema = match schema {
            Some(schema) => Schema::parse(schema)?,
            // The schema is optional only with `preserveUnknownFields`.
            None => Schema::parse(&serde_json::json!({
                "x-kubernetes-preserve-unknown-fields": true,
            }))?,
        };
        let subresources = version.schema("subresources");
        let name = version.text("name");
        let warning = version.flag("deprecated").then(|| {
            let given = version.opt_text("deprecationWarning").map(str::to_owned);
            given.unwrap_or_else(|| default_warning(name, spec))
        });
        Ok(Self {
            name: name.to_owned(),
            served: version.flag("served"),
            storage: version.flag("storage"),
            deprecation_warning: warning,
            schema,
            status: subresources.is_some_and(|subresources| subresources.has("status")),
            scale: subresources
                .and_then(|subresources| subresources.schema("scale"))
                .map(ScalePaths::read),
            columns: version
                .schemas("additionalPrinterColumns")
                .map(Column::read)
                .collect(),
            selectable_fields: version
                .schemas("selectableFields")
                .map(|field| field.text("jsonPath").to_owned())
                .collect(),
        })
    }

    /// The selectable fields of an object, without the leading dot, and their values; an absent field is empty.
    #[must_use]
    pub fn selectable_values(&self, object: &Json) -> Vec<(String, String)> {
        let value = |path: &String| {
            let name = path.strip_prefix('.').unwrap_or(path);
            let mut names = name.split('.');
            let found = names.try_fold(object, |object, name| object.get(name));
            let text = match found {
                None | Some(Json::Null) => String::new(),
                Some(value) => verbose(value),
            };
            (name.to_owned(), text)
        };
        self.selectable_fields.iter().map(value).collect()
    }

    /// Resets fields that a client cannot set on create.
    ///
    /// UPSTREAM: apiextensions-apiserver pkg/registry/customresource/strategy.go
    pub fn prepare_create(&self, object: &mut Json) {
        if let Some(entries) = object.as_object_mut()
            && self.status
        {
            entries.remove("status");
        }
        set_generation(object, 1);
    }

    /// Resets fields that a client cannot set on update, and increments the generation on changes outside metadata.
    pub fn prepare_update(&self, new: &mut Json, old: &Json) {
        if let Some(entries) = new.as_object_mut()
            && self.status
        {
            match old.get("status") {
                Some(status) => drop(entries.insert("status".to_owned(), copy(status))),
                None => drop(entries.remove("status")),
            }
        }
        if !same_but_metadata(new, old) {
            let generation = old.pointer("/metadata/generation").and_then(Json::as_i64);
            set_generation(new, generation.unwrap_or(0).saturating_add(1));
        }
    }

    /// Resets everything that a status update cannot change: all fields except the status and managed fields.
    pub fn prepare_status_update(&self, new: &mut Json, old: &Json) {
        let status = new.get_mut("status").map(Json::take);
        let managed = new.pointer_mut("/metadata/managedFields").map(Json::take);
        *new = copy(old);
        let Some(entries) = new.as_object_mut() else {
            return;
        };
        match status {
            Some(status) => drop(entries.insert("status".to_owned(), status)),
            None => drop(entries.remove("status")),
        }
        if let Some(Json::Object(metadata)) = entries.get_mut("metadata") {
            match managed {
                Some(managed) => drop(metadata.insert("managedFields".to_owned(), managed)),
                None => drop(metadata.remove("managedFields")),
            }
        }
    }
}

fn set_generation(object: &mut Json, generation: i64) {
    if let Some(Json::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("generation".to_owned(), generation.into());
    }
}

fn same_but_metadata(one: &Json, other: &Json) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return false;
    };
    let count = |entries: &serde_json::Map<String, Json>| {
        entries.len() - usize::from(entries.contains_key("metadata"))
    };
    count(one) == count(other)
        && one
            .iter()
            .filter(|(name, _)| *name != "metadata")
            .all(|(name, value)| other.get(name).is_some_and(|other| equal(value, other)))
}

impl Column {
    fn read(column: Props<'_>) -> Self {
        Self {
            name: column.text("name").to_owned(),
            kind: column.text("type").to_owned(),
            format: column.text("format").to_owned(),
            description: column.text("description").to_owned(),
            priority: column.integer("priority").unwrap_or(0),
            json_path: column.text("jsonPath").to_owned(),
        }
    }
}

/// The default warning about a deprecated version.
///
/// UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go
fn default_warning(name: &str, spec: Props<'_>) -> String {
    let group = spec.text("group");
    let kind = spec
        .schema("names")
        .map(|names| names.text("kind"))
        .unwrap_or_default();
    let mut warning = format!("{group}/{name} {kind} is deprecated");
    let better = spec
        .schemas("versions")
        .filter(|version| version.flag("served") && !version.flag("deprecated"))
        .map(|version| version.text("name"))
        .filter(|other| compare_versions(name, other) == Ordering::Less)
        .max_by(|a, b| compare_versions(a, b));
    if let Some(better) = better {
        warning.push_str(&format!("; use {group}/{better} {kind}"));
    }
    warning
}

/// Orders versions by stability and number: `v1alpha1` < `v1beta2` < `v1` < `v2`. Other names come first, in reverse
/// alphabetical order.
///
/// UPSTREAM: apimachinery pkg/version/helpers.go
fn compare_versions(one: &str, other: &str) -> Ordering {
    fn parse(version: &str) -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let number = |text: &str| {
            let is_plain = !text.starts_with(['0', '+']);
            text.parse::<u64>().ok().filter(|_| is_plain)
        };
        let at = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (major, rest) = rest.split_at(at);
        let major = number(major)?;
        for (stage, name) in [(1, "alpha"), (2, "beta")] {
            if let Some(minor) = rest.strip_prefix(name) {
                return Some((stage, major, number(minor)?));
            }
        }
        rest.is_empty().then_some((3, major, 0))
    }
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (None, None) => other.cmp(one),
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn widgets() -> CustomResource {
        let version = |name: &str, extra: Json| {
            let mut version = json!({ "name": name, "served": true, "storage": name == "v1",
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": {
                        "replicas": { "type": "integer" },
                    } },
                    "status": { "type": "object", "properties": {
                        "replicas": { "type": "integer" },
                    } },
                } } } });
            for (name, value) in extra.as_object().unwrap() {
                version[name] = value.clone();
            }
            version
        };
        let mut definition = json!({
            "metadata": { "name": "widgets.example.com" },
            "spec": {
                "group": "example.com",
                "names": { "plural": "widgets", "kind": "Widget", "shortNames": ["w"] },
                "scope": "Namespaced",
                "versions": [
                    version("v1alpha1", json!({ "deprecated": true })),
                    version("v1beta1", json!({ "deprecated": true, "deprecationWarning": "old" })),
                    version("v1", json!({
                        "subresources": { "status": {}, "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                        } },
                        "additionalPrinterColumns": [
                            { "name": "Size", "type": "integer", "jsonPath": ".spec.replicas",
                              "priority": 1 },
                        ],
                        "selectableFields": [{ "jsonPath": ".spec.replicas" }],
                    })),
                    version("v2", json!({ "served": false })),
                ],
            },
        });
        crate::crd::defaults(&mut definition);
        CustomResource::compile(&definition).unwrap()
    }

    #[test]
    fn a_definition_is_compiled() {
        let widgets = widgets();
        assert_eq!(
            (&*widgets.singular, &*widgets.list_kind),
            ("widget", "WidgetList")
        );
        assert_eq!(widgets.short_names, ["w"]);
        assert_eq!(
            (widgets.scope, &widgets.conversion),
            (Scope::Namespaced, &Conversion::None)
        );
        let warnings: Vec<_> = widgets
            .versions
            .iter()
            .map(|version| version.deprecation_warning.as_deref())
            .collect();
        let warning = "example.com/v1alpha1 Widget is deprecated; use example.com/v1 Widget";
        assert_eq!(warnings, [Some(warning), Some("old"), None, None]);
        let v1 = widgets.storage_version().unwrap();
        assert_eq!(v1.name, "v1");
        assert!(v1.status && v1.scale.is_some());
        assert_eq!(v1.columns[0].json_path, ".spec.replicas");
        assert_eq!(v1.selectable_fields, [".spec.replicas"]);
        let v2 = widgets.version("v2").unwrap();
        assert!(!v2.served && !v2.status && v2.scale.is_none() && v2.columns.is_empty());
    }

    #[test]
    fn versions_are_ordered_by_stability() {
        let mut versions = [
            "v10",
            "v2",
            "v1",
            "v2beta1",
            "v11beta2",
            "v3beta1",
            "v12alpha1",
            "foo1",
            "v01",
            "va",
        ];
        let sorted = [
            "va",
            "v01",
            "foo1",
            "v12alpha1",
            "v2beta1",
            "v3beta1",
            "v11beta2",
            "v1",
            "v2",
            "v10",
        ];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(versions, sorted);
    }

    fn widget(changes: Json) -> Json {
        let mut widget = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {
            "name": "a", "namespace": "b", "resourceVersion": "1", "uid": "u" } });
        for (name, value) in changes.as_object().unwrap() {
            widget[name] = value.clone();
        }
        widget
    }

    fn texts(findings: &Findings) -> Vec<String> {
        findings.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn objects_are_checked_in_order() {
        let widgets = widgets();
        let v1 = widgets.version("v1").unwrap();
        assert_eq!(
            texts(&widgets.validate_create(v1, &widget(json!({})))),
            [""; 0]
        );
        let other = json!({ "apiVersion": "example.com/v2", "kind": "Gadget" });
        assert_eq!(
            texts(&widgets.validate_create(v1, &other)),
            [
                "kind: Invalid value: \"Gadget\": must be Widget",
                "apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1",
            ]
        );
        let bad = widget(
            json!({ "metadata": {}, "spec": { "replicas": -1 }, "status": {
            "replicas": "x" } }),
        );
        assert_eq!(
            texts(&widgets.validate_create(v1, &bad)),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value",
                "status.replicas: Invalid value: \"string\": status.replicas in body must be of \
                 type integer: \"string\"",
                ".spec.replicas: Invalid value: -1: should be a non-negative integer",
                ".status.replicas: Invalid value: 0: .status.replicas accessor error: x is of the \
                 type string, expected int64",
            ]
        );
        let mut old = widget(json!({}));
        old["metadata"]["uid"] = "v".into();
        let found = widgets.validate_update(v1, &widget(json!({})), &old);
        let immutable = "metadata.uid: Invalid value: \"u\": field is immutable";
        assert_eq!(texts(&found), [immutable]);
        let status = widget(json!({ "spec": 5, "status": { "replicas": -1 } }));
        let found = widgets.validate_status_update(v1, &status, &widget(json!({})));
        let negative = ".status.replicas: Invalid value: -1: should be a non-negative integer";
        assert_eq!(texts(&found), [negative]);
    }

    #[test]
    fn fields_to_select_by_are_texts() {
        let widgets = widgets();
        let mut v1 = widgets.version("v1").unwrap().clone();
        v1.selectable_fields = [".spec.a", ".spec.b", ".spec.c", ".none.x"]
            .map(str::to_owned)
            .to_vec();
        let values = v1.selectable_values(&json!({ "spec": { "a": "x", "b": 3, "c": true } }));
        let values: Vec<_> = values
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let want = [
            ("spec.a", "x"),
            ("spec.b", "3"),
            ("spec.c", "true"),
            ("none.x", ""),
        ];
        assert_eq!(values, want);
    }

    #[test]
    fn names_of_new_finalizers_are_looked_at() {
        let with = |finalizers: Json| json!({ "metadata": { "finalizers": finalizers } });
        let new = with(json!(["orphan", "plain", "a.b", "a.b/c", "old", "x y/z"]));
        assert_eq!(
            CustomResource::warnings(&new, Some(&with(json!(["old"])))),
            [
                "metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a \
                 path (/) to avoid accidental conflicts with other finalizer writers",
                "metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name to avoid \
                 accidental conflicts with other finalizer writers",
                "metadata.finalizers: \"x y/z\": prefix part a lowercase RFC 1123 subdomain must \
                 consist of lower case alphanumeric characters, '-' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ]
        );
    }

    #[test]
    fn a_status_subresource_keeps_both_halves_apart() {
        let widgets = widgets();
        let (v1, v2) = (
            widgets.version("v1").unwrap(),
            widgets.version("v2").unwrap(),
        );
        let mut created = widget(json!({ "spec": {}, "status": { "replicas": 1 } }));
        let mut without = created.clone();
        v1.prepare_create(&mut created);
        assert_eq!(created.get("status"), None);
        assert_eq!(created["metadata"]["generation"], 1);
        v2.prepare_create(&mut without);
        assert_eq!(without["status"]["replicas"], 1);

        let mut old = created.clone();
        old["status"] = json!({ "replicas": 2 });
        let mut new = created.clone();
        new["metadata"]["labels"] = json!({ "a": "b" });
        v1.prepare_update(&mut new, &old);
        assert_eq!(
            (&new["status"], &new["metadata"]["generation"]),
            (&old["status"], &1.into())
        );
        new["spec"]["replicas"] = 3.into();
        v1.prepare_update(&mut new, &old);
        assert_eq!(new["metadata"]["generation"], 2);
        let mut new = created.clone();
        v2.prepare_update(&mut new, &old);
        assert_eq!(
            (new.get("status"), &new["metadata"]["generation"]),
            (None, &2.into())
        );

        let mut new = widget(json!({ "spec": { "replicas": 9 }, "status": { "replicas": 3 } }));
        new["metadata"]["labels"] = json!({ "a": "b" });
        new["metadata"]["managedFields"] = json!([{ "manager": "m" }]);
        v1.prepare_status_update(&mut new, &old);
        let mut want = old.clone();
        want["status"]["replicas"] = 3.into();
        want["metadata"]["managedFields"] = json!([{ "manager": "m" }]);
        assert_eq!(new, want);
    }
}
