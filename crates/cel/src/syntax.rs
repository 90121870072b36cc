//! From text to an abstract syntax tree.
//!
//! Two parsers share one lexer. `parser` is the fast one, used for every
//! expression; it stops at the first syntax error. Then, and only then,
//! `recovery` walks the grammar the way ANTLR does, to say what is wrong in
//! the words users of Kubernetes know, and `visit` looks at what it understood.

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
