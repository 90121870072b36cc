//! The life of a server, from start to stop.

mod start;

pub use start::{Running, StartError};
