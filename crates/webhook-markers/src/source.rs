//! Finds markers in source code.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::attribute::{Header, HubHeader};

/// The supported languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Go.
    Go,
    /// Rust.
    Rust,
}

/// A line comment that starts with `+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkerComment<'t> {
    /// The text from the `+` to the end of the line.
    pub text: &'t str,
    /// The offset of the `+` in bytes.
    pub at: usize,
    /// True if kubebuilder's tools read it at this position. In Go they ignore comments inside a declaration, beside
    /// one, or directly before one, as its documentation.
    pub is_seen: bool,
}

/// The comments in source code that start with `+`, in order. Strings and block comments are ignored.
#[must_use]
pub fn comments(text: &str, language: Language) -> Vec<MarkerComment<'_>> {
    let mut scanner = Scanner {
        text,
        language,
        at: 0,
        depth: 0,
        line_has_code: false,
        group: (0, false),
        found: Vec::new(),
    };
    while scanner.step().is_some() {}
    scanner.found
}

struct Scanner<'t> {
    text: &'t str,
    language: Language,
    at: usize,
    /// The number of open brackets.
    depth: usize,
    /// True if the line contains code.
    line_has_code: bool,
    /// The end of the current group of comments, and true if it documents a declaration.
    group: (usize, bool),
    found: Vec<MarkerComment<'t>>,
}

impl<'t> Scanner<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips past the next `end`, or to the end of the text.
    fn skip_past(&mut self, end: &str) {
        let rest = self.rest();
        self.at += rest.find(end).map_or(rest.len(), |at| at + end.len());
    }

    /// Skips the next token.
    fn step(&mut self) -> Option<()> {
        let rest = self.rest();
        let first = rest.chars().next()?;
        if rest.starts_with("//") {
            self.line_comment();
            return Some(());
        }
        if rest.starts_with("/*") {
            self.block_comment();
            return Some(());
        }
        match (first, self.language) {
            ('\n', _) => {
                self.line_has_code = false;
                self.at += 1;
                return Some(());
            }
            (blank, _) if blank.is_whitespace() => {
                self.at += blank.len_utf8();
                return Some(());
            }
            _ => {}
        }
        self.line_has_code = true;
        match (first, self.language) {
            ('"', _) => self.quoted('"'),
            ('`', Language::Go) => {
                self.at += 1;
                self.skip_past("`");
            }
            ('\'', Language::Go) => self.quoted('\''),
            ('\'', Language::Rust) => self.character_or_lifetime(),
            (letter, Language::Rust) if letter.is_alphabetic() || letter == '_' => self.word(),
            ('{' | '(' | '[', _) => {
                self.depth += 1;
                self.at += 1;
            }
            ('}' | ')' | ']', _) => {
                self.depth = self.depth.saturating_sub(1);
                self.at += 1;
            }
            (other, _) => self.at += other.len_utf8(),
        }
        Some(())
    }

    fn line_comment(&mut self) {
        let line = self.rest().lines().next().unwrap_or_default();
        // Rust's doc comments have one more character.
        let text = line.trim_start_matches('/');
        let text = match self.language {
            Language::Rust => text.strip_prefix('!').unwrap_or(text),
            Language::Go => line.get(2..).unwrap_or_default(),
        };
        let marker = text.trim_start();
        let end = self.at + line.len();
        if marker.starts_with('+') {
            let is_seen = self.language == Language::Rust
                || (self.depth == 0 && !self.line_has_code && !self.is_documentation(end));
            self.found.push(MarkerComment {
                text: marker.trim_end(),
                at: end - marker.len(),
                is_seen,
            });
        }
        self.at = end;
    }

    /// Returns true if a declaration follows a group of comments without an empty line between. The package clause does
    /// not count.
    fn is_documentation(&mut self, end: usize) -> bool {
        if end >= self.group.0 {
            let mut at = end;
            let mut next = "";
            for line in self
                .text
                .get(end..)
                .unwrap_or_default()
                .split_inclusive('\n')
                .skip(1)
            {
                next = line.trim_start();
                if !next.starts_with("//") {
                    break;
                }
                at += line.len();
            }
            let word = next.split(|c: char| !c.is_alphanumeric()).next();
            let declares = matches!(word, Some("type" | "func" | "var" | "const" | "import"));
            self.group = (at.max(end + 1), declares);
        }
        self.group.1
    }

    /// They may be nested in Rust.
    fn block_comment(&mut self) {
        self.at += 2;
        if self.language == Language::Go {
            return self.skip_past("*/");
        }
        let mut depth = 1_usize;
        while depth > 0 {
            let rest = self.rest();
            let Some(next) = rest.find(['*', '/']) else {
                self.at = self.text.len();
                return;
            };
            self.at += next;
            let rest = self.rest();
            if rest.starts_with("/*") {
                depth += 1;
                self.at += 2;
            } else if rest.starts_with("*/") {
                depth -= 1;
                self.at += 2;
            } else {
                self.at += 1;
            }
        }
    }

    fn quoted(&mut self, quote: char) {
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(next) = rest.find(['\\', quote]) else {
                self.at = self.text.len();
                return;
            };
            self.at += next;
            if !self.rest().starts_with('\\') {
                self.at += 1;
                return;
            }
            let escaped = self.rest().chars().nth(1).map_or(0, char::len_utf8);
            self.at += 1 + escaped;
        }
    }

    /// `'a'` or `'a`.
    fn character_or_lifetime(&mut self) {
        let mut characters = self.rest().chars().skip(1);
        match (characters.next(), characters.next()) {
            (Some('\\'), _) => self.quoted('\''),
            (Some(character), Some('\'')) => self.at += 2 + character.len_utf8(),
            _ => self.at += 1,
        }
    }

    /// An identifier, which may be the prefix of a raw string.
    fn word(&mut self) {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.at += word.len();
        if !matches!(word, "r" | "br" | "cr") {
            return;
        }
        let rest = self.rest();
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let is_raw = rest.get(hashes..).is_some_and(|rest| rest.starts_with('"'));
        if is_raw {
            self.at += hashes + 1;
            self.skip_past(&format!("\"{}", "#".repeat(hashes)));
        }
    }
}

