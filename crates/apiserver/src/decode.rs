//! Stage 4: from bytes to an object and its options.

pub(crate) mod body;
pub(crate) mod options;
pub(crate) mod patch;
pub(crate) mod selection;
pub(crate) mod write;
