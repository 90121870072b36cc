//! Validates JSONPath as the data plane's parser does.
//!
//! Only the syntax is checked: nothing is evaluated, so no tree is built.
//!
//! UPSTREAM: client-go util/jsonpath/parser.go. Letters and digits beyond ASCII are those of Unicode's
//! properties here, and those of its general categories there.

use lockgate_go::quote::quote;

/// Filters nested deeper than this are rejected. Two levels are already rare.
const MAX_DEPTH: usize = 32;

/// A JSONPath syntax error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    /// `{` without `}`.
    #[error("unclosed action")]
    UnclosedAction,
    /// A character that starts no token.
    #[error("unrecognized character in action: {}", shown(*.0))]
    Unrecognized(char),
    /// `..` after `..`.
    #[error("invalid multiple recursive descent")]
    MultipleRecursive,
    /// Digits and dots that are not a number.
    #[error("cannot parse number {0}")]
    Number(String),
    /// `[` without `]`.
    #[error("unterminated array")]
    UnterminatedArray,
    /// An invalid index in brackets.
    #[error("invalid array index {0}")]
    InvalidIndex(String),
    /// An index out of range, or a sign without digits.
    #[error("array index {0} is not a number")]
    NotANumber(String),
    /// `[?(` without `)`.
    #[error("unterminated filter")]
    UnterminatedFilter,
    /// `[?(…)` without `]`.
    #[error("unclosed array expect ]")]
    UnclosedArray,
    /// A quote that is not closed.
    #[error("unterminated quoted string")]
    UnterminatedQuote,
    /// A quoted string with an invalid escape.
    #[error("unquote string {0} error invalid syntax")]
    Unquote(String),
    /// Filters nested too deeply.
    #[error("filters nest too deeply")]
    TooDeep,
}

/// Checks a path as the data plane parses it: in braces, which are added if it does not start with one.
///
/// # Errors
///
/// Fails if the path is not a valid JSONPath.
pub fn check(path: &str) -> Result<(), JsonPathError> {
    if path.is_empty() || path.starts_with('{') {
        return parse(path, 0).map(drop);
    }
    parse(&format!("{{{path}}}"), 0).map(drop)
}

/// The properties of a parsed string that its list node depends on.
struct Parsed {
    /// `true` if the first action ends in a recursive descent.
    ends_recursive: bool,
}

fn parse(text: &str, depth: usize) -> Result<Parsed, JsonPathError> {
    if depth > MAX_DEPTH {
        return Err(JsonPathError::TooDeep);
    }
    let mut first = None;
    let mut rest = text;
    while let Some((_, action)) = rest.split_once('{') {
        let mut reader = Reader {
            rest: action,
            ends_recursive: false,
            depth,
        };
        while !reader.step()? {}
        first.get_or_insert(reader.ends_recursive);
        rest = reader.rest;
    }
    Ok(Parsed {
        ends_recursive: first.unwrap_or(false),
    })
}

/// Parses one action, the text between braces.
struct Reader<'t> {
    rest: &'t str,
    ends_recursive: bool,
    depth: usize,
}

impl<'t> Reader<'t> {
    /// Parses one node; returns true at the closing brace.
    fn step(&mut self) -> Result<bool, JsonPathError> {
        if self.skip("}") {
            return Ok(true);
        }
        if self.skip("[?(") {
            self.filter()?;
            self.ends_recursive = false;
            return Ok(false);
        }
        if self.rest.starts_with("..") {
            if self.ends_recursive {
                return Err(JsonPathError::MultipleRecursive);
            }
            self.skip("..");
            self.ends_recursive = !self.rest.starts_with(is_alphanumeric);
            if !self.ends_recursive {
                self.field();
            }
            return Ok(false);
        }
        match self.rest.chars().next() {
            None | Some('\r' | '\n') => return Err(JsonPathError::UnclosedAction),
            Some(' ' | '@' | '$') => {
                self.advance(1);
                return Ok(false);
            }
            Some('[') => return self.array().map(|()| false),
            Some(mark @ ('"' | '\'')) => self.quoted(mark)?,
            Some('.') => {
                self.advance(1);
                self.field();
            }
            Some(sign) if matches!(sign, '+' | '-') || sign.is_numeric() => self.number()?,
            Some(letter) if is_alphanumeric(letter) => {
                self.take_until(is_terminator);
            }
            Some(other) => return Err(JsonPathError::Unrecognized(other)),
        }
        self.ends_recursive = false;
        Ok(false)
    }

