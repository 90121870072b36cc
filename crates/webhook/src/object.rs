//! An object of a request: typed, with its JSON text.

use std::fmt;
use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::denial::{Denial, Refusal};

/// Objects nested deeper than this are denied, whatever the failure policy: a webhook must not allow what it cannot
/// decode. The API server accepts 10,000 levels, which would overflow a thread's stack once typed.
pub const MAX_DEPTH: usize = 500;

/// An object of a kind, including the fields that are unknown to its type.
pub struct Object<K> {
    typed: K,
    text: Box<str>,
}

impl<K: DeserializeOwned> Object<K> {
    /// Decodes an object. `member` is its field in the review, for errors.
    pub(crate) fn read(text: &str, member: &str) -> Result<Self, Refusal> {
        Ok(Self {
            typed: decode(text, member)?,
            text: text.into(),
        })
    }
}

impl<K> Object<K> {
    /// The object with all its fields.
    ///
    /// # Errors
    ///
    /// Never after it was decoded as a `K`.
    pub fn untyped(&self) -> Result<Value, Refusal> {
        decode(&self.text, "object")
    }

    /// The JSON text as it was sent.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the typed object.
    #[must_use]
    pub fn into_inner(self) -> K {
        self.typed
    }
}

impl<K> Deref for Object<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.typed
    }
}

impl<K: fmt::Debug> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.typed.fmt(f)
    }
}

/// Decodes text of limited depth.
pub(crate) fn decode<T: DeserializeOwned>(text: &str, member: &str) -> Result<T, Refusal> {
    if is_too_deep(text) {
        let message = format!("{member} nests more than {MAX_DEPTH} levels deep");
        return Err(Denial::new(422, "Invalid", message).into());
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    T::deserialize(&mut reader).map_err(|error| {
        let message = format!("cannot decode {member}: {error}");
        Denial::new(422, "Invalid", message).into()
    })
}

/// Returns true if JSON text is nested too deeply to decode. Most texts have too few brackets for that, and counting
/// them is a tenth of the work of matching them.
fn is_too_deep(text: &str) -> bool {
    let is_opening = |byte: &u8| u8::from(matches!(byte, b'{' | b'['));
    // Counts of up to 255 fit into a byte, and many bytes are summed at once.
    let pieces = text.as_bytes().chunks(255);
    let opening = pieces.map(|piece| usize::from(piece.iter().map(is_opening).sum::<u8>()));
    opening.sum::<usize>() > MAX_DEPTH && depth(text) > MAX_DEPTH
}

/// The nesting depth of a JSON text, computed without recursion.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_deep_objects_and_denies_deeper_ones() {
        let nested = |levels: usize| "[".repeat(levels) + "\"]\\\"[\"" + &"]".repeat(levels);
        assert!(decode::<Value>(&nested(MAX_DEPTH), "object").is_ok());
        let wide = format!("[{}]", vec!["[]"; MAX_DEPTH + 1].join(","));
        assert!(decode::<Value>(&wide, "object").is_ok());
        let refused = decode::<Value>(&nested(MAX_DEPTH + 1), "object").unwrap_err();
        let Refusal::Denied(denial) = refused else {
            panic!("not a denial")
        };
        assert_eq!(denial.to_string(), "object nests more than 500 levels deep");
    }
}
