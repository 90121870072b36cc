//! Read recipes: one object, a list, or a watch. No admission, no writes.

pub(crate) mod components;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod watch;
