//! The program `shaper-webhooks` and its charts, end to end.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod chain;
mod charts;
mod cluster;
mod definitions;
mod program;
mod reviews;
mod support;
