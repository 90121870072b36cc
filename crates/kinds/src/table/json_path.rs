//! JSONPaths of printer columns.
//!
//! Supported are fields (`.a`, `['a']`, with `\.` for a dot in a name), elements (`[0]`, `[-1]`, `[1:3]`, `[0,2]`),
//! wildcards (`[*]`, `.*`), recursive descent (`..a`) and filters (`[?(@.type=="Ready")]`), which suffices for
//! definitions.
//!
//! UPSTREAM: client-go util/jsonpath

use std::cmp::Ordering;

use serde_json::Value;

/// A JSONPath.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Member(String),
    /// A slice from the first index up to the second; negative indexes count from the end.
    Elements(Option<i64>, Option<i64>),
    Element(i64),
    All,
    Those(Condition),
    /// All nested collections, outermost first.
    Everywhere,
    /// A union of steps.
    Several(Vec<Self>),
}

/// A filter on elements.
#[derive(Debug, Clone, PartialEq)]
struct Condition {
    path: JsonPath,
    /// The operator and the operand; without, the path must exist.
    comparison: Option<(Operator, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer operators come first, so that no prefix hides them.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl JsonPath {
    /// Parses a path; `None` if it is unsupported.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::read(text, true)
    }

    /// Filters cannot be nested, which bounds the recursion.
    fn read(text: &str, conditions: bool) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (inner, after) = bracket(after)?;
                steps.push(Step::read_all(inner, conditions)?);
                rest = after;
            } else {
                let after = rest.strip_prefix('.')?;
                let after = match after.strip_prefix('.') {
                    Some(after) => {
                        steps.push(Step::Everywhere);
                        if after.starts_with('[') {
                            rest = after;
                            continue;
                        }
                        after
                    }
                    None => after,
                };
                let (name, after) = member(after);
                steps.push(match name.as_str() {
                    "*" => Step::All,
                    _ => Step::Member(name),
                });
                rest = after;
            }
        }
        Some(Self(steps))
    }

    /// The first value at the path.
    pub(super) fn first<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.all(root)?.into_iter().next()
    }

    /// The values at the path; `None` if it does not exist.
    fn all<'v>(&self, root: &'v Value) -> Option<Vec<&'v Value>> {
        let mut found = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                step.follow(value, &mut next)?;
            }
            found = next;
        }
        Some(found)
    }
}

/// A field name, and the remaining input.
fn member(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            _ => name.push(letter),
        }
    }
    (name, "")
}

/// The content of brackets, and the remaining input. Brackets in quotes and parentheses are ignored.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.checked_sub(1)?,
            (None, ']') if depth == 0 => {
                return Some((text.get(..at)?, text.get(at + 1..)?));
            }
            _ => {}
        }
    }
    None
}

/// A quoted string.
fn quoted(text: &str) -> Option<String> {
    let inner = ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    let mut letters = inner.chars();
    let mut out = String::with_capacity(inner.len());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next()),
            _ => out.push(letter),
        }
    }
    Some(out)
}

impl Step {
    /// Parses the content of brackets.
    fn read_all(text: &str, conditions: bool) -> Option<Self> {
        let is_plain = !text.contains(['\'', '"', '(']);
        if is_plain && text.contains(',') {
            let steps = text.split(',').map(|part| Self::read(part.trim(), false));
            return steps.collect::<Option<_>>().map(Self::Several);
        }
        Self::read(text.trim(), conditions)
    }

    fn read(text: &str, conditions: bool) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        // UPSTREAM: names in brackets are always single-quoted.
        if let Some(name) = text.strip_prefix('\'').and_then(|_| quoted(text)) {
            return Some(Self::Member(name));
        }
        if let Some(condition) = text
            .strip_prefix("?(")
            .and_then(|rest| rest.strip_suffix(')'))
        {
            let condition = conditions.then(|| Condition::read(condition))?;
            return Some(Self::Those(condition?));
        }
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        match text.split_once(':') {
            Some((from, to)) => Some(Self::Elements(bound(from)?, bound(to)?)),
            None => text.parse().ok().map(Self::Element),
        }
    }

    /// Adds the values that a step selects; `None` if it does not apply.
    fn follow<'v>(&self, value: &'v Value, found: &mut Vec<&'v Value>) -> Option<()> {
        match (self, value) {
            (Self::Several(steps), _) => {
                for step in steps {
                    step.follow(value, found)?;
                }
            }
            (Self::Everywhere, _) => everywhere(value, found),
            (_, Value::Null) => {}
            (Self::Member(name), Value::Object(members)) => found.extend(members.get(name)),
            (Self::Member(_), _) => {}
            (Self::All, Value::Array(items)) => found.extend(items),
            (Self::All, Value::Object(members)) => found.extend(members.values()),
            (Self::All, _) => {}
            (Self::Element(index), Value::Array(items)) => {
                found.push(items.get(from_end(*index, items.len())?)?);
            }
            (Self::Elements(from, to), Value::Array(items)) => {
                let from = from_end(from.unwrap_or(0), items.len())?;
                let to = match to {
                    None => items.len(),
                    Some(to) => from_end(*to, items.len())?,
                };
                if from != to {
                    found.extend(items.get(from..to)?);
                }
            }
            (Self::Those(condition), Value::Array(items)) => {
                for item in items {
                    if condition.holds(item)? {
                        found.push(item);
                    }
                }
            }
            (Self::Element(_) | Self::Elements(..) | Self::Those(_), _) => return None,
        }
        Some(())
    }
}

/// Adds all nonempty collections within a value, parents first.
fn everywhere<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) if !items.is_empty() => {
                found.push(value);
                rest.extend(items.iter().rev());
            }
            Value::Object(members) if !members.is_empty() => {
                found.push(value);
                rest.extend(members.values().rev());
            }
            _ => {}
        }
    }
}

/// Resolves an index, which counts from the end if negative.
fn from_end(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

impl Condition {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim().strip_prefix('@')?;
        let operator = OPERATORS
            .into_iter()
            .filter_map(|(sign, operator)| Some((text.find(sign)?, sign, operator)))
            // The first operator in the text; of several at one position, the longest.
            .min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len())));
        let Some((at, sign, operator)) = operator else {
            return Some(Self {
                path: JsonPath::read(text.trim(), false)?,
                comparison: None,
            });
        };
        let right = text.get(at + sign.len()..)?.trim();
        let literal = match quoted(right) {
            Some(text) => Value::from(text),
            None => serde_json::from_str(right)
                .ok()
                .filter(|value: &Value| value.is_number() || value.is_boolean())?,
        };
        Some(Self {
            path: JsonPath::read(text.get(..at)?.trim(), false)?,
            comparison: Some((operator, literal)),
        })
    }

    /// Returns true if an element matches the filter; `None` if the values are not comparable.
    fn holds(&self, item: &Value) -> Option<bool> {
        let found = self.path.all(item)?;
        let Some((operator, literal)) = &self.comparison else {
            return Some(!found.is_empty());
        };
        let left = match found.as_slice() {
            [] => return Some(false),
            [value] => *value,
            _ => return None,
        };
        let order = match (left, literal) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => {
                left.as_f64()?.partial_cmp(&right.as_f64()?)?
            }
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            _ => return None,
        };
        Some(match operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
        })
    }
}
