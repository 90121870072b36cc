//! Validation rules of custom resources: what `self` and `oldSelf` are, by their schema.

mod escape;

pub(crate) use escape::KEYWORDS;
pub use escape::{escape, unescape};
