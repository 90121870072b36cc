//! Kubernetes dynamic admission control as a library.

#![warn(missing_docs)]

pub mod audit;
pub mod call;
pub mod configuration;
pub mod decision;
pub mod equality;
pub mod host;
pub mod json_patch;
pub mod matching;
pub mod object;
pub mod request;
pub mod status;
pub mod warnings;

#[cfg(test)]
mod testing;
