//! JSONPath syntax, for the field references in policies' type-checking warnings.
//!
//! Paths are not evaluated, only checked, with the API's error messages.
//!
//! UPSTREAM: client-go util/jsonpath/parser.go

use std::str::Chars;

use crate::upstream_error::UpstreamError;
use lockgate_go::quote::is_printable;

/// The maximum nesting of filters; no realistic path nests them.
const MAX_DEPTH: usize = 32;

/// The syntax error of a template such as `{spec.validations[0].expression}`, if any.
pub(super) fn problem(template: &str) -> Option<UpstreamError> {
    parse(template, MAX_DEPTH).err()
}

fn parse(template: &str, depth: usize) -> Result<(), UpstreamError> {
    let depth = depth.checked_sub(1).ok_or("too many nested filters")?;
    let mut rest = template;
    while let Some((_, action)) = rest.split_once('{') {
        rest = parse_action(action, depth)?;
    }
    Ok(())
}

/// Parses an action up to its closing brace; returns the remaining input.
fn parse_action(text: &str, depth: usize) -> Result<&str, UpstreamError> {
    let mut rest = text;
    let mut after_descent = false;
    loop {
        let descended = std::mem::take(&mut after_descent);
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        if let Some(after) = rest.strip_prefix("[?(") {
            rest = parse_filter(after, depth)?;
            continue;
        }
        if let Some(after) = rest.strip_prefix("..") {
            if descended {
                return Err("invalid multiple recursive descent".into());
            }
            rest = match after.chars().next() {
                Some(letter) if is_alphanumeric(letter) => skip_field(after),
                _ => {
                    after_descent = true;
                    after
                }
            };
            continue;
        }
        let mut letters = rest.chars();
        let Some(letter) = letters.next() else {
            return Err("unclosed action".into());
        };
        let after = letters.as_str();
        rest = match letter {
            '\r' | '\n' => return Err("unclosed action".into()),
            ' ' | '@' | '$' => {
                // These add no node.
                after_descent = descended;
                after
            }
            '[' => parse_array(after, depth)?,
            '"' | '\'' => parse_quoted(rest, letter)?,
            '.' => skip_field(after),
            '+' | '-' => parse_number(rest)?,
            letter if is_decimal(letter) => parse_number(rest)?,
            letter if is_alphanumeric(letter) => {
                rest.trim_start_matches(|letter| !is_terminator(letter))
            }
            letter => {
                let code = u32::from(letter);
                let printed = match is_printable(letter) {
                    true => format!(" '{letter}'"),
                    false => String::new(),
                };
                let text = format!("unrecognized character in action: U+{code:04X}{printed}");
                return Err(text.into());
            }
        };
    }
}

/// A decimal digit of any script; only ASCII digits are valid in numbers.
fn is_decimal(letter: char) -> bool {
    letter.is_ascii_digit() || (letter.is_numeric() && !letter.is_alphabetic())
}

fn is_alphanumeric(letter: char) -> bool {
    letter == '_' || letter.is_alphabetic() || is_decimal(letter)
}

