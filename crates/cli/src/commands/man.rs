//! `lockgate man`

use std::path::PathBuf;

use clap::Args;

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::Printer;

/// Arguments of `lockgate man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lockgate man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Directory to write to; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes a page for each command, and prints the directory.
///
/// # Errors
///
/// A file cannot be written.
pub fn run(
    args: &ManArgs,
    command: clap::Command,
    printer: &mut Printer,
) -> Result<ExitCode, Stop> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .map_err(|error| {
            CommandError::failed(format!(
                "cannot write manual pages to `{}`: {error}",
                directory.display()
            ))
        })?;
    printer.line(&format!("manual pages written to {}", directory.display()))?;
    Ok(ExitCode::Done)
}
