//! From text to an abstract syntax tree.
//!
//! Two parsers share one lexer. `parser` is the fast one, used for every
//! expression; it stops at the first syntax error. Then, and only then,
//! `recovery` walks the grammar the way ANTLR does, to say what is wrong in
//! the words users of Kubernetes know, and `visit` looks at what it understood.

pub(crate) mod ast;
mod grammar;
pub(crate) mod lexer;
mod macros;
mod parser;
mod predict;
mod print;
mod recovery;
mod unescape;
mod visit;

pub(crate) use parser::parse;
pub use print::canonical;

/// Longest expression accepted, in code points.
pub const MAX_CODE_POINTS: usize = 100_000;
/// Deepest nesting of one grammar rule, and deepest operator chain.
pub const MAX_DEPTH: u32 = 250;
