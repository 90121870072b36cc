//! Parses JSON, with the error messages of Go's scanner.
//!
//! The parser is a loop with an explicit stack of open containers, so the depth of the input uses
//! heap instead of stack.

use lockgate_go::quote::{push_lossy, quote_byte};

use super::{Builder, Document, Kind, MAX_BYTES, MAX_DEPTH, Span, SyntaxError};

/// Parses a JSON document.
///
/// Invalid UTF-8 inside strings and unpaired surrogates become U+FFFD, as in Go.
///
/// # Errors
///
/// The first syntax error, with the message of Go's `encoding/json`.
///
/// ```
/// use lockgate_api::document::json::parse;
/// assert!(parse(br#"{"a": [1, null]}"#).is_ok());
/// let error = parse(b"{} x").unwrap_err();
/// assert_eq!(error.message, "invalid character 'x' after top-level value");
/// ```
pub fn parse(source: &[u8]) -> Result<Document, SyntaxError> {
    let (document, end) = parse_at(source, 0)?;
    let mut reader = Reader::new(source, end);
    reader.skip_space();
    match reader.peek() {
        None => Ok(document),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

/// Parses one JSON value of a stream, from `start`, and returns its end.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_at(source: &[u8], start: usize) -> Result<(Document, usize), SyntaxError> {
    if source.len() > MAX_BYTES {
        let message = format!("document is larger than {MAX_BYTES} bytes");
        let span = Span::default();
        return Err(SyntaxError { message, span });
    }
    Reader::new(source, start).run()
}

struct Reader<'s> {
    source: &'s [u8],
    at: usize,
    builder: Builder,
    /// The type of each open container, parallel to the builder's stack.
    kinds: Vec<Kind>,
}

type Read<T> = Result<T, SyntaxError>;

impl<'s> Reader<'s> {
    fn new(source: &'s [u8], at: usize) -> Self {
        Self {
            source,
            at,
            builder: Builder::default(),
            kinds: Vec::new(),
        }
    }

    fn run(mut self) -> Read<(Document, usize)> {
        loop {
            self.value()?;
            // After a value: close containers that end here, then continue with the next value or
            // finish.
            loop {
                let Some(kind) = self.kinds.last().copied() else {
                    return Ok((self.builder.document, self.at));
                };
                self.skip_space();
                match (kind, self.peek()) {
                    (Kind::Object, Some(b',')) => {
                        self.at += 1;
                        self.skip_space();
                        self.key()?;
                        break;
                    }
                    (_, Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Kind::Object, Some(b'}')) | (Kind::Array, Some(b']')) => {
                        self.close();
                    }
                    (Kind::Object, _) => {
                        return Err(self.unexpected("after object key:value pair"));
                    }
                    (_, _) => return Err(self.unexpected("after array element")),
                }
            }
        }
    }

    /// Parses a scalar, or opens containers up to a scalar or an empty container.
    fn value(&mut self) -> Read<()> {
        loop {
            self.skip_space();
            let start = self.at;
            let Some(byte) = self.peek() else {
                return Err(self.unexpected(""));
            };
            match byte {
                b'{' => {
                    self.open(Kind::Object)?;
                    self.skip_space();
                    if self.peek() == Some(b'}') {
                        self.close();
                        return Ok(());
                    }
                    self.key()?;
                }
                b'[' => {
                    self.open(Kind::Array)?;
                    self.skip_space();
                    if self.peek() == Some(b']') {
                        self.close();
                        return Ok(());
                    }
                }
                b'"' => {
                    let text = self.string()?;
                    self.builder
                        .scalar(Kind::String, Span::new(start, self.at), &text);
                    return Ok(());
                }
                b't' => return self.literal("true", Kind::Bool),
                b'f' => return self.literal("false", Kind::Bool),
                b'n' => return self.literal("null", Kind::Null),
                b'-' | b'0'..=b'9' => return self.number(),
                _ => return Err(self.unexpected("looking for beginning of value")),
            }
        }
    }

    fn key(&mut self) -> Read<()> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let text = self.string()?;
        self.builder.key(Span::new(start, self.at), &text);
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    fn open(&mut self, kind: Kind) -> Read<()> {
        if self.kinds.len() >= MAX_DEPTH {
            return Err(self.unexpected("exceeded max depth"));
        }
        self.builder.open(kind, Span::new(self.at, self.at + 1));
        self.kinds.push(kind);
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.at += 1;
        self.kinds.pop();
        self.builder.close(self.at);
    }

