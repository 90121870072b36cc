//! Durations, RFC 3339 timestamps and time zones with Go's rules.
//!
//! Responsible for parsing and printing both kinds of time, for their arithmetic with overflow
//! errors, and for the fields of a timestamp in a zone. There is no clock here.

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

/// A time that cannot be represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverflowError {
    /// Nanoseconds or seconds do not fit 64 bits.
    #[error("integer overflow")]
    Integer,
    /// The result is before year 1 or after year 9999.
    #[error("timestamp overflow")]
    Timestamp,
}

/// Quotes as Go's `time` package does: byte by byte, and nothing beyond ASCII is printed.
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
