//! Compiled label selectors, and their string form `a=b,c in (d,e),!f`.
//!
//! UPSTREAM: k8s.io/apimachinery pkg/labels/selector.go.

use std::collections::BTreeMap;
use std::fmt;

use super::names;
use crate::field::{FieldError, FieldErrors, Path, Shown, aggregate};

/// The operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`
    NotEquals,
    /// `in (…)`
    In,
    /// `notin (…)`
    NotIn,
    /// the key alone
    Exists,
    /// `!` before the key
    DoesNotExist,
    /// `>`
    GreaterThan,
    /// `<`
    LessThan,
}

/// An invalid requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequirement(pub(crate) String);

/// A string that is not a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSelectorError {
    /// An unexpected token between requirements.
    #[error("found '{found}', {expected}")]
    #[non_exhaustive]
    Unexpected {
        /// The unexpected token.
        found: String,
        /// The expected tokens.
        expected: &'static str,
    },
    /// A requirement is invalid.
    #[error("unable to parse requirement: {0}")]
    Requirement(RequirementError),
}

/// A string that is not a requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequirementError {
    /// An unexpected token.
    #[error("found '{found}'{expected}")]
    #[non_exhaustive]
    Unexpected {
        /// The unexpected token.
        found: String,
        /// The expected tokens.
        expected: &'static str,
    },
    /// The key is not a valid label key.
    #[error("{0}")]
    Key(FieldError),
    /// The values are not valid for the key or the operator.
    #[error("{0}")]
    Invalid(InvalidRequirement),
}

/// A requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// Creates a validated requirement.
    ///
    /// # Errors
    ///
    /// An invalid key or value, or a number of values that the operator does not allow.
    pub fn new(
        key: &str,
        operator: Operator,
        values: Vec<String>,
    ) -> Result<Self, InvalidRequirement> {
        let mut errors = FieldErrors::new();
        let messages = names::check_qualified_name(key);
        if !messages.is_empty() {
            let path = Path::root("key");
            errors.push(FieldError::invalid(
                &path,
                Shown::Text(key),
                messages.join("; "),
            ));
        }
        let path = Path::root("values");
        let count_problem = match operator {
            Operator::In | Operator::NotIn => values
                .is_empty()
                .then_some("for 'in', 'notin' operators, values set can't be empty"),
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
                (values.len() != 1).then_some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist => (!values.is_empty())
                .then_some("values set must be empty for exists and does not exist"),
            Operator::GreaterThan | Operator::LessThan => (values.len() != 1)
                .then_some("for 'Gt', 'Lt' operators, exactly one value is required"),
        };
        if let Some(problem) = count_problem {
            errors.push(FieldError::invalid(&path, Shown::List(&values), problem));
        }
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (index, value) in values.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    let path = path.index(index);
                    errors.push(FieldError::invalid(&path, Shown::Text(value), detail));
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            let messages = names::check_label_value(value);
            if !messages.is_empty() {
                let path = path.index(index);
                let detail = messages.join("; ");
                errors.push(FieldError::invalid(
                    &path.key(key),
                    Shown::Text(value),
                    detail,
                ));
            }
        }
        if errors.is_empty() {
            Ok(Self {
                key: key.to_owned(),
                operator,
                values,
            })
        } else {
            Err(InvalidRequirement(aggregate(&errors)))
        }
    }

    /// The label key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The operator.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values to compare with.
    #[must_use]
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns true if the label's value, or its absence, matches the requirement.
    #[must_use]
    pub fn matches(&self, value: Option<&str>) -> bool {
        match (self.operator, value) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, Some(value)) => {
                self.has(value)
            }
            (Operator::NotEquals | Operator::NotIn, Some(value)) => !self.has(value),
            (Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist, None)
            | (Operator::Exists, Some(_)) => true,
            (Operator::GreaterThan, Some(value)) => self.compares(value, i64::gt),
            (Operator::LessThan, Some(value)) => self.compares(value, i64::lt),
            (
                Operator::Equals
                | Operator::DoubleEquals
                | Operator::In
                | Operator::Exists
                | Operator::GreaterThan
                | Operator::LessThan,
                None,
            )
            | (Operator::DoesNotExist, Some(_)) => false,
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|candidate| candidate == value)
    }

    fn compares(&self, value: &str, holds: fn(&i64, &i64) -> bool) -> bool {
        match (
            value.parse(),
            self.values.first().map(|bound| bound.parse()),
        ) {
            (Ok(value), Some(Ok(bound))) => holds(&value, &bound),
            _ => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let one = self.values.first().map_or("", String::as_str);
        let sorted = || {
            let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
            values.sort_unstable();
            values.join(",")
        };
        match self.operator {
            Operator::Equals => write!(f, "{key}={one}"),
            Operator::DoubleEquals => write!(f, "{key}=={one}"),
            Operator::NotEquals => write!(f, "{key}!={one}"),
            Operator::In => write!(f, "{key} in ({})", sorted()),
            Operator::NotIn => write!(f, "{key} notin ({})", sorted()),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{one}"),
            Operator::LessThan => write!(f, "{key}<{one}"),
        }
    }
}

