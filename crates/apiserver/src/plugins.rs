//! Plugins that are made from what the server stores.

mod priority;

pub(crate) use priority::{Priority, PriorityClasses};
