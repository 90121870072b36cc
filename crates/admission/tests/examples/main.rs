//! The examples, run for real.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic in a test is a failure with a location"
)]

mod notes;
mod watching;
