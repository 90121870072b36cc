//! Durations in Go's notation: `500ms`, `10s`, `1m30s`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration with string notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(Duration);

impl Span {
    /// Creates a duration of seconds.
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The duration.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }

    /// Returns `true` for a duration of zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    fn parse(text: &str) -> Option<Self> {
        let span = lockgate_go::time::Duration::parse(text).ok()?;
        span.to_std().map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => write!(f, "{}ms", self.0.as_millis()),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let text = String::deserialize(reader)?;
        let expected = || format!("`{text}` is no duration, such as `10s` or `1m30s`");
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(expected()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("1.5s", 1500),
        ] {
            assert_eq!(
                Span::parse(text).unwrap().get().as_millis(),
                milliseconds,
                "{text}"
            );
        }
        for text in ["", "10", "s", "-1s", "1d", "99999999999s"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }

    #[test]
    fn prints_what_it_reads() {
        for span in [Span::from_seconds(10), Span(Duration::from_millis(1500))] {
            assert_eq!(Span::parse(&span.to_string()), Some(span));
        }
    }
}
