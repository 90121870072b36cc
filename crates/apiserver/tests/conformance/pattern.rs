//! Regular expressions, and the globs that select scenarios.

use regex_automata::meta::Regex;
use regex_automata::util::captures::Captures;

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    pub(crate) fn new(pattern: &str) -> Self {
        Self(Regex::new(pattern).expect("a pattern written here"))
    }

    /// Compiles a shell glob that matches the entire name: `*`, `?` and `[…]`.
    pub(crate) fn glob(glob: &str) -> Result<Self, String> {
        let mut pattern = String::from("(?s)^");
        let mut set = false;
        for character in glob.chars() {
            match character {
                '[' if !set => {
                    set = true;
                    pattern.push('[');
                }
                ']' if set => {
                    set = false;
                    pattern.push(']');
                }
                '!' if set && pattern.ends_with('[') => pattern.push('^'),
                '-' if set => pattern.push('-'),
                '*' if !set => pattern.push_str(".*"),
                '?' if !set => pattern.push('.'),
                'a'..='z' | 'A'..='Z' | '0'..='9' => pattern.push(character),
                _ => pattern.push_str(&format!("\\x{{{:x}}}", u32::from(character))),
            }
        }
        pattern.push('$');
        Regex::new(&pattern)
            .map(Self)
            .map_err(|error| format!("`{glob}` is no pattern: {error}"))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The groups of the first match; a group without a match is empty.
    pub(crate) fn groups<'t>(&self, text: &'t str) -> Option<Vec<&'t str>> {
        self.all_groups(text).next()
    }

    /// The groups of every match.
    pub(crate) fn all_groups<'t>(&self, text: &'t str) -> impl Iterator<Item = Vec<&'t str>> {
        self.0
            .captures_iter(text)
            .map(move |captures| groups(&captures, text))
    }

    /// Replaces every match with the result of `make` for its groups.
    pub(crate) fn replace<E>(
        &self,
        text: &str,
        mut make: impl FnMut(&[&str]) -> Result<String, E>,
    ) -> Result<String, E> {
        let mut out = String::with_capacity(text.len());
        let mut end = 0;
        for captures in self.0.captures_iter(text) {
            let Some(whole) = captures.get_match() else {
                continue;
            };
            out.push_str(&text[end..whole.start()]);
            out.push_str(&make(&groups(&captures, text))?);
            end = whole.end();
        }
        out.push_str(&text[end..]);
        Ok(out)
    }
}

fn groups<'t>(captures: &Captures, text: &'t str) -> Vec<&'t str> {
    captures
        .iter()
        .map(|group| group.map_or("", |span| &text[span.range()]))
        .collect()
}

#[test]
fn globs_take_whole_names() {
    let glob = |glob: &str, name: &str| Pattern::glob(glob).unwrap().matches(name);
    assert!(glob("*", "anything"));
    assert!(glob("gen-1-?", "gen-1-7"));
    assert!(!glob("gen-1-?", "gen-1-17"));
    assert!(glob("gen-1-[!2-9]", "gen-1-1"));
    assert!(!glob("gen", "gen-1"));
    assert!(!glob("a.c", "abc"));
}
