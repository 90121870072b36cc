//! Writing JSON as Go's encoder does: `<`, `>`, `&` and the two line separators are escaped.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

/// Writes compact JSON in the form of Go's encoder.
///
/// ```
/// assert_eq!(lockgate_go::json::to_string("<a>"), r#""\u003ca\u003e""#);
/// ```
///
/// # Panics
///
/// If `value` refuses to be serialized, or has a map whose keys are no strings. Types of the API
/// do neither; half an object must never be sent or stored.
#[must_use]
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> String {
    write(value, GoForm { html_safe: true })
}

/// Writes compact JSON with Go's numbers, and strings without HTML escapes.
///
/// # Panics
///
/// As [`to_string`].
#[must_use]
pub fn to_string_plain<T: Serialize + ?Sized>(value: &T) -> String {
    write(value, GoForm { html_safe: false })
}

/// Appends what [`to_string`] returns.
///
/// # Panics
///
/// As [`to_string`].
pub fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    append_in(out, value, GoForm { html_safe: true });
}

/// Most texts are metadata or short objects; growing from nothing costs more than writing them.
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
        // Nearly every text passes here. 0xe2 is the first byte of the line separators, and of others.
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

/// Writes a number as Go's JSON encoder does.
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
