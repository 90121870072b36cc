//! The shape of an object for managed fields: scalars, lists and maps, granular or atomic.
//!
//! A [`Shape`] is a view of the built-in kinds' tables or of a custom resource's schema, without copies.
//!
//! UPSTREAM: kube-openapi pkg/schemaconv/{smd,openapi}.go, structured-merge-diff schema/elements.go,
//! apiextensions-apiserver pkg/controller/openapi/builder/builder.go

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::Value;

use crate::structural::Schema;
use crate::structural::schema::{Additional, ListType, Node, Type as NodeType};
use crate::typed::{self, Field, Form, Type};

use super::element::Element;
use super::value::is_shallow;

/// The shape of an object, which determines the granularity of field management.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'s> {
    /// A built-in kind.
    BuiltIn(Type),
    /// A custom resource with a schema.
    Custom(&'s Schema),
    /// An object without a schema: maps are granular, lists are atomic.
    Deduced,
}

/// The type of a value, resolved by [`Ref::resolve`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Ref<'s> {
    /// An undeclared field.
    Undeclared,
    /// Any value, with granular maps and atomic lists.
    Deduced,
    /// Any value, atomic.
    Untyped,
    /// A value of a built-in type, with the field that holds it.
    Typed(Type, Option<Field>),
    /// A value of a custom resource.
    Custom(&'s Node, Custom),
}

/// The context of a schema in a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Custom {
    is_root: bool,
    keeps_unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    Text,
    Boolean,
    Any,
}

/// The alternatives of a type.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Atom<'s> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List<'s>>,
    pub(super) map: Option<MapOf<'s>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct List<'s> {
    pub(super) element: Ref<'s>,
    pub(super) identity: Identity<'s>,
}

/// How list elements are identified.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identity<'s> {
    /// The list is atomic.
    Atomic,
    /// By value, as in a set.
    Value,
    /// By key fields, as in a map.
    Members(Keys<'s>),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Keys<'s> {
    Typed(&'static [&'static str]),
    Custom(&'s [String]),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct MapOf<'s> {
    fields: Fields<'s>,
    /// The type of fields that are not declared.
    pub(super) element: Ref<'s>,
    pub(super) is_atomic: bool,
}

#[derive(Debug, Clone, Copy)]
enum Fields<'s> {
    None,
    Typed(Type),
    Custom(&'s Node, Custom),
}

impl<'s> Shape<'s> {
    pub(super) fn root(self) -> Ref<'s> {
        match self {
            Self::BuiltIn(ty) => Ref::Typed(ty, None),
            Self::Custom(schema) => Ref::Custom(
                &schema.root,
                Custom {
                    is_root: true,
                    keeps_unknown: false,
                },
            ),
            Self::Deduced => Ref::Deduced,
        }
    }
}

/// The type of `metadata`, which custom resources share with built-in kinds.
fn object_meta() -> Option<Type> {
    static TYPE: OnceLock<Option<Type>> = OnceLock::new();
    *TYPE.get_or_init(|| {
        let partial = typed::type_of("meta.k8s.io", "v1", "PartialObjectMetadata")?;
        Some(partial.field("metadata")?.ty())
    })
}

impl<'s> Ref<'s> {
    /// Returns true if every value is valid.
    pub(super) fn takes_anything(self) -> bool {
        matches!(self, Self::Deduced | Self::Untyped)
    }

    /// Returns true for a scalar of this type, which needs no further checks.
    pub(super) fn is_plain(self, value: &Value) -> bool {
        let Self::Typed(ty, _) = self else {
            return false;
        };
        matches!(
            (ty.form(), value),
            (Form::Text | Form::Bytes, Value::String(_))
                | (Form::Bool, Value::Bool(_))
                | (Form::Integer(_) | Form::Double, Value::Number(_))
        )
    }

    /// The path element of a field of this type; names of built-in fields are not allocated.
    pub(super) fn step(self, name: &str) -> Element {
        match self {
            Self::Typed(_, Some(field)) if field.name() == name => {
                Element::Field(Cow::Borrowed(field.name()))
            }
            _ => Element::field(name),
        }
    }

    pub(super) fn resolve(self) -> Atom<'s> {
        match self {
            Self::Undeclared => Atom::default(),
            Self::Deduced => Atom::any(Self::Deduced, false),
            Self::Untyped => Atom::any(Self::Untyped, true),
            Self::Typed(ty, field) => resolve_typed(ty, field),
            Self::Custom(node, around) => resolve_custom(node, around),
        }
    }
}

