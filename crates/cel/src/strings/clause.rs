//! Parses the format string of `format`.

use lockgate_go::number::{self, NumError};

/// The kind of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// `%s`
    String,
    /// `%d`
    Decimal,
    /// `%f`, with an optional precision, as in `%.2f`.
    Fixed(Option<u64>),
    /// `%e`, with an optional precision, as in `%.2e`.
    Scientific(Option<u64>),
    /// `%b`
    Binary,
    /// `%x`, or `%X` for upper case digits.
    Hex {
        /// True for upper-case digits.
        upper: bool,
    },
    /// `%o`
    Octal,
}

impl Clause {
    /// The error text for an argument of an unsupported type.
    pub(crate) fn refusal(self, type_name: &str) -> String {
        let rule = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{rule}, was given {type_name}")
    }
}

/// An invalid clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClauseError {
    /// The string ends with the percent sign.
    UnexpectedEnd,
    /// The string ends within the precision.
    EndlessPrecision,
    /// The precision is empty or too large.
    Precision(NumError),
    /// The letter is not a known clause.
    Unrecognized(char),
}

impl std::fmt::Display for ClauseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const CLAUSE: &str = "could not parse formatting clause";
        const PRECISION: &str = "error while parsing precision";
        match self {
            Self::UnexpectedEnd => f.write_str("unexpected end of string"),
            Self::EndlessPrecision => {
                write!(
                    f,
                    "{CLAUSE}: {PRECISION}: could not find end of precision specifier"
                )
            }
            Self::Precision(error) => {
                write!(
                    f,
                    "{CLAUSE}: {PRECISION}: error while converting precision to integer: {error}"
                )
            }
            Self::Unrecognized(c) => {
                write!(f, "{CLAUSE}: unrecognized formatting clause \"{c}\"")
            }
        }
    }
}

impl std::error::Error for ClauseError {}

/// A part of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Literal text; `%%` yields a piece `%`.
    Text(&'a str),
    /// A clause for the next argument. The caller must check that the argument exists before it
    /// handles the error: upstream reports a missing argument first.
    Clause(Result<Clause, ClauseError>),
}

/// Iterates over the pieces of a format string; ends after the first error.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    rest: &'a str,
}

/// Splits a format string into literal text and clauses.
#[must_use]
pub fn pieces(format: &str) -> Pieces<'_> {
    Pieces { rest: format }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let Some(clause) = self.rest.strip_prefix('%') else {
            let end = self.rest.find('%').unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at_checked(end)?;
            self.rest = rest;
            return Some(Piece::Text(text));
        };
        if let Some(rest) = clause.strip_prefix('%') {
            self.rest = rest;
            return Some(Piece::Text("%"));
        }
        let parsed = parse(clause);
        self.rest = parsed.as_ref().map_or("", |(_, rest)| rest);
        Some(Piece::Clause(parsed.map(|(clause, _)| clause)))
    }
}

fn parse(text: &str) -> Result<(Clause, &str), ClauseError> {
    if text.is_empty() {
        return Err(ClauseError::UnexpectedEnd);
    }
    let (precision, text) = parse_precision(text)?;
    let mut bytes = text.bytes();
    let letter = bytes.next().ok_or(ClauseError::EndlessPrecision)?;
    let clause = match letter {
        b's' => Clause::String,
        b'd' => Clause::Decimal,
        b'f' => Clause::Fixed(precision),
        b'e' => Clause::Scientific(precision),
        b'b' => Clause::Binary,
        b'x' | b'X' => Clause::Hex {
            upper: letter == b'X',
        },
        b'o' => Clause::Octal,
        // UPSTREAM: cel-go ext/formatting.go converts the first byte to a character.
        other => return Err(ClauseError::Unrecognized(char::from(other))),
    };
    Ok((clause, text.get(1..).unwrap_or("")))
}

fn parse_precision(text: &str) -> Result<(Option<u64>, &str), ClauseError> {
    let Some(text) = text.strip_prefix('.') else {
        return Ok((None, text));
    };
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.is_empty() {
        return Err(ClauseError::EndlessPrecision);
    }
    let digits = text.get(..text.len() - rest.len()).unwrap_or("");
    let precision = number::atoi(digits).map_err(ClauseError::Precision)?;
    Ok((Some(precision.unsigned_abs()), rest))
}
