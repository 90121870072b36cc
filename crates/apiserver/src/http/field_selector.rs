//! Field selectors in query parameters.

/// A term of a field selector.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) field: String,
    pub(crate) value: String,
    /// False if the field must not have the value.
    pub(crate) equal: bool,
}

/// An invalid field selector.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectorError {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// UPSTREAM: apimachinery pkg/fields/selector.go (UnescapedRune) formats the character as a number.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
}

/// Parses `a=b,c!=d`; a backslash escapes the next character.
///
/// UPSTREAM: apimachinery pkg/fields/selector.go
pub(crate) fn parse(text: &str) -> Result<Vec<Term>, SelectorError> {
    let mut terms = Vec::new();
    for part in split_terms(text) {
        if part.is_empty() {
            continue;
        }
        let malformed = || SelectorError::Term {
            selector: text.to_owned(),
            term: part.to_owned(),
        };
        let (field, rest) = part.split_at(part.find(['=', '!']).ok_or_else(malformed)?);
        let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
            (false, value)
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            (true, value)
        } else {
            return Err(malformed());
        };
        let value = unescape(value)?;
        // An empty term matches everything.
        if !field.is_empty() || !value.is_empty() {
            terms.push(Term {
                field: field.to_owned(),
                value,
                equal,
            });
        }
    }
    Ok(terms)
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut letters = value.chars();
    let mut text = String::with_capacity(value.len());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(next @ ('\\' | ',' | '=')) => text.push(next),
                Some(next) => return Err(SelectorError::Escape(format!("\\{next}"))),
                None => return Err(SelectorError::Escape(String::from("\\"))),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(letter)),
            other => text.push(other),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_terms() {
        let terms = parse(r"a=1,b!=x\,y,c==").unwrap();
        let shown: Vec<_> = terms
            .iter()
            .map(|term| (term.field.as_str(), term.equal, term.value.as_str()))
            .collect();
        assert_eq!(
            shown,
            [("a", true, "1"), ("b", false, "x,y"), ("c", true, "")]
        );
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn says_what_it_does_not_understand() {
        assert_eq!(
            parse("x").unwrap_err().to_string(),
            "invalid selector: 'x'; can't understand 'x'"
        );
        assert_eq!(
            parse("a=b=c").unwrap_err().to_string(),
            "invalid field selector: unescaped character in value: 61"
        );
    }
}
