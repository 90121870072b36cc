//! `metav1.Time`: RFC 3339 with a resolution of one second, always encoded in UTC.

use std::fmt;

use lockgate_go::time::{ParseTimeError, Rfc3339};
use serde::{Serialize, Serializer};

use crate::decode::{DecodeError, Decoder, Pointee};
use crate::document::{Kind, Value};

/// A timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z.
    unix_seconds: i64,
}

const ZERO_UNIX_SECONDS: i64 = -62_135_596_800;

impl Time {
    /// Creates a time from Unix seconds.
    #[must_use]
    pub fn from_unix_seconds(unix_seconds: i64) -> Self {
        Self { unix_seconds }
    }

    /// Returns true for Go's zero time, the start of year 1, which means unset.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.unix_seconds == ZERO_UNIX_SECONDS
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }

    /// Parses RFC 3339, dropping fractions of a second.
    ///
    /// # Errors
    ///
    /// The error of Go's parser.
    pub fn parse(text: &str) -> Result<Self, ParseTimeError> {
        let Rfc3339 { unix_seconds, .. } = Rfc3339::parse(text)?;
        Ok(Self { unix_seconds })
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let utc = Rfc3339 {
            unix_seconds: self.unix_seconds,
            nanos: 0,
            offset: 0,
        };
        utc.fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_zero() {
            return serializer.serialize_none();
        }
        serializer.collect_str(self)
    }
}

impl Pointee for Time {}

impl Decoder {
    /// Decodes a non-pointer field in Go, whose zero time means unset.
    pub(crate) fn time(
        &mut self,
        target: &mut Option<Time>,
        value: Value<'_>,
    ) -> Result<(), DecodeError> {
        self.opt_time(target, value)?;
        *target = target.filter(|time| !time.is_zero());
        Ok(())
    }

    /// Decodes a pointer to a time. A value of another type ends decoding immediately, even after
    /// other errors.
    pub(crate) fn opt_time(
        &mut self,
        target: &mut Option<Time>,
        value: Value<'_>,
    ) -> Result<(), DecodeError> {
        let message = match value.kind() {
            Kind::Null => {
                *target = None;
                return Ok(());
            }
            Kind::String => match Time::parse(value.as_str().expect("a string is text")) {
                Ok(time) => {
                    *target = Some(time);
                    return Ok(());
                }
                Err(error) => error.to_string(),
            },
            _ => self.type_message(value.kind().name(), "string"),
        };
        Err(DecodeError {
            message,
            span: value.span(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_utc_seconds() {
        for (text, want) in [
            ("2026-11-15T06:56:22Z", "2026-11-15T06:56:22Z"),
            ("2024-02-29T23:59:59.999+01:00", "2024-02-29T22:59:59Z"),
            ("1969-12-31T23:30:00-01:30", "1970-01-01T01:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T5:59:59Z", "9999-12-31T05:59:59Z"),
        ] {
            assert_eq!(Time::parse(text).unwrap().to_string(), want, "{text}");
        }
    }

    #[test]
    fn writes_the_zero_time_as_null() {
        let json = |text| serde_json::to_string(&Time::parse(text).unwrap()).unwrap();
        assert_eq!(json("0001-01-01T01:00:00+01:00"), "null");
        assert_eq!(json("0001-01-01T00:00:01Z"), "\"0001-01-01T00:00:01Z\"");
    }
}
