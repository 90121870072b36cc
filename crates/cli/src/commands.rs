//! The commands, one file each, with the arguments and a function that runs the command.

pub mod capture;
pub mod cel;
pub mod completions;
pub mod demo;
pub mod dev;
pub mod envtest;
pub mod explain;
pub mod init;
pub mod lint;
pub mod man;
pub mod manifests;
pub mod plugins;
pub mod replay;
pub mod serve;
pub mod snapshot;
pub mod store;
pub mod test;
mod webhook_server;

use std::io;

use crate::exit_code::ExitCode;
use crate::input::ReadError;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    pub(crate) message: String,
    /// Advice, printed on a line of its own.
    pub(crate) help: Option<String>,
    pub(crate) code: ExitCode,
}

impl CommandError {
    /// A failure with exit code 1.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            code: ExitCode::Failed,
        }
    }

    /// An invalid command line.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            code: ExitCode::Usage,
        }
    }

    /// Invalid input.
    #[must_use]
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            code: ExitCode::InvalidInput,
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<ReadError> for CommandError {
    fn from(error: ReadError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            ReadError::NotText(_) | ReadError::TooLarge(_) => {
                failed.with_help("pass YAML or JSON; split large streams into several files")
            }
            ReadError::Io { .. } | ReadError::EmptyFolder(_) => failed,
        }
    }
}

/// Runs an async command.
fn run_async(work: impl Future<Output = Result<ExitCode, Stop>>) -> Result<ExitCode, Stop> {
    block_on(work)?
}

/// Runs a future on a new runtime.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| {
        CommandError::failed(format!("cannot start the async runtime: {error}"))
    })?;
    Ok(runtime.block_on(work))
}

/// The end of a failed command. Output errors are separate: a closed pipe is not a failure.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Standard output could not be written.
    #[error("cannot write output")]
    Output(#[from] io::Error),
}
