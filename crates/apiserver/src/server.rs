//! The life of a server, from start to stop.

mod access;
mod start;

pub use access::Access;
pub use start::{Running, StartError};
