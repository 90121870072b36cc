//! Provides the registry's kinds to the admission engine.

use std::sync::Arc;

use lockgate_admission::host::{
    BoxFuture, ConvertError, DecodeError, Equivalent, Kinds, MergeError, check_is_object,
};
use lockgate_admission::object::{Object, Unwritten};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::meta::type_meta::TypeMetaError;
use lockgate_go::quote::quote;
use lockgate_kinds::managed_fields::merge_configuration;
use lockgate_kinds::typed::type_of;
use serde_json::Value;

use crate::conversion::{Converter, invalid_version};
use crate::registry::{Registry, Resource, Shape, not_converted, split_api_version};

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

    /// The shape of a kind, of a resource or of a subresource only.
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
        if matches!(self.shape(to), Some(Shape::Custom(_))) {
            return self.converted_custom(object, &from, to).await;
        }
        // Kinds of subresources have no other versions.
        if self.resource(to).is_none() {
            return Err(ConvertError::failed(unregistered(&from)));
        }
        let unknown = || ConvertError::unknown(object, to);
        let (from, to) = (
            self.resource(&from).ok_or_else(unknown)?,
            self.resource(to).ok_or_else(unknown)?,
        );
        if from.storage != to.storage {
            return Err(unknown());
        }
        self.converted_between(object, &from, &to).await
    }

    async fn converted_between(
        &self,
        object: &Object,
        from: &Resource,
        to: &Resource,
    ) -> Result<Object, ConvertError> {
        let value = object.value().clone();
        let converted = self.converter.convert(value, from, to).await;
        converted
            .map(Object::new)
            .map_err(|failure| ConvertError::failed(failure.0.message))
    }

    /// A custom resource is converted to another version of its resource if its apiVersion is a version of the
    /// CustomResourceDefinition. Its kind is checked during validation.
    ///
    /// UPSTREAM: apiextensions-apiserver pkg/apiserver/conversion/converter.go (Convert)
    async fn converted_custom(
        &self,
        object: &Object,
        from: &GroupVersionKind,
        to: &GroupVersionKind,
    ) -> Result<Object, ConvertError> {
        let to_version = crate::registry::api_version(&to.group, &to.version);
        if from.version.is_empty() || from.group != to.group {
            return Err(ConvertError::failed(format!(
                "{}/{}, Kind={} is unstructured and is not suitable for converting to {}",
                from.group,
                from.version,
                from.kind,
                quote(&to_version)
            )));
        }
        if (&from.group, &from.version) == (&to.group, &to.version) {
            return Ok(object.clone());
        }
        let named = GroupVersionKind {
            kind: to.kind.clone(),
            ..from.clone()
        };
        match (self.resource(&named), self.resource(to)) {
            (Some(from), Some(to)) if from.storage == to.storage => {
                self.converted_between(object, &from, &to).await
            }
            _ => {
                let told = crate::registry::api_version(&from.group, &from.version);
                let failure = invalid_version("from", &told);
                Err(ConvertError::failed(failure.0.message))
            }
        }
    }
}

/// Decodes the metadata of a custom resource as Go does: a null field is absent, and a null label or annotation is
/// empty.
fn drop_null_metadata(value: &mut Value) {
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
}

/// Decodes a patched custom resource. Values of the patch, including `null`, are kept until it is known if the patch
/// has changed the object.
///
/// UPSTREAM: apimachinery pkg/apis/meta/v1/unstructured/helpers.go (UnstructuredJSONScheme)
fn read_custom(mut value: Value) -> Result<Value, DecodeError> {
    let kind = value.get("kind").and_then(Value::as_str);
    if kind.is_none_or(str::is_empty) {
        let text = lockgate_go::json::to_string(&value);
        return Err(DecodeError::invalid(format!(
            "Object 'Kind' is missing in '{text}'"
        )));
    }
    lockgate_kinds::tree::read_numbers(&mut value);
    Ok(value)
}

