//! Time zones by name or by offset, and the fields of a timestamp in a time zone.

use jiff::tz::TimeZone;

use super::Timestamp;
use super::civil::Date;
use crate::number::{self, NumError};

/// A time zone argument of a getter.
#[derive(Clone, Debug)]
pub enum Zone {
    /// Coordinated Universal Time, the default of getters.
    Utc,
    /// A fixed offset in seconds east of UTC.
    Fixed(i64),
    /// A time zone of the IANA database.
    Named(TimeZone),
}

/// An invalid time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// The name is not in the database.
    #[error("unknown time zone {0}")]
    Unknown(String),
    /// The name is a group of time zones, which is a directory upstream.
    #[error("is a directory")]
    Group,
    /// The name could be a path outside of the database's directory.
    #[error("time: invalid location name")]
    InvalidName,
    /// The string has a colon but is not an offset.
    #[error(transparent)]
    Offset(NumError),
}

impl Zone {
    /// Parses an IANA name, which is case-sensitive, or an offset such as `-08:00` or `2:30`.
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

    /// Seconds east of UTC at a time, given in seconds since 1970.
    fn offset_at(&self, seconds: i64) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Fixed(offset) => *offset,
            Self::Named(zone) => {
                // The last day of year 9999 is beyond jiff's range; no zone has a transition then.
                let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
                i64::from(zone.to_offset(at).seconds())
            }
        }
    }
}

/// UPSTREAM: cel-go common/stdlib/standard.go (inTimeZone): the sign of the hours applies to both
/// numbers, neither is range-checked, and both overflow like Go's integers.
fn fixed(hours: &str, minutes: &str) -> Result<Zone, NumError> {
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

/// The fields of a timestamp in a time zone, named like CEL's getters.
impl Timestamp {
    /// `getFullYear()`
    #[must_use]
    pub fn full_year(self, zone: &Zone) -> i64 {
        self.date(zone).year
    }

    /// `getMonth()`, from 0.
    #[must_use]
    pub fn month(self, zone: &Zone) -> i64 {
        self.date(zone).month - 1
    }

    /// `getDate()`, the day of the month from 1.
    #[must_use]
    pub fn day_of_month(self, zone: &Zone) -> i64 {
        self.date(zone).day
    }

    /// `getDayOfMonth()`, the day of the month from 0.
    #[must_use]
    pub fn day_of_month_from_zero(self, zone: &Zone) -> i64 {
        self.date(zone).day - 1
    }

    /// `getDayOfYear()`, from 0.
    #[must_use]
    pub fn day_of_year(self, zone: &Zone) -> i64 {
        self.date(zone).day_of_year()
    }

    /// `getDayOfWeek()`, from 0 for Sunday.
    #[must_use]
    pub fn day_of_week(self, zone: &Zone) -> i64 {
        // January 1, 1970 was a Thursday.
        (self.days(zone) + 4).rem_euclid(7)
    }

    /// `getHours()`
    #[must_use]
    pub fn hours(self, zone: &Zone) -> i64 {
        self.second_of_day(zone) / 3600
    }

    /// `getMinutes()`
    #[must_use]
    pub fn minutes(self, zone: &Zone) -> i64 {
        self.second_of_day(zone) / 60 % 60
    }

    /// `getSeconds()`
    #[must_use]
    pub fn seconds(self, zone: &Zone) -> i64 {
        self.second_of_day(zone) % 60
    }

    fn local_seconds(self, zone: &Zone) -> i64 {
        self.unix_seconds() + zone.offset_at(self.unix_seconds())
    }

    fn days(self, zone: &Zone) -> i64 {
        self.local_seconds(zone).div_euclid(86_400)
    }

    fn second_of_day(self, zone: &Zone) -> i64 {
        self.local_seconds(zone).rem_euclid(86_400)
    }

    fn date(self, zone: &Zone) -> Date {
        Date::from_days(self.days(zone))
    }
}
