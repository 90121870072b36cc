//! Parses media types like Go's `mime` package.

use std::collections::HashMap;

/// Returns the media type of a `Content-Type`, in lower case and without parameters.
///
/// # Errors
///
/// Go's error text.
///
/// UPSTREAM: Go mime/mediatype.go (ParseMediaType).
pub fn parse_media_type(text: &str) -> Result<String, &'static str> {
    let base = text.split(';').next().unwrap_or_default();
    let media_type = base.trim().to_lowercase();
    check_media_type(&media_type)?;
    let mut rest = text[base.len()..].trim_start();
    let mut seen = HashMap::new();
    while !rest.is_empty() {
        let Some((name, value, after)) = parse_parameter(rest) else {
            // A trailing semicolon is allowed.
            if rest.trim() == ";" {
                break;
            }
            return Err("mime: invalid media parameter");
        };
        // A repeated parameter with the same value is allowed.
        if seen
            .insert(name, value.clone())
            .is_some_and(|earlier| earlier != value)
        {
            return Err("mime: duplicate parameter name");
        }
        rest = after.trim_start();
    }
    Ok(media_type)
}

fn check_media_type(media_type: &str) -> Result<(), &'static str> {
    let (kind, rest) = take_token(media_type);
    if kind.is_empty() {
        return Err("mime: no media type");
    }
    if rest.is_empty() {
        return Ok(());
    }
    let Some(rest) = rest.strip_prefix('/') else {
        return Err("mime: expected slash after first token");
    };
    match take_token(rest) {
        ("", _) => Err("mime: expected token after slash"),
        (_, "") => Ok(()),
        _ => Err("mime: unexpected content after media subtype"),
    }
}

/// Parses `; name=value` and returns the name, the value and the rest.
fn parse_parameter(text: &str) -> Option<(String, String, &str)> {
    let (name, rest) = take_token(text.strip_prefix(';')?.trim_start());
    if name.is_empty() {
        return None;
    }
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => take_quoted(quoted)?,
        None => {
            let (value, rest) = take_token(rest);
            if value.is_empty() {
                return None;
            }
            (value.to_owned(), rest)
        }
    };
    Some((name.to_lowercase(), value, rest))
}

/// Parses a quoted string up to and including its closing quote. A backslash only escapes
/// characters that need it; otherwise it is literal.
fn take_quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 1..])),
            '\r' | '\n' => return None,
            '\\' => {
                let escaped = chars.next_if(|&(_, next)| SPECIALS.contains(next));
                out.push(escaped.map_or(c, |(_, next)| next));
            }
            c => out.push(c),
        }
    }
    None
}

const SPECIALS: &str = "()<>@,;:\\\"/[]?=";

fn take_token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_graphic() && !SPECIALS.contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_refuses_like_go() {
        for (text, want) in [
            ("application/json", Ok("application/json")),
            ("Text/Plain; charset=utf-8", Ok("text/plain")),
            ("text/plain; a=\"x;\\\"y\"; b=c;", Ok("text/plain")),
            ("form-data", Ok("form-data")),
            ("", Err("mime: no media type")),
            ("/x", Err("mime: no media type")),
            ("a b", Err("mime: expected slash after first token")),
            ("a/", Err("mime: expected token after slash")),
            ("a/b c", Err("mime: unexpected content after media subtype")),
            ("a/b; c", Err("mime: invalid media parameter")),
            ("a/b; c=1; C=2", Err("mime: duplicate parameter name")),
            ("a/b; c=1; C=\"1\"", Ok("a/b")),
            ("a/b; c=\"\\x\"; c=\"\\\\x\"", Ok("a/b")),
        ] {
            assert_eq!(
                parse_media_type(text).as_deref(),
                want.as_ref().map(|t| *t),
                "{text}"
            );
        }
    }
}
