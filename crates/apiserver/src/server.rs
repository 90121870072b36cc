//! The lifecycle of a server.

mod access;
mod start;

pub use access::Access;
pub use start::{Running, StartError};
