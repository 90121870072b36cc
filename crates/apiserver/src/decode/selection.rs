//! Label and field selectors of lists and watches.

use lockgate_api::meta::selector::Selector;
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::error::{Outcome, bad_request};
use crate::http::query::Query;
use crate::registry::Resource;

/// The label and field selectors of a request.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    labels: Selector,
    fields: Vec<FieldTerm>,
}

#[derive(Debug, PartialEq, Eq)]
struct FieldTerm {
    label: String,
    value: String,
    equal: bool,
}

impl Selection {
    /// Reads the selectors of a query.
    pub(crate) fn read(query: &Query, resource: &Resource) -> Outcome<Self> {
        let labels = Selector::parse(query.text("labelSelector"))
            .map_err(|error| bad_request(error.to_string()))?;
        let fields = parse_fields(query.text("fieldSelector")).map_err(bad_request)?;
        for term in &fields {
            if !resource.shape.knows_field(&term.label) {
                return Err(bad_request(resource.shape.unknown_field(&term.label)));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Returns true without any selector.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if an object matches the selectors.
    pub(crate) fn includes(&self, resource: &Resource, object: &Value) -> bool {
        let labels = object
            .get("metadata")
            .and_then(|metadata| metadata.get("labels"));
        let by_label = self.labels.matches_with(|key| labels?.get(key)?.as_str());
        by_label
            && self.fields.iter().all(|term| {
                let found = resource.shape.read_field(&term.label, object);
                (found == term.value) == term.equal
            })
    }
}

/// Reads `a=b,c!=d`; a backslash takes the meaning from what follows it.
///
/// UPSTREAM: apimachinery pkg/fields/selector.go
fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, String> {
    let mut terms = Vec::new();
    for part in split_terms(text) {
        if part.is_empty() {
            continue;
        }
        let malformed = || format!("invalid selector: '{text}'; can't understand '{part}'");
        let (label, rest) = part.split_at(part.find(['=', '!']).ok_or_else(malformed)?);
        let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
            (false, value)
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            (true, value)
        } else {
            return Err(malformed());
        };
        terms.push(FieldTerm {
            label: label.to_owned(),
            value: unescape(value)?,
            equal,
        });
    }
    Ok(terms)
}

/// Splits at commas that are not escaped.
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

fn unescape(value: &str) -> Result<String, String> {
    let mut letters = value.chars();
    let mut text = String::with_capacity(value.len());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(next @ ('\\' | ',' | '=')) => text.push(next),
                Some(next) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {}",
                        quote(&format!("\\{next}"))
                    ));
                }
                None => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {}",
                        quote("\\")
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {letter}"
                ));
            }
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
        let terms = parse_fields(r"a=1,b!=x\,y,c==").unwrap();
        let shown: Vec<_> = terms
            .iter()
            .map(|term| (term.label.as_str(), term.equal, term.value.as_str()))
            .collect();
        assert_eq!(
            shown,
            [("a", true, "1"), ("b", false, "x,y"), ("c", true, "")]
        );
        assert!(parse_fields("").unwrap().is_empty());
    }

    #[test]
    fn says_what_it_does_not_understand() {
        assert_eq!(
            parse_fields("x").unwrap_err(),
            "invalid selector: 'x'; can't understand 'x'"
        );
        assert_eq!(
            parse_fields("a=b=c").unwrap_err(),
            "invalid field selector: unescaped character in value: ="
        );
    }
}
