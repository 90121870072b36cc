//! Label selectors in kubectl's notation: `env in (a, b), !legacy, team=red`.

use std::fmt;

/// A label selector; all of its requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// Labels with required values.
    pub labels: Vec<(String, String)>,
    /// All other requirements.
    pub expressions: Vec<Expression>,
}

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    /// The values, for the first two.
    pub values: Vec<String>,
}

/// An invalid selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SelectorError {
    Empty,
    Unclosed(String),
    Nested,
    Operator(String),
    Repeated(String),
    Key(String),
    Value(String),
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a requirement is empty"),
            Self::Unclosed(text) => write!(f, "`{text}` does not end with `)`"),
            Self::Nested => f.write_str("nested lists are not supported"),
            Self::Operator(text) => write!(f, "`{text}` is not a label and `in` or `notin`"),
            Self::Repeated(key) => write!(f, "duplicate requirement for label `{key}`"),
            Self::Key(text) => write!(f, "`{text}` is not the name of a label"),
            Self::Value(text) => write!(f, "`{text}` is not the value of a label"),
        }
    }
}

impl Selector {
    /// Parses a selector.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut selector = Self::default();
        for requirement in split(text)? {
            selector.add(requirement.trim())?;
        }
        Ok(selector)
    }

    fn add(&mut self, requirement: &str) -> Result<(), SelectorError> {
        let expression = |key: &str, operator, values| {
            let key = label(key.trim(), Part::Key)?;
            Ok::<_, SelectorError>(Expression {
                key,
                operator,
                values,
            })
        };
        if requirement.is_empty() {
            return Err(SelectorError::Empty);
        }
        if let Some((head, list)) = requirement.split_once('(') {
            let list = list.strip_suffix(')');
            let list = list.ok_or_else(|| SelectorError::Unclosed(requirement.to_owned()))?;
            let values = list
                .split(',')
                .map(|value| label(value.trim(), Part::Value));
            let values = values.collect::<Result<_, _>>()?;
            let words: Vec<&str> = head.split_whitespace().collect();
            let (key, operator) = match words.as_slice() {
                [key, "in"] => (key, "In"),
                [key, "notin"] => (key, "NotIn"),
                _ => return Err(SelectorError::Operator(head.to_owned())),
            };
            self.expressions.push(expression(key, operator, values)?);
        } else if let Some(key) = requirement.strip_prefix('!') {
            let expression = expression(key, "DoesNotExist", Vec::new())?;
            self.expressions.push(expression);
        } else if let Some((key, value)) = requirement.split_once("!=") {
            let values = vec![label(value.trim(), Part::Value)?];
            self.expressions.push(expression(key, "NotIn", values)?);
        } else if let Some((key, value)) = requirement.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            let key = label(key.trim(), Part::Key)?;
            if self.labels.iter().any(|(known, _)| *known == key) {
                return Err(SelectorError::Repeated(key));
            }
            self.labels.push((key, label(value.trim(), Part::Value)?));
        } else {
            let expression = expression(requirement, "Exists", Vec::new())?;
            self.expressions.push(expression);
        }
        Ok(())
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, SelectorError> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' if inside => return Err(SelectorError::Nested),
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts)
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Key,
    Value,
}

/// Checks the key or the value of a label.
fn label(text: &str, part: Part) -> Result<String, SelectorError> {
    let name_is_fine = |name: &str| {
        let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let bytes = name.as_bytes();
        name.len() <= 63
            && is_end(bytes.first().copied())
            && is_end(bytes.last().copied())
            && bytes.iter().copied().all(allowed)
    };
    let is_fine = match (part, text.split_once('/')) {
        (Part::Value, _) => text.is_empty() || name_is_fine(text),
        (Part::Key, None) => name_is_fine(text),
        (Part::Key, Some((domain, name))) => {
            crate::check::is_subdomain(domain) && name_is_fine(name)
        }
    };
    if is_fine {
        return Ok(text.to_owned());
    }
    Err(match part {
        Part::Key => SelectorError::Key(text.to_owned()),
        Part::Value => SelectorError::Value(text.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form_of_requirement() {
        let text = "team=red, tier == a,env in (prod, staging),zone notin (x),policy.example.com/on,!legacy,a!=b,e=";
        let selector = Selector::parse(text).unwrap();
        let labels: Vec<_> = selector
            .labels
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        assert_eq!(labels, ["team=red", "tier=a", "e="]);
        let shown: Vec<_> = selector
            .expressions
            .iter()
            .map(|one| format!("{} {} {}", one.key, one.operator, one.values.join("|")))
            .collect();
        assert_eq!(
            shown,
            [
                "env In prod|staging",
                "zone NotIn x",
                "policy.example.com/on Exists ",
                "legacy DoesNotExist ",
                "a NotIn b",
            ]
        );
    }

    #[test]
    fn refuses_what_is_no_selector() {
        for (text, want) in [
            ("", "a requirement is empty"),
            ("a,,b", "a requirement is empty"),
            ("a in (b", "`a in (b` does not end with `)`"),
            ("a of (b)", "`a of ` is not a label and `in` or `notin`"),
            ("a=b=c", "`b=c` is not the value of a label"),
            ("a b", "`a b` is not the name of a label"),
            ("-a", "`-a` is not the name of a label"),
            ("a=b,a=c", "duplicate requirement for label `a`"),
            ("a in ((b))", "nested lists are not supported"),
        ] {
            assert_eq!(
                Selector::parse(text).unwrap_err().to_string(),
                want,
                "{text}"
            );
        }
    }
}
