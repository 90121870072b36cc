//! The engine through its public API, against scripted webhooks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic in a test is a failure with a location"
)]

mod support;

mod examples {
    //! The examples, run end to end.

    mod notes;
}

mod failures;
mod faults;
mod https;
mod logging;
mod matching_cost;
mod mutating;
mod recorded;
mod reinvocation;
mod timeouts;
mod validating;
