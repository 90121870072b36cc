//! The types of built-in kinds: fields, presence, protobuf numbers and merge strategies as data, and decoding of
//! objects with Go's rules.
//!
//! The tables are generated (`tools/kinds-generator`) and static, so that they cost no startup time. This module
//! neither applies defaults nor validates values.

mod data;
mod decode;
mod empties;
mod internal;
mod micro_time;
mod scalar;
#[rustfmt::skip]
mod tables;
#[cfg(test)]
mod tests;
mod unstructured;

use serde_json::Value;

use data::{FieldRow, OMIT_EMPTY, OMIT_ZERO, PatchRow, REQUIRED, Shape, StructRow};
use tables::{ATOMIC_STRUCTS, EMBEDS, ENUMS, FIELDS, KINDS, MODELS, PATCHES, STRUCTS, TYPES};

pub use decode::{DecodeError, Decoded, MAX_FINDINGS};
pub use empties::Empties;
pub(crate) use internal::{internal_diff, internal_form};

/// An API type: a handle into the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type(u16);

/// A field of a struct. Fields of embedded structs are included.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    row: &'static FieldRow,
    owner: &'static StructRow,
}

/// The JSON form of a type. Pointers are followed; see [`Field::is_pointer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// An integer with this number of bits.
    Integer(u8),
    /// A double.
    Double,
    /// Bytes, as base64.
    Bytes,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// A resource quantity.
    Quantity,
    /// A 32-bit integer or a string.
    IntOrString,
    /// Any JSON.
    Raw,
    /// A schema (this type) or a boolean.
    SchemaOrBool(Type),
    /// A schema (this type) or a list of them.
    SchemaOrArray(Type),
    /// A schema (this type) or a list of strings.
    SchemaOrTexts(Type),
    /// A list of this type.
    List(Type),
    /// A map from strings to this type.
    Map(Type),
    /// A struct; see [`Type::fields`].
    Struct,
}

/// The type of a kind. The options of `meta.k8s.io` and `Status` are found in every group, as clients send them.
#[must_use]
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<Type> {
    let find = |group: &str, version: &str| {
        KINDS
            .binary_search_by(|row| (row.0, row.1, row.2).cmp(&(group, version, kind)))
            .ok()
            .and_then(|at| KINDS.get(at))
            .map(|row| Type(row.3))
    };
    find(group, version).or_else(|| match kind {
        "Status" => find("", "v1"),
        "CreateOptions" | "UpdateOptions" | "PatchOptions" | "DeleteOptions" | "GetOptions"
        | "ListOptions" => find("meta.k8s.io", "v1"),
        _ => None,
    })
}

/// The type of the field at a path, in the newest version of a kind.
pub(crate) fn member_type(group: &str, kind: &str, path: &[&str]) -> Option<Type> {
    let ty = type_of(group, "v1", kind)?;
    path.iter()
        .try_fold(ty, |ty, key| Some(ty.field(key)?.ty()))
}

impl Type {
    fn shape(self) -> Shape {
        TYPES
            .get(usize::from(self.0))
            .map_or(Shape::Raw, |row| row.1)
    }

