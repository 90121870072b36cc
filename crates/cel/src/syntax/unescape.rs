//! The values of string and bytes literals.
//!
//! UPSTREAM: cel-go parser/unescape.go

use std::borrow::Cow;

const MALFORMED: &str = "unable to unescape string";
const BAD_CODE_POINT: &str = "invalid unicode code point";

/// The value of a string token.
pub(super) fn unescape_string(token: &str) -> Result<Cow<'_, str>, &'static str> {
    let (body, raw) = body(token)?;
    if (raw || !body.contains('\\')) && !body.contains('\r') {
        return Ok(Cow::Borrowed(body));
    }
    let body = normalize(body);
    if raw {
        return Ok(Cow::Owned(body));
    }
    let mut out = String::with_capacity(body.len());
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        out.push(if c == '\\' {
            escape(&mut rest)?.into_char()?
        } else {
            c
        });
    }
    Ok(Cow::Owned(out))
}

/// The value of a bytes token, without its `b`.
pub(super) fn unescape_bytes(token: &str) -> Result<Vec<u8>, &'static str> {
    let (body, raw) = body(token)?;
    let body = normalize(body);
    if raw {
        return Ok(body.into_bytes());
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            out.push(escape(&mut rest)?.into_byte()?);
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}

/// Normalises line endings to `\n`.
fn normalize(body: &str) -> String {
    body.replace("\r\n", "\n").replace('\r', "\n")
}

/// The contents between the quotes, and true for a raw string.
fn body(token: &str) -> Result<(&str, bool), &'static str> {
    let quoted = token.trim_start_matches(['r', 'R']);
    let raw = quoted.len() != token.len();
    for quote in ["\"\"\"", "'''"] {
        if quoted.len() >= 6
            && let Some(inner) = quoted
                .strip_prefix(quote)
                .and_then(|t| t.strip_suffix(quote))
        {
            return Ok((inner, raw));
        }
    }
    for quote in ['"', '\''] {
        if let Some(inner) = quoted
            .strip_prefix(quote)
            .and_then(|t| t.strip_suffix(quote))
        {
            return Ok((inner, raw));
        }
    }
    Err(MALFORMED)
}

/// One escape sequence.
enum Escape {
    /// A fixed character.
    Char(char),
    /// A number given in two hexadecimal or three octal digits.
    Short(u32),
    /// A code point given in four or eight digits.
    Code(u32),
}

impl Escape {
    fn into_char(self) -> Result<char, &'static str> {
        match self {
            Self::Char(c) => Ok(c),
            Self::Short(n) | Self::Code(n) => char::from_u32(n).ok_or(BAD_CODE_POINT),
        }
    }

    fn into_byte(self) -> Result<u8, &'static str> {
        match self {
            Self::Char(c) => u8::try_from(c).map_err(|_| MALFORMED),
            Self::Short(n) => u8::try_from(n).map_err(|_| MALFORMED),
            Self::Code(_) => Err(MALFORMED),
        }
    }
}

fn escape(rest: &mut std::str::Chars<'_>) -> Result<Escape, &'static str> {
    let first = rest.next().ok_or(MALFORMED)?;
    let mut number = |start: u32, count: u32, radix: u32| {
        let mut value = start;
        for _ in 0..count {
            let digit = rest
                .next()
                .and_then(|c| c.to_digit(radix))
                .ok_or(MALFORMED)?;
            value = value.wrapping_mul(radix).wrapping_add(digit);
        }
        Ok(value)
    };
    Ok(match first {
        'a' => Escape::Char('\u{07}'),
        'b' => Escape::Char('\u{08}'),
        'f' => Escape::Char('\u{0c}'),
        'n' => Escape::Char('\n'),
        'r' => Escape::Char('\r'),
        't' => Escape::Char('\t'),
        'v' => Escape::Char('\u{0b}'),
        '\\' | '\'' | '"' | '`' | '?' => Escape::Char(first),
        'x' | 'X' => Escape::Short(number(0, 2, 16)?),
        'u' => Escape::Code(number(0, 4, 16)?),
        'U' => Escape::Code(number(0, 8, 16)?),
        '0'..='3' => Escape::Short(number(first.to_digit(8).unwrap_or(0), 2, 8)?),
        _ => return Err(MALFORMED),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_escape() {
        let text = unescape_string(r#""a\n\x41\101\u00e9\U0001F600\?\`""#).unwrap();
        assert_eq!(text, "a\nAAé😀?`");
        assert_eq!(
            unescape_bytes(r"'\xff\377é'").unwrap(),
            [0xff, 0xff, 0xc3, 0xa9]
        );
    }

    #[test]
    fn raw_and_long_strings() {
        assert_eq!(unescape_string(r"r'\n'").unwrap(), r"\n");
        assert_eq!(unescape_string("\"\"\"a\r\n'b\"\"\"").unwrap(), "a\n'b");
    }

    #[test]
    fn refuses_surrogates_and_code_points_in_bytes() {
        assert_eq!(unescape_string(r"'\ud800'").unwrap_err(), BAD_CODE_POINT);
        assert_eq!(unescape_bytes(r"'\u0041'").unwrap_err(), MALFORMED);
    }
}
