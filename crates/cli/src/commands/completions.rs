//! `lockgate completions`

use clap::Args;
use clap_complete::Shell;

use super::Stop;
use crate::exit_code::ExitCode;
use crate::output::Printer;

/// Arguments of `lockgate completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(lockgate completions bash)
  lockgate completions zsh > \"${fpath[1]}/_lockgate\"")]
pub struct CompletionsArgs {
    /// Shell to generate the script for
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn run(
    args: &CompletionsArgs,
    command: &mut clap::Command,
    printer: &mut Printer,
) -> Result<ExitCode, Stop> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "lockgate", &mut script);
    printer.text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::Done)
}
