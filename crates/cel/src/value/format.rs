//! Strings in the formats of schemas.
//!
//! UPSTREAM: kube-openapi pkg/validation/strfmt

use lockgate_go::time::{Duration, Timestamp, is_date};

const SECOND: i64 = 1_000_000_000;

/// Units of time: the spellings to match exactly, then a prefix to match.
const UNITS: [(&[&str], &str, i64); 8] = [
    (&["ns"], "nano", 1),
    (&["us", "µs"], "micro", 1_000),
    (&["ms"], "milli", 1_000_000),
    (&["s"], "sec", SECOND),
    (&["m"], "min", 60 * SECOND),
    (&["h", "hr"], "hour", 3_600 * SECOND),
    (&["d"], "day", 86_400 * SECOND),
    (&["w", "wk"], "week", 604_800 * SECOND),
];

/// A Go duration, or numbers with units such as `2 weeks 3 days`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if let Ok(duration) = Duration::parse(text) {
        return Some(duration);
    }
    let mut sum = 0_i64;
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let from = rest.get(start..)?;
        let after = from.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = from.strip_suffix(after)?;
        let unit_on = after.trim_start_matches([' ', '\t', '\n', '\x0c', '\r']);
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == 'µ';
        rest = unit_on.trim_start_matches(is_letter);
        let unit = unit_on.strip_suffix(rest)?;
        if unit.is_empty() {
            rest = after;
            continue;
        }
        let factor: i64 = digits.parse().ok()?;
        if let Some(nanos) = unit_nanos(&unit.to_lowercase()) {
            // Upstream's sum also overflows.
            sum = sum.wrapping_add(factor.wrapping_mul(nanos));
            found = true;
        }
    }
    found.then(|| Duration::from_nanos(sum))
}

fn unit_nanos(unit: &str) -> Option<i64> {
    UNITS
        .iter()
        .find(|(exact, start, _)| exact.contains(&unit) || unit.starts_with(start))
        .map(|(_, _, nanos)| *nanos)
}

/// A date, as the timestamp of its start.
pub(super) fn date(text: &str) -> Option<Timestamp> {
    if !is_date(text.as_bytes()) {
        return None;
    }
    Timestamp::parse(&format!("{text}T00:00:00Z")).ok()
}

/// A timestamp, optionally without a zone; an empty string is the start of 1970.
pub(super) fn date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::from_unix(0).ok();
    }
    Timestamp::parse(text)
        .or_else(|_| Timestamp::parse(&format!("{text}Z")))
        .ok()
}

/// Bytes in the URL-safe base64 alphabet with padding; line breaks are skipped.
///
/// # Errors
///
/// The index of the first invalid byte.
pub(super) fn base64(text: &str) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut rest = text
        .bytes()
        .enumerate()
        .filter(|(_, b)| !matches!(b, b'\r' | b'\n'));
    loop {
        let mut group = 0_u32;
        for nth in 0..4 {
            let Some((at, byte)) = rest.next() else {
                return if nth == 0 {
                    Ok(bytes)
                } else {
                    Err(text.len().saturating_sub(nth))
                };
            };
            if byte == b'=' {
                padding(nth, at, text.len(), &mut rest)?;
                let group = group << (6 * (4 - nth));
                bytes.extend(group.to_be_bytes().iter().skip(1).take(nth - 1));
                return Ok(bytes);
            }
            group = group << 6 | sextet(byte).ok_or(at)?;
        }
        bytes.extend(group.to_be_bytes().iter().skip(1));
    }
}

/// Parses the rest of the padding after its first character.
fn padding(
    nth: usize,
    at: usize,
    len: usize,
    rest: &mut impl Iterator<Item = (usize, u8)>,
) -> Result<(), usize> {
    match nth {
        0 | 1 => return Err(at),
        2 => match rest.next() {
            Some((_, b'=')) => {}
            // Upstream reports the position before the expected padding.
            Some((at, _)) => return Err(at.saturating_sub(1)),
            None => return Err(len),
        },
        _ => {}
    }
    rest.next().map_or(Ok(()), |(at, _)| Err(at))
}

fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}
