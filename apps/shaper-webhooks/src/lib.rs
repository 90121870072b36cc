//! The admission webhooks of shaper, a network boot server for bare metal that keeps everything in two
//! custom resources.
//!
//! ```text
//!   POST /mutate-assignment    ──► static rules ──► labels that follow from the specification
//!   POST /mutate-profile       ──► static rules ──► a UUID for each exposed content
//!   POST /validate-assignment  ──► static rules ──► the profile exists, nobody else has the machines
//!   POST /validate-profile     ──► static rules ──► nobody else has the UUIDs
//! ```
//!
//! Labels are the index that the data plane queries, so the first two keep it true, whatever users and
//! other programs write. The order of the modules below is that of the request.

#![warn(missing_docs)]

// What comes in.
pub mod api;
pub mod config;
mod kind;

// What is looked at.
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

// How it is served.
pub mod log;
pub mod serve;
pub mod webhooks;
