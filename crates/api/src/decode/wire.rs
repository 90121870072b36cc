//! Declares wire types: one table defines the struct, its decoding and its encoding.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use lockgate_go::base64;

/// Bytes, a base64 string in JSON. Empty bytes differ from none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&base64::encode(&self.0))
    }
}

/// Raw JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawJson(pub String);

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: Box<serde_json::value::RawValue> =
            serde_json::value::RawValue::from_string(self.0.clone())
                .map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Go's definition of empty, for fields marked `omit_empty`: an empty string, list or map, zero,
/// false, and a nil pointer.
pub(crate) trait IsEmpty {
    fn is_empty_value(&self) -> bool;
}

impl IsEmpty for String {
    fn is_empty_value(&self) -> bool {
        self.is_empty()
    }
}

impl IsEmpty for bool {
    fn is_empty_value(&self) -> bool {
        !self
    }
}

impl IsEmpty for i32 {
    fn is_empty_value(&self) -> bool {
        *self == 0
    }
}

impl IsEmpty for i64 {
    fn is_empty_value(&self) -> bool {
        *self == 0
    }
}

impl<T: Pointee> IsEmpty for Option<T> {
    fn is_empty_value(&self) -> bool {
        self.as_ref().is_none_or(Pointee::is_empty_inside)
    }
}

/// The type inside an `Option`. In Go, lists and maps are nilable and omitted when empty; any other
/// `Option` is a pointer, which is omitted only when nil.
pub(crate) trait Pointee {
    fn is_empty_inside(&self) -> bool {
        false
    }
}

impl Pointee for String {}
impl Pointee for bool {}
impl Pointee for i32 {}
impl Pointee for i64 {}
impl Pointee for RawJson {}

impl Pointee for Bytes {
    fn is_empty_inside(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Pointee for Vec<T> {
    fn is_empty_inside(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Pointee for BTreeMap<K, V> {
    fn is_empty_inside(&self) -> bool {
        self.is_empty()
    }
}

/// Declares a wire struct.
///
/// Each line is `rust_name: Type = "jsonName", presence, reader`, in the order of the Go struct,
/// which is the order of the JSON. `presence` is `always` or `omit_empty`; `reader` is a method of
/// [`Decoder`](super::Decoder) with its Go type names. A field of an embedded Go struct has `in
/// "GoStruct"` after its JSON name. A computed Go name is in parentheses.
macro_rules! wire_struct {
    (
        $(#[$doc:meta])*
        $visibility:vis struct $name:ident = $go_type:tt {
            $(
                $(#[$field_doc:meta])*
                $field:ident: $type:ty = $json:literal $(in $embedded:literal)?,
                $presence:ident, $reader:ident $(($($go:tt),+))?;
            )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        $visibility struct $name {
            $( $(#[$field_doc])* pub $field: $type, )+
        }

        impl $crate::decode::WireStruct for $name {
            const GO_TYPE: &'static str = $go_type;
            const FIELDS: &'static [$crate::decode::FieldName] = &[
                $( $crate::decode::FieldName {
                    json: $json,
                    embedded_in: $crate::decode::wire_struct!(@embedded $($embedded)?),
                }, )+
            ];

            fn decode_field(
                &mut self,
                name: &str,
                value: $crate::document::Value<'_>,
                decoder: &mut $crate::decode::Decoder,
            ) -> Result<(), $crate::decode::DecodeError> {
                match name {
                    $( $json => decoder.$reader(&mut self.$field, value $($(, $go)+)?), )+
                    _ => Ok(()),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $(
                    if $crate::decode::wire_struct!(@present $presence, &self.$field) {
                        map.serialize_entry($json, &self.$field)?;
                    }
                )+
                map.end()
            }
        }

        impl $crate::decode::Pointee for $name {}
    };

    (@embedded) => { None };
    (@embedded $name:literal) => { Some($name) };
    (@present always, $value:expr) => { true };
    (@present omit_empty, $value:expr) => { !$crate::decode::IsEmpty::is_empty_value($value) };
}

pub(crate) use wire_struct;
