//! Regular expressions with Go's semantics.
//!
//! A pattern is parsed by Go's rules, with Go's error texts, into the syntax tree of `regex-syntax`;
//! the automata of `regex-automata` then search in linear time with the same leftmost-first semantics.
//! Groups do not capture: no CEL function returns submatches.
//!
//! Patterns are untrusted, and a few bytes may compile to megabytes. All patterns of a process share a
//! memory budget: small patterns get automata while the budget lasts, others a `program`, and beyond
//! the budget patterns are compiled for each search. A pattern is parsed immediately and compiled on
//! first use, as many are never used.

mod budget;
mod class;
mod escape;
mod node;
mod parse;
mod program;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use regex_automata::meta;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_syntax::hir::Hir;

use budget::Charge;
use program::Program;

/// The maximum size of an automaton in bytes; compiling one takes milliseconds at most. Go limits
/// instructions instead.
const NFA_SIZE_LIMIT: usize = 256 << 10;

/// The cache size in bytes of a search's lazy DFA before it is cleared.
const LAZY_CACHE_SIZE: usize = 128 << 10;

/// A syntax error of Go's `regexp/syntax`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A class has an invalid range, such as `\p{Nope}` or `[z-a]`.
    InvalidCharRange,
    /// An escape is unknown.
    InvalidEscape,
    /// A group's name is malformed.
    InvalidNamedCapture,
    /// `(?` is followed by an unknown operator.
    InvalidPerlOp,
    /// A repetition follows a repetition.
    InvalidRepeatOp,
    /// A repetition count is above a thousand, alone or nested, or its bounds are reversed.
    InvalidRepeatSize,
    /// A class is not closed.
    MissingBracket,
    /// A group is not closed.
    MissingParen,
    /// A repetition has no operand.
    MissingRepeatArgument,
    /// The pattern ends with a backslash.
    TrailingBackslash,
    /// A closing parenthesis without a group.
    UnexpectedParen,
    /// The tree is deeper than a thousand levels.
    NestingDepth,
    /// The compiled pattern is too large.
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

/// A pattern that Go rejects, with the invalid part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The violated rule.
    pub kind: ErrorKind,
    /// The invalid part of the pattern.
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

/// A pattern that Go accepts. Clones share the automata.
#[derive(Clone, Debug)]
pub struct Regex {
    pattern: Arc<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    source: Box<str>,
    engine: OnceLock<Engine>,
}

#[derive(Debug)]
enum Engine {
    Automata {
        automata: Box<meta::Regex>,
        _charge: Charge,
    },
    Program {
        program: Program,
        _charge: Charge,
    },
    /// The budget is exhausted: the pattern is compiled for each search.
    Source,
}

impl Regex {
    /// Parses a pattern.
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
    /// Patterns that Go rejects, and programs above the size limit.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        let hir = parse::parse(pattern)?;
        compile(&hir, pattern)?;
        Ok(Self {
            pattern: Arc::new(Pattern {
                source: pattern.into(),
                engine: OnceLock::new(),
            }),
        })
    }

    /// Validates a pattern without compiling it: an automaton may cost a thousand times more than
    /// parsing, and is only needed once the pattern is used.
    ///
    /// # Errors
    ///
    /// The error of Go's `regexp/syntax`.
    pub fn check(pattern: &str) -> Result<(), Error> {
        parse::parse(pattern).map(|_| ())
    }

    /// Returns true if the pattern matches anywhere in the string.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        match self.engine() {
            Engine::Automata { automata, .. } => automata.is_match(text),
            _ => self.with_program(|program| program.is_match(text)),
        }
    }

    /// The leftmost match.
    #[must_use]
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        text.get(self.find_at(text)?)
    }

    /// The byte range of the leftmost match.
    #[must_use]
    pub fn find_at(&self, text: &str) -> Option<Range<usize>> {
        match self.engine() {
            Engine::Automata { automata, .. } => automata.find(text).map(|found| found.range()),
            _ => self.with_program(|program| program.find(text, 0)),
        }
    }

    /// Successive non-overlapping matches, at most `limit` of them, all if it is negative. An empty
    /// match adjacent to the previous one is skipped.
    #[must_use]
    pub fn find_all<'t>(&self, text: &'t str, limit: i64) -> Vec<&'t str> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        match self.engine() {
            Engine::Automata { automata, .. } => automata
                .find_iter(text)
                .take(limit)
                .filter_map(|found| text.get(found.range()))
                .collect(),
            _ => self.with_program(|program| program.find_all(text, limit)),
        }
    }

    fn engine(&self) -> &Engine {
        let compile = || {
            let hir = parse::parse(&self.pattern.source).ok()?;
            automata(&hir).or_else(|| {
                let program = Program::new(&hir)?;
                let _charge = Charge::program(program.memory())?;
                Some(Engine::Program { program, _charge })
            })
        };
        let engine = &self.pattern.engine;
        engine.get_or_init(|| compile().unwrap_or(Engine::Source))
    }

    /// Runs the program, compiling it if it is not kept.
    fn with_program<T: Default>(&self, run: impl FnOnce(&Program) -> T) -> T {
        match self.engine() {
            Engine::Program { program, .. } => run(program),
            Engine::Source => {
                // The pattern was already parsed successfully.
                let hir = parse::parse(&self.pattern.source).ok();
                let program = hir.as_ref().and_then(Program::new);
                program.as_ref().map(run).unwrap_or_default()
            }
            Engine::Automata { .. } => T::default(),
        }
    }
}

/// Builds the automata of a pattern, if they are small and within the budget.
fn automata(hir: &Hir) -> Option<Engine> {
    let least = Charge::automata(LAZY_CACHE_SIZE)?;
    let config = meta::Config::new()
        .utf8_empty(true)
        .which_captures(WhichCaptures::Implicit)
        .nfa_size_limit(Some(NFA_SIZE_LIMIT))
        .hybrid_cache_capacity(LAZY_CACHE_SIZE);
    let built = meta::Builder::new().configure(config).build_from_hir(hir);
    let built = built.ok()?;
    let _charge = least.and(built.memory_usage())?;
    let automata = Box::new(built);
    Some(Engine::Automata { automata, _charge })
}

fn compile(hir: &Hir, pattern: &str) -> Result<Program, Error> {
    Program::new(hir).ok_or_else(|| Error {
        kind: ErrorKind::Large,
        part: pattern.to_owned(),
    })
}
