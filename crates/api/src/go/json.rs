//! Writing JSON as Go's encoder does: `<`, `>`, `&` and the two line separators are escaped.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

/// Writes compact JSON in Go's form.
///
/// ```
/// assert_eq!(lockgate_api::go::json::to_string("<a>"), r#""\u003ca\u003e""#);
/// ```
#[must_use]
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, HtmlSafe);
    // Wire types hold nothing that JSON cannot say, and writing to memory does not fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(out).unwrap_or_default()
}

struct HtmlSafe;

impl Formatter for HtmlSafe {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
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