    fn skip(&mut self, prefix: &str) -> bool {
        let found = self.rest.strip_prefix(prefix);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    /// Skips this many bytes, which end at a character boundary.
    fn advance(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn take_until(&mut self, ends: impl Fn(char) -> bool) -> &'t str {
        let length = self.rest.find(ends).unwrap_or(self.rest.len());
        self.advance(length)
    }

    /// Skips a name up to a terminator that is not escaped.
    fn field(&mut self) {
        let mut escaped = false;
        self.rest = self.rest.trim_start_matches(|character| {
            let goes_on = escaped || !is_terminator(character);
            escaped = !escaped && character == '\\';
            goes_on
        });
    }

    fn number(&mut self) -> Result<(), JsonPathError> {
        let signed = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest.get(signed..).unwrap_or_default();
        let length = digits.find(|character: char| character != '.' && !character.is_numeric());
        let number = self.advance(signed + length.unwrap_or(digits.len()));
        // Only a sign, digits and dots: Go accepts the same of these as Rust.
        let is_number = number.parse::<f64>().is_ok_and(f64::is_finite);
        is_number
            .then_some(())
            .ok_or_else(|| JsonPathError::Number(number.to_owned()))
    }

    fn quoted(&mut self, mark: char) -> Result<(), JsonPathError> {
        let bytes = self.rest.as_bytes();
        let mut before = 0_u8;
        let mut length = None;
        for (place, &byte) in bytes.iter().enumerate().skip(1) {
            before = bytes.get(place - 1).copied().unwrap_or(before);
            if byte == b'\n' {
                break;
            }
            if char::from(byte) == mark && before != b'\\' {
                length = Some(place + 1);
                break;
            }
        }
        let length = length.ok_or(JsonPathError::UnterminatedQuote)?;
        let text = self.advance(length);
        let inner = text.get(1..length - 1).unwrap_or_default();
        let is_string = unquotes(inner, mark);
        is_string
            .then_some(())
            .ok_or_else(|| JsonPathError::Unquote(text.to_owned()))
    }

    fn array(&mut self) -> Result<(), JsonPathError> {
        let text = self.take_until(|character| matches!(character, ']' | '\n'));
        if !self.skip("]") {
            return Err(JsonPathError::UnterminatedArray);
        }
        let inner = text.strip_prefix('[').unwrap_or(text);
        if inner.contains(',') {
            for element in inner.split(',') {
                parse(
                    &format!("{{[{}]}}", element.trim_matches(' ')),
                    self.depth + 1,
                )?;
            }
            self.ends_recursive = false;
            return Ok(());
        }
        let key = inner
            .strip_prefix('\'')
            .and_then(|rest| rest.strip_suffix('\''));
        if let Some(key) = key.filter(|key| !key.contains('\'')) {
            let parsed = parse(&format!("{{.{key}}}"), self.depth + 1)?;
            self.ends_recursive = parsed.ends_recursive;
            return Ok(());
        }
        self.ends_recursive = false;
        if inner == "*" { Ok(()) } else { slice(inner) }
    }

    fn filter(&mut self) -> Result<(), JsonPathError> {
        let bytes = self.rest.as_bytes();
        let (mut open, mut closed) = (None, false);
        let mut length = None;
        for (place, &byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' => break,
                b'"' | b'\'' => match open {
                    None => open = Some(byte),
                    Some(mark) => {
                        let escaped =
                            place.checked_sub(1).and_then(|at| bytes.get(at)) == Some(&b'\\');
                        closed |= mark == byte && !escaped;
                    }
                },
                b')' if open.is_some() == closed => {
                    length = Some(place);
                    break;
                }
                _ => {}
            }
        }
        let length = length.ok_or(JsonPathError::UnterminatedFilter)?;
        let text = self.advance(length);
        self.skip(")");
        if !self.skip("]") {
            return Err(JsonPathError::UnclosedArray);
        }
        match compared(text) {
            None => parse(&format!("{{{text}}}"), self.depth + 1).map(drop),
            Some((left, right)) => {
                parse(&format!("{{{left}}}"), self.depth + 1)?;
                parse(&format!("{{{right}}}"), self.depth + 1).map(drop)
            }
        }
    }
}

/// Splits a comparison into its sides. An operator at the end leaves its last character to the right side.
fn compared(text: &str) -> Option<(&str, &str)> {
    let is_operator = |character: char| matches!(character, '!' | '<' | '>' | '=');
    let at = text.find(is_operator).filter(|&at| at > 0)?;
    let (left, rest) = text.split_at(at);
    let after = rest.find(|character| !is_operator(character));
    let operator = after.unwrap_or(rest.len() - 1);
    (operator > 0).then(|| (left, &rest[operator..]))
}

