//! Splits source text into tokens, by longest match.
//!
//! UPSTREAM: cel-go parser/gen/CEL.g4 (lexer rules)

use crate::source::Issue;

/// The prefix of the token recognition error; the unrecognised text and a quote follow.
pub(super) const UNRECOGNIZED: &str = "Syntax error: token recognition error at: '";

/// Token kinds, numbered as in the grammar, so that expected tokens are listed in upstream's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Eof,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LBracket,
    RBracket,
    LBrace,
    RBrace,
    LParen,
    RParen,
    Dot,
    Comma,
    Minus,
    Exclam,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscapedIdent,
}

impl Kind {
    /// Every kind, in order.
    pub(crate) const ALL: [Self; 36] = {
        use Kind::*;
        [
            Eof,
            Equals,
            NotEquals,
            In,
            Less,
            LessEquals,
            GreaterEquals,
            Greater,
            And,
            Or,
            LBracket,
            RBracket,
            LBrace,
            RBrace,
            LParen,
            RParen,
            Dot,
            Comma,
            Minus,
            Exclam,
            Question,
            Colon,
            Plus,
            Star,
            Slash,
            Percent,
            True,
            False,
            Null,
            Float,
            Int,
            Uint,
            String,
            Bytes,
            Ident,
            EscapedIdent,
        ]
    };

    /// The name in messages about expected tokens.
    pub(crate) fn display(self) -> &'static str {
        match self {
            Self::Eof => "<EOF>",
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::LBracket => "'['",
            Self::RBracket => "']'",
            Self::LBrace => "'{'",
            Self::RBrace => "'}'",
            Self::LParen => "'('",
            Self::RParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Exclam => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Ident => "IDENTIFIER",
            Self::EscapedIdent => "ESC_IDENTIFIER",
        }
    }
}

/// A token and its byte range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Token {
    /// The token's text.
    pub(crate) fn text<'s>(&self, source: &'s str) -> &'s str {
        source
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// All tokens of `source`, ending with [`Kind::Eof`], and issues for unrecognised characters.
pub(crate) fn tokenize(source: &str) -> (Vec<Token>, Vec<Issue>) {
    let mut tokens = Vec::with_capacity(source.len() / 3 + 2);
    let mut issues = Vec::new();
    let lexer = Lexer {
        bytes: source.as_bytes(),
    };
    let mut at = 0;
    while let Some(first) = lexer.byte(at) {
        if matches!(first, b' ' | b'\t' | b'\r' | b'\n' | 0x0c) {
            at += 1;
            continue;
        }
        if first == b'/' && lexer.byte(at + 1) == Some(b'/') {
            while lexer.byte(at).is_some_and(|b| b != b'\n') {
                at += 1;
            }
            continue;
        }
        match lexer.token(at) {
            Ok((kind, end)) => {
                tokens.push(Token {
                    kind,
                    start: at as u32,
                    end: end as u32,
                });
                at = end;
            }
            Err(failed) => {
                // The unexpected character is part of the message and of the skipped text.
                let end = source.get(failed..).and_then(|rest| rest.chars().next());
                let stop = failed + end.map_or(0, char::len_utf8);
                let text = source.get(at..stop).unwrap_or_default();
                issues.push(Issue::at(at as u32, format!("{UNRECOGNIZED}{text}'")));
                at = stop;
            }
        }
    }
    let end = source.len() as u32;
    tokens.push(Token {
        kind: Kind::Eof,
        start: end,
        end,
    });
    (tokens, issues)
}

struct Lexer<'s> {
    bytes: &'s [u8],
}

/// The end of a token, or the offset of the first unexpected byte.
type Match<T> = Result<T, usize>;

