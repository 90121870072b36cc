//! Stage 4: decodes the object and options of a write.

pub(crate) mod body;
pub(crate) mod options;
pub(crate) mod patch;
pub(crate) mod selection;
pub(crate) mod write;