fn resolve_typed<'s>(ty: Type, field: Option<Field>) -> Atom<'s> {
    let scalar = |scalar| Atom {
        scalar: Some(scalar),
        ..Atom::default()
    };
    match ty.form() {
        Form::Text | Form::Bytes => scalar(Scalar::Text),
        Form::Bool => scalar(Scalar::Boolean),
        Form::Integer(_) | Form::Double => scalar(Scalar::Numeric),
        Form::Time | Form::MicroTime | Form::Quantity => scalar(Scalar::Any),
        Form::IntOrString
        | Form::SchemaOrBool(_)
        | Form::SchemaOrArray(_)
        | Form::SchemaOrTexts(_) => Ref::Deduced.resolve(),
        Form::Raw => match ty.target().go_name() {
            "runtime.RawExtension" => Ref::Untyped.resolve(),
            _ => Ref::Deduced.resolve(),
        },
        // Managed fields are not owned: they are removed before tracking.
        Form::List(_) if field.is_some_and(|field| field.name() == "managedFields") => {
            Ref::Untyped.resolve()
        }
        Form::List(element) => Atom {
            list: Some(List {
                element: Ref::Typed(element, None),
                identity: match field.map_or("", Field::list_type) {
                    "set" => Identity::Value,
                    "map" => {
                        Identity::Members(Keys::Typed(field.map_or(&[][..], Field::list_map_keys)))
                    }
                    _ => Identity::Atomic,
                },
            }),
            ..Atom::default()
        },
        Form::Map(element) => Atom {
            map: Some(MapOf {
                fields: Fields::None,
                element: Ref::Typed(element, None),
                is_atomic: field.map_or("", Field::map_type) == "atomic",
            }),
            ..Atom::default()
        },
        // A struct without fields is published as a map of any values.
        Form::Struct if ty.fields().len() == 0 => Atom {
            map: Some(MapOf {
                fields: Fields::None,
                element: Ref::Deduced,
                is_atomic: false,
            }),
            ..Atom::default()
        },
        Form::Struct => Atom {
            map: Some(MapOf {
                fields: Fields::Typed(ty),
                element: Ref::Undeclared,
                is_atomic: match field.map_or("", Field::map_type) {
                    "" => ty.is_atomic_struct(),
                    map_type => map_type == "atomic",
                },
            }),
            ..Atom::default()
        },
    }
}

fn resolve_custom(node: &Node, around: Custom) -> Atom<'_> {
    let around = Custom {
        keeps_unknown: around.keeps_unknown || node.preserve_unknown,
        ..around
    };
    let scalar = |scalar| Atom {
        scalar: Some(scalar),
        ..Atom::default()
    };
    match &node.kind {
        NodeType::Any => Atom {
            scalar: Some(Scalar::Any),
            list: Some(list_of(node, around)),
            map: Some(map_of(node, around)),
        },
        NodeType::Object => Atom {
            map: Some(map_of(node, around)),
            ..Atom::default()
        },
        NodeType::Array => Atom {
            list: Some(list_of(node, around)),
            ..Atom::default()
        },
        NodeType::String if node.has_text_format => scalar(Scalar::Any),
        NodeType::String => scalar(Scalar::Text),
        NodeType::Number | NodeType::Integer => scalar(Scalar::Numeric),
        NodeType::Boolean => scalar(Scalar::Boolean),
        NodeType::Other(_) => scalar(Scalar::Any),
    }
}

