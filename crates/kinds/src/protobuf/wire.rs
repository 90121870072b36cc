//! The wire format: tags, numbers and lengths.

use super::error::DecodeError;

/// The undecoded value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
    /// A group or a 32-bit number, which no API type uses.
    Other(u8),
}

impl Wire<'_> {
    /// The wire type.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Other(number) => number,
        }
    }
}

/// The rest of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'b>(pub(super) &'b [u8]);

impl<'b> Input<'b> {
    /// The next field: its number and value; `None` at the end of the message, whose name errors contain.
    pub(super) fn field(
        &mut self,
        message: &'static str,
    ) -> Result<Option<(u32, Wire<'b>)>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire_type = tag & 7;
        // Upstream's field number is a signed 32-bit integer, so higher bits are truncated.
        let number = (tag >> 3) as u32 as i32;
        if wire_type == 4 {
            return Err(DecodeError::EndGroup(message));
        }
        if number <= 0 {
            return Err(DecodeError::Tag {
                message,
                number,
                tag,
            });
        }
        let value = match wire_type {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(self.fixed64()?),
            2 => Wire::Bytes(self.bytes()?),
            3 => {
                self.skip_group()?;
                Wire::Other(3)
            }
            5 => {
                self.take(4)?;
                Wire::Other(5)
            }
            other => return Err(DecodeError::WireType(other)),
        };
        Ok(Some((number.unsigned_abs(), value)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for (at, &byte) in self.0.iter().enumerate() {
            let shift = 7 * at;
            if shift >= 64 {
                return Err(DecodeError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                self.take(at + 1)?;
                return Ok(value);
            }
        }
        Err(DecodeError::UnexpectedEnd)
    }

    fn fixed64(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.take(8)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn bytes(&mut self) -> Result<&'b [u8], DecodeError> {
        let length = i64::from_ne_bytes(self.varint()?.to_ne_bytes());
        if length < 0 {
            return Err(DecodeError::NegativeLength);
        }
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], DecodeError> {
        let split = self.0.split_at_checked(count);
        let (taken, rest) = split.ok_or(DecodeError::UnexpectedEnd)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Skips a group, including nested groups, after its start tag.
    fn skip_group(&mut self) -> Result<(), DecodeError> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.varint()? & 7 {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.take(8)?;
                }
                2 => {
                    self.bytes()?;
                }
                3 => depth += 1,
                4 => depth -= 1,
                5 => {
                    self.take(4)?;
                }
                other => return Err(DecodeError::WireType(other)),
            }
        }
        Ok(())
    }
}

/// The error of a field with another wire type than its number implies.
pub(super) fn wrong_wire_type(found: Wire<'_>, field: &str) -> DecodeError {
    let mut letters = field.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    DecodeError::FieldWireType {
        found: found.number(),
        field: first.into_iter().chain(letters).collect(),
    }
}

/// Converts bytes to a string. Every invalid byte is replaced individually, as Go's JSON encoder does.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n('\u{fffd}', chunk.invalid().len()));
    }
    text
}
