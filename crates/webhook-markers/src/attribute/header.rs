//! The annotated item: the head of an `impl`, and the names of its methods.
//!
//! Parsed by hand rather than as a syntax tree: the command reads uncompiled files, and the cost of a method's body
//! must be linear in its length.

use proc_macro2::{Delimiter, Group, Ident, Spacing, Span, TokenTree};

use super::{Problem, visible};
use crate::Role;

/// The head of `impl Validator<K> for T` or `impl Mutator<K> for T`.
#[derive(Debug, Clone)]
pub struct Header {
    /// According to the trait.
    pub role: Role,
    /// The location of the trait's name.
    pub span: Span,
    /// `<…>` after `impl`, may be empty.
    pub generics: Vec<TokenTree>,
    /// `K`
    pub kind: Vec<TokenTree>,
    /// `T`
    pub target: Vec<TokenTree>,
    /// `where …`, may be empty.
    pub where_clause: Vec<TokenTree>,
    /// The names of the methods.
    pub methods: Vec<Ident>,
}

impl Header {
    /// Parses a head at the start of an item, after any other attributes. Returns the number of consumed tokens.
    ///
    /// # Errors
    ///
    /// Fails for any other item.
    pub fn read(tokens: &[TokenTree]) -> Result<(Self, usize), Problem> {
        let other = |token: Option<&TokenTree>| {
            let message =
                "`webhook` must be on `impl Validator<K> for T` or `impl Mutator<K> for T`";
            Problem::new(span_of(token), message)
        };
        let (head, length) = ImplHead::read(tokens).map_err(other)?;
        let (role, span, kind) =
            trait_of(&head.trait_path).ok_or_else(|| other(head.trait_path.first()))?;
        let header = Self {
            role,
            span,
            generics: head.generics,
            kind,
            target: head.target,
            where_clause: head.where_clause,
            methods: methods(&head.body),
        };
        Ok((header, length))
    }
}

/// The head of `impl Hub for T`.
#[derive(Debug, Clone)]
pub struct HubHeader {
    /// The location of the trait's name.
    pub span: Span,
    /// `T`
    pub target: Vec<TokenTree>,
    /// The group in a literal `API_VERSION`; `None` if it is not a literal.
    pub group: Option<String>,
}

impl HubHeader {
    /// Parses a head at the start of an item, after any other attributes.
    ///
    /// # Errors
    ///
    /// Fails for any other item.
    pub fn read(tokens: &[TokenTree]) -> Result<Self, Problem> {
        let other = |token: Option<&TokenTree>| {
            let problem = Problem::new(span_of(token), "`conversion` must be on `impl Hub for T`");
            problem.with_help("the other versions are spokes: `impl Spoke for T`")
        };
        let (head, _) = ImplHead::read(tokens).map_err(other)?;
        let name = head.trait_path.last();
        if !is_ident(name, "Hub") || !head.generics.is_empty() {
            return Err(other(head.trait_path.first()));
        }
        Ok(Self {
            span: span_of(name),
            target: head.target,
            group: group(&head.body),
        })
    }
}

/// The parts of `impl<…> Trait for T where … { … }`.
struct ImplHead {
    generics: Vec<TokenTree>,
    trait_path: Vec<TokenTree>,
    target: Vec<TokenTree>,
    where_clause: Vec<TokenTree>,
    body: Group,
}

