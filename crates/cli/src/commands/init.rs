//! `lockgate init`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lockgate_api::meta::names;

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::Printer;
use crate::scaffold::{POLICY, Template, WEBHOOK, fill};

/// Arguments of `lockgate init`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate init policy require-team && lockgate test require-team
  lockgate init webhook teams && (cd teams && cargo test)

Exit codes: 0 written, 1 a file cannot be written, 2 usage or the directory exists.")]
pub struct InitArgs {
    #[command(subcommand)]
    command: InitCommand,
}

#[derive(Debug, Subcommand)]
enum InitCommand {
    /// Start a webhook project in Rust, with tests, a Containerfile and a chart
    Webhook(WebhookArgs),
    /// Start a policy project with test cases
    Policy(ProjectArgs),
}

#[derive(Debug, Args)]
struct ProjectArgs {
    /// Name of the project
    name: String,

    /// Directory to create [default: the name]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct WebhookArgs {
    #[command(flatten)]
    project: ProjectArgs,

    /// Lockgate checkout whose crates to depend on, instead of the published ones
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

/// Creates the project.
///
/// # Errors
///
/// Fails if the directory exists, or a file cannot be written.
pub fn run(args: &InitArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &args.command {
        InitCommand::Policy(project) => {
            let folder = write(project, &POLICY, None)?;
            printer.line(&format!("next: lockgate test {}", folder.display()))?;
        }
        InitCommand::Webhook(args) => {
            let folder = write(&args.project, &WEBHOOK, args.source.as_deref())?;
            printer.line(&format!("next: cd {} && cargo test", folder.display()))?;
        }
    }
    Ok(ExitCode::Done)
}

fn write(
    project: &ProjectArgs,
    templates: &[Template],
    source: Option<&Path>,
) -> Result<PathBuf, CommandError> {
    let name = project.name.as_str();
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts || !names::check_dns1035_label(name).is_empty() {
        let message = format!("`{name}` is not a valid project name");
        return Err(CommandError::usage(message)
            .with_help("use lower-case letters, digits and `-`, beginning with a letter"));
    }
    let folder = project
        .directory
        .clone()
        .unwrap_or_else(|| PathBuf::from(name));
    if folder.exists() {
        let message = format!("`{}` already exists", folder.display());
        return Err(
            CommandError::usage(message).with_help("set another directory with --directory")
        );
    }
    if let Some(source) = source
        && !source.join("crates/webhook/Cargo.toml").is_file()
    {
        let message = format!("`{}` is not a Lockgate checkout", source.display());
        return Err(CommandError::usage(message)
            .with_help("set --source to a directory that contains `crates/webhook`"));
    }
    let source = match source {
        Some(source) => Some(std::path::absolute(source).map_err(|error| failed(source, &error))?),
        None => None,
    };
    // Written to a temporary directory and renamed, so that no partial project is left behind.
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let making = tempfile::Builder::new()
        .prefix(".lockgate-init")
        .tempdir_in(parent);
    let making = making.map_err(|error| {
        let message = format!("cannot write to `{}`: {}", parent.display(), error.kind());
        CommandError::failed(message).with_help("choose a writable directory")
    })?;
    for (path, text) in templates {
        let path = making.path().join(fill(path, name));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
        }
        let text = with_source(&fill(text, name), source.as_deref());
        std::fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    }
    let made = making.keep();
    std::fs::rename(&made, &folder).map_err(|error| failed(&folder, &error))?;
    Ok(folder)
}

fn failed(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot write `{}`: {error}", path.display()))
}

/// The dependencies on Lockgate's crates: published versions or paths into a checkout.
fn with_source(text: &str, source: Option<&Path>) -> String {
    let mut text = text.to_owned();
    for crate_name in ["webhook", "webhook-test"] {
        let from = match source {
            Some(source) => {
                let path = source.join("crates").join(crate_name);
                format!("path = \"{}\"", path.display())
            }
            None => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
        };
        text = text.replace(&format!("FROM({crate_name})"), &from);
    }
    text
}
