//! Tests of the crate as a whole, in one binary: recorded truth and properties.

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