/// Requirements, all of which must match. An empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl From<Vec<Requirement>> for Selector {
    fn from(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }
}

impl Selector {
    /// Parses the string form.
    ///
    /// # Errors
    ///
    /// The error of upstream's parser.
    ///
    /// ```
    /// use lockgate_api::meta::selector::Selector;
    /// let selector = Selector::parse("tier in (web, api), !legacy")?;
    /// let labels = [("tier".to_owned(), "web".to_owned())].into();
    /// assert!(selector.matches(&labels));
    /// # Ok::<(), lockgate_api::meta::selector::ParseSelectorError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, ParseSelectorError> {
        Parser {
            tokens: lex(text),
            at: 0,
        }
        .selector()
    }

    /// The requirements, sorted by key.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns true for an empty selector, which matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns true if the labels match all requirements.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Returns true if the labels returned by `look_up` match all requirements.
    #[must_use]
    pub fn matches_with<'l>(&self, look_up: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(look_up(&requirement.key)))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{requirement}")?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    End,
    Identifier(String),
    /// An operator or delimiter, including `in` and `notin`.
    Symbol(&'static str),
    /// Special characters that are not an operator.
    Error(String),
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Self::End => "",
            Self::Identifier(text) | Self::Error(text) => text,
            Self::Symbol(text) => text,
        }
    }

    /// `in` and `notin` are ordinary words as a key or value.
    fn as_word(&self) -> Option<&str> {
        match self {
            Self::Identifier(text) => Some(text),
            Self::Symbol(text @ ("in" | "notin")) => Some(text),
            _ => None,
        }
    }
}

const SYMBOLS: [&str; 9] = ["(", ")", ",", "!", "=", "==", "!=", ">", "<"];

fn lex(text: &str) -> Vec<Token> {
    // A NUL byte ends the input, as in upstream.
    let text = text.split('\0').next().unwrap_or_default();
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let is_special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let special_len = rest.find(|c| !is_special(c)).unwrap_or(rest.len());
        let len = if special_len > 0 {
            let (token, len) = lex_symbol(&rest[..special_len]);
            tokens.push(token);
            len
        } else {
            let len = rest
                .find(|c| is_special(c) || is_space(c))
                .unwrap_or(rest.len());
            tokens.push(match &rest[..len] {
                "in" => Token::Symbol("in"),
                "notin" => Token::Symbol("notin"),
                word => Token::Identifier(word.to_owned()),
            });
            len
        };
        rest = rest[len..].trim_start_matches(is_space);
    }
    tokens.push(Token::End);
    tokens
}

