//! Decoding, conversion and comparison of a resource's objects, and the [`Kind`] behind them.

use std::sync::Arc;

use lockgate_api::document;
use lockgate_api::document::tree;
use lockgate_api::registration::{Configuration, ConfigurationKind, Version, codec, strategy};
use lockgate_kinds::equality::semantically_equal;
use lockgate_kinds::kind::Kind;
use lockgate_kinds::managed_fields::Shape as Owned;
use lockgate_kinds::resource as kinds;
use lockgate_kinds::typed::{DecodeError, Decoded, Empties, Type, type_of};
use lockgate_kinds::{conversion, protobuf, table};
use serde_json::Value;

use super::Resource;
use super::shape_error::{ShapeError, VersionError};
use crate::http::negotiate::{ACCEPTED, ACCEPTED_CUSTOM};
use crate::metadata::now;
use crate::registry::custom::CustomVersion;

/// A kind without rules of its own, which is never stored.
#[derive(Debug)]
struct Unstored;

impl Kind for Unstored {}

/// The representation of a resource's objects.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// A kind of the built-in tables.
    BuiltIn {
        ty: Type,
        row: &'static kinds::Resource,
    },
    /// A webhook configuration, with its rules in the crate `api`.
    Registration {
        kind: ConfigurationKind,
        version: Version,
        row: &'static kinds::Resource,
    },
    /// A kind that is never stored, such as `Scale`.
    Plain(Type),
    /// A version of a custom resource.
    Custom(Arc<CustomVersion>),
}

impl Shape {
    /// The shape of a built-in resource.
    pub(crate) fn built_in(row: &'static kinds::Resource) -> Option<Self> {
        if let Some((kind, version)) = codec::identify(&row.api_version(), row.kind) {
            return Some(Self::Registration { kind, version, row });
        }
        let ty = type_of(row.group, row.version, row.kind)?;
        Some(Self::BuiltIn { ty, row })
    }

