//! Tests of the crate's public API.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic in a test is a failure with a location"
)]

mod allocations;
mod crd;
mod direct;
mod estimates;
mod hostile;
mod policies;
mod properties;
mod recording;
mod vectors;