/// Lexes the longest operator at the start of a run of special characters.
fn lex_symbol(run: &str) -> (Token, usize) {
    let mut found: Option<&'static str> = None;
    for len in 1..=run.len() {
        match SYMBOLS.into_iter().find(|symbol| *symbol == &run[..len]) {
            Some(symbol) => found = Some(symbol),
            None if found.is_some() => break,
            None => {}
        }
    }
    match found {
        Some(symbol) => (Token::Symbol(symbol), symbol.len()),
        None => (
            Token::Error(format!("error expected: keyword found '{run}'")),
            run.len(),
        ),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

type Parsed<T> = Result<T, RequirementError>;

fn unexpected(token: &Token, expected: &'static str) -> RequirementError {
    RequirementError::Unexpected {
        found: token.literal().to_owned(),
        expected,
    }
}

impl Parser {
    fn selector(mut self) -> Result<Selector, ParseSelectorError> {
        let mut requirements = Vec::new();
        loop {
            if *self.peek() == Token::End {
                return Ok(Selector::from(requirements));
            }
            if !self.starts_requirement() {
                return Err(ParseSelectorError::Unexpected {
                    found: self.peek().literal().to_owned(),
                    expected: "expected: !, identifier, or 'end of string'",
                });
            }
            let requirement = self.requirement();
            requirements.push(requirement.map_err(ParseSelectorError::Requirement)?);
            match self.next() {
                Token::End => return Ok(Selector::from(requirements)),
                Token::Symbol(",") if self.starts_requirement() => {}
                Token::Symbol(",") => {
                    return Err(ParseSelectorError::Unexpected {
                        found: self.peek().literal().to_owned(),
                        expected: "expected: identifier after ','",
                    });
                }
                other => {
                    return Err(ParseSelectorError::Unexpected {
                        found: other.literal().to_owned(),
                        expected: "expected: ',' or 'end of string'",
                    });
                }
            }
        }
    }

    fn starts_requirement(&self) -> bool {
        self.peek().as_word().is_some() || *self.peek() == Token::Symbol("!")
    }

    fn requirement(&mut self) -> Parsed<Requirement> {
        let negated = *self.peek() == Token::Symbol("!");
        if negated {
            self.at += 1;
        }
        let key = self.identifier()?;
        let messages = names::check_qualified_name(&key);
        if !messages.is_empty() {
            let path = Path::root("<nil>");
            let error = FieldError::invalid(&path, Shown::Text(&key), messages.join("; "));
            return Err(RequirementError::Key(error));
        }
        let alone = matches!(self.peek(), Token::End | Token::Symbol(","));
        let (operator, values) = if negated {
            (Operator::DoesNotExist, Vec::new())
        } else if alone {
            (Operator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                Operator::In | Operator::NotIn => self.values()?,
                _ => vec![self.exact_value()?],
            };
            (operator, values)
        };
        Requirement::new(&key, operator, values).map_err(RequirementError::Invalid)
    }

    fn operator(&mut self) -> Parsed<Operator> {
        let token = self.next();
        Ok(match token {
            Token::Symbol("in") => Operator::In,
            Token::Symbol("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => {
                return Err(unexpected(
                    &other,
                    ", expected: in, notin, =, ==, !=, gt, lt",
                ));
            }
        })
    }

    fn exact_value(&mut self) -> Parsed<String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        self.identifier()
    }

    /// Parses `(a, b)`; nothing between commas is the empty value.
    fn values(&mut self) -> Parsed<Vec<String>> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(unexpected(&open, " expected: '('"));
        }
        let mut values = std::collections::BTreeSet::new();
        match self.peek() {
            Token::Symbol(")") => {
                values.insert(String::new());
            }
            token if token.as_word().is_some() || *token == Token::Symbol(",") => {
                self.value_list(&mut values)?;
            }
            other => {
                return Err(unexpected(other, ", expected: ',', ')' or identifier"));
            }
        }
        // `value_list` stops before the closing bracket, so it is the current token.
        self.at += 1;
        Ok(values.into_iter().collect())
    }

    fn value_list(&mut self, values: &mut std::collections::BTreeSet<String>) -> Parsed<()> {
        loop {
            let token = self.next();
            if let Some(word) = token.as_word() {
                values.insert(word.to_owned());
                match self.peek() {
                    Token::Symbol(",") => {}
                    Token::Symbol(")") => return Ok(()),
                    other => {
                        return Err(unexpected(other, ", expected: ',' or ')'"));
                    }
                }
            } else if token == Token::Symbol(",") {
                if values.is_empty() {
                    values.insert(String::new());
                }
                match self.peek() {
                    Token::Symbol(")") => {
                        values.insert(String::new());
                        return Ok(());
                    }
                    Token::Symbol(",") => {
                        values.insert(String::new());
                    }
                    _ => {}
                }
            } else {
                return Err(unexpected(&token, ", expected: ',', or identifier"));
            }
        }
    }

    fn identifier(&mut self) -> Parsed<String> {
        let token = self.next();
        match token.as_word() {
            Some(word) => Ok(word.to_owned()),
            None => Err(unexpected(&token, ", expected: identifier")),
        }
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (String::from(*key), String::from(*value)))
            .collect()
    }

    #[test]
    fn prints_what_it_read() {
        for (text, want) in [
            ("", ""),
            ("b=1,a", "a,b=1"),
            ("a==x , !b", "a==x,!b"),
            ("a in (z, y,,)", "a in (,y,z)"),
            ("a notin ()", "a notin ()"),
            ("a=", "a="),
            ("in in (in,notin)", "in in (in,notin)"),
            ("a>1,b<2", "a>1,b<2"),
            ("a!=b", "a!=b"),
        ] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.to_string(), want, "{text}");
            assert_eq!(Selector::parse(want).unwrap(), selector);
        }
    }

    #[test]
    fn names_errors_like_upstream() {
        for (text, want) in [
            (
                ",",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in b",
                "unable to parse requirement: found 'b' expected: '('",
            ),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            (
                "!",
                "unable to parse requirement: found '', expected: identifier",
            ),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' \
                 operators, the value must be an integer",
            ),
        ] {
            assert_eq!(
                Selector::parse(text).unwrap_err().to_string(),
                want,
                "{text}"
            );
        }
        let bad_value = Selector::parse("a=-").unwrap_err().to_string();
        assert!(bad_value.starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label"
        ));
        let bad_key = Selector::parse("-a").unwrap_err().to_string();
        assert!(
            bad_key.starts_with(
                "unable to parse requirement: <nil>: Invalid value: \"-a\": name part"
            )
        );
    }

    #[test]
    fn matches_by_operator() {
        let some = labels(&[("tier", "web"), ("rank", "5")]);
        for (text, want) in [
            ("", true),
            ("tier=web", true),
            ("tier==api", false),
            ("tier!=api", true),
            ("missing!=x", true),
            ("tier in (api,web)", true),
            ("missing in (x)", false),
            ("tier notin (web)", false),
            ("missing notin (x)", true),
            ("tier", true),
            ("missing", false),
            ("!missing", true),
            ("!tier", false),
            ("rank>4,rank<6", true),
            ("rank>5", false),
            ("tier>1", false),
            ("tier=web,missing", false),
        ] {
            assert_eq!(
                Selector::parse(text).unwrap().matches(&some),
                want,
                "{text}"
            );
        }
    }
}
