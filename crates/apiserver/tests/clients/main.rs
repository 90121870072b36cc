//! Third-party clients, in every installed version, and the formats they need besides JSON.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod controller;
mod differences;
mod helm;
mod kubectl;
mod mask;
mod python;
mod runner;
mod support;
mod tools;
mod transcript;
mod wire;