/// Checks `start:end:step`, with every part optional.
fn slice(text: &str) -> Result<(), JsonPathError> {
    let invalid = || JsonPathError::InvalidIndex(text.to_owned());
    let parts: Vec<&str> = text.split(':').collect();
    let is_part = |part: &&str| {
        let digits = part.strip_prefix('-').unwrap_or(part);
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.len() > 3 || !parts.iter().all(is_part) {
        return Err(invalid());
    }
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let number = part.parse::<i64>();
        number.map_err(|_| JsonPathError::NotANumber(part.to_owned()))?;
    }
    Ok(())
}

/// Returns `true` if Go's `strconv.Unquote` accepts the content of a quoted string.
fn unquotes(inner: &str, mark: char) -> bool {
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character == mark {
            return false;
        }
        if character != '\\' {
            continue;
        }
        let reads = match characters.next() {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => true,
            Some('x') => number(&mut characters, 0, 2, 16).is_some(),
            Some('u') => number(&mut characters, 0, 4, 16).is_some_and(is_character),
            Some('U') => number(&mut characters, 0, 8, 16).is_some_and(is_character),
            Some(first @ '0'..='7') => {
                let first = first.to_digit(8).unwrap_or_default();
                number(&mut characters, first, 2, 8).is_some_and(|value| value <= 255)
            }
            Some(other) => other == mark,
            None => false,
        };
        if !reads {
            return false;
        }
    }
    true
}

/// Parses a number with this many more digits.
fn number(digits: &mut std::str::Chars<'_>, first: u32, count: usize, radix: u32) -> Option<u32> {
    (0..count).try_fold(first, |number, _| {
        let digit = digits.next()?.to_digit(radix)?;
        number.checked_mul(radix)?.checked_add(digit)
    })
}

fn is_character(value: u32) -> bool {
    char::from_u32(value).is_some()
}

/// Formats a character as Go's `%#U` does.
fn shown(character: char) -> String {
    let code = format!("U+{:04X}", u32::from(character));
    let text = character.to_string();
    if quote(&text) == format!("\"{text}\"") || matches!(character, '"' | '\\') {
        return format!("{code} '{character}'");
    }
    code
}

fn is_terminator(character: char) -> bool {
    matches!(
        character,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

fn is_alphanumeric(character: char) -> bool {
    character == '_' || character.is_alphabetic() || character.is_numeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(path: &str) -> String {
        match check(path) {
            Ok(()) => String::from("ok"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn judges_paths_that_people_write() {
        for path in [
            "",
            ".data.key",
            "{.data.key}",
            ".data.private\\.key",
            ".data.'ca-bundle.pem'",
            ".data['tls.crt']",
            "{.items[*].metadata.name}",
            "{.items[?(@.name=='x')].value}",
            "{.items[0:2]}{.x}",
            "data",
            "$.data",
            "..name",
        ] {
            assert_eq!(verdict(path), "ok", "{path}");
        }
        for (path, want) in [
            ("{.data.key", "unclosed action"),
            (".data{", "unrecognized character in action: U+007B '{'"),
            (".data[", "unterminated array"),
            (".data['x'", "unterminated array"),
            (".data[x]", "invalid array index x"),
            (
                ".data[99999999999999999999]",
                "array index 99999999999999999999 is not a number",
            ),
            (".a[?(@.b", "unterminated filter"),
            (".a[?(@.b)", "unclosed array expect ]"),
            (".a #", "unrecognized character in action: U+0023 '#'"),
            (".a 'b", "unterminated quoted string"),
            (".....", "invalid multiple recursive descent"),
            (".a 1.2.3", "cannot parse number 1.2.3"),
            (".a \n", "unclosed action"),
        ] {
            assert_eq!(verdict(path), want, "{path}");
        }
    }

    /// Results of client-go's parser for thousands of generated paths.
    #[test]
    fn agrees_with_the_parser_of_the_data_plane() {
        let recorded = include_str!("../tests/data/jsonpath.tsv");
        let mut count = 0;
        for line in recorded.lines() {
            let (path, want) = line.split_once('\t').unwrap();
            let path: String = serde_json::from_str(path).unwrap();
            let want: String = serde_json::from_str(want).unwrap();
            assert_eq!(verdict(&path), want, "{path:?}");
            count += 1;
        }
        assert!(count > 1000, "only {count} recorded");
    }

    #[test]
    fn stops_whatever_it_is_given() {
        for path in [
            "[?(".repeat(10_000),
            "['".repeat(10_000),
            "[?('a)".repeat(10_000),
        ] {
            assert!(check(&path).is_err());
        }
    }
}
