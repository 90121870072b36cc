//! Regular expressions with the meaning Go gives them.
//!
//! A pattern is read here by Go's rules, with Go's error texts, and turned into the syntax tree
//! of `regex-syntax`; the automata of `regex-automata` then search in linear time with the same
//! leftmost-first choice. Groups only group: nothing in CEL asks what a group matched.

mod class;
mod escape;
mod node;
mod parse;
#[cfg(test)]
mod tests;

use std::ops::Range;

use regex_automata::meta;
use regex_automata::nfa::thompson::WhichCaptures;

/// Bytes an automaton may take. Go bounds instructions instead, so a pattern that repeats large
/// Unicode classes a thousand times is refused here although Go takes it.
const NFA_SIZE_LIMIT: usize = 48 << 20;

/// Bytes the lazily built automaton of one search may take before it starts over.
const LAZY_CACHE_SIZE: usize = 2 << 20;

/// The rule of Go's syntax that a pattern breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A class, such as `\p{Nope}` or `[z-a]`, has no such range.
    InvalidCharRange,
    /// An escape is unknown.
    InvalidEscape,
    /// A group's name is malformed.
    InvalidNamedCapture,
    /// `(?` is followed by something unknown.
    InvalidPerlOp,
    /// A repetition follows a repetition.
    InvalidRepeatOp,
    /// A repetition is above a thousand, alone or nested, or backwards.
    InvalidRepeatSize,
    /// A class does not end.
    MissingBracket,
    /// A group does not end.
    MissingParen,
    /// A repetition has nothing to repeat.
    MissingRepeatArgument,
    /// The pattern ends in a backslash.
    TrailingBackslash,
    /// A group ends that did not start.
    UnexpectedParen,
    /// The tree is more than a thousand levels high.
    NestingDepth,
    /// The compiled pattern would be too large.
    Large,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::InvalidCharRange => "invalid character class range",
            Self::InvalidEscape => "invalid escape sequence",
            Self::InvalidNamedCapture => "invalid named capture",
            Self::InvalidPerlOp => "invalid or unsupported Perl syntax",
            Self::InvalidRepeatOp => "invalid nested repetition operator",
            Self::InvalidRepeatSize => "invalid repeat count",
            Self::MissingBracket => "missing closing ]",
            Self::MissingParen => "missing closing )",
            Self::MissingRepeatArgument => "missing argument to repetition operator",
            Self::TrailingBackslash => "trailing backslash at end of expression",
            Self::UnexpectedParen => "unexpected )",
            Self::NestingDepth => "expression nests too deeply",
            Self::Large => "expression too large",
        }
    }
}

/// A pattern Go would not compile, and the part of it that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The rule that is broken.
    pub kind: ErrorKind,
    /// The offending part of the pattern.
    pub part: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "error parsing regexp: {}: `{}`",
            self.kind.text(),
            self.part
        )
    }
}

impl std::error::Error for Error {}

/// A compiled pattern. Cloning is cheap and shares the automata.
#[derive(Clone, Debug)]
pub struct Regex {
    inner: meta::Regex,
}

impl Regex {
    /// Compiles a pattern.
    ///
    /// ```
    /// use lockgate_go::regex::Regex;
    /// let words = Regex::new(r"\b[a-z]+\b").unwrap();
    /// assert_eq!(words.find("42 foo bar"), Some("foo"));
    /// assert_eq!(
    ///     Regex::new("[a").unwrap_err().to_string(),
    ///     "error parsing regexp: missing closing ]: `[a`",
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// Patterns that Go refuses, and automata above the size limit.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        let hir = parse::parse(pattern)?;
        let config = meta::Config::new()
            .utf8_empty(true)
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(NFA_SIZE_LIMIT))
            .hybrid_cache_capacity(LAZY_CACHE_SIZE);
        let inner = meta::Builder::new()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(|_| Error {
                kind: ErrorKind::Large,
                part: pattern.to_owned(),
            })?;
        Ok(Self { inner })
    }

    /// Checks a pattern without compiling it: an automaton may cost a thousand times more than reading
    /// the pattern, and is needed only once the pattern is used.
    ///
    /// # Errors
    ///
    /// The error of Go's `regexp/syntax`.
    pub fn check(pattern: &str) -> Result<(), Error> {
        parse::parse(pattern).map(|_| ())
    }

    /// Returns true if the pattern matches anywhere in the text.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.inner.is_match(text)
    }

    /// The leftmost match.
    #[must_use]
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        text.get(self.find_at(text)?)
    }

    /// The place of the leftmost match, in bytes.
    #[must_use]
    pub fn find_at(&self, text: &str) -> Option<Range<usize>> {
        self.inner.find(text).map(|found| found.range())
    }

    /// Successive matches that do not overlap, at most `limit` of them, all if it is negative. An
    /// empty match right behind the previous one does not count.
    #[must_use]
    pub fn find_all<'t>(&self, text: &'t str, limit: i64) -> Vec<&'t str> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.inner
            .find_iter(text)
            .take(limit)
            .filter_map(|found| text.get(found.range()))
            .collect()
    }
}
