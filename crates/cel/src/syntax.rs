//! Parses source text into an abstract syntax tree.
//!
//! Two parsers share one lexer. `parser` is the fast one, used for every expression; it stops at
//! the first syntax error. Only then, `recovery` runs the grammar with ANTLR's error recovery, for
//! the same error messages as Kubernetes, and `visit` reports further issues of the recovered tree.

pub(crate) mod ast;
mod grammar;
pub mod identifier;
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
