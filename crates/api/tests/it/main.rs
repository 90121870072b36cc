//! Tests of the public API, in one binary: recorded vectors and properties.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod differences;
mod gaps;
mod properties;
mod registration_vectors;
mod review_vectors;