    /// The Go name with the last segment of its package, as decoding errors print it.
    #[must_use]
    pub fn go_name(self) -> &'static str {
        TYPES.get(usize::from(self.0)).map_or("", |row| row.0)
    }

    /// The schema name of the type in OpenAPI documents; empty for types without a schema.
    #[must_use]
    pub fn model_name(self) -> &'static str {
        let found = MODELS.binary_search_by_key(&self.0, |row| row.0);
        let row = found.ok().and_then(|index| MODELS.get(index));
        row.map_or("", |row| row.1)
    }

    /// The values of an enum; empty for other types.
    #[must_use]
    pub fn enumeration(self) -> &'static [&'static str] {
        let found = ENUMS.binary_search_by_key(&self.target().0, |row| row.0);
        let row = found.ok().and_then(|index| ENUMS.get(index));
        row.map_or(&[], |row| row.1)
    }

    /// The JSON form of the type.
    #[must_use]
    pub fn form(self) -> Form {
        match self.shape() {
            Shape::Text => Form::Text,
            Shape::Bool => Form::Bool,
            Shape::Int32 => Form::Integer(32),
            Shape::Int64 => Form::Integer(64),
            Shape::Float64 => Form::Double,
            Shape::Bytes => Form::Bytes,
            Shape::Time => Form::Time,
            Shape::MicroTime => Form::MicroTime,
            Shape::Quantity => Form::Quantity,
            Shape::IntOrString => Form::IntOrString,
            Shape::Raw => Form::Raw,
            Shape::SchemaOrBool(schema) => Form::SchemaOrBool(Self(schema)),
            Shape::SchemaOrArray(schema, _) => Form::SchemaOrArray(Self(schema)),
            Shape::SchemaOrTexts(schema, _) => Form::SchemaOrTexts(Self(schema)),
            // The API has no pointers to pointers.
            Shape::Pointer(target) => Self(target).form(),
            Shape::List(element) => Form::List(Self(element)),
            Shape::Map(element) => Form::Map(Self(element)),
            Shape::Struct(_) => Form::Struct,
        }
    }

    /// The target of a pointer, or the type itself.
    #[must_use]
    pub fn target(self) -> Self {
        match self.shape() {
            Shape::Pointer(target) => Self(target),
            _ => self,
        }
    }

    /// The element type of a list or map.
    #[must_use]
    pub fn element(self) -> Option<Self> {
        match self.form() {
            Form::List(element) | Form::Map(element) => Some(element),
            _ => None,
        }
    }

    /// The fields of a struct, by name; empty for other types.
    pub fn fields(self) -> impl ExactSizeIterator<Item = Field> {
        let owner = self.struct_row();
        let rows = owner.map_or(&[][..], struct_fields);
        rows.iter().map(move |row| Field {
            row,
            // Types without a struct have no rows.
            owner: owner.unwrap_or(&STRUCTS[0]),
        })
    }

    /// The field with this JSON name.
    #[must_use]
    pub fn field(self, json_name: &str) -> Option<Field> {
        let owner = self.struct_row()?;
        let (_, row) = find_field(owner, json_name)?;
        Some(Field { row, owner })
    }

    /// Returns true for an atomic struct (`+structType=atomic`). A field's own [`map_type`](Field::map_type) takes
    /// precedence.
    #[must_use]
    pub fn is_atomic_struct(self) -> bool {
        match self.target().shape() {
            Shape::Struct(index) => ATOMIC_STRUCTS.binary_search(&index).is_ok(),
            _ => false,
        }
    }

    /// Sets empty lists and maps that Go encodes to null: protobuf, the storage encoding, does not distinguish empty
    /// from nil.
    pub fn null_empties(self, value: &mut Value) {
        if !empties::has_empty(value) {
            return;
        }
        let mut open = vec![(self, value)];
        while let Some((ty, value)) = open.pop() {
            match (ty.form(), value) {
                (Form::Struct, Value::Object(members)) => {
                    for (name, member) in members {
                        let Some(field) = ty.target().field(name) else {
                            continue;
                        };
                        let is_empty = match (field.ty().form(), &*member) {
                            (Form::List(_), Value::Array(items)) => items.is_empty(),
                            (Form::Map(_), Value::Object(members)) => members.is_empty(),
                            _ => false,
                        };
                        if is_empty && !field.is_pointer() {
                            *member = Value::Null;
                        } else {
                            open.push((field.ty(), member));
                        }
                    }
                }
                (Form::List(element), Value::Array(items)) => {
                    open.extend(items.iter_mut().map(|item| (element, item)));
                }
                (Form::Map(element), Value::Object(members)) => {
                    open.extend(members.values_mut().map(|member| (element, member)));
                }
                _ => {}
            }
        }
    }

    fn struct_row(self) -> Option<&'static StructRow> {
        match self.target().shape() {
            Shape::Struct(index) => STRUCTS.get(usize::from(index)),
            _ => None,
        }
    }
}