fn list_of(node: &Node, around: Custom) -> List<'_> {
    List {
        element: match &node.items {
            Some(items) => Ref::Custom(items, around.below()),
            None => Ref::Untyped,
        },
        identity: match node.list_type {
            Some(ListType::Set) => Identity::Value,
            Some(ListType::Map) if node.list_map_keys.is_empty() => Identity::Value,
            Some(ListType::Map) => Identity::Members(Keys::Custom(&node.list_map_keys)),
            Some(ListType::Atomic | ListType::Other) | None => Identity::Atomic,
        },
    }
}

fn map_of(node: &Node, around: Custom) -> MapOf<'_> {
    let has_fields = around.is_resource(node) || !node.properties.is_empty();
    MapOf {
        fields: if has_fields {
            Fields::Custom(node, around)
        } else {
            Fields::None
        },
        element: match &node.additional {
            Additional::Schema(schema) => Ref::Custom(schema, around.below()),
            Additional::Bool(true) => Ref::Deduced,
            Additional::Unsaid if around.keeps_unknown || !has_fields => Ref::Deduced,
            Additional::Unsaid | Additional::Bool(false) => Ref::Undeclared,
        },
        is_atomic: node.is_atomic_map,
    }
}

impl Custom {
    fn below(self) -> Self {
        Self {
            is_root: false,
            ..self
        }
    }

    /// Returns true for the schema of a whole object, which has metadata.
    fn is_resource(self, node: &Node) -> bool {
        self.is_root || node.embedded
    }
}

impl<'s> Atom<'s> {
    fn any(below: Ref<'s>, is_atomic: bool) -> Self {
        Self {
            scalar: Some(Scalar::Any),
            list: Some(List {
                element: Ref::Untyped,
                identity: Identity::Atomic,
            }),
            map: Some(MapOf {
                fields: Fields::None,
                element: below,
                is_atomic,
            }),
        }
    }

    /// Restricts the alternatives to the type of a value, if it is one of them.
    pub(super) fn deduce(self, value: Option<&Value>) -> Self {
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if self.scalar.is_some() => {
                Self {
                    scalar: self.scalar,
                    ..Self::default()
                }
            }
            Some(Value::Array(_)) if self.list.is_some() => Self {
                list: self.list,
                ..Self::default()
            },
            Some(Value::Object(_)) if self.map.is_some() => Self {
                map: self.map,
                ..Self::default()
            },
            _ => self,
        }
    }

    /// Returns true if two types deduced from the same type are equal.
    pub(super) fn is_same_kind(&self, other: &Self) -> bool {
        self.scalar.is_some() == other.scalar.is_some()
            && self.list.is_some() == other.list.is_some()
            && self.map.is_some() == other.map.is_some()
    }
}

impl<'s> MapOf<'s> {
    /// The declared field with this name, and its type.
    pub(super) fn field(&self, name: &str) -> Option<Ref<'s>> {
        match self.fields {
            Fields::None => None,
            Fields::Typed(ty) => {
                let field = ty.field(name)?;
                Some(Ref::Typed(field.ty(), Some(field)))
            }
            Fields::Custom(node, around) => {
                if around.is_resource(node)
                    && let Some(found) = resource_field(name)
                {
                    return Some(found);
                }
                let property = node.properties.get(name)?;
                Some(Ref::Custom(property, around.below()))
            }
        }
    }

    /// The type of a field.
    pub(super) fn member(&self, name: &str) -> Ref<'s> {
        self.field(name).unwrap_or(self.element)
    }

    /// Returns true if all fields are allowed and none is declared, in which case field sets are not reconciled.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.fields, Fields::None)
            && match self.element {
                Ref::Deduced => true,
                Ref::Custom(..) => self.element.resolve().scalar == Some(Scalar::Any),
                Ref::Undeclared | Ref::Untyped | Ref::Typed(..) => false,
            }
    }

    fn default_of(&self, name: &str) -> Option<Value> {
        match self.fields {
            Fields::None => None,
            Fields::Typed(ty) => typed_default(ty, ty.field(name)?),
            Fields::Custom(node, around) => {
                if around.is_resource(node) && resource_field(name).is_some() {
                    return None;
                }
                let default = node.properties.get(name)?.default.as_deref()?;
                (!default.is_null()).then(|| default.clone())
            }
        }
    }
}

