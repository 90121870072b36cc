//! The arguments as written: `name = value`, `name(value, …)`, `name = [value, …]`, `name(key = value, …)`
//! or `name` alone. A value is a literal, or bare words such as `pods/status`.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};

use super::{Problem, visible};

/// One argument.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: Ident,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Absent,
    Single(Item),
    List(Vec<Item>),
    Pairs(Vec<(Item, Item)>),
}

/// One value.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) span: Span,
    pub(super) text: String,
    /// A bare word, without quotes.
    pub(super) is_word: bool,
}

/// Splits the arguments.
pub(super) fn split(tokens: TokenStream) -> Result<Vec<Argument>, Problem> {
    let tokens = visible(tokens);
    let parts = at_commas(&tokens);
    parts.into_iter().map(argument).collect()
}

fn at_commas(tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
    let mut parts: Vec<_> = tokens.split(|token| is_punct(token, ',')).collect();
    // A trailing comma is allowed.
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts
}

fn argument(tokens: &[TokenTree]) -> Result<Argument, Problem> {
    let Some((first, rest)) = tokens.split_first() else {
        return Err(Problem::new(Span::call_site(), "an argument is empty"));
    };
    let TokenTree::Ident(name) = first else {
        let problem = Problem::new(first.span(), "an argument starts with its name");
        return Err(problem.with_help("write `name = value` or `name(value, …)`"));
    };
    let value = match rest {
        [] => Value::Absent,
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => {
            many(group.stream())?
        }
        [equals, TokenTree::Group(group)]
            if is_punct(equals, '=') && group.delimiter() == Delimiter::Bracket =>
        {
            many(group.stream())?
        }
        [equals, value @ ..] if is_punct(equals, '=') => Value::Single(item(value, equals.span())?),
        [other, ..] => {
            let message = format!("after `{name}` comes `=` or a list in parentheses");
            return Err(Problem::new(other.span(), message));
        }
    };
    Ok(Argument {
        name: name.clone(),
        value,
    })
}

fn many(tokens: TokenStream) -> Result<Value, Problem> {
    let tokens = visible(tokens);
    let parts = at_commas(&tokens);
    let equals = |part: &[TokenTree]| part.iter().position(|token| is_punct(token, '='));
    if !parts.iter().any(|part| equals(part).is_some()) {
        let items = parts.into_iter().map(|part| item(part, Span::call_site()));
        return items.collect::<Result<_, _>>().map(Value::List);
    }
    let pairs = parts.into_iter().map(|part| {
        let at = equals(part).unwrap_or(part.len());
        let (key, value) = part.split_at(at);
        let span = key.first().map_or_else(Span::call_site, TokenTree::span);
        let value = value.split_first().map_or(&[][..], |(_, value)| value);
        Ok((item(key, span)?, item(value, span)?))
    });
    pairs.collect::<Result<_, _>>().map(Value::Pairs)
}

fn item(tokens: &[TokenTree], before: Span) -> Result<Item, Problem> {
    let Some(first) = tokens.first() else {
        return Err(Problem::new(before, "a value is missing"));
    };
    let span = first.span();
    if let [TokenTree::Literal(literal)] = tokens {
        return match syn::Lit::new(literal.clone()) {
            syn::Lit::Str(text) => Ok(Item {
                span,
                text: text.value(),
                is_word: false,
            }),
            syn::Lit::Int(_) => Ok(Item {
                span,
                text: literal.to_string(),
                is_word: true,
            }),
            _ => Err(Problem::new(span, "a value is a text, a number or a word")),
        };
    }
    let mut text = String::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => text.push_str(&word.to_string()),
            TokenTree::Punct(punct) if "/.-*:".contains(punct.as_char()) => {
                text.push(punct.as_char());
            }
            TokenTree::Literal(number)
                if matches!(syn::Lit::new(number.clone()), syn::Lit::Int(_)) =>
            {
                text.push_str(&number.to_string());
            }
            // Printed only up to this depth: it may be deeply nested.
            TokenTree::Group(group) => {
                let problem = Problem::new(group.span(), "unexpected bracket in a value");
                return Err(problem.with_help("put the value in quotes"));
            }
            other => {
                let problem =
                    Problem::new(other.span(), format!("unexpected `{other}` in a value"));
                return Err(problem.with_help("put the value in quotes"));
            }
        }
    }
    Ok(Item {
        span,
        text,
        is_word: true,
    })
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

impl Argument {
    /// The single value.
    pub(super) fn single(&self) -> Result<&Item, Problem> {
        match &self.value {
            Value::Single(item) => Ok(item),
            Value::List(items) if items.len() == 1 => Ok(&items[0]),
            _ => Err(self.wrong("one value", "value")),
        }
    }

    /// One or more values.
    pub(super) fn list(&self) -> Result<&[Item], Problem> {
        match &self.value {
            Value::Single(item) => Ok(std::slice::from_ref(item)),
            Value::List(items) => Ok(items),
            Value::Absent | Value::Pairs(_) => {
                let name = &self.name;
                let problem = Problem::new(name.span(), format!("`{name}` takes a list of values"));
                Err(problem.with_help(format!("write `{name}(value, …)`")))
            }
        }
    }

    /// Key-value pairs.
    pub(super) fn pairs(&self) -> Result<&[(Item, Item)], Problem> {
        match &self.value {
            Value::Pairs(pairs) => Ok(pairs),
            _ => {
                let name = &self.name;
                let problem =
                    Problem::new(name.span(), format!("`{name}` takes names and expressions"));
                Err(problem.with_help(format!("write `{name}(\"my-condition\" = \"true\", …)`")))
            }
        }
    }

    /// A boolean.
    pub(super) fn flag(&self) -> Result<bool, Problem> {
        match &self.value {
            Value::Absent => Ok(true),
            Value::Single(item) if item.text == "true" => Ok(true),
            Value::Single(item) if item.text == "false" => Ok(false),
            _ => Err(self.wrong("`true` or `false`", "true")),
        }
    }

    fn wrong(&self, takes: &str, example: &str) -> Problem {
        let name = &self.name;
        let problem = Problem::new(name.span(), format!("`{name}` takes {takes}"));
        problem.with_help(format!("write `{name} = {example}`"))
    }
}