fn struct_fields(row: &StructRow) -> &'static [FieldRow] {
    FIELDS
        .get(usize::from(row.1)..usize::from(row.2))
        .unwrap_or_default()
}

fn find_field(owner: &StructRow, json_name: &str) -> Option<(usize, &'static FieldRow)> {
    let rows = struct_fields(owner);
    let at = rows.binary_search_by(|row| row.0.cmp(json_name)).ok()?;
    rows.get(at).map(|row| (at, row))
}

/// The structs in which a field is embedded, outermost first.
fn embeds(owner: &StructRow, field: &FieldRow) -> impl Iterator<Item = &'static data::Embed> {
    let all = EMBEDS
        .get(usize::from(owner.3)..usize::from(owner.4))
        .unwrap_or_default();
    let at = |number: u8| all.get(usize::from(number).checked_sub(1)?);
    let inner = at(field.3);
    let outer = inner.and_then(|embed| at(embed.1));
    outer.into_iter().chain(inner)
}

impl Field {
    fn patch(self) -> &'static PatchRow {
        PATCHES.get(usize::from(self.row.6)).unwrap_or(&PATCHES[0])
    }

    /// The JSON name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row.0
    }

    /// The type of the value.
    #[must_use]
    pub fn ty(self) -> Type {
        Type(self.row.1)
    }

    /// Returns true for a pointer, whose nil differs from zero.
    #[must_use]
    pub fn is_pointer(self) -> bool {
        matches!(self.ty().shape(), Shape::Pointer(_))
    }

    /// Returns true if an empty value is omitted.
    #[must_use]
    pub fn omits_empty(self) -> bool {
        self.row.2 & OMIT_EMPTY != 0
    }

    /// Returns true if a zero value is omitted.
    #[must_use]
    pub fn omits_zero(self) -> bool {
        self.row.2 & OMIT_ZERO != 0
    }

    /// Returns true if the published schema requires the field: Go always encodes it, and it is not marked as
    /// optional. Decoding does not require it.
    #[must_use]
    pub fn is_required(self) -> bool {
        self.row.2 & REQUIRED != 0
    }

    /// The protobuf field number; 0 if the field is not in protobuf.
    #[must_use]
    pub fn protobuf_number(self) -> u16 {
        self.row.4
    }

    /// The protobuf wire type: 0 varint, 1 fixed 64 bits, 2 bytes.
    #[must_use]
    pub fn protobuf_wire_type(self) -> u8 {
        self.row.5
    }

    /// The structs in which this field is embedded, outermost first: Go name and protobuf number, which is 0 if the
    /// fields are part of the outer message.
    pub fn embedded_in(self) -> impl Iterator<Item = (&'static str, u16)> {
        embeds(self.owner, self.row).map(|embed| (embed.0, embed.2))
    }

    /// The strategic merge strategies: `merge`, `replace`, `retainKeys`.
    pub fn patch_strategies(self) -> impl Iterator<Item = &'static str> {
        self.patch().0.split(',').filter(|text| !text.is_empty())
    }

    /// The strategic merge key; empty if there is none.
    #[must_use]
    pub fn patch_merge_key(self) -> &'static str {
        self.patch().1
    }

    /// `atomic`, `set`, `map` or empty.
    #[must_use]
    pub fn list_type(self) -> &'static str {
        self.patch().2
    }

    /// `atomic`, `granular` or empty.
    #[must_use]
    pub fn map_type(self) -> &'static str {
        self.patch().3
    }

    /// The key fields of a list of type `map`.
    #[must_use]
    pub fn list_map_keys(self) -> &'static [&'static str] {
        self.patch().4
    }
}
