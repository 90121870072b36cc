//! RFC 3339, parsed like Go's `time.Parse` and formatted like `Time.Format`.

use std::fmt;

use super::civil::{Date, days_in_month};
use super::quote;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const SECONDS_PER_DAY: i64 = 86_400;

/// A timestamp with its offset, in any four-digit year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc3339 {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub unix_seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

/// A string that is not RFC 3339, with the error text of Go's `time.Parse`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parsing time {}{problem}", quote(text.as_bytes()))]
pub struct ParseTimeError {
    text: String,
    problem: String,
}

impl Rfc3339 {
    /// Parses a timestamp as leniently as Go: a one-digit hour, a comma before the fraction and
    /// offsets up to `24:60` are accepted; digits beyond nanoseconds are dropped.
    ///
    /// ```
    /// use lockgate_go::time::Rfc3339;
    /// assert_eq!(Rfc3339::parse("1970-01-01T01:00:00+01:00").unwrap().unix_seconds, 0);
    /// assert_eq!(
    ///     Rfc3339::parse("2026-02-29T00:00:00Z").unwrap_err().to_string(),
    ///     "parsing time \"2026-02-29T00:00:00Z\": day out of range",
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// A string in another format, or a date or time that does not exist.
    pub fn parse(text: &str) -> Result<Self, ParseTimeError> {
        Parser {
            rest: text.as_bytes(),
        }
        .timestamp()
        .map_err(|problem| ParseTimeError {
            text: text.to_owned(),
            problem: problem.to_string(),
        })
    }
}

/// Formats with the parsed offset, and a fraction without trailing zeros.
impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.unix_seconds + i64::from(self.offset);
        let Date { year, month, day } = Date::from_days(local.div_euclid(SECONDS_PER_DAY));
        let second = local.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        if (0..=9999).contains(&year) {
            // Hot path for every object and audit event; formatting each number with padding is ten
            // times slower.
            let pairs = [year / 100, year % 100, month, day, hour, minute, second];
            let mut text = *b"0000-00-00T00:00:00";
            for (at, pair) in [0, 2, 5, 8, 11, 14, 17].into_iter().zip(pairs) {
                if let Some(digits) = text.get_mut(at..at + 2) {
                    let digit = |number: i64| b'0' + (number % 10) as u8;
                    digits.copy_from_slice(&[digit(pair / 10), digit(pair)]);
                }
            }
            f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)?;
        } else {
            // Only an offset can make the year negative, -1 at most; Go pads its digits.
            let sign = if year < 0 { "-" } else { "" };
            let year = year.abs();
            write!(
                f,
                "{sign}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
            )?;
        }
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

/// Returns true for a calendar date such as `2024-02-29`, in the years 0 to 9999.
#[must_use]
pub fn is_date(text: &[u8]) -> bool {
    let mut parser = Parser { rest: text };
    let (Ok(date), true) = (parser.date(), parser.rest.is_empty()) else {
        return false;
    };
    date.exists()
}

/// The first error in a string.
#[derive(Debug)]
enum Problem<'t> {
    /// The rest of the string does not start with this layout element.
    Element(&'t [u8], &'static str),
    OutOfRange(&'static str),
    Extra(&'t [u8]),
}

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(rest, element) => {
                let rest = quote(rest);
                write!(f, " as \"{LAYOUT}\": cannot parse {rest} as \"{element}\"")
            }
            Self::OutOfRange(what) => write!(f, ": {what} out of range"),
            Self::Extra(rest) => write!(f, ": extra text: {}", quote(rest)),
        }
    }
}

/// Parses layout element by element like Go, so that errors name the same element.
///
/// UPSTREAM: Go time/format.go (parse).
struct Parser<'t> {
    rest: &'t [u8],
}

