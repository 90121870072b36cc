//! The few corners of Go's standard library whose output is part of the Kubernetes API.
//!
//! Error texts quote values the way Go's `fmt` and `encoding/json` do, and clients compare those
//! texts, so they are reproduced here rather than approximated with Rust's own forms.

pub mod base64;
mod ip;
pub mod json;
pub mod mime;
pub mod quote;
pub mod url;