/// An attribute `#[webhook(…)]` on an `impl`.
#[derive(Debug)]
pub struct Attribute {
    /// The location of the attribute.
    pub span: Span,
    /// The tokens in its parentheses.
    pub arguments: TokenStream,
    /// The annotated `impl`; an error if it implements another trait.
    pub header: Result<Header, crate::attribute::Problem>,
}

/// An attribute `#[conversion(…)]` on an `impl`.
#[derive(Debug)]
pub struct ConversionAttribute {
    /// The location of the attribute.
    pub span: Span,
    /// The tokens in its parentheses.
    pub arguments: TokenStream,
    /// The annotated `impl`; an error if it implements another trait.
    pub header: Result<HubHeader, crate::attribute::Problem>,
}

/// The attributes `#[webhook(…)]` in Rust source code, in order. Code that is only compiled for tests and macro
/// definitions are ignored.
#[must_use]
pub fn attributes(tokens: TokenStream) -> Vec<Attribute> {
    let mut found = Vec::new();
    walk(tokens, |attribute, item| {
        found.extend(
            named("webhook", attribute, item).map(|(span, arguments)| Attribute {
                span,
                arguments,
                header: Header::read(item).map(|(header, _)| header),
            }),
        );
    });
    found
}

/// The attributes `#[conversion(…)]` in Rust source code, with the rules of [`attributes`].
#[must_use]
pub fn conversions(tokens: TokenStream) -> Vec<ConversionAttribute> {
    let mut found = Vec::new();
    walk(tokens, |attribute, item| {
        let named = named("conversion", attribute, item);
        found.extend(named.map(|(span, arguments)| ConversionAttribute {
            span,
            arguments,
            header: HubHeader::read(item),
        }));
    });
    found
}

/// Calls a function with each attribute and the tokens after it.
fn walk(tokens: TokenStream, mut visit: impl FnMut(&Group, &[TokenTree])) {
    let mut work = vec![tokens];
    while let Some(tokens) = work.pop() {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut inner = Vec::new();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let rest = tokens.get(at..).unwrap_or_default();
            at += match attribute_of(rest) {
                Some(attribute) if is_test_only(attribute) => length_of_item(rest),
                Some(attribute) => {
                    visit(attribute, rest.get(2..).unwrap_or_default());
                    2
                }
                None if is_macro_definition(rest) => length_of_item(rest),
                None => {
                    if let TokenTree::Group(group) = token {
                        inner.push(group.stream());
                    }
                    1
                }
            };
        }
        work.extend(inner.into_iter().rev());
    }
}

/// `#[…]`
fn attribute_of(tokens: &[TokenTree]) -> Option<&Group> {
    match tokens {
        [TokenTree::Punct(hash), TokenTree::Group(group), ..]
            if hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
        {
            Some(group)
        }
        _ => None,
    }
}

/// Matches `cfg(test)` without formatting a possibly deep tree.
fn is_test_only(attribute: &Group) -> bool {
    let is =
        |token: TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident == word);
    let mut inside = attribute.stream().into_iter();
    let is_cfg = inside.next().is_some_and(|token| is(token, "cfg"));
    let Some(TokenTree::Group(condition)) = inside.next().filter(|_| is_cfg) else {
        return false;
    };
    let mut condition = condition.stream().into_iter();
    condition.next().is_some_and(|token| is(token, "test")) && condition.next().is_none()
}

fn is_macro_definition(tokens: &[TokenTree]) -> bool {
    matches!(tokens.first(), Some(TokenTree::Ident(word)) if word == "macro_rules")
}

/// The number of tokens up to the body of the item or its `;`.
fn length_of_item(tokens: &[TokenTree]) -> usize {
    let end = tokens.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    });
    end.map_or(tokens.len(), |end| end + 1)
}

