//! Quoting: `fmt`'s `%q` and `encoding/json`'s HTML-safe strings.

use std::fmt::Write as _;

/// Quotes `text` like Go's `%q`.
///
/// ```
/// use lockgate_go::quote::quote;
/// assert_eq!(quote("a\"b\n\u{7f}"), r#""a\"b\n\x7f""#);
/// ```
#[must_use]
pub fn quote(text: &str) -> String {
    quote_bytes(text.as_bytes())
}

/// Quotes bytes like Go's `%q`; invalid UTF-8 becomes `\x` escapes.
#[must_use]
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_char(&mut out, c));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

fn push_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{07}' => out.push_str("\\a"),
        '\u{08}' => out.push_str("\\b"),
        '\u{0c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{0b}' => out.push_str("\\v"),
        c if is_printable(c) => out.push(c),
        c => push_escape(out, c),
    }
}

/// Converts bytes to a string like Go: each invalid UTF-8 byte becomes U+FFFD.
#[must_use]
pub fn lossy(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    push_lossy(&mut out, bytes);
    out
}

/// Appends the output of [`lossy`].
pub fn push_lossy(out: &mut String, bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        out.push_str(text);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

/// Quotes `text` as a JSON string with Go's HTML escaping (`<`, `>`, `&` and the two line
/// separators become `\u` escapes).
#[must_use]
pub fn quote_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_json(&mut out, text);
    out
}

/// Appends the output of [`quote_json`].
pub fn push_json(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{08}' => out.push_str("\\b"),
            '\u{0c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{0}'..='\u{1f}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Quotes a list of strings as compact JSON, like a `[]string` in an error.
#[must_use]
pub fn quote_json_list<S: AsRef<str>>(items: &[S]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| quote_json(item.as_ref())).collect();
    format!("[{}]", quoted.join(","))
}

/// Quotes a byte like Go's JSON scanner in "invalid character" errors.
#[must_use]
pub fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => String::from(r"'\''"),
        b'"' => String::from("'\"'"),
        byte => {
            let quoted = quote(char::from(byte).encode_utf8(&mut [0; 2]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

fn push_escape(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = if code < 0x80 {
        write!(out, "\\x{code:02x}")
    } else if code <= 0xffff {
        write!(out, "\\u{code:04x}")
    } else {
        write!(out, "\\U{code:08x}")
    };
}

/// Returns true for the characters that Go's `strconv.IsPrint` accepts.
///
/// Rust's `escape_debug` leaves the same set unescaped (letters, marks, numbers, punctuation,
/// symbols and the ASCII space), but also escapes grapheme extenders, which Go prints.
#[must_use]
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let escaped_by_rust = c.escape_debug().len() > 1;
    !escaped_by_rust || is_grapheme_extender(c)
}

fn is_grapheme_extender(c: char) -> bool {
    // `str::escape_debug` escapes a grapheme extender only at the start of the string, so a
    // preceding letter distinguishes extenders from unprintable characters.
    let mut text = String::from("a");
    text.push(c);
    text.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        for (text, want) in [
            ("", r#""""#),
            ("plain", r#""plain""#),
            ("tab\tnul\0bell\x07", r#""tab\tnul\x00bell\a""#),
            ("é ü 漢字 😀", r#""é ü 漢字 😀""#),
            (
                "\u{a0}\u{ad}\u{200b}\u{feff}",
                r#""\u00a0\u00ad\u200b\ufeff""#,
            ),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{2028}\u{e000}\u{10ffff}", r#""\u2028\ue000\U0010ffff""#),
            ("<a>&'", r#""<a>&'""#),
        ] {
            assert_eq!(quote(text), want, "{text:?}");
        }
        assert_eq!(quote_bytes(b"a\xffb"), r#""a\xffb""#);
    }

    #[test]
    fn quotes_json_with_html_escapes() {
        assert_eq!(quote_json("<a>&\"b\""), r#""\u003ca\u003e\u0026\"b\"""#);
        assert_eq!(
            quote_json("\u{1}\u{2028}\u{7f}"),
            "\"\\u0001\\u2028\u{7f}\""
        );
        assert_eq!(quote_json_list(&["a", "*"]), r#"["a","*"]"#);
    }
}
