//! Durations, timestamps and time zones with Go's rules.
//!
//! Responsible for reading and printing both kinds of time, their arithmetic with its overflow
//! errors, and the fields of a timestamp in a zone. There is no clock here: an expression cannot
//! ask what time it is.

mod civil;
mod duration;
#[cfg(test)]
mod tests;
mod timestamp;
mod zone;

pub use duration::Duration;
pub use timestamp::Timestamp;
pub use zone::{Zone, ZoneError};

/// A time that cannot be read or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// The text is no duration.
    NotADuration,
    /// The text is no timestamp.
    NotATimestamp,
    /// Nanoseconds or seconds leave 64 bits.
    IntegerOverflow,
    /// The result is before year 1 or after year 9999.
    TimestampOverflow,
}

impl std::fmt::Display for TimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotADuration => {
                "type conversion error from 'string' to 'google.protobuf.Duration'"
            }
            Self::NotATimestamp => {
                "type conversion error from 'string' to 'google.protobuf.Timestamp'"
            }
            Self::IntegerOverflow => "integer overflow",
            Self::TimestampOverflow => "timestamp overflow",
        })
    }
}

impl std::error::Error for TimeError {}

/// Whether a text is a date of the calendar such as `2024-02-29`, in the years 0 to 9999.
#[must_use]
pub fn is_date(text: &[u8]) -> bool {
    timestamp::is_date(text)
}
