//! Exit codes. Scripts rely on these numbers.

use std::process::ExitCode as ProcessExitCode;

/// The exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// Success without findings.
    Done = 0,
    /// The work could not be done.
    Failed = 1,
    /// Invalid command line. Set by the argument parser too.
    Usage = 2,
    /// The work is done, and the answer is "findings" or "denied".
    Findings = 3,
    /// The input is invalid.
    InvalidInput = 4,
    /// A person stopped it.
    Interrupted = 130,
}

impl From<ExitCode> for ProcessExitCode {
    fn from(code: ExitCode) -> Self {
        // The discriminants are the contract.
        Self::from(code as u8)
    }
}
