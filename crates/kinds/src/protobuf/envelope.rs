//! The envelope of an object (`runtime.Unknown`): its type and its encoded message.

use serde_json::Value;

use crate::typed::type_of;

use super::error::DecodeError;
use super::message::decode;
use super::wire::{Input, Wire, text, wrong_wire_type};

/// The prefix of every protobuf body.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// An object with its type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Envelope<'b> {
    /// `group/version`; may be empty.
    pub api_version: String,
    /// The kind; may be empty.
    pub kind: String,
    /// The message.
    pub raw: &'b [u8],
}

impl<'b> Envelope<'b> {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// The body is not a valid envelope; the message is that of upstream's decoder.
    pub fn open(body: &'b [u8]) -> Result<Self, DecodeError> {
        if body.is_empty() {
            return Err(DecodeError::NoData);
        }
        let Some(message) = body.strip_prefix(&MAGIC) else {
            return Err(DecodeError::NoMagic);
        };
        if message.is_empty() {
            return Err(DecodeError::NoBody);
        }
        let mut envelope = Self::default();
        let mut input = Input(message);
        while let Some((number, value)) = input.field("Unknown")? {
            match (number, value) {
                (1, Wire::Bytes(bytes)) => envelope.read_type(bytes)?,
                (2, Wire::Bytes(bytes)) => envelope.raw = bytes,
                // Bodies are never content-encoded within the envelope, and the header `Content-Type` names their
                // type.
                (3 | 4, Wire::Bytes(_)) => {}
                (1..=4, other) => {
                    let names = ["typeMeta", "raw", "contentEncoding", "contentType"];
                    let at = usize::try_from(number - 1).unwrap_or_default();
                    let name = names.get(at).copied().unwrap_or_default();
                    return Err(wrong_wire_type(other, name));
                }
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// The group and version; both are empty if `api_version` is invalid.
    #[must_use]
    pub fn group_version(&self) -> (&str, &str) {
        match self.api_version.matches('/').count() {
            0 => ("", &self.api_version),
            1 => self.api_version.split_once('/').unwrap_or_default(),
            _ => ("", ""),
        }
    }

    /// Decodes the object by its kind, and sets its type; `None` if the kind is unknown or the message is invalid.
    #[must_use]
    pub fn object(&self) -> Option<Value> {
        let (group, version) = self.group_version();
        let mut object = decode(type_of(group, version, &self.kind)?, self.raw).ok()?;
        let members = object.as_object_mut()?;
        members.insert(String::from("apiVersion"), self.api_version.clone().into());
        members.insert(String::from("kind"), self.kind.clone().into());
        Some(object)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut input = Input(bytes);
        while let Some((number, value)) = input.field("TypeMeta")? {
            match (number, value) {
                (1, Wire::Bytes(bytes)) => self.api_version = text(bytes),
                (2, Wire::Bytes(bytes)) => self.kind = text(bytes),
                (1, other) => return Err(wrong_wire_type(other, "APIVersion")),
                (2, other) => return Err(wrong_wire_type(other, "kind")),
                _ => {}
            }
        }
        Ok(())
    }
}