impl<'t> Parser<'t> {
    fn timestamp(&mut self) -> Result<Rfc3339, Problem<'t>> {
        let date = self.date()?;
        self.literal("T")?;
        let hour = self.hour()?;
        self.literal(":")?;
        let minute = self.number("04", "minute", 0..=59)?;
        self.literal(":")?;
        let second = self.number("05", "second", 0..=59)?;
        let nanos = self.fraction();
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(Problem::Extra(self.rest));
        }
        // The day is checked against its month last.
        if !date.exists() {
            return Err(Problem::OutOfRange("day"));
        }
        let second_of_day = hour * 3600 + minute * 60 + second;
        Ok(Rfc3339 {
            unix_seconds: date.days() * SECONDS_PER_DAY + second_of_day - i64::from(offset),
            nanos,
            offset,
        })
    }

    /// A date whose day is not checked against its month.
    fn date(&mut self) -> Result<Date, Problem<'t>> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.number("01", "month", 1..=12)?;
        self.literal("-")?;
        let day = self.digits(2, "02")?;
        Ok(Date { year, month, day })
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), Problem<'t>> {
        self.rest = self
            .rest
            .strip_prefix(literal.as_bytes())
            .ok_or(Problem::Element(self.rest, literal))?;
        Ok(())
    }

    fn digits(&mut self, count: usize, element: &'static str) -> Result<i64, Problem<'t>> {
        match self.rest.split_at_checked(count) {
            Some((digits, rest)) if digits.iter().all(u8::is_ascii_digit) => {
                self.rest = rest;
                Ok(digits
                    .iter()
                    .fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
            }
            _ => Err(Problem::Element(self.rest, element)),
        }
    }

    fn number(
        &mut self,
        element: &'static str,
        name: &'static str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, Problem<'t>> {
        let number = self.digits(2, element)?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(Problem::OutOfRange(name))
        }
    }

    /// Only the hour may have one digit.
    fn hour(&mut self) -> Result<i64, Problem<'t>> {
        let two = self.rest.get(1).is_some_and(u8::is_ascii_digit);
        let hour = self.digits(if two { 2 } else { 1 }, "15")?;
        if hour < 24 {
            Ok(hour)
        } else {
            Err(Problem::OutOfRange("hour"))
        }
    }

    /// Parses a fraction; digits beyond nanoseconds are dropped.
    fn fraction(&mut self) -> u32 {
        let [b'.' | b',', rest @ ..] = self.rest else {
            return 0;
        };
        let count = rest.iter().take_while(|d| d.is_ascii_digit()).count();
        if count == 0 {
            return 0;
        }
        let (digits, rest) = rest.split_at(count);
        self.rest = rest;
        let digits = digits.iter().copied().chain(std::iter::repeat(b'0'));
        digits
            .take(9)
            .fold(0, |number, d| number * 10 + u32::from(d - b'0'))
    }

    /// Seconds east of UTC.
    fn zone(&mut self) -> Result<i32, Problem<'t>> {
        if let Some(rest) = self.rest.strip_prefix(b"Z") {
            self.rest = rest;
            return Ok(0);
        }
        let two = |a: u8, b: u8| {
            (a.is_ascii_digit() && b.is_ascii_digit())
                .then(|| i32::from(a - b'0') * 10 + i32::from(b - b'0'))
        };
        let &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ref rest @ ..] = self.rest else {
            return Err(Problem::Element(self.rest, "Z07:00"));
        };
        let (Some(hours), Some(minutes)) = (two(h1, h2), two(m1, m2)) else {
            return Err(Problem::Element(self.rest, "Z07:00"));
        };
        if hours > 24 {
            return Err(Problem::OutOfRange("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(Problem::OutOfRange("time zone offset minute"));
        }
        self.rest = rest;
        let offset = hours * 3600 + minutes * 60;
        Ok(if sign == b'-' { -offset } else { offset })
    }
}

impl Date {
    fn exists(self) -> bool {
        (1..=days_in_month(self.year, self.month)).contains(&self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_element_go_names() {
        let layout = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        for (text, want) in [
            ("", format!("\"\" {layout} \"\" as \"2006\"")),
            ("x", format!("\"x\" {layout} \"x\" as \"2006\"")),
            ("2026/1", format!("\"2026/1\" {layout} \"/1\" as \"-\"")),
            (
                "2026-1-1",
                format!("\"2026-1-1\" {layout} \"1-1\" as \"01\""),
            ),
            (
                "2026-01-01",
                format!("\"2026-01-01\" {layout} \"\" as \"T\""),
            ),
            (
                "2026-01-01T00:00:00",
                format!("\"2026-01-01T00:00:00\" {layout} \"\" as \"Z07:00\""),
            ),
            (
                "2026-13-01T00:00:00Z",
                String::from("\"2026-13-01T00:00:00Z\": month out of range"),
            ),
            (
                "2026-02-29T00:00:00Z",
                String::from("\"2026-02-29T00:00:00Z\": day out of range"),
            ),
            (
                "2026-02-28T24:00:00Z",
                String::from("\"2026-02-28T24:00:00Z\": hour out of range"),
            ),
            (
                "2026-02-28T23:00:00Zé",
                String::from("\"2026-02-28T23:00:00Z\\xc3\\xa9\": extra text: \"\\xc3\\xa9\""),
            ),
        ] {
            let error = Rfc3339::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("parsing time {want}"), "{text}");
        }
    }

    #[test]
    fn knows_the_calendar() {
        for (text, want) in [
            ("2024-02-29", true),
            ("0000-01-01", true),
            ("2023-02-29", false),
            ("2023-00-01", false),
            ("2023-01-00", false),
            ("2023-1-1", false),
            ("2023-01-01T", false),
        ] {
            assert_eq!(is_date(text.as_bytes()), want, "{text}");
        }
    }
}
