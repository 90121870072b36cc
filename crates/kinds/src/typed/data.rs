//! The rows of the generated tables.
//!
//! Rows are tuples because there are thousands of them; the accessors in [`typed`](super) name their columns.

/// Group, version, kind, and type.
#[derive(Debug)]
pub(super) struct KindRow(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) u16,
);

/// Name, first field, one past the last field, first embedded struct, one past the last.
#[derive(Debug)]
pub(super) struct StructRow(
    pub(super) &'static str,
    pub(super) u16,
    pub(super) u16,
    pub(super) u16,
    pub(super) u16,
);

/// JSON name, type, flags, embedded struct (from 1; 0 is the struct itself), protobuf number, protobuf wire type,
/// merge strategy.
#[derive(Debug)]
pub(super) struct FieldRow(
    pub(super) &'static str,
    pub(super) u16,
    pub(super) u8,
    pub(super) u8,
    pub(super) u16,
    pub(super) u8,
    pub(super) u8,
);

/// Go name, enclosing embedded struct (as in [`FieldRow`]), protobuf number.
#[derive(Debug)]
pub(super) struct Embed(pub(super) &'static str, pub(super) u8, pub(super) u16);

/// Patch strategy, merge key, list type, map type, list map keys.
#[derive(Debug)]
pub(super) struct PatchRow(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static [&'static str],
);

/// `omitempty`.
pub(super) const OMIT_EMPTY: u8 = 1;
/// `omitzero`.
pub(super) const OMIT_ZERO: u8 = 2;
/// The field is marked as required.
pub(super) const REQUIRED: u8 = 4;

/// The JSON form of a Go type. Numbers are indexes of types or structs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A string type.
    Text,
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A double.
    Float64,
    /// A slice of bytes: base64.
    Bytes,
    /// `metav1.Time`
    Time,
    /// `metav1.MicroTime`
    MicroTime,
    /// `resource.Quantity`
    Quantity,
    /// `intstr.IntOrString`
    IntOrString,
    /// Any JSON, kept unchanged.
    Raw,
    /// A schema or a boolean.
    SchemaOrBool(u16),
    /// A schema (the first) or a list of schemas (the second).
    SchemaOrArray(u16, u16),
    /// A schema (the first) or a list of strings (the second).
    SchemaOrTexts(u16, u16),
    /// A pointer.
    Pointer(u16),
    /// A slice.
    List(u16),
    /// A map with string keys.
    Map(u16),
    /// A struct.
    Struct(u16),
}
