//! The parts of Go's standard library, and of Kubernetes' libraries, whose results are part of the
//! API.
//!
//! Clients compare strings, sizes and numbers, so Go's formats are reproduced instead of Rust's: a
//! quoted string in an error, a duration in a flag, a float in a stored object, the parse error of
//! a URL.
//!
//! ```
//! use lockgate_go::quote::quote;
//! use lockgate_go::time::Duration;
//!
//! assert_eq!(quote("a\u{7f}"), r#""a\x7f""#);
//! assert_eq!(Duration::parse("1m30s").unwrap().go_string(), "1m30s");
//! ```
//!
//! # Map
//!
//! | module | reproduces |
//! |---|---|
//! | [`quote`] | `strconv.Quote`, and the strings of `encoding/json` |
//! | [`number`] | `strconv`'s numbers, and the number verbs of `fmt` |
//! | [`base64`] | `encoding/base64` with its error positions |
//! | [`json`] | the output of `encoding/json` |
//! | [`mime`] | `mime.ParseMediaType` |
//! | [`ip`] | `netip.ParseAddr` |
//! | [`url`] | `net/url` |
//! | [`time`] | `time.Duration`, RFC 3339 and, with the feature `zones`, time zones |
//! | [`quantity`] | `resource.Quantity` of apimachinery |
//! | `regex` | `regexp`, with the feature `regex` |
//!
//! No I/O, no clock, and no panic on any input.

#![warn(missing_docs)]

pub mod quote;

pub mod number;

pub mod base64;
pub mod json;
pub mod mime;

pub mod ip;

pub mod url;

pub mod time;

pub mod quantity;

#[cfg(feature = "regex")]
pub mod regex;