    /// The accepted media types of bodies.
    pub(crate) fn accepted(&self) -> &'static [&'static str] {
        match self {
            Self::Custom(_) => &ACCEPTED_CUSTOM,
            _ => &ACCEPTED,
        }
    }

    /// Decodes an object with the defaults of its version, and returns the strict decoding findings.
    pub(crate) fn decode(
        &self,
        root: document::Value<'_>,
    ) -> Result<(Value, Vec<String>), ShapeError> {
        let (object, findings, _) = self.decode_with_empties(root)?;
        Ok((object, findings))
    }

    /// The same, with the empty lists and maps that are omitted from the object.
    pub(crate) fn decode_with_empties(
        &self,
        root: document::Value<'_>,
    ) -> Result<(Value, Vec<String>, Empties), ShapeError> {
        let (object, findings) = match self {
            Self::BuiltIn { ty, row } => {
                let decoded = ty.decode_with_empties(root)?;
                let mut object = decoded.value;
                name_type(&mut object, row);
                let empties = self.complete_decoded(&mut object);
                return Ok((object, decoded.findings, empties));
            }
            Self::Registration { kind, version, row } => {
                let decoded = codec::decode(root, *kind, *version)?;
                let findings = decoded.findings.iter().map(ToString::to_string).collect();
                let ty = registration_type(row)?;
                let empties = ty.take_empties(&mut ty.decode_with_empties(root)?.value);
                let object = codec::to_json(decoded.value, *version);
                return Ok((object, findings, empties));
            }
            Self::Plain(ty) => ty
                .decode(root)
                .map(|decoded| (decoded.value, decoded.findings))?,
            Self::Custom(custom) => custom.decode(root)?,
        };
        Ok((object, findings, Empties::default()))
    }

    /// Decodes a protobuf message with the defaults of its version.
    pub(crate) fn decode_protobuf(&self, message: &[u8]) -> Result<(Value, Empties), ShapeError> {
        let mut empties = Empties::default();
        let object = match self {
            Self::BuiltIn { ty, row } => {
                let mut object = protobuf::decode(*ty, message)?;
                name_type(&mut object, row);
                empties = empties.with_shared_labels(row.rules.shares_labels(&object));
                apply_defaults(row.rules, &mut object);
                object
            }
            Self::Registration { row, .. } => {
                let ty = registration_type(row)?;
                let mut object = protobuf::decode(ty, message)?;
                name_type(&mut object, row);
                self.decode(tree::read(&object).root())
                    .map(|(object, _)| object)?
            }
            Self::Plain(ty) => protobuf::decode(*ty, message)?,
            Self::Custom(_) => return Err(ShapeError::NoProtobuf),
        };
        Ok((object, empties))
    }

    /// Decodes an object from a tree, without defaults.
    pub(crate) fn decode_value(&self, value: Value) -> Result<(Value, Vec<String>), ShapeError> {
        self.decode_tree(value, Type::decode_value)
    }

    /// The same for the result of a JSON patch or merge patch. Empty lists and maps are kept for
    /// [`Shape::complete_decoded`].
    pub(crate) fn decode_patched(&self, value: Value) -> Result<(Value, Vec<String>), ShapeError> {
        self.decode_tree(value, Type::decode_patched)
    }

    fn decode_tree(
        &self,
        value: Value,
        decode: fn(Type, &Value) -> Result<Decoded, DecodeError>,
    ) -> Result<(Value, Vec<String>), ShapeError> {
        match self {
            Self::BuiltIn { ty, row } => {
                let decoded = decode(*ty, &value)?;
                let mut object = decoded.value;
                name_type(&mut object, row);
                Ok((object, decoded.findings))
            }
            Self::Registration { row, .. } => {
                let decoded = decode(registration_type(row)?, &value)?;
                let mut object = decoded.value;
                name_type(&mut object, row);
                Ok((object, decoded.findings))
            }
            Self::Plain(ty) => {
                let decoded = decode(*ty, &value)?;
                Ok((decoded.value, decoded.findings))
            }
            Self::Custom(custom) => custom.decode_value(value),
        }
    }

    /// Applies the defaults to a patched or applied object after decoding, and removes the empty lists and maps that Go
    /// does not encode.
    pub(crate) fn complete_decoded(&self, object: &mut Value) -> Empties {
        let shares_labels = self.kind().shares_labels(object);
        // Defaults apply to absent fields, not to empty lists.
        self.apply_defaults(object);
        let empties = match self {
            Self::BuiltIn { ty, .. } | Self::Plain(ty) => ty.take_empties(object),
            Self::Registration { row, .. } => registration_type(row)
                .map_or_else(|_| Empties::default(), |ty| ty.take_empties(object)),
            Self::Custom(_) => Empties::default(),
        };
        empties.with_shared_labels(shares_labels)
    }

    /// The same for the result of a strategic merge patch or an apply configuration, which upstream converts instead of
    /// decoding.
    pub(crate) fn decode_merged(&self, value: Value) -> Result<(Value, Vec<String>), ShapeError> {
        match self {
            Self::BuiltIn { ty, row } => {
                let decoded = ty.from_unstructured(value)?;
                let mut object = decoded.value;
                name_type(&mut object, row);
                Ok((object, decoded.findings))
            }
            Self::Registration { row, .. } => {
                let decoded = registration_type(row)?.from_unstructured(value)?;
                let mut object = decoded.value;
                name_type(&mut object, row);
                Ok((object, decoded.findings))
            }
            Self::Plain(ty) => {
                let decoded = ty.from_unstructured(value)?;
                Ok((decoded.value, decoded.findings))
            }
            Self::Custom(custom) => custom.decode_applied(value),
        }
    }

    /// The kind of the objects.
    pub(crate) fn kind(&self) -> &dyn Kind {
        match self {
            Self::BuiltIn { row, .. } | Self::Registration { row, .. } => row.rules,
            Self::Plain(_) => &Unstored,
            Self::Custom(custom) => custom.as_ref(),
        }
    }

    /// Applies the defaults of the version.
    pub(crate) fn apply_defaults(&self, value: &mut Value) {
        apply_defaults(self.kind(), value);
    }

    /// Converts a tree to a webhook configuration, if it is one.
    pub(crate) fn configuration(&self, value: &Value) -> Option<Configuration> {
        let Self::Registration { kind, version, .. } = self else {
            return None;
        };
        let document = tree::read(value);
        let decoded = codec::decode_without_defaults(document.root(), *kind, *version).ok()?;
        Some(decoded.value)
    }

    /// Converts an object to its stored form: drops unknown fields, and applies defaults that depend on server-set
    /// fields.
    pub(crate) fn complete(&self, value: &mut Value) -> Result<(), ShapeError> {
        match self {
            Self::Custom(custom) => return custom.complete(value),
            Self::BuiltIn { ty, row } => {
                self.apply_defaults(value);
                if !is_stored_as_json(row) {
                    ty.null_empties(value);
                }
            }
            Self::Registration { row, .. } => {
                // Validation has seen them, and Go does not encode them.
                let ty = registration_type(row)?;
                let _left_out = ty.take_empties(value);
                ty.null_empties(value);
            }
            Self::Plain(_) => {}
        }
        Ok(())
    }

    /// Applies the schema of this version to a converted object.
    pub(crate) fn coerce(&self, value: &mut Value) -> Result<(), ShapeError> {
        match self {
            Self::Custom(custom) => custom.coerce(value),
            _ => Ok(()),
        }
    }

    /// Applies the current schema to a stored object: CustomResourceDefinitions may change after objects are stored.
    pub(crate) fn read_stored(&self, value: &mut Value) {
        if let Self::Custom(custom) = self {
            custom.read_stored(value);
        }
    }

    /// Converts an object to another version of a built-in kind.
    pub(crate) fn convert(&self, value: &Value, to: &Self) -> Result<Value, VersionError> {
        match (self, to) {
            (Self::BuiltIn { .. }, Self::BuiltIn { row, .. }) => {
                Ok(conversion::convert(value, row.group, row.version)?)
            }
            (Self::Registration { .. }, Self::Registration { version, .. }) => {
                let configuration = self.configuration(value);
                let configuration = configuration.ok_or(VersionError::NotAConfiguration)?;
                Ok(codec::to_json(configuration, *version))
            }
            _ => Err(VersionError::OtherKind),
        }
    }

    /// The type for strategic merges; custom resources have none.
    pub(crate) fn merge_type(&self) -> Option<Type> {
        match self {
            Self::BuiltIn { ty, .. } | Self::Plain(ty) => Some(*ty),
            // The merge keys are the same in all versions.
            Self::Registration { row, .. } => type_of(row.group, "v1", row.kind),
            Self::Custom(_) => None,
        }
    }

    /// The type or schema for managed fields.
    pub(crate) fn owned(&self) -> Option<Owned<'_>> {
        match self {
            Self::Custom(custom) => Some(Owned::Custom(custom.schema())),
            _ => self.merge_type().map(Owned::BuiltIn),
        }
    }

    /// Returns true if two objects are semantically equal.
    pub(crate) fn semantically_equal(&self, one: &Value, other: &Value) -> bool {
        match self {
            Self::BuiltIn { ty, .. } | Self::Plain(ty) => semantically_equal(*ty, one, other),
            Self::Registration { .. } => lockgate_admission::equality::typed(one, other),
            // Go holds them as maps, in which empty fields are present.
            Self::Custom(_) => lockgate_admission::equality::custom(one, other),
        }
    }

    /// The warning for clients of a deprecated version.
    pub(crate) fn deprecation_warning(&self) -> Option<String> {
        match self {
            Self::Registration { kind, version, .. } => {
                strategy::deprecation_warning(*kind, *version)
            }
            _ => self.kind().deprecation_warning().map(str::to_owned),
        }
    }

    /// The table row of a built-in resource.
    pub(crate) fn row(&self) -> Option<&'static kinds::Resource> {
        match self {
            Self::BuiltIn { row, .. } | Self::Registration { row, .. } => Some(row),
            Self::Plain(_) | Self::Custom(_) => None,
        }
    }

    /// Returns true if field selectors support this field.
    pub(crate) fn supports_field_label(&self, label: &str) -> bool {
        match (self.row(), self) {
            (Some(row), _) => kinds::field_selector(row, label).is_some(),
            (None, Self::Custom(custom)) => custom.supports_field_label(label),
            (None, _) => false,
        }
    }

    /// The error for an unsupported field in a selector.
    pub(crate) fn unknown_field(&self, label: &str) -> String {
        self.kind().unsupported_field_label(label)
    }

    /// The value of a selectable field.
    pub(crate) fn read_field(&self, label: &str, object: &Value) -> String {
        match (self.row(), self) {
            (Some(row), _) => kinds::field_selector(row, label)
                .map(|field| field.read(object))
                .unwrap_or_default(),
            (None, Self::Custom(custom)) => custom.read_field(label, object),
            (None, _) => String::new(),
        }
    }
}

