//! The kinds of an offline cluster: the built-in ones, and those of its CustomResourceDefinitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lockgate_admission::equality;
use lockgate_admission::host::{
    BoxFuture, ConvertError, DecodeError, Equivalent, Kinds, MergeError, check_is_object,
};
use lockgate_admission::object::{Object, Unwritten};
use lockgate_admission::request::{kind, resource};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::meta::time::Time;
use lockgate_kinds::crd::{Conversion, CustomResource, Scope, Version};
use lockgate_kinds::managed_fields::{Shape as Owned, merge_configuration};
use lockgate_kinds::resource::{self as rows, Resource as Row};
use lockgate_kinds::strategy::{self, Context, Requester};
use lockgate_kinds::structural::{SchemaError, Source};
use lockgate_kinds::typed::{Type, type_of};
use lockgate_kinds::{defaults, equality as typed_equality, tree};
use serde_json::Value;

use crate::manifest::split_api_version;

/// The scope of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Namespaced.
    Namespaced,
    /// Cluster-scoped.
    Cluster,
    /// The kind has no CustomResourceDefinition.
    Unknown,
}

/// A known resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The resource.
    pub resource: GroupVersionResource,
    /// The kind of its objects.
    pub kind: GroupVersionKind,
    /// The scope.
    pub placement: Placement,
}

/// The kinds of an offline cluster.
#[derive(Debug, Clone, Default)]
pub struct OfflineKinds {
    custom: Vec<Arc<CustomResource>>,
    equivalents: HashMap<GroupVersionResourceKey, Arc<[Equivalent]>>,
}

type GroupVersionResourceKey = (String, String, String);

/// The schema of the objects of a kind.
enum Shape<'k> {
    BuiltIn(Type),
    Custom(&'k CustomResource, &'k Version),
    Unknown,
}

impl OfflineKinds {
    /// Adds the kinds of a CustomResourceDefinition; one of the same name is replaced.
    ///
    /// # Errors
    ///
    /// Fails if a schema is invalid.
    pub fn define(&mut self, definition: &Value) -> Result<(), SchemaError> {
        let custom = Arc::new(CustomResource::compile(definition)?);
        let is_other = |known: &Arc<CustomResource>| {
            (&known.group, &known.plural) != (&custom.group, &custom.plural)
        };
        self.custom.retain(is_other);
        let equivalents: Arc<[Equivalent]> = custom
            .versions
            .iter()
            .map(|version| Equivalent {
                resource: resource(&custom.group, &version.name, &custom.plural),
                kind: Some(kind(&custom.group, &version.name, &custom.kind)),
            })
            .collect();
        for equivalent in equivalents.iter() {
            let key = key(&equivalent.resource);
            self.equivalents.insert(key, Arc::clone(&equivalents));
        }
        self.custom.push(custom);
        Ok(())
    }

    fn custom(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<(&CustomResource, &Version)> {
        let mut custom = self.custom.iter();
        let custom = custom.find(|custom| custom.group == group && custom.kind == kind)?;
        Some((&**custom, custom.version(version)?))
    }

    fn shape(&self, of: &GroupVersionKind) -> Shape<'_> {
        if let Some((custom, version)) = self.custom(&of.group, &of.version, &of.kind) {
            return Shape::Custom(custom, version);
        }
        match type_of(&of.group, &of.version, &of.kind) {
            Some(ty) => Shape::BuiltIn(ty),
            None => Shape::Unknown,
        }
    }

    /// The resource of a kind. Without a CustomResourceDefinition, the plural is guessed.
    #[must_use]
    pub fn of_kind(&self, of: &GroupVersionKind) -> Known {
        let GroupVersionKind { group, version, .. } = of;
        let known = |plural: &str, placement| Known {
            resource: resource(group, version, plural),
            kind: of.clone(),
            placement,
        };
        if let Some(row) = rows::by_kind(group, version, &of.kind) {
            return known(row.plural, placement(row.namespaced));
        }
        match self.custom(group, version, &of.kind) {
            Some((custom, _)) => {
                known(&custom.plural, placement(custom.scope == Scope::Namespaced))
            }
            None => known(&guessed_plural(&of.kind), Placement::Unknown),
        }
    }

