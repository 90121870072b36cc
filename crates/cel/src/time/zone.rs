//! Time zones by name or by offset.

use jiff::tz::TimeZone;

use crate::number::{self, AtoiError};

/// A time zone a getter can be asked for.
#[derive(Clone, Debug)]
pub enum Zone {
    /// Coordinated universal time, which getters use when no zone is named.
    Utc,
    /// A constant number of seconds east of UTC.
    Fixed(i64),
    /// A zone of the IANA database.
    Named(TimeZone),
}

/// A text that names no zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneError {
    /// The database has no such name.
    Unknown(String),
    /// The name is that of a group of zones, a directory upstream.
    Group,
    /// The name could lead out of the database's directory.
    InvalidName,
    /// The text has a colon but is no offset.
    Offset(AtoiError),
}

impl std::fmt::Display for ZoneError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "unknown time zone {name}"),
            Self::Group => f.write_str("is a directory"),
            Self::InvalidName => f.write_str("time: invalid location name"),
            Self::Offset(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ZoneError {}

impl Zone {
    /// Reads an IANA name, which is case-sensitive, or an offset such as `-08:00` or `2:30`.
    ///
    /// # Errors
    ///
    /// Unknown names and malformed offsets.
    pub fn parse(text: &str) -> Result<Self, ZoneError> {
        match text.split_once(':') {
            Some((hours, minutes)) => fixed(hours, minutes).map_err(ZoneError::Offset),
            None => named(text),
        }
    }

    /// Seconds east of UTC at a point in time, given in seconds since 1970.
    pub(super) fn offset_at(&self, seconds: i64) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Fixed(offset) => *offset,
            Self::Named(zone) => {
                // The last day of year 9999 is beyond jiff's range; no rule changes on it.
                let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
                i64::from(zone.to_offset(at).seconds())
            }
        }
    }
}

/// UPSTREAM: cel-go common/stdlib/standard.go (inTimeZone): the hours' sign decides for both
/// numbers, neither has a range, and both wrap as Go's integers do.
fn fixed(hours: &str, minutes: &str) -> Result<Zone, AtoiError> {
    const NANOS_PER_MINUTE: i64 = 60_000_000_000;
    let negative = hours.starts_with('-');
    let hours = number::atoi(hours)?.wrapping_mul(60);
    let minutes = number::atoi(minutes)?;
    let total = if negative {
        hours.wrapping_sub(minutes)
    } else {
        hours.wrapping_add(minutes)
    };
    Ok(Zone::Fixed(
        total.wrapping_mul(NANOS_PER_MINUTE) / 1_000_000_000,
    ))
}

fn named(name: &str) -> Result<Zone, ZoneError> {
    // UPSTREAM: Go time/zoneinfo.go. The server's local zone is UTC.
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(Zone::Utc);
    }
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err(ZoneError::InvalidName);
    }
    match TimeZone::get(name) {
        Ok(zone) if zone.iana_name() == Some(name) && !zone.is_unknown() => Ok(Zone::Named(zone)),
        _ if is_group(name) => Err(ZoneError::Group),
        _ => Err(ZoneError::Unknown(name.to_owned())),
    }
}

fn is_group(name: &str) -> bool {
    jiff::tz::db().available().any(|zone| {
        zone.as_str()
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}