/// The location and arguments of an attribute of this name on an `impl`.
fn named(wanted: &str, attribute: &Group, item: &[TokenTree]) -> Option<(Span, TokenStream)> {
    let inside: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [path @ .., TokenTree::Group(arguments)] = inside.as_slice() else {
        return None;
    };
    let name = path.last()?;
    let is_wanted = matches!(name, TokenTree::Ident(name) if name == wanted);
    if !is_wanted || arguments.delimiter() != Delimiter::Parenthesis {
        return None;
    }
    let mut rest = item;
    while attribute_of(rest).is_some() {
        rest = rest.get(2..).unwrap_or_default();
    }
    // An attribute with that name on another item is unrelated.
    let is_impl = matches!(rest.first(), Some(TokenTree::Ident(word)) if word == "impl");
    is_impl.then(|| (name.span(), arguments.stream()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str, language: Language) -> Vec<(&str, bool)> {
        let comments = comments(text, language).into_iter();
        comments
            .map(|comment| (comment.text, comment.is_seen))
            .collect()
    }

    #[test]
    fn finds_comments_of_go_where_kubebuilder_does() {
        let text = "// +package\npackage x\n\n// +import\nimport \"fmt\"\n\n//+free \n\n// T is.\n// +doc\n// more\ntype T struct {\n\t// +field\n}\n\n\
                    var s = `\n// +raw\n` + \"// +text \\\" // +text\" + '\"' // +beside\n\n/* +block\n// +block\n*/\n\nfunc f() {\n\t// +body\n}\n\n//   +last";
        assert_eq!(
            seen(text, Language::Go),
            [
                ("+package", true),
                ("+import", false),
                ("+free", true),
                ("+doc", false),
                ("+field", false),
                ("+beside", false),
                ("+body", false),
                ("+last", true),
            ]
        );
        let first = comments(text, Language::Go)[2];
        assert_eq!(text.get(first.at..first.at + 5), Some("+free"));
    }

    #[test]
    fn finds_comments_of_rust_anywhere() {
        let text = "//! +inner\n/// +doc\nfn f<'a>(x: &'a str) -> char {\n    // +body\n    let s = r#\"// +raw \"// +raw\"#; let c = '\"'; let d = '\\''; let b = br\"// +raw\";\n    \
                    let t = \"// +text\n// +text\";\n    /* /* // +block */ // +block\n*/ 'x' // +beside\n}";
        let found: Vec<_> = seen(text, Language::Rust)
            .into_iter()
            .map(|(text, _)| text)
            .collect();
        assert_eq!(found, ["+inner", "+doc", "+body", "+beside"]);
    }

    #[test]
    fn survives_texts_that_end_early() {
        for text in [
            "\"", "'", "`", "/*", "/* /*", "r#\"", "r##", "'\\", "\"\\", "//", "/", "+", "é'é",
        ] {
            for language in [Language::Go, Language::Rust] {
                assert_eq!(comments(text, language), [], "{text}");
            }
        }
    }

    #[test]
    fn finds_attributes_in_any_module_but_tests() {
        let text = r#"
            #[webhook(name = "a.b.c")]
            /// About it.
            impl Validator<Pod> for A { fn create() {} }
            mod inner {
                #[lockgate_webhook::webhook(name = "d.e.f")]
                impl<T> Mutator<T> for B<T> { }
                #[webhook(x)] fn of_somebody_else() {}
                #[webhook] impl Validator<Pod> for NoArguments {}
                #[webhook(x)] impl Clone for Other {}
            }
            #[cfg(test)]
            mod tests { #[webhook(name = "x.y.z")] impl Validator<Pod> for T {} }
            #[cfg(test)]
            use x;
            macro_rules! make { ($k:ty) => { #[webhook(name = "x.y.z")] impl Validator<$k> for T {} } }
        "#;
        let found = attributes(text.parse().unwrap());
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.arguments.to_string(), one.header.is_ok()))
            .collect();
        assert_eq!(
            shown,
            [
                (String::from("name = \"a.b.c\""), true),
                (String::from("name = \"d.e.f\""), true),
                (String::from("x"), false),
            ]
        );
    }

    #[test]
    fn long_groups_of_comments_are_read_once() {
        let text = "// +x\n".repeat(200_000) + "type T struct{}";
        let found = comments(&text, Language::Go);
        assert_eq!(found.len(), 200_000);
        assert!(found.iter().all(|comment| !comment.is_seen));
    }

    #[test]
    fn deep_programs_cost_no_stack() {
        let deep = "(".repeat(100_000) + &")".repeat(100_000);
        for around in [
            "#[cfg(DEEP)] mod x {}",
            "#[webhook(x = DEEP)] impl Validator<Pod> for T {}",
        ] {
            let text = around.replace("DEEP", &deep);
            for attribute in attributes(text.parse().unwrap()) {
                let header = attribute.header.unwrap();
                assert!(
                    crate::attribute::read(attribute.arguments, &header, attribute.span).is_err()
                );
            }
        }
        assert!(attributes(deep.parse().unwrap()).is_empty());
        assert!(comments(&deep, Language::Rust).is_empty());
    }
}
