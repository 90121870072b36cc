//! The `lockgate` command as a library, so that tests and benches call what the binary calls.

pub mod args;
pub mod commands;
pub mod exit_code;
pub mod input;
pub mod lint;
pub mod manifests;
pub mod output;
pub mod text;
