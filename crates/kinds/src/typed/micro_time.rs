//! `metav1.MicroTime`: RFC 3339 with exactly six fractional digits.

use serde_json::Value;

use lockgate_go::time::Timestamp;
use lockgate_go::time::quote;

const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// An invalid time, with the message of Go's `time.Parse`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseError {
    #[error("parsing time {}: {element} out of range", quote(.text.as_bytes()))]
    OutOfRange { text: String, element: &'static str },
    #[error("parsing time {} as \"{LAYOUT}\": cannot parse {} as \"{element}\"", quote(.text.as_bytes()), quote(.rest.as_bytes()))]
    Layout {
        text: String,
        rest: String,
        element: &'static str,
    },
    #[error("parsing time {}: extra text: {}", quote(.text.as_bytes()), quote(.extra.as_bytes()))]
    Extra { text: String, extra: String },
}

fn out_of_range(text: &str, element: &'static str) -> ParseError {
    ParseError::OutOfRange {
        text: text.to_owned(),
        element,
    }
}

/// Parses a time, and formats it in UTC.
///
/// UPSTREAM: apimachinery pkg/apis/meta/v1/micro_time.go; Go time/format.go for the errors.
pub(super) fn read(text: &str) -> Result<Value, ParseError> {
    check(text)?;
    // The layout matches, so only the date can be invalid.
    let time = Timestamp::parse(text).map_err(|_| out_of_range(text, "day"))?;
    if time.is_zero() {
        return Ok(Value::Null);
    }
    let seconds = lockgate_api::meta::time::Time::from_unix_seconds(time.unix_seconds());
    let seconds = seconds.to_string();
    let micros = time.subsecond_nanos() / 1000;
    let seconds = seconds.strip_suffix('Z').unwrap_or(&seconds);
    Ok(Value::String(format!("{seconds}.{micros:06}Z")))
}

/// Matches the text with the layout, element by element, and reports the first mismatch.
fn check(text: &str) -> Result<(), ParseError> {
    let mut rest = text;
    for (element, width) in [
        ("2006", 4),
        ("-", 1),
        ("01", 2),
        ("-", 1),
        ("02", 2),
        ("T", 1),
        ("15", 2),
        (":", 1),
        ("04", 2),
        (":", 1),
        ("05", 2),
        (".000000", 7),
    ] {
        let literal = matches!(element, "-" | "T" | ":");
        // Only the hour may have one digit.
        let width = match rest.as_bytes() {
            [_, second, ..] if element == "15" && !second.is_ascii_digit() => 1,
            _ => width,
        };
        let good = |part: &str| match element {
            ".000000" => part.strip_prefix(['.', ',']).is_some_and(digits),
            _ if literal => part == element,
            _ => digits(part),
        };
        match rest.split_at_checked(width) {
            Some((part, after)) if good(part) => {
                if let Some((name, highest)) = limit(element)
                    && part
                        .parse::<u8>()
                        .is_ok_and(|number| number > highest || (element == "01" && number == 0))
                {
                    return Err(out_of_range(text, name));
                }
                rest = after;
            }
            _ => return Err(cannot_parse(text, rest, element)),
        }
    }
    zone(text, rest)
}

fn zone(text: &str, rest: &str) -> Result<(), ParseError> {
    let bytes = rest.as_bytes();
    let (good, after) = match bytes {
        [b'Z', ..] => (true, 1),
        [b'+' | b'-', a, b, b':', c, d, ..] => (digits_of(&[*a, *b, *c, *d]), 6),
        _ => (false, 0),
    };
    if !good {
        return Err(cannot_parse(text, rest, "Z07:00"));
    }
    match rest.get(after..) {
        None | Some("") => Ok(()),
        Some(extra) => Err(ParseError::Extra {
            text: text.to_owned(),
            extra: extra.to_owned(),
        }),
    }
}

fn limit(element: &str) -> Option<(&'static str, u8)> {
    match element {
        "01" => Some(("month", 12)),
        "15" => Some(("hour", 23)),
        "04" => Some(("minute", 59)),
        "05" => Some(("second", 59)),
        _ => None,
    }
}

fn digits(text: &str) -> bool {
    digits_of(text.as_bytes())
}

fn digits_of(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit)
}

fn cannot_parse(text: &str, rest: &str, element: &'static str) -> ParseError {
    ParseError::Layout {
        text: text.to_owned(),
        rest: rest.to_owned(),
        element,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_utc_with_six_digits() {
        for (text, want) in [
            ("2024-01-02T03:04:05.123456Z", "2024-01-02T03:04:05.123456Z"),
            (
                "2024-01-02T03:04:05.000001+02:00",
                "2024-01-02T01:04:05.000001Z",
            ),
        ] {
            assert_eq!(read(text), Ok(Value::from(want)));
        }
        assert_eq!(read("0001-01-01T00:00:00.000000Z"), Ok(Value::Null));
    }

    #[test]
    fn names_the_element_that_fails() {
        for (text, want) in [
            (
                "2024-01-02T03:04:05Z",
                "parsing time \"2024-01-02T03:04:05Z\" as \"2006-01-02T15:04:05.000000Z07:00\": \
                 cannot parse \"Z\" as \".000000\"",
            ),
            (
                "x",
                "parsing time \"x\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"x\" as \
                 \"2006\"",
            ),
            (
                "é",
                "parsing time \"\\xc3\\xa9\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \
                 \"\\xc3\\xa9\" as \"2006\"",
            ),
            (
                "2024-13-02T03:04:05.000000Z",
                "parsing time \"2024-13-02T03:04:05.000000Z\": month out of range",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), want);
        }
    }
}