fn is_terminator(letter: char) -> bool {
    matches!(
        letter,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

/// Returns the input after a field, whose name may have backslash escapes.
fn skip_field(text: &str) -> &str {
    let mut letters = text.chars();
    loop {
        let rest = letters.as_str();
        match letters.next() {
            None => return "",
            Some('\\') => drop(letters.next()),
            Some(letter) if is_terminator(letter) => return rest,
            Some(_) => {}
        }
    }
}

fn parse_number(text: &str) -> Result<&str, UpstreamError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let after = digits.trim_start_matches(|letter: char| letter == '.' || is_decimal(letter));
    let number = text.get(..text.len() - after.len()).unwrap_or_default();
    match number.parse::<f64>() {
        Ok(read) if read.is_finite() => Ok(after),
        _ => Err(format!("cannot parse number {number}").into()),
    }
}

fn parse_array(text: &str, depth: usize) -> Result<&str, UpstreamError> {
    let end = text.find([']', '\n']);
    let Some((inner, after)) = end
        .and_then(|end| text.split_at_checked(end))
        .and_then(|(inner, after)| Some((inner, after.strip_prefix(']')?)))
    else {
        return Err("unterminated array".into());
    };
    let parts: Vec<&str> = inner.split(',').collect();
    if parts.len() > 1 {
        for part in parts {
            parse(&format!("{{[{}]}}", part.trim_matches(' ')), depth)?;
        }
        return Ok(after);
    }
    let quoted = inner
        .strip_prefix('\'')
        .and_then(|inner| inner.strip_suffix('\''))
        .filter(|inner| !inner.contains('\''));
    match quoted {
        Some(key) => parse(&format!("{{.{key}}}"), depth)?,
        None if inner == "*" => {}
        None => check_slice(inner)?,
    }
    Ok(after)
}

/// Checks `[FIRST:LAST:STEP]`, whose parts are optional.
fn check_slice(text: &str) -> Result<(), UpstreamError> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_number = |part: &&str| {
        let digits = part.strip_prefix('-').unwrap_or(part);
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.len() > 3 || !parts.iter().all(is_number) {
        return Err(format!("invalid array index {text}").into());
    }
    for part in parts {
        if !part.is_empty() && part.parse::<i64>().is_err() {
            return Err(format!("array index {part} is not a number").into());
        }
    }
    Ok(())
}

fn parse_filter(text: &str, depth: usize) -> Result<&str, UpstreamError> {
    let (mut opened, mut closed) = (None, false);
    let mut before = '(';
    let mut letters = text.char_indices();
    let end = loop {
        let Some((at, letter)) = letters.next() else {
            return Err("unterminated filter".into());
        };
        match letter {
            '\n' => return Err("unterminated filter".into()),
            '"' | '\'' => match opened {
                None => opened = Some(letter),
                Some(quote) => closed |= before != '\\' && quote == letter,
            },
            ')' if opened.is_some() == closed => break at,
            _ => {}
        }
        before = letter;
    };
    let Some(after) = letters.as_str().strip_prefix(']') else {
        return Err("unclosed array expect ]".into());
    };
    let inner = text.get(..end).unwrap_or_default();
    let is_operator = |letter: char| matches!(letter, '!' | '<' | '>' | '=');
    let compared = inner.find(is_operator).and_then(|at| {
        let (left, rest) = inner.split_at_checked(at)?;
        let right = rest.trim_start_matches(is_operator);
        // Backtracks by one character of the operator if its right operand is empty.
        let right = match right {
            "" if rest.len() > 1 => rest.get(rest.len() - 1..)?,
            right => right,
        };
        (!left.is_empty() && !right.is_empty()).then_some((left, right))
    });
    match compared {
        Some((left, right)) => {
            parse(&format!("{{{left}}}"), depth)?;
            parse(&format!("{{{right}}}"), depth)?;
        }
        None => parse(&format!("{{{inner}}}"), depth)?,
    }
    Ok(after)
}

fn parse_quoted(text: &str, quote: char) -> Result<&str, UpstreamError> {
    let mut before = quote;
    for (at, letter) in text.char_indices().skip(1) {
        if letter == '\n' {
            break;
        }
        if letter == quote && before != '\\' {
            let (quoted, after) = text.split_at_checked(at + 1).unwrap_or_default();
            let inner = quoted.get(1..at).unwrap_or_default();
            return match is_unquotable(inner, quote) {
                true => Ok(after),
                false => Err(format!("unquote string {quoted} error invalid syntax").into()),
            };
        }
        before = letter;
    }
    Err("unterminated quoted string".into())
}

/// Returns true if all escapes of the text are valid in Go.
fn is_unquotable(text: &str, quote: char) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == quote {
            return false;
        }
        if letter != '\\' {
            continue;
        }
        let is_known = match letters.next() {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => true,
            Some('x') => number(&mut letters, 2, 16).is_some(),
            Some('u') => number(&mut letters, 4, 16).is_some_and(is_scalar),
            Some('U') => number(&mut letters, 8, 16).is_some_and(is_scalar),
            Some(first @ '0'..='7') => {
                number(&mut letters, 2, 8).is_some() && matches!(first, '0'..='3')
            }
            Some(other @ ('"' | '\'')) => other == quote,
            _ => false,
        };
        if !is_known {
            return false;
        }
    }
    true
}

fn is_scalar(code: u32) -> bool {
    char::from_u32(code).is_some()
}

/// Parses a number of exactly `digits` digits.
fn number(letters: &mut Chars<'_>, digits: usize, radix: u32) -> Option<u32> {
    let mut value = 0_u32;
    for _ in 0..digits {
        let digit = letters.next()?.to_digit(radix)?;
        value = value.wrapping_mul(radix).wrapping_add(digit);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_problem_of_a_path() {
        let cases = [
            ("spec.validations[0].expression", ""),
            ("spec.validations[*].expression", ""),
            ("spec['a.b'][1:2][0,1]", ""),
            ("spec.x[?(@.a==\"b\")].c", ""),
            ("..a[?(@.b)]", ""),
            ("spec[0", "unterminated array"),
            ("spec[a]", "invalid array index a"),
            ("spec[-]", "array index - is not a number"),
            ("a!b", ""),
            ("!a", "unrecognized character in action: U+0021 '!'"),
            ("a,b", "unrecognized character in action: U+002C ','"),
            ("....", "invalid multiple recursive descent"),
            ("1.2.3", "cannot parse number 1.2.3"),
            ("\"a", "unterminated quoted string"),
            ("'\\q'", "unquote string '\\q' error invalid syntax"),
            ("a\nb", "unclosed action"),
            ("[?(a", "unterminated filter"),
            ("[?(a)b", "unclosed array expect ]"),
            ("[?(!)]", "unrecognized character in action: U+0021 '!'"),
        ];
        for (path, expected) in cases {
            let found = problem(&format!("{{{path}}}")).map_or_else(String::new, String::from);
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn stops_at_filters_inside_filters() {
        let deep = format!("{{{}{}}}", "[?(".repeat(100_000), ")]".repeat(100_000));
        assert!(problem(&deep).is_some());
    }
}
