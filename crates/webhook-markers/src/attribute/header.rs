//! The item below the attribute: the head of an `impl`, and the names of the methods in it.
//!
//! Read by hand rather than as a syntax tree: the command reads files that nobody has compiled, and
//! nothing in a method's body may cost it more than its length.

use proc_macro2::{Delimiter, Group, Ident, Spacing, Span, TokenTree};

use super::{Problem, visible};
use crate::Role;

/// The head of `impl Validator<K> for T` or `impl Mutator<K> for T`.
#[derive(Debug, Clone)]
pub struct Header {
    /// By the trait.
    pub role: Role,
    /// The place of the trait's name.
    pub span: Span,
    /// `<…>` after `impl`, or nothing.
    pub generics: Vec<TokenTree>,
    /// `K`
    pub kind: Vec<TokenTree>,
    /// `T`
    pub target: Vec<TokenTree>,
    /// `where …`, or nothing.
    pub where_clause: Vec<TokenTree>,
    /// The names of the functions inside.
    pub methods: Vec<Ident>,
}

impl Header {
    /// Reads a head from where an item starts; other attributes may stand before it. Returns how many
    /// tokens it took.
    ///
    /// # Errors
    ///
    /// It is another item.
    pub fn read(tokens: &[TokenTree]) -> Result<(Self, usize), Problem> {
        let mut at = 0;
        while let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = &tokens[at..]
            && hash.as_char() == '#'
            && group.delimiter() == Delimiter::Bracket
        {
            at += 2;
        }
        let other = |token: Option<&TokenTree>| {
            let span = token.map_or_else(Span::call_site, TokenTree::span);
            let message =
                "`webhook` stands on `impl Validator<K> for T` or `impl Mutator<K> for T`";
            Problem::new(span, message)
        };
        if !is_ident(tokens.get(at), "impl") {
            return Err(other(tokens.get(at)));
        }
        let start = tokens.get(at);
        at += 1;
        let generics = angles(&tokens[at..]);
        at += generics;
        let generics = tokens[at - generics..at].to_vec();

        let trait_tokens = until(&tokens[at..], |token| is_ident(Some(token), "for"));
        let trait_path = &tokens[at..at + trait_tokens];
        at += trait_tokens;
        if !is_ident(tokens.get(at), "for") {
            return Err(other(start));
        }
        at += 1;
        let (role, span, kind) = trait_of(trait_path).ok_or_else(|| other(trait_path.first()))?;

        let is_end = |token: &TokenTree| is_ident(Some(token), "where") || braces(token).is_some();
        let target = until(&tokens[at..], is_end);
        let target_tokens = tokens[at..at + target].to_vec();
        at += target;
        let clause = until(&tokens[at..], |token| braces(token).is_some());
        let where_clause = tokens[at..at + clause].to_vec();
        at += clause;
        let body = tokens.get(at).and_then(braces);
        let body = body.ok_or_else(|| other(start))?;
        let header = Self {
            role,
            span,
            generics,
            kind,
            target: target_tokens,
            where_clause,
            methods: methods(body),
        };
        Ok((header, at + 1))
    }
}

/// The role, where it is said, and the kind.
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

/// The first half of `->` or `=>`, whose second is no bracket.
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
