//! The admission webhooks of shaper, a network boot server for bare metal that stores its state in two custom
//! resources.
//!
//! ```text
//!   POST /mutate-assignment    ──► static rules ──► labels that follow from the specification
//!   POST /mutate-profile       ──► static rules ──► a UUID for each exposed content
//!   POST /validate-assignment  ──► static rules ──► the profile exists, no other assignment has the machines
//!   POST /validate-profile     ──► static rules ──► no other profile has the UUIDs
//! ```
//!
//! Labels are the index that the data plane queries, so the mutating webhooks keep them in sync, whatever users and
//! other programs write. The modules below are in the order of request processing.

#![warn(missing_docs)]

// Input.
pub mod api;
pub mod config;
mod kind;

// Checks.
pub mod assignment;
mod findings;
pub mod jsonpath;
pub mod labels;
pub mod lookup;
pub mod profile;
pub mod template;
#[cfg(test)]
mod testing;
pub mod uuid;

// Serving.
pub mod log;
pub mod serve;
pub mod webhooks;
