//! The source range of an issue in an expression, and a suggestion.
//!
//! Kubernetes reports the column at which its parser stopped. This module finds the token to underline.

use lockgate_api::document::Span;
use lockgate_cel::check::Environment;
use lockgate_cel::source::Issue;

use crate::lint::suggest::nearest;

/// An issue in an expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) span: Span,
    pub(super) help: Option<String>,
}

/// Operators by their names in messages.
const OPERATORS: [(&str, &str); 15] = [
    ("_==_", "=="),
    ("_!=_", "!="),
    ("_<=_", "<="),
    ("_>=_", ">="),
    ("_<_", "<"),
    ("_>_", ">"),
    ("_+_", "+"),
    ("_-_", "-"),
    ("_*_", "*"),
    ("_/_", "/"),
    ("_%_", "%"),
    ("_&&_", "&&"),
    ("_||_", "||"),
    ("@in", "in"),
    ("_[_]", "["),
];

/// Finds the source range of an issue.
pub(super) fn locate(expression: &str, issue: &Issue, names: &Environment) -> Mistake {
    let Some(offset) = issue.offset.map(|offset| offset as usize) else {
        return Mistake {
            span: Span::new(0, expression.len()),
            help: None,
        };
    };
    let message = issue.message.as_str();
    let quoted = message.split('\'').nth(1).unwrap_or_default();
    let word = |span| Mistake { span, help: None };
    if message.starts_with("undeclared reference to") {
        let span = around(expression, offset, quoted);
        let is_call = expression
            .get(span.end as usize..)
            .is_some_and(|rest| rest.trim_start().starts_with('('));
        let mut known: Vec<&str> = names.function_names().collect();
        if !is_call {
            known.extend(names.variables().map(|(name, _)| name));
        }
        let known = nearest(quoted, known.into_iter());
        return Mistake {
            span,
            help: known.map(did_you_mean),
        };
    }
    if message.starts_with("undefined field") {
        return Mistake {
            span: around(expression, offset, quoted),
            help: nearest(quoted, names.field_names()).map(did_you_mean),
        };
    }
    if message.starts_with("found no matching overload for") {
        let operator = OPERATORS.iter().find(|(name, _)| *name == quoted);
        let span = around(
            expression,
            offset,
            operator.map_or(quoted, |(_, sign)| sign),
        );
        return Mistake {
            span,
            help: operands(message).filter(|_| operator.is_some()),
        };
    }
    if message.starts_with("Syntax error") {
        let rest = expression.get(offset..).unwrap_or_default();
        let help = match rest.as_bytes() {
            [b'=', next, ..] if *next != b'=' => Some("compare with `==`"),
            [b'&', next, ..] if *next != b'&' => Some("write `&&` for and"),
            [b'|', next, ..] if *next != b'|' => Some("write `||` for or"),
            _ => None,
        };
        let token = quoted.trim_end();
        let span = match !token.is_empty() && rest.starts_with(token) {
            true => Span::new(offset, offset + token.len()),
            false => token_at(expression, offset),
        };
        return Mistake {
            span,
            help: help.map(str::to_owned),
        };
    }
    word(token_at(expression, offset))
}

pub(super) fn did_you_mean(name: &str) -> String {
    format!("did you mean `{name}`?")
}

/// Advice for operands of different types.
fn operands(message: &str) -> Option<String> {
    let (_, types) = message.split_once("applied to '(")?;
    let (one, other) = types.trim_end_matches(")'").split_once(", ")?;
    let is_scalar = |of: &str| matches!(of, "int" | "uint" | "double" | "string");
    (one != other && is_scalar(one) && is_scalar(other)).then(|| {
        format!(
            "the operands are {one} and {other}: convert one of them, for example with `{one}(…)`"
        )
    })
}

/// The name at an offset, or the nearest before or after it: a call is reported at its parenthesis,
/// a field at its dot.
fn around(expression: &str, offset: usize, name: &str) -> Span {
    let fallback = || token_at(expression, offset);
    if name.is_empty() {
        return fallback();
    }
    let (Some(before), Some(after)) = (expression.get(..offset), expression.get(offset..)) else {
        return fallback();
    };
    let is_next = |at: usize| {
        after
            .get(..at)
            .is_some_and(|gap| gap.trim_matches(['.', '?', ' ', '\n', '\t']).is_empty())
    };
    if let Some(at) = after.find(name).filter(|at| is_next(*at)) {
        return Span::new(offset + at, offset + at + name.len());
    }
    match before.rfind(name) {
        Some(at) => Span::new(at, at + name.len()),
        None => fallback(),
    }
}

/// The word, number or character at an offset.
fn token_at(expression: &str, offset: usize) -> Span {
    let rest = expression.get(offset..).unwrap_or_default();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let first = rest.chars().next().map_or(1, char::len_utf8);
    Span::new(offset, offset + word.max(first))
}

#[cfg(test)]
mod tests {
    use lockgate_cel::admission::{compile_expression, match_condition_environment};
    use lockgate_cel::program::CompileError;

    use super::*;

    #[test]
    fn underlines_the_word_and_names_what_was_meant() {
        for (expression, word, help) in [
            ("objct.spec", "objct", "did you mean `object`?"),
            (
                "object.name.startWith('a')",
                "startWith",
                "did you mean `startsWith`?",
            ),
            (
                "request.operaton == 'a'",
                "operaton",
                "did you mean `operation`?",
            ),
            (
                "request.userInfo.usrname == 'a'",
                "usrname",
                "did you mean `username`?",
            ),
            ("true && siz(object) == 1", "siz", "did you mean `size`?"),
            (
                "1 == 'a'",
                "==",
                "the operands are int and string: convert one of them, for example with `int(…)`",
            ),
            (
                "request.name + 1 == 'a'",
                "+",
                "the operands are string and int: convert one of them, for example with `string(…)`",
            ),
            ("object.a = 3", "=", "compare with `==`"),
            ("object.a == 'é' & true", "&", "write `&&` for and"),
            ("object..a", ".", ""),
            ("nothing_like_it", "nothing_like_it", ""),
            ("1 +", "", ""),
        ] {
            let Err(CompileError::Issues { issues, .. }) = compile_expression(expression) else {
                panic!("{expression} compiles");
            };
            let mistake = locate(expression, &issues[0], match_condition_environment());
            let found = expression
                .get(mistake.span.start as usize..mistake.span.end as usize)
                .unwrap_or_default();
            assert_eq!(found, word, "{expression}: {issues:?}");
            assert_eq!(mistake.help.unwrap_or_default(), help, "{expression}");
        }
    }
}
