//! Escapes property names as CEL identifiers, and unescapes them.
//!
//! UPSTREAM: apiserver pkg/cel/escaping.go

use std::borrow::Cow;

/// Reserved words of the language; a property of that name is escaped with double underscores.
pub(crate) const KEYWORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Escapes a property name as an identifier; `None` if it has no identifier.
///
/// ```
/// use lockgate_cel::syntax::identifier::escape;
/// assert_eq!(escape("cluster-name").as_deref(), Some("cluster__dash__name"));
/// assert_eq!(escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(escape("$ref"), None);
/// ```
#[must_use]
pub fn escape(property: &str) -> Option<Cow<'_, str>> {
    if property.chars().next().is_none_or(|c| c.is_ascii_digit()) {
        return None;
    }
    if KEYWORDS.contains(&property) {
        return Some(format!("__{property}__").into());
    }
    let is_special = |c: char| matches!(c, '.' | '-' | '/');
    if !property
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || is_special(c))
    {
        return None;
    }
    if !property.contains(is_special) && !property.contains("__") {
        return Some(property.into());
    }
    let mut escaped = String::with_capacity(property.len() + 16);
    let mut rest = property.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            '_' if rest.next_if_eq(&'_').is_some() => escaped.push_str("__underscores__"),
            other => escaped.push(other),
        }
    }
    Some(escaped.into())
}

/// Unescapes an identifier to a property name; `None` for identifiers that [`escape`] never
/// returns.
///
/// ```
/// use lockgate_cel::syntax::identifier::unescape;
/// assert_eq!(unescape("cluster__dash__name").as_deref(), Some("cluster-name"));
/// assert_eq!(unescape("a__b__c"), None);
/// ```
#[must_use]
pub fn unescape(identifier: &str) -> Option<Cow<'_, str>> {
    if !identifier.contains("__") {
        return Some(identifier.into());
    }
    let mut property = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(c) = rest.chars().next() {
        if let Some((word, after)) = escaped_word(rest) {
            let whole = word.len() + 4 == identifier.len();
            property.push_str(match word {
                "underscores" => "__",
                "dot" => ".",
                "dash" => "-",
                "slash" => "/",
                keyword if whole && KEYWORDS.contains(&keyword) => keyword,
                _ => return None,
            });
            rest = after;
            continue;
        }
        property.push(c);
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    Some(property.into())
}

/// The word between the double underscores at the start of a string, and the rest.
fn escaped_word(text: &str) -> Option<(&str, &str)> {
    let body = text.strip_prefix("__")?;
    let (word, _) = body.split_once('_')?;
    let after = body.get(word.len()..)?.strip_prefix("__")?;
    (!word.is_empty()).then_some((word, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_upstream_does() {
        let cases = [
            ("a", Some("a")),
            ("a_b", Some("a_b")),
            ("_", Some("_")),
            ("__", Some("__underscores__")),
            ("___", Some("__underscores___")),
            ("a__b", Some("a__underscores__b")),
            ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
            ("void", Some("__void__")),
            ("int", Some("int")),
            ("", None),
            ("1a", None),
            ("a b", None),
            ("é", None),
            ("a-é", None),
        ];
        for (property, escaped) in cases {
            assert_eq!(escape(property).as_deref(), escaped, "{property}");
        }
    }

    #[test]
    fn identifiers_are_read_as_upstream_does() {
        let cases = [
            ("a_b", Some("a_b")),
            ("__underscores__", Some("__")),
            ("__underscores___", Some("___")),
            ("__namespace__", Some("namespace")),
            ("__namespace__x", None),
            ("__int__", None),
            ("____", Some("____")),
            ("_a__dot__", Some("_a.")),
            ("__a", Some("__a")),
            ("__a_b__", Some("__a_b__")),
            ("__dot__dash__", Some(".dash__")),
            ("___dot__", Some("_.")),
        ];
        for (identifier, property) in cases {
            assert_eq!(unescape(identifier).as_deref(), property, "{identifier}");
        }
    }

    #[test]
    fn every_escaped_name_is_read_back() {
        for property in ["a", "a-b", "x.y/z", "___", "__a__", "namespace", "a__", "-"] {
            let escaped = escape(property).expect("has an identifier");
            assert_eq!(unescape(&escaped).as_deref(), Some(property));
        }
    }
}
