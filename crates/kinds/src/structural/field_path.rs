//! Schema paths of validation rules and selectable fields: `.spec.size`, `.spec['a.b']`.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/cel/validation.go (ValidFieldPath)

use super::path::Path;
use super::props::{Props, SchemaOrBool};
use crate::upstream_error::UpstreamError;

/// The handling of keys in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brackets {
    Allow,
    Refuse,
}

/// The target of a path.
#[derive(Debug)]
pub(crate) struct Found<'j> {
    /// The path as field errors print it.
    pub(crate) printed: String,
    /// The first field of the path.
    pub(crate) first: String,
    /// The schema at the path; `None` within a map of any values.
    pub(crate) schema: Option<Props<'j>>,
}

/// Resolves a path in a schema.
///
/// # Errors
///
/// The path is invalid; the message is upstream's.
pub(crate) fn resolve<'j>(
    path: &str,
    schema: Props<'j>,
    brackets: Brackets,
) -> Result<Found<'j>, UpstreamError> {
    let mut tokens = Tokens(path);
    let mut found = Found {
        printed: Path::ROOT.to_string(),
        first: String::new(),
        schema: Some(schema),
    };
    let mut is_first = true;
    while let Some(token) = tokens.next() {
        let name = match token {
            "[" if brackets == Brackets::Refuse => {
                return Err("array notation is not allowed".into());
            }
            "[" => unquote(tokens.next().ok_or("unexpected end of JSON path")?)?,
            "." => tokens
                .next()
                .ok_or("unexpected end of JSON path")?
                .to_owned(),
            other => return Err(format!("expected [ or . but got: {other}").into()),
        };
        found.descend(&name, is_first)?;
        is_first = false;
        if token == "[" {
            match tokens.next() {
                None => return Err("unexpected end of JSON path".into()),
                Some("]") => {}
                Some(other) => return Err(format!("expected ] but got {other}").into()),
            }
        }
    }
    Ok(found)
}

impl Found<'_> {
    fn descend(&mut self, name: &str, is_first: bool) -> Result<(), UpstreamError> {
        const NO_FIELD: &str = "does not refer to a valid field";
        let schema = self.schema.ok_or(NO_FIELD)?;
        let has_properties = schema.schema_map("properties").next().is_some();
        let parent = if is_first {
            Path::ROOT
        } else {
            Path::printed(&self.printed)
        };
        let (printed, below) = if has_properties {
            let below = schema.property(name).ok_or(NO_FIELD)?;
            (parent.child(name).to_string(), Some(below))
        } else {
            match schema.schema_or_bool("additionalProperties") {
                SchemaOrBool::Absent => return Err(NO_FIELD.into()),
                SchemaOrBool::Bool(_) => (parent.key(name).to_string(), None),
                SchemaOrBool::Schema(below) => (parent.key(name).to_string(), Some(below)),
            }
        };
        if is_first {
            self.first.clone_from(&printed);
        }
        self.printed = printed;
        self.schema = below;
        Ok(())
    }
}

/// The tokens of a path: dots, brackets, and the strings between them.
struct Tokens<'p>(&'p str);

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let bytes = self.0.as_bytes();
        let end = match bytes.first()? {
            b'\'' => {
                let closes = |at: usize| bytes.get(at) == Some(&b'\'') && bytes[at - 1] != b'\\';
                (1..bytes.len()).find(|at| closes(*at)).map(|at| at + 1)
            }
            b'.' | b'[' | b']' => Some(1),
            _ => bytes.iter().position(|b| matches!(b, b'.' | b'[' | b']')),
        };
        let (token, rest) = self.0.split_at_checked(end.unwrap_or(bytes.len()))?;
        self.0 = rest;
        Some(token)
    }
}

fn unquote(token: &str) -> Result<String, UpstreamError> {
    let inner = token
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
        .ok_or_else(|| format!("expected single quoted string but got {token}"))?;
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        let plain = match chars.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(quoted @ ('\'' | '\\')) => quoted,
            // A backslash before a line break or at the end is literal.
            Some('\n') => {
                text.push('\\');
                '\n'
            }
            None => '\\',
            Some(other) => {
                let reason = format!("invalid string literal: invalid escape char \\{other}");
                return Err(reason.into());
            }
        };
        text.push(plain);
    }
    Ok(text)
}
