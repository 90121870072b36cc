//! `metav1.Time`: RFC 3339 at the precision of a second, always written in UTC.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::decode::Pointee;

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z.
    unix_seconds: i64,
}

/// Why a text is not a time, in the words of Go's `time.Parse`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseTimeError(String);

const ZERO_UNIX_SECONDS: i64 = -62_135_596_800;
const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

impl Time {
    /// A time from its Unix seconds.
    #[must_use]
    pub fn from_unix_seconds(unix_seconds: i64) -> Self {
        Self { unix_seconds }
    }

    /// Whether this is Go's zero time, the start of the year 1, which stands for no time at all.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.unix_seconds == ZERO_UNIX_SECONDS
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }

    /// Reads RFC 3339; fractions of a second are dropped.
    ///
    /// # Errors
    ///
    /// What Go's parser would say.
    pub fn parse(text: &str) -> Result<Self, ParseTimeError> {
        Reader {
            whole: text,
            rest: text.as_bytes(),
        }
        .time()
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.unix_seconds.div_euclid(86_400);
        let second = self.unix_seconds.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        let second = second % 60;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
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

/// Reads the layout element by element, as Go does, so that the error names the same element.
///
/// UPSTREAM: Go time/format.go (parse).
struct Reader<'t> {
    whole: &'t str,
    rest: &'t [u8],
}

impl Reader<'_> {
    fn time(mut self) -> Result<Time, ParseTimeError> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.number("01", 1..=12, "month")?;
        self.literal("-")?;
        let day = self.digits(2, "02")?;
        self.literal("T")?;
        let hour = self.hour()?;
        self.literal(":")?;
        let minute = self.number("04", 0..=59, "minute")?;
        self.literal(":")?;
        let second = self.number("05", 0..=59, "second")?;
        self.skip_fraction();
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(self.error(&format!(": extra text: {}", quote(self.rest))));
        }
        if day < 1 || day > days_in_month(year, month) {
            return Err(self.error(": day out of range"));
        }
        let days = days_from_civil(year, month, day);
        let unix_seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Ok(Time { unix_seconds })
    }

    fn digits(&mut self, count: usize, element: &str) -> Result<i64, ParseTimeError> {
        match self.rest.split_at_checked(count) {
            Some((digits, rest)) if digits.iter().all(u8::is_ascii_digit) => {
                self.rest = rest;
                Ok(digits
                    .iter()
                    .fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
            }
            _ => Err(self.cannot_parse(element)),
        }
    }

    fn number(
        &mut self,
        element: &str,
        range: std::ops::RangeInclusive<i64>,
        what: &str,
    ) -> Result<i64, ParseTimeError> {
        let number = self.digits(2, element)?;
        if range.contains(&number) {
            return Ok(number);
        }
        Err(self.error(&format!(": {what} out of range")))
    }

    /// The hour alone may have one digit.
    fn hour(&mut self) -> Result<i64, ParseTimeError> {
        let width = if self.rest.get(1).is_some_and(u8::is_ascii_digit) {
            2
        } else {
            1
        };
        let hour = self.digits(width, "15")?;
        if hour < 24 {
            Ok(hour)
        } else {
            Err(self.error(": hour out of range"))
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), ParseTimeError> {
        self.rest = self
            .rest
            .strip_prefix(literal.as_bytes())
            .ok_or_else(|| self.cannot_parse(literal))?;
        Ok(())
    }

    fn skip_fraction(&mut self) {
        if let [b'.' | b',', rest @ ..] = self.rest {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits > 0 {
                self.rest = &rest[digits..];
            }
        }
    }

    fn zone(&mut self) -> Result<i64, ParseTimeError> {
        if let Some(rest) = self.rest.strip_prefix(b"Z") {
            self.rest = rest;
            return Ok(0);
        }
        let two = |a: u8, b: u8| {
            (a.is_ascii_digit() && b.is_ascii_digit())
                .then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
        };
        let &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ref rest @ ..] = self.rest else {
            return Err(self.cannot_parse("Z07:00"));
        };
        let (Some(hours), Some(minutes)) = (two(h1, h2), two(m1, m2)) else {
            return Err(self.cannot_parse("Z07:00"));
        };
        if hours > 24 {
            return Err(self.error(": time zone offset hour out of range"));
        }
        if minutes > 60 {
            return Err(self.error(": time zone offset minute out of range"));
        }
        self.rest = rest;
        let offset = hours * 3600 + minutes * 60;
        Ok(if sign == b'-' { -offset } else { offset })
    }

    fn cannot_parse(&self, element: &str) -> ParseTimeError {
        let (whole, rest) = (quote(self.whole.as_bytes()), quote(self.rest));
        ParseTimeError(format!(
            "parsing time {whole} as \"{LAYOUT}\": cannot parse {rest} as \"{element}\""
        ))
    }

    fn error(&self, message: &str) -> ParseTimeError {
        ParseTimeError(format!(
            "parsing time {}{message}",
            quote(self.whole.as_bytes())
        ))
    }
}

/// Quotes as Go's `time` package does: byte by byte, nothing beyond ASCII is printed.
fn quote(text: &[u8]) -> String {
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

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
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

    #[test]
    fn names_the_element_go_names() {
        let layout = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        for (text, want) in [
            ("", format!("parsing time \"\" {layout} \"\" as \"2006\"")),
            (
                "x",
                format!("parsing time \"x\" {layout} \"x\" as \"2006\""),
            ),
            (
                "2026/1",
                format!("parsing time \"2026/1\" {layout} \"/1\" as \"-\""),
            ),
            (
                "2026-1-1",
                format!("parsing time \"2026-1-1\" {layout} \"1-1\" as \"01\""),
            ),
            (
                "2026-01-01",
                format!("parsing time \"2026-01-01\" {layout} \"\" as \"T\""),
            ),
            (
                "2026-01-01T00:00:00",
                format!("parsing time \"2026-01-01T00:00:00\" {layout} \"\" as \"Z07:00\""),
            ),
            (
                "2026-13-01T00:00:00Z",
                String::from("parsing time \"2026-13-01T00:00:00Z\": month out of range"),
            ),
            (
                "2026-02-29T00:00:00Z",
                String::from("parsing time \"2026-02-29T00:00:00Z\": day out of range"),
            ),
            (
                "2026-02-28T24:00:00Z",
                String::from("parsing time \"2026-02-28T24:00:00Z\": hour out of range"),
            ),
            (
                "2026-02-28T23:00:00Zé",
                String::from(
                    "parsing time \"2026-02-28T23:00:00Z\\xc3\\xa9\": extra text: \"\\xc3\\xa9\"",
                ),
            ),
        ] {
            assert_eq!(Time::parse(text).unwrap_err().to_string(), want, "{text}");
        }
    }
}
