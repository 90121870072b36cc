//! Exit codes. Scripts rely on these numbers.

use std::process::ExitCode as ProcessExitCode;

/// The exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// Success without findings.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// Invalid command line. Set by the argument parser too.
    Usage = 2,
    /// Success, with findings or a denial.
    Findings = 3,
    /// The input is invalid.
    InvalidInput = 4,
    /// Interrupted by a signal.
    Interrupted = 130,
}

impl From<ExitCode> for ProcessExitCode {
    fn from(code: ExitCode) -> Self {
        // The discriminants are the exit codes.
        Self::from(code as u8)
    }
}