    fn literal(&mut self, word: &'static str, kind: Kind) -> Read<()> {
        let start = self.at;
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let expecting = char::from(expected);
                return Err(
                    self.unexpected(&format!("in literal {word} (expecting '{expecting}')"))
                );
            }
            self.at += 1;
        }
        self.builder.scalar(kind, Span::new(start, self.at), word);
        Ok(())
    }

    fn number(&mut self) -> Read<()> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        let source = self.source;
        let text = std::str::from_utf8(&source[start..self.at]).expect("a number is ASCII");
        self.builder
            .scalar(Kind::Number, Span::new(start, self.at), text);
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// Parses a string from its opening to its closing quote.
    fn string(&mut self) -> Read<String> {
        self.at += 1;
        let mut out = String::new();
        let mut plain = self.at;
        loop {
            match self.peek() {
                None | Some(..0x20) => return Err(self.unexpected("in string literal")),
                Some(b'"') => {
                    self.take_plain(&mut out, plain);
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.take_plain(&mut out, plain);
                    self.at += 1;
                    self.escape(&mut out)?;
                    plain = self.at;
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn take_plain(&self, out: &mut String, from: usize) {
        push_lossy(out, &self.source[from..self.at]);
    }

    fn escape(&mut self, out: &mut String) -> Read<()> {
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{08}',
            Some(b'f') => '\u{0c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(out),
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        out.push(plain);
        Ok(())
    }

    fn unicode_escape(&mut self, out: &mut String) -> Read<()> {
        let unit = self.hex4()?;
        if !(0xd800..0xe000).contains(&unit) {
            out.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
            return Ok(());
        }
        // A high surrogate is paired with a following low one; an unpaired surrogate becomes
        // U+FFFD.
        let resume = self.at;
        if unit < 0xdc00 && self.source[self.at..].starts_with(b"\\u") {
            self.at += 1;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(());
            }
            self.at = resume;
        }
        out.push(char::REPLACEMENT_CHARACTER);
        Ok(())
    }

    /// Parses `uXXXX`.
    fn hex4(&mut self) -> Read<u32> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.source.get(self.at).copied()
    }

    fn unexpected(&self, context: &str) -> SyntaxError {
        // At the end of input, Go's scanner appends a space to terminate the value, and names that
        // space in errors where it is not allowed.
        let refuses_space = || {
            ["in literal", "numeric literal", "escape"]
                .iter()
                .any(|place| context.contains(place))
        };
        let found = self.peek().or_else(|| refuses_space().then_some(b' '));
        let message = match found {
            None => String::from("unexpected end of JSON input"),
            Some(byte) => format!("invalid character {} {context}", quote_byte(byte)),
        };
        SyntaxError {
            message,
            span: Span::new(self.at, self.at + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(source: &str) -> String {
        parse(source.as_bytes()).unwrap_err().message
    }

    #[test]
    fn reads_what_it_writes() {
        for text in [
            "null",
            "[]",
            "{}",
            r#"{"a":[1,-2.5e+3,"x\ny",true,false,null],"b":{"":{}},"a":[[],[[]]]}"#,
            r#"["[","{",[]]"#,
        ] {
            let document = parse(text.as_bytes()).unwrap();
            assert_eq!(document.root().to_json(), text);
        }
    }

    #[test]
    fn reads_escapes_like_go() {
        let document =
            parse(br#"["\u00e9\ud83d\ude00\ud83dx\ude00\/\b", "\ud83d\u0041"]"#).unwrap();
        let texts: Vec<_> = document
            .root()
            .items()
            .filter_map(|value| value.as_str())
            .collect();
        assert_eq!(texts, ["é😀\u{fffd}x\u{fffd}/\u{8}", "\u{fffd}A"]);
        // Each invalid UTF-8 byte is replaced separately.
        let document = parse(b"\"a\xe2\x82\xff\"").unwrap();
        assert_eq!(document.root().as_str(), Some("a\u{fffd}\u{fffd}\u{fffd}"));
    }

    #[test]
    fn names_errors_like_go() {
        for (source, want) in [
            ("", "unexpected end of JSON input"),
            ("[1", "unexpected end of JSON input"),
            ("\"", "unexpected end of JSON input"),
            ("{\"a\"", "unexpected end of JSON input"),
            (
                "tru",
                "invalid character ' ' in literal true (expecting 'e')",
            ),
            ("-", "invalid character ' ' in numeric literal"),
            (
                "1.",
                "invalid character ' ' after decimal point in numeric literal",
            ),
            (
                "\"\\u0",
                "invalid character ' ' in \\u hexadecimal character escape",
            ),
            (
                "hello",
                "invalid character 'h' looking for beginning of value",
            ),
            (
                "trux",
                "invalid character 'x' in literal true (expecting 'e')",
            ),
            (
                "{a",
                "invalid character 'a' looking for beginning of object key string",
            ),
            ("{\"a\" 1", "invalid character '1' after object key"),
            (
                "{\"a\":1 1",
                "invalid character '1' after object key:value pair",
            ),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("[1 2", "invalid character '2' after array element"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            ("01", "invalid character '1' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            (
                "1ex",
                "invalid character 'x' in exponent of numeric literal",
            ),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            (
                "\"\\u12g4\"",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            (
                "'",
                "invalid character '\\'' looking for beginning of value",
            ),
            ("é", "invalid character 'Ã' looking for beginning of value"),
        ] {
            assert_eq!(error(source), want, "{source:?}");
        }
    }

    #[test]
    fn bounds_the_depth_without_using_the_stack() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let document = parse(deep(MAX_DEPTH).as_bytes()).unwrap();
        assert_eq!(document.root().to_json(), deep(MAX_DEPTH));
        assert_eq!(
            error(&deep(MAX_DEPTH + 1)),
            "invalid character '[' exceeded max depth"
        );
    }

    #[test]
    fn keeps_places_and_repeated_members() {
        let source = r#"{"a": 1, "a": {"b": "x"}}"#;
        let document = parse(source.as_bytes()).unwrap();
        let members: Vec<_> = document.root().members().collect();
        assert_eq!(members.len(), 2);
        assert_eq!(&source[members[1].key_span.range()], "\"a\"");
        assert_eq!(&source[members[1].value.span().range()], r#"{"b": "x"}"#);
        let last = document.root().get("a").unwrap();
        assert_eq!(last.get("b").unwrap().as_str(), Some("x"));
    }
}