impl ImplHead {
    /// Parses a head and returns the number of consumed tokens, or the unexpected token.
    fn read(tokens: &[TokenTree]) -> Result<(Self, usize), Option<&TokenTree>> {
        let mut at = 0;
        while let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = &tokens[at..]
            && hash.as_char() == '#'
            && group.delimiter() == Delimiter::Bracket
        {
            at += 2;
        }
        if !is_ident(tokens.get(at), "impl") {
            return Err(tokens.get(at));
        }
        let start = tokens.get(at);
        at += 1;
        let generics = angles(&tokens[at..]);
        at += generics;
        let generics = tokens[at - generics..at].to_vec();

        let trait_tokens = until(&tokens[at..], |token| is_ident(Some(token), "for"));
        let trait_path = tokens[at..at + trait_tokens].to_vec();
        at += trait_tokens;
        if !is_ident(tokens.get(at), "for") {
            return Err(start);
        }
        at += 1;

        let is_end = |token: &TokenTree| is_ident(Some(token), "where") || braces(token).is_some();
        let target = until(&tokens[at..], is_end);
        let target_tokens = tokens[at..at + target].to_vec();
        at += target;
        let clause = until(&tokens[at..], |token| braces(token).is_some());
        let where_clause = tokens[at..at + clause].to_vec();
        at += clause;
        let body = tokens.get(at).and_then(braces).ok_or(start)?;
        let head = Self {
            generics,
            trait_path,
            target: target_tokens,
            where_clause,
            body: body.clone(),
        };
        Ok((head, at + 1))
    }
}

fn span_of(token: Option<&TokenTree>) -> Span {
    token.map_or_else(Span::call_site, TokenTree::span)
}

/// The group in `const API_VERSION: &str = "GROUP/VERSION";`.
fn group(body: &Group) -> Option<String> {
    let tokens = visible(body.stream());
    let at = tokens
        .iter()
        .position(|token| is_ident(Some(token), "API_VERSION"))?;
    let constant = tokens.get(at..)?;
    let equals = constant.iter().position(|token| is_punct(token, '='))?;
    let [TokenTree::Literal(literal), end, ..] = constant.get(equals + 1..)? else {
        return None;
    };
    let syn::Lit::Str(text) = syn::Lit::new(literal.clone()) else {
        return None;
    };
    let text = text.value();
    let (group, _) = text.split_once('/').filter(|_| is_punct(end, ';'))?;
    Some(group.to_owned())
}

/// The role, if given, and the kind.
fn trait_of(path: &[TokenTree]) -> Option<(Role, Span, Vec<TokenTree>)> {
    let open = path.iter().position(|token| is_punct(token, '<'))?;
    let name = path.get(open.checked_sub(1)?)?;
    let role = match name {
        TokenTree::Ident(name) if name == "Validator" => Role::Validating,
        TokenTree::Ident(name) if name == "Mutator" => Role::Mutating,
        _ => return None,
    };
    let length = angles(&path[open..]);
    let kind = path.get(open + 1..open + length.checked_sub(1)?)?;
    let is_all = open + length == path.len();
    (is_all && !kind.is_empty()).then(|| (role, name.span(), kind.to_vec()))
}

/// The number of tokens of a leading `<…>`.
fn angles(tokens: &[TokenTree]) -> usize {
    if !tokens.first().is_some_and(|token| is_punct(token, '<')) {
        return 0;
    }
    let (mut depth, mut arrow) = (0_usize, false);
    for (at, token) in tokens.iter().enumerate() {
        if is_punct(token, '<') {
            depth += 1;
        } else if is_punct(token, '>') && !arrow {
            depth -= 1;
        }
        if depth == 0 {
            return at + 1;
        }
        arrow = starts_arrow(token);
    }
    0
}

/// The number of tokens before one that ends them, outside angle brackets.
fn until(tokens: &[TokenTree], is_end: impl Fn(&TokenTree) -> bool) -> usize {
    let (mut depth, mut arrow) = (0_usize, false);
    for (at, token) in tokens.iter().enumerate() {
        if is_punct(token, '<') {
            depth += 1;
        } else if is_punct(token, '>') && !arrow {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && is_end(token) {
            return at;
        }
        arrow = starts_arrow(token);
    }
    tokens.len()
}

/// The first character of `->` or `=>`, whose second is not a bracket.
fn starts_arrow(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct)
        if matches!(punct.as_char(), '-' | '=') && punct.spacing() == Spacing::Joint)
}

fn methods(body: &Group) -> Vec<Ident> {
    let tokens = visible(body.stream());
    let pairs = tokens.windows(2);
    pairs
        .filter_map(|pair| match pair {
            [first, TokenTree::Ident(name)] if is_ident(Some(first), "fn") => Some(name.clone()),
            _ => None,
        })
        .collect()
}

fn braces(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
        _ => None,
    }
}

fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == name)
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}
