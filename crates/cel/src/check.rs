//! Type checking: resolves the names and calls of a parsed tree.

mod checker;
mod declarations;
mod estimate;
mod unify;
mod validators;

pub(crate) use checker::{Checked, Reference, check};
pub use declarations::{Environment, Libraries};
pub(crate) use declarations::{Function, OverloadId, functions, overload};
pub(crate) use estimate::estimate;
pub use estimate::{Estimate, Sizes, UnknownSizes};
