//! Regular expressions with the meaning Go gives them.
//!
//! A pattern is read here by Go's rules, with Go's error texts, and turned into the syntax tree
//! of `regex-syntax`; the automata of `regex-automata` then search in linear time with the same
//! leftmost-first choice. Groups only group: nothing in CEL asks what a group matched.
//!
//! Patterns come from outside, and a few bytes of one can ask for megabytes. All patterns of a process
//! share a budget: automata are for those that are small while there is room, `program` for the others,
//! and those for which there is no room at all are compiled again for each search. A pattern is read at
//! once and compiled when it is first searched for: many are written down and never used.

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

/// Bytes an automaton may take; building one takes milliseconds then. Go bounds instructions instead.
const NFA_SIZE_LIMIT: usize = 256 << 10;

/// Bytes the lazily built automaton of one search may take before it starts over.
const LAZY_CACHE_SIZE: usize = 128 << 10;

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

/// A pattern that Go accepts. Cloning is cheap and shares the automata.
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
    /// There is no room to keep what is compiled.
    Source,
}

impl Regex {
    /// Reads a pattern.
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
    /// Patterns that Go refuses, and programs above the size limit.
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

    /// The place of the leftmost match, in bytes.
    #[must_use]
    pub fn find_at(&self, text: &str) -> Option<Range<usize>> {
        match self.engine() {
            Engine::Automata { automata, .. } => automata.find(text).map(|found| found.range()),
            _ => self.with_program(|program| program.find(text, 0)),
        }
    }

    /// Successive matches that do not overlap, at most `limit` of them, all if it is negative. An
    /// empty match right behind the previous one does not count.
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

    /// Runs the program, which is compiled for this where it is not kept.
    fn with_program<T: Default>(&self, run: impl FnOnce(&Program) -> T) -> T {
        match self.engine() {
            Engine::Program { program, .. } => run(program),
            Engine::Source => {
                // It was read before.
                let hir = parse::parse(&self.pattern.source).ok();
                let program = hir.as_ref().and_then(Program::new);
                program.as_ref().map(run).unwrap_or_default()
            }
            Engine::Automata { .. } => T::default(),
        }
    }
}

/// The automata of a pattern, if they are small and there is room for them.
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
