//! Errors of protobuf bodies, with the messages of upstream's decoders.

use lockgate_api::document::SyntaxError;

use crate::typed;

use super::envelope::MAGIC;
use super::message::MAX_MESSAGES;

/// The error of invalid protobuf.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body is empty.
    #[error("empty data")]
    NoData,
    /// The body does not begin with [`MAGIC`].
    #[error("provided data does not appear to be a protobuf message, expected prefix [{}]", MAGIC.map(|byte| byte.to_string()).join(" "))]
    NoMagic,
    /// Nothing follows [`MAGIC`].
    #[error("empty body")]
    NoBody,
    /// The message ends too early.
    #[error("unexpected EOF")]
    UnexpectedEnd,
    /// A varint has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length is negative.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// The end of a group that did not begin.
    #[error("proto: {0}: wiretype end group for non-group")]
    EndGroup(&'static str),
    /// A field number is not positive.
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    Tag {
        /// The message.
        message: &'static str,
        /// The field number.
        number: i32,
        /// The whole tag.
        tag: u64,
    },
    /// A wire type does not exist.
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    /// A field has another wire type than its number implies.
    #[error("proto: wrong wireType = {found} for field {field}")]
    FieldWireType {
        /// The wire type.
        found: u8,
        /// The Go name of the field.
        field: String,
    },
    /// A number that JSON cannot represent.
    #[error("json: unsupported value: {0}")]
    NotFinite(&'static str),
    /// An `IntOrString` with an invalid type.
    #[error("impossible IntOrString.Type")]
    IntOrString,
    /// Raw JSON is invalid.
    #[error(transparent)]
    Json(#[from] SyntaxError),
    /// The object does not match its kind.
    #[error(transparent)]
    Object(#[from] typed::DecodeError),
    /// The object nests too deeply.
    #[error("exceeded max depth")]
    TooDeep,
    /// There are more than [`MAX_MESSAGES`].
    #[error("more than {MAX_MESSAGES} messages")]
    TooManyMessages,
}
