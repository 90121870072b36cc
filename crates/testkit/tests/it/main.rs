//! Rules of the workspace, checked on its sources.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod links;
mod modules;