/// Checks that apiVersion and kind are strings.
fn check_type(value: &Value) -> Result<(), DecodeError> {
    for field in ["apiVersion", "kind"] {
        let found = match value.get(field) {
            None | Some(Value::Null | Value::String(_)) => continue,
            Some(Value::Bool(_)) => "bool",
            Some(Value::Number(_)) => "number",
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
        };
        let found = found.to_owned();
        let error = TypeMetaError::NotAString { field, found };
        return Err(DecodeError::invalid(error));
    }
    Ok(())
}

/// The error for a patch of a custom resource kind.
fn unregistered(kind: &GroupVersionKind) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quote(&kind.kind),
        quote(&crate::registry::api_version(&kind.group, &kind.version))
    )
}

/// The kind in an object; missing parts default to the expected kind.
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
        check_type(&value)?;
        if matches!(self.shape(kind), Some(Shape::Custom(_))) {
            return read_custom(value);
        }
        // A patch may change the kind of the object, which is then decoded as that kind.
        let told = declared_kind(&value, kind);
        let kind = told.as_ref().unwrap_or(kind);
        match self.shape(kind) {
            Some(Shape::Custom(_)) | None if told.is_some() => {
                Err(DecodeError::invalid(unregistered(kind)))
            }
            Some(Shape::Custom(_)) | None => Ok(value),
            Some(shape) => {
                let decoded = shape.decode_patched(value).map_err(DecodeError::invalid)?;
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

    fn decode_merged(&self, value: Value, kind: &GroupVersionKind) -> Result<Value, DecodeError> {
        let Some(shape @ (Shape::BuiltIn { .. } | Shape::Plain(_))) = self.shape(kind) else {
            return self.decode(value, kind);
        };
        let decoded = shape.decode_merged(value).map_err(|error| {
            let api_version = crate::registry::api_version(&kind.group, &kind.version);
            DecodeError::invalid(not_converted(&api_version, &kind.kind, &error))
        })?;
        Ok(decoded.0)
    }

    fn apply_defaults(&self, value: &mut Value, kind: &GroupVersionKind) {
        if let Some(shape) = self.shape(kind) {
            if matches!(shape, Shape::Custom(_)) {
                drop_null_metadata(value);
            }
            shape.apply_defaults(value);
        }
    }

    fn complete(&self, value: &mut Value, kind: &GroupVersionKind) -> Option<Unwritten> {
        match self.shape(kind) {
            Some(shape @ Shape::BuiltIn { .. }) => Some(Arc::new(shape.complete_decoded(value))),
            Some(shape @ Shape::Plain(_)) => {
                shape.complete_decoded(value);
                None
            }
            _ => {
                self.apply_defaults(value, kind);
                None
            }
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
        // Kinds that are not resources, such as connect options, have no schema.
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
            Some(Shape::Custom(_)) => {
                check_type(&value)?;
                let mut value = read_custom(value)?;
                drop_null_metadata(&mut value);
                Ok(value)
            }
            None => {
                let mut value = value;
                drop_null_metadata(&mut value);
                Ok(value)
            }
            Some(shape) => {
                let decoded = shape.decode_patched(value.clone());
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

    fn is_read_untyped(&self, resource: &GroupVersionResource, kind: &GroupVersionKind) -> bool {
        let snapshot = self.registry.snapshot();
        let found = snapshot.find(&resource.group, &resource.version, &resource.resource);
        found.is_some_and(|resource| resource.is_custom()) && self.is_built_in(kind)
    }

    fn decode_untyped(&self, value: Value) -> Result<Value, DecodeError> {
        check_is_object(&value)?;
        check_type(&value)?;
        read_custom(value)
    }

    fn is_built_in(&self, kind: &GroupVersionKind) -> bool {
        !matches!(self.shape(kind), Some(Shape::Custom(_)))
    }
}
