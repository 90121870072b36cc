//! The string functions of cel-go's extension library, version 2.
//!
//! Positions and lengths are in code points. The evaluator binds the functions to CEL names and
//! charges their cost. `format` is split: format strings are parsed here, and
//! [`lockgate_go::number`] formats the numbers.

mod clause;
#[cfg(test)]
mod tests;

pub use clause::{Clause, ClauseError, Piece, Pieces, pieces};

/// A position outside the string, or a range that ends before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// The position is before the start or after the end.
    OutOfRange(i64),
    /// The start of a range is after its end.
    InvalidRange {
        /// The start of the range.
        start: i64,
        /// The end of the range.
        end: i64,
    },
}

impl std::fmt::Display for IndexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutOfRange(index) => write!(f, "index out of range: {index}"),
            Self::InvalidRange { start, end } => {
                write!(f, "invalid substring range. start: {start}, end: {end}")
            }
        }
    }
}

impl std::error::Error for IndexError {}

/// The number of code points of a string.
pub(crate) fn code_points(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    }
}

/// The character at `index`, as a string; empty at the end of the string.
///
/// # Errors
///
/// An index that is negative or beyond the end.
pub fn char_at(text: &str, index: i64) -> Result<&str, IndexError> {
    let rest = suffix(text, index).ok_or(IndexError::OutOfRange(index))?;
    Ok(rest
        .chars()
        .next()
        .and_then(|c| rest.get(..c.len_utf8()))
        .unwrap_or(""))
}

/// The position of the first `part`, or -1.
#[must_use]
pub fn index_of(text: &str, part: &str) -> i64 {
    text.find(part).map_or(-1, |at| count(text, at))
}

/// The position of the first `part` that starts at `offset` or later, or -1. An empty part is found
/// at `offset`.
///
/// # Errors
///
/// A negative offset.
pub fn index_of_from(text: &str, part: &str, offset: i64) -> Result<i64, IndexError> {
    if part.is_empty() {
        return Ok(offset);
    }
    if offset < 0 {
        return Err(IndexError::OutOfRange(offset));
    }
    let Some(rest) = suffix(text, offset) else {
        return Ok(-1);
    };
    Ok(rest.find(part).map_or(-1, |at| offset + count(rest, at)))
}

/// The position of the last `part`, or -1.
#[must_use]
pub fn last_index_of(text: &str, part: &str) -> i64 {
    text.rfind(part).map_or(-1, |at| count(text, at))
}

/// The position of the last `part` that starts at `offset` or earlier, or -1. An offset at or
/// beyond the end is never found, except for an empty part, which is found at `offset`.
///
/// # Errors
///
/// A negative offset.
pub fn last_index_of_from(text: &str, part: &str, offset: i64) -> Result<i64, IndexError> {
    if part.is_empty() {
        return Ok(offset);
    }
    if offset < 0 {
        return Err(IndexError::OutOfRange(offset));
    }
    let Some(start) = byte_position(text, offset).filter(|at| *at < text.len()) else {
        return Ok(-1);
    };
    // A match within the window of `offset` plus the part's length starts no later than `offset`.
    let rest = text.get(start..).unwrap_or("");
    let width = byte_position(rest, count(part, part.len())).unwrap_or(rest.len());
    let window = text.get(..start + width).unwrap_or(text);
    Ok(window.rfind(part).map_or(-1, |at| count(text, at)))
}

/// The string with ASCII letters in lower case.
#[must_use]
pub fn lower_ascii(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// The string with ASCII letters in upper case.
#[must_use]
pub fn upper_ascii(text: &str) -> String {
    text.to_ascii_uppercase()
}

/// The string with the first `limit` occurrences of `old` replaced, or all for a negative limit. An
/// empty `old` matches before each character and at the end.
///
/// The result may be much longer than the inputs: see [`replaced_len`].
#[must_use]
pub fn replace(text: &str, old: &str, new: &str, limit: i64) -> String {
    match usize::try_from(limit) {
        Ok(limit) => text.replacen(old, new, limit),
        Err(_) => text.replace(old, new),
    }
}

/// The length in bytes of the result of [`replace`], without allocating it.
#[must_use]
pub fn replaced_len(text: &str, old: &str, new: &str, limit: i64) -> usize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let times = if limit == 0 {
        0
    } else {
        text.matches(old).take(limit).count()
    };
    (text.len() - times * old.len()).saturating_add(times.saturating_mul(new.len()))
}

/// Splits the string by a separator, into at most `limit` parts with the rest in the last one; into
/// all parts for a negative limit, and none for zero. An empty separator splits into characters.
#[must_use]
pub fn split<'a>(text: &'a str, separator: &str, limit: i64) -> Vec<&'a str> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Vec::new();
    }
    if !separator.is_empty() {
        return text.splitn(limit, separator).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let width = if parts.len() + 1 == limit {
            rest.len()
        } else {
            c.len_utf8()
        };
        let Some((part, tail)) = rest.split_at_checked(width) else {
            break;
        };
        parts.push(part);
        rest = tail;
    }
    parts
}

/// The string from `start`.
///
/// # Errors
///
/// A start that is negative or beyond the end.
pub fn substring(text: &str, start: i64) -> Result<&str, IndexError> {
    suffix(text, start).ok_or(IndexError::OutOfRange(start))
}

/// The string from `start` up to but not including `end`.
///
/// # Errors
///
/// A range that ends before it starts or is out of bounds.
pub fn substring_range(text: &str, start: i64, end: i64) -> Result<&str, IndexError> {
    if start > end {
        return Err(IndexError::InvalidRange { start, end });
    }
    let rest = suffix(text, start).ok_or(IndexError::OutOfRange(start))?;
    let width = byte_position(rest, end - start).ok_or(IndexError::OutOfRange(end))?;
    rest.get(..width).ok_or(IndexError::OutOfRange(end))
}

/// The string without leading and trailing Unicode white space.
#[must_use]
pub fn trim(text: &str) -> &str {
    text.trim()
}

/// Joins the parts with a separator.
#[must_use]
pub fn join<S: AsRef<str>>(parts: impl IntoIterator<Item = S>, separator: &str) -> String {
    let mut out = String::new();
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(part.as_ref());
    }
    out
}

/// The string in double quotes with CEL's escapes, as `strings.quote` returns it.
///
/// Unlike Go's `%q`, all other characters are unchanged, printable or not.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{07}' => out.push_str("\\a"),
            '\u{08}' => out.push_str("\\b"),
            '\u{0c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The number of code points before a byte position.
fn count(text: &str, position: usize) -> i64 {
    let count = text.get(..position).unwrap_or(text).chars().count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The byte position of a code point, which may be the end of the string.
fn byte_position(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if index > text.len() {
        return None;
    }
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(index)
}

fn suffix(text: &str, index: i64) -> Option<&str> {
    text.get(byte_position(text, index)?..)
}
