//! Encodes JSON like Go's encoder: `<`, `>`, `&` and the two line separators are escaped.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;

/// Encodes compact JSON like Go's encoder.
///
/// ```
/// assert_eq!(lockgate_go::json::to_string("<a>"), r#""\u003ca\u003e""#);
/// ```
///
/// # Panics
///
/// If `value` fails to serialize, or has a map with non-string keys. API types do neither; a partial object
/// must never be sent or stored.
#[must_use]
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> String {
    write(value, GoForm { html_safe: true })
}

/// Encodes compact JSON with Go's number format, without HTML escapes in strings.
///
/// # Panics
///
/// As [`to_string`].
#[must_use]
pub fn to_string_plain<T: Serialize + ?Sized>(value: &T) -> String {
    write(value, GoForm { html_safe: false })
}

/// Appends the output of [`to_string`].
///
/// # Panics
///
/// As [`to_string`].
pub fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    append_in(out, value, GoForm { html_safe: true });
}

/// Appends the output of [`to_string`] for a `Value`, in one pass over its bytes.
///
/// This is the hot path for all stored and sent objects, so it has a dedicated encoder. The recursion is
/// bounded, as decoders limit the depth of the value.
pub fn append_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(_) => append(out, value),
        Value::String(text) => append_str(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                append_value(out, item);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (at, (key, member)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                append_str(out, key);
                out.push(b':');
                append_value(out, member);
            }
            out.push(b'}');
        }
    }
}

/// The output of [`to_string`] for a `Value`.
#[must_use]
pub fn value_to_string(value: &Value) -> String {
    let mut out = Vec::with_capacity(USUAL_SIZE * 8);
    append_value(&mut out, value);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a quoted string.
pub fn append_str(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut plain_from = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = ESCAPES[usize::from(byte)];
        if escape == PLAIN {
            at += 1;
            continue;
        }
        // U+2028 and U+2029 are e2 80 a8 and e2 80 a9; other characters starting with e2 are not escaped.
        let length = if escape == SEPARATOR { 3 } else { 1 };
        let separator = match bytes.get(at..at + length) {
            Some([0xe2, 0x80, last @ (0xa8 | 0xa9)]) => Some(*last),
            _ => None,
        };
        if escape == SEPARATOR && separator.is_none() {
            at += 1;
            continue;
        }
        out.extend_from_slice(&bytes[plain_from..at]);
        match (escape, separator) {
            (_, Some(0xa8)) => out.extend_from_slice(b"\\u2028"),
            (_, Some(_)) => out.extend_from_slice(b"\\u2029"),
            (HEX, None) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0xf));
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', DIGITS[high], DIGITS[low]]);
            }
            (letter, None) => out.extend_from_slice(&[b'\\', letter]),
        }
        at += length;
        plain_from = at;
    }
    out.extend_from_slice(&bytes[plain_from..]);
    out.push(b'"');
}

/// A byte that is not escaped.
const PLAIN: u8 = 0;
/// A byte that is escaped as `\u00xx`.
const HEX: u8 = b'u';
/// The first byte of a possible line separator.
const SEPARATOR: u8 = b's';

/// The escape of each byte of a string: none, a letter after a backslash, or its code.
static ESCAPES: [u8; 256] = {
    let mut escapes = [PLAIN; 256];
    let mut control = 0;
    while control < 0x20 {
        escapes[control] = HEX;
        control += 1;
    }
    escapes[0x08] = b'b';
    escapes[0x09] = b't';
    escapes[0x0a] = b'n';
    escapes[0x0c] = b'f';
    escapes[0x0d] = b'r';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes[b'<' as usize] = HEX;
    escapes[b'>' as usize] = HEX;
    escapes[b'&' as usize] = HEX;
    escapes[0xe2] = SEPARATOR;
    escapes
};

/// Most outputs are metadata or small objects; growing an empty buffer costs more than encoding them.
const USUAL_SIZE: usize = 128;

fn write<T: Serialize + ?Sized>(value: &T, form: GoForm) -> String {
    let mut out = Vec::with_capacity(USUAL_SIZE);
    append_in(&mut out, value, form);
    String::from_utf8(out).expect("the serializer writes UTF-8")
}

fn append_in<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T, form: GoForm) {
    let mut serializer = serde_json::Serializer::with_formatter(out, form);
    value
        .serialize(&mut serializer)
        .expect("API types have no value that JSON cannot hold, and memory can be written");
}

struct GoForm {
    html_safe: bool,
}

impl Formatter for GoForm {
    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(format_float(value).as_bytes())
    }

    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Hot path for nearly all strings. 0xe2 is the first byte of the line separators, among others.
        let may_be_unsafe = |&byte: &u8| matches!(byte, b'<' | b'>' | b'&' | 0xe2);
        if !self.html_safe || !fragment.as_bytes().iter().any(may_be_unsafe) {
            return writer.write_all(fragment.as_bytes());
        }
        let unsafe_char = |c: char| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        let mut rest = fragment;
        while let Some(at) = rest.find(unsafe_char) {
            let (plain, tail) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Formats a number like Go's JSON encoder.
#[must_use]
pub fn format_float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => {
                format!("{mantissa}e+{exponent}")
            }
            _ => text,
        };
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_trees_as_the_general_writer_does() {
        let every_char: String = (0..0x250)
            .chain(0x2020..0x2030)
            .chain([0xe200, 0x1f600])
            .filter_map(char::from_u32)
            .collect();
        let tree = serde_json::json!({
            "": null, "a<b": [true, false, [], {}, [1, -2, 1.5e-7, 1e21, u64::MAX]],
            "text": every_char, "\u{2028}": {"\u{2029}x\u{2028}": "\u{2028}"}, "e": "\u{e2}\u{80}",
        });
        assert_eq!(value_to_string(&tree), to_string(&tree));
    }

    #[test]
    fn writes_numbers_and_texts_like_go() {
        let value = serde_json::json!([1.0, 9.223372036854776e18, 1e21, 1.5e-7, -0.0, 3, "<"]);
        let plain = "[1,9223372036854776000,1e+21,1.5e-7,-0,3,\"<\"]";
        assert_eq!(to_string_plain(&value), plain);
        assert_eq!(to_string(&value), plain.replace('<', "\\u003c"));
        let separated = "a\u{2028}b\u{2029}c\u{2026}\u{e9}&>";
        assert_eq!(
            to_string(separated),
            "\"a\\u2028b\\u2029c\u{2026}\u{e9}\\u0026\\u003e\""
        );
        assert_eq!(to_string_plain(separated), format!("\"{separated}\""));
        let mut appended = b"x".to_vec();
        append(&mut appended, "<");
        assert_eq!(appended, b"x\"\\u003c\"");
    }
}
