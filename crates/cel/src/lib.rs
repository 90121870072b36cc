//! The Common Expression Language as Kubernetes runs it.

#![deny(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    missing_docs
)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, reason = "a panic in a test is a failure")
)]

pub mod admission;
pub mod check;
pub mod eval;
pub mod ext;
pub mod go_regex;
pub mod number;
pub mod program;
pub mod quote;
pub mod source;
pub mod strings;
pub mod syntax;
pub mod time;
pub mod types;
pub mod value;
