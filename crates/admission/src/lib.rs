//! Kubernetes dynamic admission control as a library.

#![warn(missing_docs)]

pub mod audit;
pub mod call;
pub mod chain;
pub mod configuration;
pub mod decision;
pub mod engine;
pub mod equality;
pub mod host;
pub mod json_patch;
pub mod matching;
pub mod metrics;
pub mod object;
pub mod order;
pub mod plugin;
pub mod plugins;
pub mod request;
pub mod status;
pub mod trace;
pub mod warnings;
pub mod webhook;

#[cfg(test)]
mod testing;