impl Lexer<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn skip_while(&self, mut at: usize, accept: impl Fn(u8) -> bool) -> usize {
        while self.byte(at).is_some_and(&accept) {
            at += 1;
        }
        at
    }

    fn token(&self, at: usize) -> Match<(Kind, usize)> {
        let Some(first) = self.byte(at) else {
            return Err(at);
        };
        let one = |kind| Ok((kind, at + 1));
        let pair = |second: u8, double: Kind, single: Kind| {
            if self.byte(at + 1) == Some(second) {
                Ok((double, at + 2))
            } else {
                Ok((single, at + 1))
            }
        };
        let only_pair = |kind| {
            if self.byte(at + 1) == Some(first) {
                Ok((kind, at + 2))
            } else {
                Err(at + 1)
            }
        };
        match first {
            b'=' => only_pair(Kind::Equals),
            b'&' => only_pair(Kind::And),
            b'|' => only_pair(Kind::Or),
            b'!' => pair(b'=', Kind::NotEquals, Kind::Exclam),
            b'<' => pair(b'=', Kind::LessEquals, Kind::Less),
            b'>' => pair(b'=', Kind::GreaterEquals, Kind::Greater),
            b'[' => one(Kind::LBracket),
            b']' => one(Kind::RBracket),
            b'{' => one(Kind::LBrace),
            b'}' => one(Kind::RBrace),
            b'(' => one(Kind::LParen),
            b')' => one(Kind::RParen),
            b'.' if self.byte(at + 1).is_some_and(|b| b.is_ascii_digit()) => Ok(self.fraction(at)),
            b'.' => one(Kind::Dot),
            b',' => one(Kind::Comma),
            b'-' => one(Kind::Minus),
            b'?' => one(Kind::Question),
            b':' => one(Kind::Colon),
            b'+' => one(Kind::Plus),
            b'*' => one(Kind::Star),
            b'/' => one(Kind::Slash),
            b'%' => one(Kind::Percent),
            b'0'..=b'9' => Ok(self.number(at)),
            b'"' | b'\'' => Ok((Kind::String, self.string(at, false)?)),
            b'`' => self.escaped_ident(at),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => Ok(self.word(at)),
            _ => Err(at),
        }
    }

    /// A name, a keyword, or a string with a prefix.
    fn word(&self, at: usize) -> (Kind, usize) {
        if let Some(found) = self.prefixed_string(at) {
            return found;
        }
        let end = self.skip_while(at + 1, |b| b == b'_' || b.is_ascii_alphanumeric());
        let kind = match self.bytes.get(at..end).unwrap_or_default() {
            b"in" => Kind::In,
            b"true" => Kind::True,
            b"false" => Kind::False,
            b"null" => Kind::Null,
            _ => Kind::Ident,
        };
        (kind, end)
    }

    /// `b'…'`, `r'…'`, `br'…'`; a prefix of an unterminated string is a name.
    fn prefixed_string(&self, at: usize) -> Option<(Kind, usize)> {
        let bytes = matches!(self.byte(at)?, b'b' | b'B');
        let mut quote = at + usize::from(bytes);
        let raw = matches!(self.byte(quote)?, b'r' | b'R');
        quote += usize::from(raw);
        if quote == at || !matches!(self.byte(quote)?, b'"' | b'\'') {
            return None;
        }
        let end = self.string(quote, raw).ok()?;
        Some((if bytes { Kind::Bytes } else { Kind::String }, end))
    }

    /// The end of the string whose opening quote is at `at`.
    fn string(&self, at: usize, raw: bool) -> Match<usize> {
        let quote = self.byte(at).unwrap_or_default();
        if self.byte(at + 1) != Some(quote) {
            return self.short_string(at + 1, quote, raw);
        }
        if self.byte(at + 2) == Some(quote)
            && let Ok(end) = self.long_string(at + 3, quote, raw)
        {
            return Ok(end);
        }
        // If unterminated, three quotes are an empty string and another quote.
        Ok(at + 2)
    }

    fn short_string(&self, mut at: usize, quote: u8, raw: bool) -> Match<usize> {
        loop {
            match self.byte(at) {
                Some(b) if b == quote => return Ok(at + 1),
                None | Some(b'\n' | b'\r') => return Err(at),
                Some(b'\\') if !raw => at = self.escape(at)?,
                Some(_) => at += 1,
            }
        }
    }

    fn long_string(&self, mut at: usize, quote: u8, raw: bool) -> Match<usize> {
        loop {
            match self.byte(at) {
                Some(b)
                    if b == quote
                        && self.byte(at + 1) == Some(quote)
                        && self.byte(at + 2) == Some(quote) =>
                {
                    return Ok(at + 3);
                }
                None => return Err(at),
                Some(b'\\') if !raw => at = self.escape(at)?,
                Some(_) => at += 1,
            }
        }
    }

    /// The end of the escape sequence whose backslash is at `at`.
    fn escape(&self, at: usize) -> Match<usize> {
        let digits = |from: usize, count: usize, accept: fn(u8) -> bool| {
            (from..from + count).try_fold(from, |_, i| match self.byte(i) {
                Some(b) if accept(b) => Ok(i + 1),
                _ => Err(i),
            })
        };
        let hex = |b: u8| b.is_ascii_hexdigit();
        match self.byte(at + 1) {
            Some(
                b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`',
            ) => Ok(at + 2),
            Some(b'x' | b'X') => digits(at + 2, 2, hex),
            Some(b'u') => digits(at + 2, 4, hex),
            Some(b'U') => digits(at + 2, 8, hex),
            Some(b'0'..=b'3') => digits(at + 2, 2, |b| (b'0'..=b'7').contains(&b)),
            _ => Err(at + 1),
        }
    }

    fn escaped_ident(&self, at: usize) -> Match<(Kind, usize)> {
        let allowed =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' ');
        let end = self.skip_while(at + 1, allowed);
        if end > at + 1 && self.byte(end) == Some(b'`') {
            Ok((Kind::EscapedIdent, end + 1))
        } else {
            Err(end)
        }
    }

    fn digits(&self, at: usize) -> usize {
        self.skip_while(at, |b| b.is_ascii_digit())
    }

    fn number(&self, at: usize) -> (Kind, usize) {
        let unsigned = |end: usize| match self.byte(end) {
            Some(b'u' | b'U') => (Kind::Uint, end + 1),
            _ => (Kind::Int, end),
        };
        if self.byte(at) == Some(b'0') && self.byte(at + 1) == Some(b'x') {
            let end = self.skip_while(at + 2, |b| b.is_ascii_hexdigit());
            if end > at + 2 {
                return unsigned(end);
            }
        }
        let end = self.digits(at);
        if self.byte(end) == Some(b'.') && self.byte(end + 1).is_some_and(|b| b.is_ascii_digit()) {
            return self.fraction(end);
        }
        match self.exponent(end) {
            Some(end) => (Kind::Float, end),
            None => unsigned(end),
        }
    }

    /// The rest of a number from its decimal point.
    fn fraction(&self, dot: usize) -> (Kind, usize) {
        let end = self.digits(dot + 1);
        (Kind::Float, self.exponent(end).unwrap_or(end))
    }

    fn exponent(&self, at: usize) -> Option<usize> {
        if !matches!(self.byte(at)?, b'e' | b'E') {
            return None;
        }
        let digits = at + 1 + usize::from(matches!(self.byte(at + 1), Some(b'+' | b'-')));
        let end = self.digits(digits);
        (end > digits).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Kind> {
        tokenize(source).0.iter().map(|t| t.kind).collect()
    }

    #[test]
    fn takes_the_longest_match() {
        use Kind::*;
        assert_eq!(
            kinds("1.5e3 1. .5 0x 0x1Fu 1e"),
            [Float, Int, Dot, Float, Int, Ident, Uint, Int, Ident, Eof]
        );
        assert_eq!(
            kinds("r'a' br\"b\" rb'c' inn in"),
            [String, Bytes, Ident, String, Ident, In, Eof]
        );
        assert_eq!(kinds("'''a'b''' '' r'''x"), [String, String, String, Eof]);
    }

    #[test]
    fn reports_what_begins_no_token() {
        let messages = |source: &str| -> Vec<_> {
            tokenize(source).1.into_iter().map(|i| i.message).collect()
        };
        assert_eq!(
            messages("a & b"),
            ["Syntax error: token recognition error at: '& '"]
        );
        assert_eq!(
            messages("'\\q'"),
            [
                "Syntax error: token recognition error at: ''\\q'",
                "Syntax error: token recognition error at: '''"
            ]
        );
    }
}
