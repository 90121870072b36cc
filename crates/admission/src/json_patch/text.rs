//! JSON encoding and comparison as in Go.

use serde_json::Value;

/// Appends JSON text without whitespace between tokens and with Go's HTML escapes.
pub(super) fn push_compact(out: &mut Vec<u8>, raw: &[u8]) {
    for piece in Pieces::of(raw) {
        out.extend_from_slice(piece);
    }
}

/// The length of the text that [`push_compact`] appends.
pub(super) fn compact_len(raw: &[u8]) -> u64 {
    Pieces::of(raw).map(|piece| piece.len() as u64).sum()
}

/// Returns `true` if the scalar `raw`, HTML-escaped by a copy, has the encoding `want`.
pub(super) fn escaped_equals(raw: &[u8], want: &[u8]) -> bool {
    consume(Pieces::of(raw), want)
}

/// Returns `true` if Go's encoding of a scalar equals `want`.
pub(super) fn scalar_equals(value: &Value, want: &[u8]) -> bool {
    match value {
        Value::String(text) => {
            let Some(rest) = want.strip_prefix(b"\"") else {
                return false;
            };
            // Character by character, so that the comparison of a long text ends at the first difference.
            let mut rest = rest;
            for c in text.chars() {
                let mut plain = [0; 4];
                let mut escaped = [0; 6];
                let piece = match escape(c, &mut escaped) {
                    Some(piece) => piece,
                    None => c.encode_utf8(&mut plain).as_bytes(),
                };
                match rest.strip_prefix(piece) {
                    Some(after) => rest = after,
                    None => return false,
                }
            }
            rest == b"\""
        }
        Value::Number(number) => number_text(number).as_bytes() == want,
        Value::Bool(true) => want == b"true",
        Value::Bool(false) => want == b"false",
        Value::Null => want == b"null",
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// The length of a scalar in Go's encoding.
pub(super) fn scalar_len(value: &Value) -> u64 {
    let len = match value {
        Value::String(text) => return string_len(text),
        Value::Number(number) => number_text(number).len(),
        Value::Bool(false) => 5,
        Value::Bool(true) | Value::Null => 4,
        Value::Array(_) | Value::Object(_) => 0,
    };
    len as u64
}

/// The length of a string in Go's encoding.
pub(super) fn string_len(text: &str) -> u64 {
    let mut buffer = [0; 6];
    let len: usize = text
        .chars()
        .map(|c| escape(c, &mut buffer).map_or_else(|| c.len_utf8(), <[u8]>::len))
        .sum();
    len as u64 + 2
}

/// Formats a number like Go's encoder: without an exponent from 1e-6 up to 1e21.
///
/// UPSTREAM: Go encoding/json/encode.go (floatEncoder).
fn number_text(number: &serde_json::Number) -> String {
    let float = match number.as_f64() {
        Some(float) if number.is_f64() => float,
        _ => return number.to_string(),
    };
    let magnitude = float.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

/// The escape sequence of a character in a Go string, if any.
fn escape(c: char, buffer: &mut [u8; 6]) -> Option<&[u8]> {
    let short: &[u8] = match c {
        '"' => b"\\\"",
        '\\' => b"\\\\",
        '\u{08}' => b"\\b",
        '\u{0c}' => b"\\f",
        '\n' => b"\\n",
        '\r' => b"\\r",
        '\t' => b"\\t",
        '\u{2028}' => b"\\u2028",
        '\u{2029}' => b"\\u2029",
        '<' | '>' | '&' | '\0'..='\u{1f}' => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let code = u32::from(c) as usize;
            *buffer = [b'\\', b'u', b'0', b'0', HEX[code >> 4], HEX[code & 15]];
            return Some(buffer);
        }
        _ => return None,
    };
    Some(short)
}

fn consume<'a>(mut pieces: impl Iterator<Item = &'a [u8]>, want: &[u8]) -> bool {
    let rest = pieces.try_fold(want, |rest, piece| rest.strip_prefix(piece));
    rest.is_some_and(<[u8]>::is_empty)
}

/// A JSON text split into the parts that remain after compacting.
struct Pieces<'a> {
    rest: &'a [u8],
    in_string: bool,
}

impl<'a> Pieces<'a> {
    fn of(rest: &'a [u8]) -> Self {
        Self {
            rest,
            in_string: false,
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.in_string
            && let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest
        {
            self.rest = rest;
        }
        let (piece, shown): (usize, Option<&'static [u8]>) = match self.rest {
            [] => return None,
            [b'<', ..] => (1, Some(b"\\u003c")),
            [b'>', ..] => (1, Some(b"\\u003e")),
            [b'&', ..] => (1, Some(b"\\u0026")),
            [0xe2, 0x80, 0xa8, ..] => (3, Some(b"\\u2028")),
            [0xe2, 0x80, 0xa9, ..] => (3, Some(b"\\u2029")),
            [b'\\', _, ..] => (2, None),
            [b'"', ..] => {
                self.in_string = !self.in_string;
                (1, None)
            }
            _ => (1, None),
        };
        let (taken, rest) = self.rest.split_at(piece);
        self.rest = rest;
        Some(shown.unwrap_or(taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn compacts_and_escapes() {
        let mut out = Vec::new();
        push_compact(&mut out, b" { \"a \\\" <\" : [ 1 , \"\xe2\x80\xa8\" ] } ");
        assert_eq!(out, br#"{"a \" \u003c":[1,"\u2028"]}"#);
        assert_eq!(compact_len(b"[ 1, 2 ]"), 5);
    }

    #[test]
    fn spells_scalars_like_go() {
        for (value, text) in [
            (
                json!("a<\u{8}\u{7f}\u{2029}é\u{1}"),
                "\"a\\u003c\\b\u{7f}\\u2029é\\u0001\"",
            ),
            (json!(1.0), "1"),
            (json!(-0.0), "-0"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(1.5e-7), "1.5e-7"),
            (json!(0.000_001), "0.000001"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!(true), "true"),
        ] {
            assert!(scalar_equals(&value, text.as_bytes()), "{text}");
            assert_eq!(scalar_len(&value), text.len() as u64, "{text}");
        }
        assert!(!scalar_equals(&json!("<"), b"\"<\""));
        assert!(!scalar_equals(&json!("a"), b"\"ab\""));
        assert!(!scalar_equals(&json!(1), b"1.0"));
    }
}
