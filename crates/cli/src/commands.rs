//! The commands, one file each: its arguments, and a function that runs it.

pub mod cel;
pub mod completions;
pub mod demo;
pub mod dev;
pub mod lint;
pub mod manifests;
pub mod serve;

use std::io;

use crate::args::{Cli, Command};
use crate::exit_code::ExitCode;
use crate::input::ReadError;
use crate::output::Printer;

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// What went wrong.
    message: String,
    /// What to do about it.
    help: Option<String>,
    code: ExitCode,
}

impl CommandError {
    /// The work could not be done.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            code: ExitCode::Failed,
        }
    }

    /// The command line makes no sense.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            code: ExitCode::Usage,
        }
    }

    /// What was given to read is not what it should be.
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
                failed.with_help("give YAML or JSON texts; split large ones into several files")
            }
            ReadError::Io { .. } | ReadError::EmptyFolder(_) => failed,
        }
    }
}

/// Runs a command that does many things at once.
fn run_async(work: impl Future<Output = Result<ExitCode, Stop>>) -> Result<ExitCode, Stop> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| CommandError::failed(format!("cannot start threads: {error}")))?;
    runtime.block_on(work)
}

/// What a command comes to. Output errors are apart: a reader that goes away ends us quietly.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Standard output could not be written.
    #[error("cannot write output")]
    Output(#[from] io::Error),
}

/// Runs the command and reports what stopped it, if anything did.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    let mut printer = Printer::to_stdout(cli.global.color);
    let result = dispatch(cli, &mut printer).and_then(|code| {
        printer.flush()?;
        Ok(code)
    });
    match result {
        Ok(code) => code,
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Done,
        Err(Stop::Output(error)) => {
            Printer::complain(&format!("cannot write output: {error}"), None);
            ExitCode::Failed
        }
        Err(Stop::Command(error)) => {
            Printer::complain(&error.message, error.help.as_deref());
            error.code
        }
    }
}

fn dispatch(cli: &Cli, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &cli.command {
        Command::Serve(args) => serve::run(args, printer),
        Command::Lint(args) => lint::run(args, printer),
        Command::Manifests(args) => manifests::run(args, printer),
        Command::Cel(args) => cel::run(args, printer),
        Command::Dev(args) => dev::run(args, printer),
        Command::Demo => demo::run(printer),
        Command::Version => {
            printer.line(&format!("lockgate {}", env!("CARGO_PKG_VERSION")))?;
            Ok(ExitCode::Done)
        }
        Command::Completions(args) => completions::run(args, printer),
    }
}
