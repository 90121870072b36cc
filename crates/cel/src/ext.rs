//! The types of Kubernetes' CEL libraries, one module per library.
//!
//! These are plain Rust types and functions with upstream's results and error texts. They do not
//! depend on expressions; the evaluator binds them to their CEL names.

pub mod authorizer;
pub mod cidr;
pub mod ip;
pub mod named_format;
pub mod semver;
pub(crate) mod url;
