//! YAML errors with the messages of Kubernetes' library.
//!
//! The parser here implements a later version of YAML than that library, so not all errors are at
//! the same position; for those that are, messages and lines are the same.
//!
//! UPSTREAM: go.yaml.in/yaml/v2 scannerc.go, parserc.go and decode.go (fail).

use std::fmt;
use std::str::Utf8Error;

use crate::document::{Span, SyntaxError};

pub(super) const TOO_DEEP: &str = "exceeded max depth of 10000";
const CANNOT_START_TOKEN: &str = "found character that cannot start any token";
const EXPECTED_NODE: &str = "did not find expected node content";
const EXPECTED_COMMA_OR_BRACKET: &str = "did not find expected ',' or ']'";
const END_OF_STREAM: &str = "found unexpected end of stream";

/// A problem and, for syntax errors, its line number.
#[derive(Debug)]
pub struct Problem {
    error: SyntaxError,
    line: Option<usize>,
}

impl Problem {
    /// A syntax error of the parser at byte `at`.
    pub(super) fn syntax(problem: &str, source: &str, at: usize) -> Self {
        let text = translate(problem, source, at);
        // An unterminated document is reported at its end, not at its start.
        let found = if text == END_OF_STREAM {
            source.len()
        } else {
            at
        };
        let before = source.get(..found).unwrap_or(source);
        let mut line = before.bytes().filter(|&byte| byte == b'\n').count();
        let stage = stage(&text);
        // The end of a document without a final line break counts as the start of another line.
        if matches!(stage, Stage::Parser) && at >= source.len() && !source.ends_with('\n') {
            line += 1;
        }
        // Lines are counted from zero, which is not printed, and only the scanner adds one.
        let line = match stage {
            Stage::Scanner if line > 0 => Some(line + 1),
            Stage::Parser if line > 0 => Some(line),
            _ => None,
        };
        let problem = Self::other(text, Span::new(at, at + 1));
        Self { line, ..problem }
    }

    /// The first character that YAML does not allow.
    pub(super) fn control_character(source: &str) -> Option<Self> {
        let (at, c) = source.char_indices().find(|&(_, c)| !is_allowed(c))?;
        let span = Span::new(at, at + c.len_utf8());
        let message = "control characters are not allowed".to_owned();
        Some(Self::other(message, span))
    }

    /// The UTF-8 error of a source, unless an error precedes it.
    pub(super) fn not_utf8(source: &[u8], error: Utf8Error) -> Self {
        let (before, rest) = source.split_at(error.valid_up_to());
        let before = str::from_utf8(before).unwrap_or_default();
        Self::control_character(before).unwrap_or_else(|| {
            let at = error.valid_up_to();
            Self::other(utf8_problem(rest).to_owned(), Span::new(at, at + 1))
        })
    }

    /// An error in syntactically valid YAML.
    pub(super) fn other(message: String, span: Span) -> Self {
        Self {
            error: SyntaxError { message, span },
            line: None,
        }
    }

    pub(super) fn is_depth(&self) -> bool {
        self.error.message == TOO_DEEP
    }
}

impl From<Problem> for SyntaxError {
    fn from(problem: Problem) -> Self {
        problem.error
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.error.message;
        match self.line {
            Some(line) => write!(f, "yaml: line {line}: {text}"),
            // Errors of the JSON conversion have no YAML prefix.
            None if text.starts_with("json: ") => f.write_str(text),
            None => write!(f, "yaml: {text}"),
        }
    }
}

fn translate(problem: &str, source: &str, at: usize) -> String {
    let text = match problem {
        "simple key expect ':'" | "simple key expected" => "could not find expected ':'",
        "misplaced bracket" => EXPECTED_NODE,
        "while parsing node, found unknown anchor" => return unknown_anchor(source, at),
        "while parsing a flow sequence, expected ',' or ']'" => EXPECTED_COMMA_OR_BRACKET,
        "while scanning a plain scalar, found a tab" => {
            "found a tab character that violates indentation"
        }
        "recursion limit exceeded" => TOO_DEEP,
        "tab cannot be used as indentation"
        | "tabs disallowed within this context (block indentation)"
        | "tabs disallowed in this context" => CANNOT_START_TOKEN,
        "invalid indentation in quoted scalar" => END_OF_STREAM,
        _ if problem.starts_with("unexpected character: ") => CANNOT_START_TOKEN,
        // "while scanning a quoted scalar, found …": the context is omitted.
        _ => problem
            .strip_prefix("while ")
            .and_then(|rest| rest.split_once(", "))
            .map_or(problem, |(_, text)| text),
    };
    text.to_owned()
}

enum Stage {
    Scanner,
    Parser,
    /// Errors between parsing and decoding, which have no line.
    Other,
}

fn stage(text: &str) -> Stage {
    match text {
        EXPECTED_NODE
        | EXPECTED_COMMA_OR_BRACKET
        | "did not find expected key"
        | "did not find expected ',' or '}'"
        | "did not find expected '-' indicator"
        | "did not find expected <document start>"
        | "found incompatible YAML document" => Stage::Parser,
        _ if text.starts_with("unknown anchor ") => Stage::Other,
        _ => Stage::Scanner,
    }
}

fn unknown_anchor(source: &str, at: usize) -> String {
    let rest = source.get(at..).unwrap_or_default();
    let rest = rest.trim_start_matches(['*', '&']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = rest.split(|c| !is_name(c)).next().unwrap_or_default();
    format!("unknown anchor '{name}' referenced")
}

fn is_allowed(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// The error for bytes that do not start with a valid UTF-8 character.
///
/// UPSTREAM: go.yaml.in/yaml/v2 readerc.go (yaml_parser_update_buffer).
fn utf8_problem(bytes: &[u8]) -> &'static str {
    let width = match bytes.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    let Some(bytes) = bytes.get(..width) else {
        return "incomplete UTF-8 octet sequence";
    };
    if bytes[1..].iter().any(|byte| byte & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    // Valid byte patterns: an overlong encoding, or an invalid code point.
    match bytes {
        [0xc0 | 0xc1, ..] | [0xe0, ..=0x9f, ..] | [0xf0, ..=0x8f, ..] => {
            "invalid length of a UTF-8 sequence"
        }
        _ => "invalid Unicode character",
    }
}
