//! A point in time.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::civil::{Date, days_in_month};
use super::{Duration, TimeError, Zone};

/// 0001-01-01T00:00:00Z
const MIN_SECONDS: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z
const MAX_SECONDS: i64 = 253_402_300_799;
const SECONDS_PER_DAY: i64 = 86_400;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A point in time with nanoseconds, in the years 1 to 9999 of UTC.
///
/// It remembers the offset it was written with, which only printing shows: comparing, hashing
/// and the getters look at the instant.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
    offset: i32,
}

impl Timestamp {
    /// The point that many seconds after 1970, in UTC.
    ///
    /// # Errors
    ///
    /// [`TimeError::TimestampOverflow`]
    pub fn from_unix(seconds: i64) -> Result<Self, TimeError> {
        Self::new(seconds, 0, 0)
    }

    fn new(seconds: i64, nanos: u32, offset: i32) -> Result<Self, TimeError> {
        if (MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
            Ok(Self {
                seconds,
                nanos,
                offset,
            })
        } else {
            Err(TimeError::TimestampOverflow)
        }
    }

    /// Reads an RFC 3339 timestamp as leniently as Go does: an hour of one digit, a comma before
    /// the fraction and offsets up to `24:60` pass.
    ///
    /// ```
    /// use lockgate_cel::time::Timestamp;
    /// let text = "2024-02-29T12:34:56.789+02:00";
    /// assert_eq!(Timestamp::parse(text).unwrap().to_string(), text);
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimeError::NotATimestamp`] or [`TimeError::TimestampOverflow`].
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let (seconds, nanos, offset) = Reader {
            rest: text.as_bytes(),
        }
        .timestamp()
        .ok_or(TimeError::NotATimestamp)?;
        Self::new(seconds, nanos, offset)
    }

    /// Seconds since 1970, toward the past; `int(timestamp)` is this.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds within the second.
    #[must_use]
    pub const fn subsecond_nanos(self) -> u32 {
        self.nanos
    }

    /// Whether this is the first instant of year 1, Go's zero time.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.seconds == MIN_SECONDS && self.nanos == 0
    }

    /// The point a duration later.
    ///
    /// # Errors
    ///
    /// [`TimeError::TimestampOverflow`]
    pub fn plus(self, duration: Duration) -> Result<Self, TimeError> {
        let nanos = i64::from(self.nanos) + duration.nanos() % NANOS_PER_SECOND;
        let seconds =
            self.seconds + duration.nanos() / NANOS_PER_SECOND + nanos.div_euclid(NANOS_PER_SECOND);
        let nanos = u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).unwrap_or(0);
        Self::new(seconds, nanos, self.offset)
    }

    /// The point a duration earlier.
    ///
    /// # Errors
    ///
    /// [`TimeError::TimestampOverflow`], and [`TimeError::IntegerOverflow`] for the one duration
    /// whose sign cannot be turned.
    pub fn minus(self, duration: Duration) -> Result<Self, TimeError> {
        self.plus(duration.negated()?)
    }

    /// How long this point is after `earlier`.
    ///
    /// # Errors
    ///
    /// [`TimeError::IntegerOverflow`] if the points are more than 292 years apart.
    pub fn since(self, earlier: Self) -> Result<Duration, TimeError> {
        // UPSTREAM: cel-go common/types/overflow.go scales the seconds before it adds the rest.
        (self.seconds - earlier.seconds)
            .checked_mul(NANOS_PER_SECOND)
            .and_then(|n| n.checked_add(i64::from(self.nanos) - i64::from(earlier.nanos)))
            .map(Duration::from_nanos)
            .ok_or(TimeError::IntegerOverflow)
    }

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
        // The first of January 1970 was a Thursday.
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

    /// `getMilliseconds()`; no zone moves them.
    #[must_use]
    pub fn milliseconds(self) -> i64 {
        i64::from(self.nanos / 1_000_000)
    }

    fn local_seconds(self, zone: &Zone) -> i64 {
        self.seconds + zone.offset_at(self.seconds)
    }

    fn days(self, zone: &Zone) -> i64 {
        self.local_seconds(zone).div_euclid(SECONDS_PER_DAY)
    }

    fn second_of_day(self, zone: &Zone) -> i64 {
        self.local_seconds(zone).rem_euclid(SECONDS_PER_DAY)
    }

    fn date(self, zone: &Zone) -> Date {
        Date::from_days(self.days(zone))
    }
}

/// Prints the point as `string(timestamp)` does: RFC 3339 in the offset it was read with, and a
/// fraction without zeros at its end.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let local = self.seconds + i64::from(self.offset);
        let date = Date::from_days(local.div_euclid(SECONDS_PER_DAY));
        let second = local.rem_euclid(SECONDS_PER_DAY);
        let Date { year, month, day } = date;
        // A negative year can only be -1 or so, through an offset; Go pads its digits.
        let sign = if year < 0 { "-" } else { "" };
        let year = year.abs();
        write!(f, "{sign}{year:04}-{month:02}-{day:02}T")?;
        write!(
            f,
            "{:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        )?;
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl Hash for Timestamp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.seconds, self.nanos).hash(state);
    }
}

/// Takes a timestamp apart from left to right.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// Seconds since 1970, nanoseconds, and the offset in seconds.
    // UPSTREAM: Go time/format.go and format_rfc3339.go; the general parser decides what passes.
    fn timestamp(&mut self) -> Option<(i64, u32, i32)> {
        let date = self.date()?;
        self.byte(b'T')?;
        let hour = self.hour().filter(|h| *h < 24)?;
        self.byte(b':')?;
        let minute = self.digits(2).filter(|m| *m < 60)?;
        self.byte(b':')?;
        let second = self.digits(2).filter(|s| *s < 60)?;
        let nanos = self.fraction();
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return None;
        }
        let seconds = date.days() * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
        Some((seconds, nanos, i32::try_from(offset).ok()?))
    }

    fn date(&mut self) -> Option<Date> {
        let year = self.digits(4)?;
        self.byte(b'-')?;
        let month = self.digits(2).filter(|m| (1..=12).contains(m))?;
        self.byte(b'-')?;
        let day = self.digits(2)?;
        (1..=days_in_month(year, month))
            .contains(&day)
            .then_some(Date { year, month, day })
    }

    fn byte(&mut self, want: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        (*first == want).then_some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        digits.iter().try_fold(0, |number, d| {
            d.is_ascii_digit()
                .then(|| number * 10 + i64::from(d - b'0'))
        })
    }

    fn hour(&mut self) -> Option<i64> {
        let two = self.rest.get(1).is_some_and(u8::is_ascii_digit);
        self.digits(if two { 2 } else { 1 })
    }

    /// Digits beyond nanoseconds are read and dropped.
    fn fraction(&mut self) -> u32 {
        let [b'.' | b',', rest @ ..] = self.rest else {
            return 0;
        };
        let count = rest.iter().take_while(|d| d.is_ascii_digit()).count();
        if count == 0 {
            return 0;
        }
        let digits = rest
            .iter()
            .take(count)
            .copied()
            .chain(std::iter::repeat(b'0'))
            .take(9);
        let nanos = digits.fold(0, |number, d| number * 10 + u32::from(d - b'0'));
        self.rest = rest.get(count..).unwrap_or_default();
        nanos
    }

    fn offset(&mut self) -> Option<i64> {
        let (sign, rest) = self.rest.split_first()?;
        self.rest = rest;
        let sign = match sign {
            b'Z' => return Some(0),
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = self.digits(2).filter(|h| *h <= 24)?;
        self.byte(b':')?;
        let minutes = self.digits(2).filter(|m| *m <= 60)?;
        Some(sign * (hours * 60 + minutes) * 60)
    }
}

pub(super) fn is_date(text: &[u8]) -> bool {
    let mut reader = Reader { rest: text };
    reader.date().is_some() && reader.rest.is_empty()
}
