//! The console as its clients use it: over HTTP, and in a browser.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod browser;
mod service;
mod support;
