//! Durations, RFC 3339 timestamps and time zones with Go's rules.
//!
//! Responsible for parsing and formatting durations and timestamps, for their arithmetic with
//! overflow errors, and for the fields of a timestamp in a time zone. There is no clock here.

mod civil;
mod duration;
mod rfc3339;
#[cfg(all(test, feature = "zones"))]
mod tests;
mod timestamp;
#[cfg(feature = "zones")]
mod zone;

pub use duration::{Duration, ParseDurationError};
pub use rfc3339::{ParseTimeError, Rfc3339, is_date};
pub use timestamp::{ParseTimestampError, Timestamp};
#[cfg(feature = "zones")]
pub use zone::{Zone, ZoneError};

/// A duration or timestamp out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverflowError {
    /// Nanoseconds or seconds overflow 64 bits.
    #[error("integer overflow")]
    Integer,
    /// The result is before year 1 or after year 9999.
    #[error("timestamp overflow")]
    Timestamp,
}

/// Quotes like Go's `time` package: byte by byte, escaping everything but printable ASCII.
#[must_use]
pub fn quote(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' | 0x7f => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}
