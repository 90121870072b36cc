//! The `lockgate` command as a library, so that tests and benches call what the binary calls.

// A module uses only those listed before it.
pub mod exit_code;
pub mod text;

pub mod input;
pub mod output;

#[cfg(feature = "otel")]
pub mod telemetry;

pub mod logging;

// Shared parts of commands.
pub mod capture_file;
pub mod lint;
pub mod live;
pub mod manifests;
pub mod offline;
pub mod scaffold;

pub mod commands;

pub mod args;