/// The fields common to all objects.
fn resource_field<'s>(name: &str) -> Option<Ref<'s>> {
    let partial = || typed::type_of("meta.k8s.io", "v1", "PartialObjectMetadata");
    match name {
        "metadata" => Some(Ref::Typed(object_meta()?, None)),
        "apiVersion" | "kind" => {
            let field = partial()?.field(name)?;
            Some(Ref::Typed(field.ty(), Some(field)))
        }
        _ => None,
    }
}

/// The default of a field in the published schemas of built-in kinds. Required fields and a few others have one; only
/// those of key fields are used.
fn typed_default(field_manager: Type, field: Field) -> Option<Value> {
    match (field.ty().form(), field.name()) {
        (Form::Text, "protocol") => Some(Value::from("TCP")),
        (Form::Text, "name") if field_manager.target().go_name() == "v1.LocalObjectReference" => {
            Some(Value::from(""))
        }
        _ if field.omits_empty() || field.omits_zero() || field.is_pointer() => None,
        (Form::Text, _) => Some(Value::from("")),
        (Form::Integer(_), _) => Some(Value::from(0)),
        _ => None,
    }
}

impl<'s> List<'s> {
    /// Returns true if the list is atomic.
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.identity, Identity::Atomic)
    }

    /// The path element of a list element.
    pub(super) fn step(&self, value: &Value) -> Result<Element, Cow<'static, str>> {
        match self.identity {
            Identity::Atomic => Err("invalid indexing of non-associative list".into()),
            Identity::Value => match value {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".into())
                }
                Value::Null => Err(
                    "associative list without keys has an element that's an explicit null".into(),
                ),
                scalar => Ok(Element::Value(scalar.clone())),
            },
            Identity::Members(keys) => self.key_of(keys, value),
        }
    }

    fn key_of(&self, keys: Keys<'s>, value: &Value) -> Result<Element, Cow<'static, str>> {
        let members = match value {
            Value::Object(members) => members,
            Value::Null => {
                return Err("associative list with keys may not have a null element".into());
            }
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let map = self.element.resolve().map;
        let mut found = Vec::with_capacity(keys.len());
        for at in 0..keys.len() {
            let name = keys.get(at);
            let value = match members.get(&*name) {
                Some(value) if is_shallow(value) => Some(value.clone()),
                // Keys are scalars; other values fail their own validation.
                Some(_) => Some(Value::Null),
                None => match map {
                    Some(map) => map.default_of(&name),
                    None => {
                        return Err(format!(
                            "couldn't find default value for {name}: associative list may not \
                             have non-map types"
                        )
                        .into());
                    }
                },
            };
            found.extend(value.map(|value| (name, value)));
        }
        if found.is_empty() && keys.len() > 0 {
            let names: Vec<_> = (0..keys.len())
                .map(|at| lockgate_go::quote::quote(&keys.get(at)))
                .collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and \
                 doesn't have default values for any key fields)",
                names.join(" ")
            )
            .into());
        }
        Ok(Element::key(found))
    }
}

impl Keys<'_> {
    fn len(self) -> usize {
        match self {
            Self::Typed(names) => names.len(),
            Self::Custom(names) => names.len(),
        }
    }

    fn get(self, at: usize) -> Cow<'static, str> {
        match self {
            Self::Typed(names) => Cow::Borrowed(names.get(at).copied().unwrap_or_default()),
            Self::Custom(names) => Cow::Owned(names.get(at).cloned().unwrap_or_default()),
        }
    }
}