    /// The kind of a resource, if known.
    #[must_use]
    pub fn of_resource(&self, of: &GroupVersionResource) -> Option<Known> {
        let GroupVersionResource {
            group,
            version,
            resource: plural,
        } = of;
        if let Some(row) = rows::find(group, version, plural) {
            return Some(Known {
                resource: of.clone(),
                kind: kind(group, version, row.kind),
                placement: placement(row.namespaced),
            });
        }
        let mut custom = self.custom.iter();
        let custom = custom.find(|it| it.group == *group && it.plural == *plural)?;
        custom.version(version)?;
        Some(Known {
            resource: of.clone(),
            kind: kind(group, version, &custom.kind),
            placement: placement(custom.scope == Scope::Namespaced),
        })
    }

    /// The kind of a built-in resource's subresource, if it differs.
    #[must_use]
    pub fn of_subresource(
        &self,
        of: &GroupVersionResource,
        name: &str,
    ) -> Option<GroupVersionKind> {
        let row = rows::find(&of.group, &of.version, &of.resource)?;
        let part = row.subresource(name)?;
        Some(kind(part.group, part.version, part.kind))
    }

    /// Decodes an object as from a client: unknown fields are dropped and reported, and defaults applied.
    ///
    /// # Errors
    ///
    /// Fails if the tree is not a valid object of its kind.
    pub fn read(
        &self,
        value: Value,
        of: &GroupVersionKind,
    ) -> Result<(Value, Vec<String>), DecodeError> {
        check_is_object(&value)?;
        match self.shape(of) {
            Shape::BuiltIn(ty) => {
                let decoded = ty.decode_value(&value).map_err(DecodeError::invalid)?;
                let mut object = decoded.value;
                name_type(&mut object, of);
                defaults::apply(&of.group, &of.version, &of.kind, &mut object);
                Ok((object, decoded.findings))
            }
            Shape::Custom(_, version) => {
                let mut object = value;
                tree::read_numbers(&mut object);
                let unknown = version.schema.read(&mut object, Source::Request);
                let unknown = unknown.map_err(DecodeError::invalid)?;
                version.schema.default(&mut object);
                let finding = |path: &String| format!("unknown field \"{path}\"");
                Ok((object, unknown.iter().map(finding).collect()))
            }
            Shape::Unknown => Ok((value, Vec::new())),
        }
    }

    /// The validation errors of a created or updated object.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        of: &GroupVersionKind,
    ) -> Vec<String> {
        if let Shape::Custom(custom, version) = self.shape(of) {
            let found = match old {
                Some(old) => custom.validate_update(version, object, old),
                None => custom.validate_create(version, object),
            };
            return found.errors.iter().map(ToString::to_string).collect();
        }
        let Some(row) = rows::by_kind(&of.group, &of.version, &of.kind) else {
            return Vec::new();
        };
        let nobody = BTreeMap::new();
        let requester = Requester {
            name: "",
            uid: "",
            groups: &[],
            extra: &nobody,
        };
        let context = Context::new(Time::from_unix_seconds(0), requester);
        let errors = match old {
            Some(old) => strategy::validate_update(row, "", object, old, &context),
            None => strategy::validate_create(row, object, &context),
        };
        errors.iter().map(ToString::to_string).collect()
    }

    /// Converts an object to another version, if no webhook is required.
    pub(crate) fn convert_now(&self, object: &Object, to: &GroupVersionKind) -> Option<Object> {
        self.converted(object, to).ok()
    }

    fn converted(&self, object: &Object, to: &GroupVersionKind) -> Result<Object, ConvertError> {
        let text = |member: &str| object.value()[member].as_str().unwrap_or_default();
        let (group, version) = split_api_version(text("apiVersion"));
        if (group, version, text("kind")) == (&to.group, &to.version, &to.kind) {
            return Ok(object.clone());
        }
        match self.shape(to) {
            Shape::BuiltIn(_) => {
                let converted =
                    lockgate_kinds::conversion::convert(object.value(), &to.group, &to.version);
                converted
                    .map(Object::new)
                    .map_err(|_| ConvertError::unknown(object, to))
            }
            Shape::Custom(custom, target) if group == to.group => {
                if let Conversion::Webhook(_) = custom.conversion {
                    return Err(ConvertError::failed(format!(
                        "{}.{} is converted by a webhook, which is not called offline",
                        custom.plural, custom.group
                    )));
                }
                let mut value = object.value().clone();
                if let Some(members) = value.as_object_mut() {
                    let api_version = format!("{}/{}", to.group, to.version);
                    members.insert(String::from("apiVersion"), api_version.into());
                }
                let read = target.schema.read(&mut value, Source::Request);
                read.map_err(ConvertError::failed)?;
                Ok(Object::new(value))
            }
            Shape::Custom(..) | Shape::Unknown => Err(ConvertError::unknown(object, to)),
        }
    }

    fn decode_built_in(
        &self,
        value: &Value,
        of: &GroupVersionKind,
        ty: Type,
    ) -> Result<(Value, Vec<String>), DecodeError> {
        let decoded = ty.decode_patched(value).map_err(DecodeError::invalid)?;
        let mut object = decoded.value;
        name_type(&mut object, of);
        Ok((object, decoded.findings))
    }
}

