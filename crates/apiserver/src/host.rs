//! The kinds of the registry, as the admission engine asks for them.

use std::sync::Arc;

use lockgate_admission::host::{
    BoxFuture, ConvertError, DecodeError, Equivalent, Kinds, MergeError, check_is_object,
};
use lockgate_admission::object::Object;
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_kinds::managed_fields::merge_configuration;
use lockgate_kinds::typed::type_of;
use serde_json::Value;

use crate::conversion::Converter;
use crate::registry::{Registry, Resource, Shape, split_api_version};

/// The kinds of a server.
#[derive(Debug)]
pub(crate) struct ServedKinds {
    pub(crate) registry: Arc<Registry>,
    pub(crate) converter: Arc<Converter>,
}

impl ServedKinds {
    fn resource(&self, kind: &GroupVersionKind) -> Option<Arc<Resource>> {
        let snapshot = self.registry.snapshot();
        snapshot
            .defined_kind(&kind.group, &kind.version, &kind.kind)
            .cloned()
    }

    /// The shape of a kind, be it of a resource or of a body alone.
    fn shape(&self, kind: &GroupVersionKind) -> Option<Shape> {
        match self.resource(kind) {
            Some(resource) => Some(resource.shape.clone()),
            None => type_of(&kind.group, &kind.version, &kind.kind).map(Shape::Plain),
        }
    }

    /// The shape of a kind that only subresources have, such as `Scale`.
    fn part_shape(&self, kind: &GroupVersionKind) -> Option<Shape> {
        let is_options = kind.kind.ends_with("Options");
        let ty = type_of(&kind.group, &kind.version, &kind.kind).filter(|_| !is_options)?;
        Some(Shape::Plain(ty))
    }

    async fn converted(
        &self,
        object: &Object,
        to: &GroupVersionKind,
    ) -> Result<Object, ConvertError> {
        let text = |member: &str| {
            object
                .value()
                .get(member)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (group, version) = split_api_version(text("apiVersion"));
        let from = GroupVersionKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("kind").to_owned(),
        };
        if from == *to {
            return Ok(object.clone());
        }
        let unknown = || ConvertError::unknown(object, to);
        let (from, to) = (
            self.resource(&from).ok_or_else(unknown)?,
            self.resource(to).ok_or_else(unknown)?,
        );
        if from.storage != to.storage {
            return Err(unknown());
        }
        let value = object.value().clone();
        let converted = self.converter.convert(value, &from, &to).await;
        converted
            .map(Object::new)
            .map_err(|failure| ConvertError::failed(failure.0.message))
    }
}

/// An object of a custom resource whose metadata is as Go reads it: a member that is null is absent, and
/// a label or annotation that is null is empty.
fn without_null_metadata(mut value: Value) -> Value {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, member| !member.is_null());
        for texts in ["labels", "annotations"] {
            let texts = metadata.get_mut(texts).and_then(Value::as_object_mut);
            for text in texts.into_iter().flat_map(|texts| texts.values_mut()) {
                if text.is_null() {
                    *text = Value::from("");
                }
            }
        }
    }
    value
}

/// The kind an object says it is of; what it does not say is as expected.
fn declared_kind(value: &Value, expected: &GroupVersionKind) -> Option<GroupVersionKind> {
    let text = |member: &str| {
        value
            .get(member)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let kind = text("kind").unwrap_or(&expected.kind);
    let (group, version) = match text("apiVersion") {
        None => (expected.group.as_str(), expected.version.as_str()),
        Some(told) => split_api_version(told),
    };
    let told = lockgate_admission::request::kind(group, version, kind);
    (told != *expected).then_some(told)
}

impl Kinds for ServedKinds {
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Arc<[Equivalent]> {
        self.registry.snapshot().equivalents(resource, subresource)
    }

    fn convert<'f>(
        &'f self,
        object: &'f Object,
        to: &'f GroupVersionKind,
    ) -> BoxFuture<'f, Result<Object, ConvertError>> {
        Box::pin(self.converted(object, to))
    }

    fn decode(&self, value: Value, kind: &GroupVersionKind) -> Result<Value, DecodeError> {
        check_is_object(&value)?;
        // A patch may say that the object is of another kind; it is read as what it says it is.
        let told = declared_kind(&value, kind);
        let kind = told
            .as_ref()
            .filter(|told| self.shape(told).is_some())
            .unwrap_or(kind);
        match self.shape(kind) {
            // Custom resources keep what they do not know until they are stored.
            Some(Shape::Custom(_)) | None => Ok(without_null_metadata(value)),
            Some(shape) => {
                let decoded = shape.decode_value(value).map_err(DecodeError::invalid)?;
                let (mut decoded, _) = decoded;
                if let Some(members) = decoded.as_object_mut() {
                    let api_version = crate::registry::api_version(&kind.group, &kind.version);
                    members.insert(String::from("apiVersion"), api_version.into());
                    members.insert(String::from("kind"), kind.kind.clone().into());
                }
                Ok(decoded)
            }
        }
    }

    fn apply_defaults(&self, value: &mut Value, kind: &GroupVersionKind) {
        if let Some(shape) = self.shape(kind) {
            shape.apply_defaults(value);
        }
    }

    fn semantically_equal(&self, kind: &GroupVersionKind, one: &Value, other: &Value) -> bool {
        match self.shape(kind) {
            Some(shape) => shape.semantically_equal(one, other),
            None => lockgate_admission::equality::typed(one, other),
        }
    }

    fn merge(
        &self,
        live: &Value,
        configuration: &Value,
        kind: &GroupVersionKind,
    ) -> Result<Value, MergeError> {
        let resource = self.resource(kind);
        // Kinds that are no resources of their own, such as options of connections, have no schema.
        let shape = resource.as_ref().map(|resource| resource.shape.clone());
        let shape = shape.or_else(|| self.part_shape(kind));
        let owned = shape.as_ref().and_then(Shape::owned);
        let owned = owned.ok_or_else(|| MergeError::no_type(kind))?;
        merge_configuration(owned, live, configuration)
            .map_err(|error| MergeError(error.to_string()))
    }

    fn decode_strictly(&self, value: Value, kind: &GroupVersionKind) -> Result<Value, DecodeError> {
        check_is_object(&value)?;
        match self.shape(kind) {
            Some(Shape::Custom(_)) | None => Ok(without_null_metadata(value)),
            Some(shape) => {
                let decoded = shape.decode_value(value.clone());
                let (_, findings) = decoded.map_err(DecodeError::invalid)?;
                if !findings.is_empty() {
                    return Err(DecodeError::Strict(findings));
                }
                self.decode(value, kind)
            }
        }
    }

    fn knows_version(&self, kind: &GroupVersionKind) -> bool {
        let snapshot = self.registry.snapshot();
        let mut served = snapshot.resources().iter();
        served.any(|resource| resource.group() == kind.group && resource.version == kind.version)
    }

    fn is_built_in(&self, kind: &GroupVersionKind) -> bool {
        !matches!(self.shape(kind), Some(Shape::Custom(_)))
    }
}