/// CustomResourceDefinitions and APIServices are JSON in etcd, all other built-in resources are protobuf, in which an
/// empty list is absent.
///
/// UPSTREAM: kubernetes cmd/kube-apiserver/app (the codecs of apiextensions and of the aggregator)
fn is_stored_as_json(row: &kinds::Resource) -> bool {
    matches!(row.group, "apiextensions.k8s.io" | "apiregistration.k8s.io")
}

/// The error for a merged object that cannot be converted to its type.
///
/// UPSTREAM: apimachinery pkg/runtime/scheme.go (unstructuredToTyped)
pub(crate) fn not_converted(api_version: &str, kind: &str, error: &ShapeError) -> String {
    let kind = go_kind(api_version, kind);
    format!("unable to convert unstructured object to {kind}: {error}")
}

/// A kind in Go's format: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
pub(crate) fn go_kind(api_version: &str, kind: &str) -> String {
    let group = if api_version.contains('/') { "" } else { "/" };
    format!("{group}{api_version}, Kind={kind}")
}

fn apply_defaults(kind: &dyn Kind, object: &mut Value) {
    kind.apply_defaults(object);
    kind.apply_time_defaults(object, now());
}

/// The type of a webhook configuration.
fn registration_type(row: &kinds::Resource) -> Result<Type, ShapeError> {
    type_of(row.group, row.version, row.kind).ok_or(ShapeError::UnknownType)
}

fn name_type(object: &mut Value, row: &kinds::Resource) {
    if let Some(members) = object.as_object_mut() {
        members.insert(String::from("apiVersion"), row.api_version().into());
        members.insert(String::from("kind"), row.kind.into());
    }
}

impl Resource {
    /// The kind that determines the table columns.
    pub(crate) fn table_kind(&self) -> table::Kind<'_> {
        match (self.shape.row(), &self.shape) {
            (Some(row), _) => table::Kind::BuiltIn(row),
            (None, shape) => table::Kind::Custom {
                columns: match shape {
                    Shape::Custom(custom) => custom.columns(),
                    _ => &[],
                },
                api_version: self.api_version(),
                kind: self.kind(),
            },
        }
    }

    /// Returns true for this built-in resource in any version.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        !self.is_custom() && self.names.group == group && self.names.plural == plural
    }
}
