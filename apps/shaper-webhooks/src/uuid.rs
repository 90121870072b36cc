//! UUIDs, parsed in all common notations.
//!
//! UPSTREAM: github.com/google/uuid uuid.go. Its `Parse` accepts any characters as braces; here
//! only braces are accepted, as in its `Validate`.

use std::fmt;

use lockgate_go::quote::quote_bytes;

/// A UUID. It prints in its canonical form: lower case, with hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

/// A UUID parse error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UuidError {
    /// The length matches no notation.
    #[error("invalid UUID length: {0}")]
    Length(usize),
    /// An unexpected character.
    #[error("invalid UUID format")]
    Format,
    /// The first or last character should be a brace.
    #[error("invalid UUID: invalid bracketed UUID format")]
    Braces,
    /// The length of a URN, without its prefix.
    #[error("invalid UUID: invalid urn prefix: {0}")]
    Urn(String),
}

impl Uuid {
    /// Parses `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, the same with the prefix `urn:uuid:` or in braces, or 32 digits
    /// without hyphens, in any case.
    ///
    /// # Errors
    ///
    /// Fails for any other notation.
    pub fn parse(text: &str) -> Result<Self, UuidError> {
        const PREFIX: &[u8] = b"urn:uuid:";
        match text.as_bytes() {
            plain if plain.len() == 36 => Self::hyphenated(plain),
            urn if urn.len() == 36 + PREFIX.len() => {
                let (prefix, rest) = urn.split_at(PREFIX.len());
                if !prefix.eq_ignore_ascii_case(PREFIX) {
                    return Err(UuidError::Urn(quote_bytes(prefix)));
                }
                Self::hyphenated(rest)
            }
            [b'{', inner @ .., b'}'] if inner.len() == 36 => Self::hyphenated(inner),
            braced if braced.len() == 38 => Err(UuidError::Braces),
            digits if digits.len() == 32 => Self::digits(digits.iter().copied()),
            other => Err(UuidError::Length(other.len())),
        }
    }

    fn hyphenated(text: &[u8]) -> Result<Self, UuidError> {
        const HYPHENS: [usize; 4] = [8, 13, 18, 23];
        if HYPHENS.iter().any(|&place| text.get(place) != Some(&b'-')) {
            return Err(UuidError::Format);
        }
        let digits = text.iter().enumerate();
        Self::digits(
            digits
                .filter(|(place, _)| !HYPHENS.contains(place))
                .map(|(_, &digit)| digit),
        )
    }

    fn digits(digits: impl Iterator<Item = u8>) -> Result<Self, UuidError> {
        let mut bytes = [0; 16];
        for (place, digit) in digits.enumerate() {
            let value = char::from(digit)
                .to_digit(16)
                .and_then(|value| u8::try_from(value).ok());
            let byte = bytes.get_mut(place / 2).ok_or(UuidError::Format)?;
            *byte = (*byte << 4) | value.ok_or(UuidError::Format)?;
        }
        Ok(Self(bytes))
    }

    /// Generates a random UUID (version 4).
    ///
    /// # Errors
    ///
    /// Fails if the system has no entropy source.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANONICAL: &str = "47c6da67-7477-4970-aa03-84e48ff4f6ad";

    #[test]
    fn reads_every_form() {
        for text in [
            CANONICAL,
            "47C6DA67-7477-4970-AA03-84E48FF4F6AD",
            "urn:uuid:47c6da67-7477-4970-aa03-84e48ff4f6ad",
            "URN:UUID:47c6da67-7477-4970-aa03-84e48ff4f6ad",
            "{47c6da67-7477-4970-aa03-84e48ff4f6ad}",
            "47c6da6774774970aa0384e48ff4f6ad",
        ] {
            assert_eq!(Uuid::parse(text).unwrap().to_string(), CANONICAL, "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, want) in [
            ("", "invalid UUID length: 0"),
            ("not-a-valid-uuid", "invalid UUID length: 16"),
            (
                " 47c6da67-7477-4970-aa03-84e48ff4f6ad",
                "invalid UUID length: 37",
            ),
            (
                "47c6da67+7477-4970-aa03-84e48ff4f6ad",
                "invalid UUID format",
            ),
            (
                "47c6da67-7477-4970-aa03-84e48ff4f6ag",
                "invalid UUID format",
            ),
            (
                "47c6da67-7477-4970-aa03-84e48ff4f6-d",
                "invalid UUID format",
            ),
            ("47c6da6774774970aa0384e48ff4f6az", "invalid UUID format"),
            (
                "(47c6da67-7477-4970-aa03-84e48ff4f6ad)",
                "invalid UUID: invalid bracketed UUID format",
            ),
            (
                "urn:guid:47c6da67-7477-4970-aa03-84e48ff4f6ad",
                "invalid UUID: invalid urn prefix: \"urn:guid:\"",
            ),
            ("ééééééééééééééééé-", "invalid UUID length: 35"),
            ("éééééééééééééééééé", "invalid UUID format"),
        ] {
            let message = Uuid::parse(text).unwrap_err().to_string();
            assert_eq!(message, want, "{text}");
            assert!(message.contains("invalid UUID"), "{message}");
        }
    }

    #[test]
    fn makes_random_ones_of_version_4() {
        let (one, other) = (Uuid::random().unwrap(), Uuid::random().unwrap());
        assert_ne!(one, other);
        let text = one.to_string();
        assert_eq!(text.as_bytes()[14], b'4');
        assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert_eq!(Uuid::parse(&text), Ok(one));
    }
}
