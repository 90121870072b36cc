//! The errors of decoding and converting objects, with upstream's messages.

use lockgate_api::decode::DecodeError as WireError;
use lockgate_api::document::SyntaxError;
use lockgate_kinds::conversion::ConvertError;
use lockgate_kinds::structural::ReadError;
use lockgate_kinds::tree::NumberError;
use lockgate_kinds::{protobuf, typed};

/// A value that does not match its shape.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShapeError {
    #[error(transparent)]
    BuiltIn(#[from] typed::DecodeError),
    #[error(transparent)]
    Protobuf(#[from] protobuf::DecodeError),
    #[error(transparent)]
    Registration(#[from] WireError),
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Number(#[from] NumberError),
    #[error(transparent)]
    Custom(#[from] ReadError),
    #[error("the type is unknown")]
    UnknownType,
    #[error("custom resources have no protobuf")]
    NoProtobuf,
}

/// An object that cannot be represented in another version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VersionError {
    #[error(transparent)]
    Convert(#[from] ConvertError),
    #[error("not a webhook configuration")]
    NotAConfiguration,
    #[error("they are different kinds")]
    OtherKind,
}
