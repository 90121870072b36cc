//! Timestamps in the range of `google.protobuf.Timestamp`.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::{Duration, OverflowError, ParseTimeError, Rfc3339};

/// 0001-01-01T00:00:00Z
const MIN_SECONDS: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A timestamp with nanoseconds, in the years 1 to 9999 UTC.
///
/// It keeps its parsed offset, which only affects formatting: comparison, hashing and the getters
/// use the instant.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp(Rfc3339);

/// A string that is not a [`Timestamp`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTimestampError {
    /// The string is not RFC 3339.
    #[error(transparent)]
    Form(ParseTimeError),
    /// The timestamp is before year 1 or after year 9999.
    #[error(transparent)]
    Range(OverflowError),
}

impl Timestamp {
    /// Creates a timestamp from seconds since 1970, in UTC.
    ///
    /// # Errors
    ///
    /// [`OverflowError::Timestamp`]
    pub fn from_unix(seconds: i64) -> Result<Self, OverflowError> {
        Self::new(seconds, 0, 0)
    }

    fn new(unix_seconds: i64, nanos: u32, offset: i32) -> Result<Self, OverflowError> {
        if (MIN_SECONDS..=MAX_SECONDS).contains(&unix_seconds) {
            Ok(Self(Rfc3339 {
                unix_seconds,
                nanos,
                offset,
            }))
        } else {
            Err(OverflowError::Timestamp)
        }
    }

    /// Parses an RFC 3339 timestamp by the rules of [`Rfc3339::parse`].
    ///
    /// ```
    /// use lockgate_go::time::Timestamp;
    /// let text = "2024-02-29T12:34:56.789+02:00";
    /// assert_eq!(Timestamp::parse(text).unwrap().to_string(), text);
    /// ```
    ///
    /// # Errors
    ///
    /// A string in another format, and timestamps outside of the years 1 to 9999.
    pub fn parse(text: &str) -> Result<Self, ParseTimestampError> {
        let Rfc3339 {
            unix_seconds,
            nanos,
            offset,
        } = Rfc3339::parse(text).map_err(ParseTimestampError::Form)?;
        Self::new(unix_seconds, nanos, offset).map_err(ParseTimestampError::Range)
    }

    /// Seconds since 1970, rounded down, as in `int(timestamp)` in CEL.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.0.unix_seconds
    }

    /// Nanoseconds within the second.
    #[must_use]
    pub const fn subsecond_nanos(self) -> u32 {
        self.0.nanos
    }

    /// Returns true for the first instant of year 1, Go's zero time.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0.unix_seconds == MIN_SECONDS && self.0.nanos == 0
    }

    /// Adds a duration.
    ///
    /// # Errors
    ///
    /// [`OverflowError::Timestamp`]
    pub fn plus(self, duration: Duration) -> Result<Self, OverflowError> {
        let nanos = i64::from(self.0.nanos) + duration.nanos() % NANOS_PER_SECOND;
        let seconds = self.0.unix_seconds
            + duration.nanos() / NANOS_PER_SECOND
            + nanos.div_euclid(NANOS_PER_SECOND);
        let nanos = u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND))
            .expect("a remainder of 10^9 fits 32 bits");
        Self::new(seconds, nanos, self.0.offset)
    }

    /// Subtracts a duration.
    ///
    /// # Errors
    ///
    /// [`OverflowError::Timestamp`], and [`OverflowError::Integer`] for the one duration that
    /// cannot be negated.
    pub fn minus(self, duration: Duration) -> Result<Self, OverflowError> {
        self.plus(duration.negated()?)
    }

    /// The duration since `earlier`.
    ///
    /// # Errors
    ///
    /// [`OverflowError::Integer`] if the timestamps are more than 292 years apart.
    pub fn since(self, earlier: Self) -> Result<Duration, OverflowError> {
        // UPSTREAM: cel-go common/types/overflow.go scales the seconds before it adds the
        // nanoseconds.
        (self.0.unix_seconds - earlier.0.unix_seconds)
            .checked_mul(NANOS_PER_SECOND)
            .and_then(|n| n.checked_add(i64::from(self.0.nanos) - i64::from(earlier.0.nanos)))
            .map(Duration::from_nanos)
            .ok_or(OverflowError::Integer)
    }

    /// `getMilliseconds()`, independent of the time zone.
    #[must_use]
    pub fn milliseconds(self) -> i64 {
        i64::from(self.0.nanos / 1_000_000)
    }
}

/// Formats as RFC 3339 with the parsed offset, as in `string(timestamp)`.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
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
        (self.0.unix_seconds, self.0.nanos).cmp(&(other.0.unix_seconds, other.0.nanos))
    }
}

impl Hash for Timestamp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.unix_seconds, self.0.nanos).hash(state);
    }
}
