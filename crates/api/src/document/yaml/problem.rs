//! Saying what is wrong with YAML in the words of the library that Kubernetes uses.
//!
//! The parser here follows a later version of YAML than that library does, so the two do not stop
//! at the same place for everything; where they do, the texts agree.
//!
//! UPSTREAM: go.yaml.in/yaml/v2 scannerc.go, parserc.go and decode.go (fail).

use std::borrow::Cow;

use crate::document::SyntaxError;

/// Translates a problem that the parser found at byte `at`.
pub(super) fn translate(problem: &str, source: &str, at: usize) -> Cow<'static, str> {
    let text = match problem {
        "simple key expect ':'" | "simple key expected" => "could not find expected ':'",
        "misplaced bracket" => EXPECTED_NODE,
        "while parsing node, found unknown anchor" => return unknown_anchor(source, at).into(),
        "while parsing a flow sequence, expected ',' or ']'" => EXPECTED_COMMA_OR_BRACKET,
        "recursion limit exceeded" => "exceeded max depth of 10000",
        "found unprintable character" => CONTROL_CHARACTER,
        "tab cannot be used as indentation"
        | "tabs disallowed within this context (block indentation)"
        | "tabs disallowed in this context" => CANNOT_START_TOKEN,
        _ if problem.starts_with("unexpected character: ") => CANNOT_START_TOKEN,
        // "while scanning a quoted scalar, found …": the context is left out.
        _ => {
            let text = problem
                .strip_prefix("while ")
                .and_then(|rest| rest.split_once(", "))
                .map_or(problem, |(_, text)| text);
            return text.to_owned().into();
        }
    };
    text.into()
}

/// The error as the library prints it, with the line where it names one.
pub(crate) fn with_line(error: &SyntaxError, source: &str) -> String {
    let text = error.message.as_str();
    let at = (error.span.start as usize).min(source.len());
    // Lines are counted from zero, and errors on the first one name none.
    let line = source.as_bytes()[..at]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count();
    let shown = match stage(text) {
        Stage::Scanner if line > 0 => line + 1,
        Stage::Parser if line > 0 => line,
        _ => return text.to_owned(),
    };
    format!("line {shown}: {text}")
}

enum Stage {
    Scanner,
    Parser,
    /// Before or after those two, where there is no line.
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
        CONTROL_CHARACTER | super::MERGE_NEEDS_MAPS | super::EXCESSIVE_ALIASING => Stage::Other,
        _ if text.starts_with("cannot decode ")
            || text.starts_with("unknown anchor ")
            || text.starts_with("anchor ")
            || text.starts_with("!!binary ") =>
        {
            Stage::Other
        }
        _ => Stage::Scanner,
    }
}

fn unknown_anchor(source: &str, at: usize) -> String {
    let name: String = source
        .get(at..)
        .unwrap_or_default()
        .trim_start_matches(['*', '&'])
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        .collect();
    format!("unknown anchor '{name}' referenced")
}

/// The first character that YAML does not allow anywhere.
pub(super) fn control_character(source: &str) -> Option<(usize, char)> {
    source.char_indices().find(|&(_, c)| {
        !matches!(c,
            '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
            | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
    })
}

pub(super) const CONTROL_CHARACTER: &str = "control characters are not allowed";
const CANNOT_START_TOKEN: &str = "found character that cannot start any token";
const EXPECTED_NODE: &str = "did not find expected node content";
const EXPECTED_COMMA_OR_BRACKET: &str = "did not find expected ',' or ']'";