fn key(of: &GroupVersionResource) -> GroupVersionResourceKey {
    (of.group.clone(), of.version.clone(), of.resource.clone())
}

fn placement(is_namespaced: bool) -> Placement {
    if is_namespaced {
        Placement::Namespaced
    } else {
        Placement::Cluster
    }
}

fn name_type(object: &mut Value, of: &GroupVersionKind) {
    if let Some(members) = object.as_object_mut() {
        let api_version = match of.group.as_str() {
            "" => of.version.clone(),
            group => format!("{group}/{}", of.version),
        };
        members.insert(String::from("apiVersion"), api_version.into());
        members.insert(String::from("kind"), of.kind.clone().into());
    }
}

/// The regular plural of a kind.
fn guessed_plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    let ends = |suffix: &str| singular.ends_with(suffix);
    if ends("endpoints") {
        singular
    } else if ends("s") || ends("x") || ends("ch") || ends("sh") {
        format!("{singular}es")
    } else if let Some(stem) = singular.strip_suffix('y')
        && !stem.ends_with(['a', 'e', 'o', 'u'])
    {
        format!("{stem}ies")
    } else {
        format!("{singular}s")
    }
}

impl Kinds for OfflineKinds {
    fn equivalents(&self, of: &GroupVersionResource, subresource: &str) -> Arc<[Equivalent]> {
        let Some(row) = rows::find(&of.group, &of.version, &of.resource) else {
            let found = self.equivalents.get(&key(of)).filter(|all| all.len() > 1);
            return found.cloned().unwrap_or_default();
        };
        let same = |other: &&'static Row| {
            (other.storage.0, other.storage.2) == (row.storage.0, row.storage.2)
        };
        let all: Vec<&Row> = rows::resources().filter(same).collect();
        if all.len() < 2 {
            return Arc::default();
        }
        let equivalents = all.into_iter().filter_map(|other| {
            let kind = match subresource {
                "" => kind(other.group, other.version, other.kind),
                part => {
                    let part = other.subresource(part)?;
                    kind(part.group, part.version, part.kind)
                }
            };
            Some(Equivalent {
                resource: resource(other.group, other.version, other.plural),
                kind: Some(kind),
            })
        });
        equivalents.collect()
    }

    fn convert<'f>(
        &'f self,
        object: &'f Object,
        to: &'f GroupVersionKind,
    ) -> BoxFuture<'f, Result<Object, ConvertError>> {
        Box::pin(async move { self.converted(object, to) })
    }

    fn decode(&self, value: Value, of: &GroupVersionKind) -> Result<Value, DecodeError> {
        check_is_object(&value)?;
        match self.shape(of) {
            Shape::BuiltIn(ty) => Ok(self.decode_built_in(&value, of, ty)?.0),
            Shape::Custom(..) => {
                if value["kind"].as_str().is_none_or(str::is_empty) {
                    let text = lockgate_go::json::to_string(&value);
                    let error = format!("Object 'Kind' is missing in '{text}'");
                    return Err(DecodeError::invalid(error));
                }
                let mut value = value;
                tree::read_numbers(&mut value);
                Ok(value)
            }
            Shape::Unknown => Ok(value),
        }
    }

    fn decode_merged(&self, value: Value, of: &GroupVersionKind) -> Result<Value, DecodeError> {
        let Shape::BuiltIn(ty) = self.shape(of) else {
            return self.decode(value, of);
        };
        let decoded = ty.from_unstructured(value).map_err(|error| {
            DecodeError::invalid(format!(
                "unable to convert unstructured object to {}/{}, Kind={}: {error}",
                of.group, of.version, of.kind
            ))
        })?;
        Ok(decoded.value)
    }

    fn complete(&self, value: &mut Value, of: &GroupVersionKind) -> Option<Unwritten> {
        self.apply_defaults(value, of);
        if let Shape::BuiltIn(ty) = self.shape(of) {
            // Kind-specific validation does not run here.
            let _left_out = ty.take_empties(value);
        }
        None
    }

    fn apply_defaults(&self, value: &mut Value, of: &GroupVersionKind) {
        match self.shape(of) {
            Shape::BuiltIn(_) => defaults::apply(&of.group, &of.version, &of.kind, value),
            Shape::Custom(_, version) => version.schema.default(value),
            Shape::Unknown => {}
        }
    }

    fn semantically_equal(&self, of: &GroupVersionKind, one: &Value, other: &Value) -> bool {
        match self.shape(of) {
            Shape::BuiltIn(ty) => typed_equality::semantically_equal(ty, one, other),
            Shape::Custom(..) => equality::custom(one, other),
            Shape::Unknown => equality::typed(one, other),
        }
    }

    fn merge(
        &self,
        live: &Value,
        configuration: &Value,
        of: &GroupVersionKind,
    ) -> Result<Value, MergeError> {
        let owned = match self.shape(of) {
            Shape::BuiltIn(_) if of.kind.ends_with("Options") => None,
            Shape::BuiltIn(ty) => Some(Owned::BuiltIn(ty)),
            Shape::Custom(_, version) => Some(Owned::Custom(&version.schema)),
            Shape::Unknown => None,
        };
        let owned = owned.ok_or_else(|| MergeError::no_type(of))?;
        merge_configuration(owned, live, configuration)
            .map_err(|error| MergeError(error.to_string()))
    }

    fn decode_strictly(&self, value: Value, of: &GroupVersionKind) -> Result<Value, DecodeError> {
        check_is_object(&value)?;
        match self.shape(of) {
            Shape::BuiltIn(ty) => {
                let (object, findings) = self.decode_built_in(&value, of, ty)?;
                if !findings.is_empty() {
                    return Err(DecodeError::Strict(findings));
                }
                Ok(object)
            }
            Shape::Custom(..) | Shape::Unknown => self.decode(value, of),
        }
    }

    fn is_built_in(&self, of: &GroupVersionKind) -> bool {
        matches!(self.shape(of), Shape::BuiltIn(_))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn guesses_plurals_of_kinds_nobody_defined() {
        for (kind, plural) in [
            ("Gateway", "gateways"),
            ("Policy", "policies"),
            ("Box", "boxes"),
            ("Thing", "things"),
        ] {
            assert_eq!(guessed_plural(kind), plural);
        }
    }

    #[test]
    fn knows_versions_of_a_resource_as_equivalent() {
        let kinds = OfflineKinds::default();
        let found = kinds.equivalents(&resource("", "v1", "events"), "");
        let groups: Vec<&str> = found.iter().map(|it| it.resource.group.as_str()).collect();
        assert_eq!(groups.len(), 2);
        assert!(groups.contains(&"events.k8s.io"));
        assert!(
            kinds
                .equivalents(&resource("", "v1", "pods"), "")
                .is_empty()
        );
    }

    #[test]
    fn reads_custom_resources_by_their_definition() {
        let mut kinds = OfflineKinds::default();
        let version = |name: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "default": 3}}}}}}})
        };
        kinds
            .define(&json!({"spec": {"group": "example.com", "scope": "Cluster",
                "names": {"plural": "boxes", "kind": "Box"},
                "versions": [version("v1", true), version("v2", false)]}}))
            .unwrap();
        let v1 = kind("example.com", "v1", "Box");
        let known = kinds.of_kind(&v1);
        assert_eq!(known.placement, Placement::Cluster);
        assert_eq!(known.resource.resource, "boxes");
        let sent = json!({"apiVersion": "example.com/v1", "kind": "Box", "spec": {"odd": 1}});
        let (object, findings) = kinds.read(sent, &v1).unwrap();
        assert_eq!(object["spec"], json!({"size": 3}));
        assert_eq!(findings, ["unknown field \"spec.odd\""]);
        let v2 = kind("example.com", "v2", "Box");
        let converted = kinds.converted(&Object::new(object), &v2).unwrap();
        assert_eq!(converted.value()["apiVersion"], "example.com/v2");
    }
}
