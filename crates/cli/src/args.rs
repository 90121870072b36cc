//! The command line: the commands, and running one.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::{io, iter};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::envtest::Entry;
use crate::commands::{
    Stop, capture, cel, completions, demo, dev, envtest, explain, init, lint, man, manifests,
    plugins, replay, serve, snapshot, store, test,
};
use crate::exit_code::ExitCode;
use crate::output::{ColorChoice, Printer};

/// Kubernetes dynamic admission control.
#[derive(Debug, Parser)]
#[command(
    name = "lockgate",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(after_help = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 findings or denied, 4 invalid input, 130 interrupted.

Data is written to standard output, logs and messages to standard error.")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,

    /// Flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub struct GlobalArgs {
    /// When to color output; `auto`: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value_t, global = true, value_name = "WHEN")]
    pub color: ColorChoice,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a Kubernetes API server with full admission control
    Serve(Box<serve::ServeArgs>),
    /// Run a webhook locally with an API server that calls it
    Dev(dev::DevArgs),
    /// Run as the control plane of envtest
    Envtest(envtest::EnvtestArgs),
    /// Validate webhook configurations and policies as an API server would
    Lint(lint::LintArgs),
    /// Explain which webhooks and policies apply to a request, and why
    Explain(Box<explain::ExplainArgs>),
    /// Test webhook configurations and policies offline
    Test(Box<test::TestArgs>),
    /// Replay captured requests and show what would change
    Replay(Box<replay::ReplayArgs>),
    /// Capture requests into a file for lockgate replay
    Capture(Box<capture::CaptureArgs>),
    /// Start a webhook or policy project
    Init(init::InitArgs),
    /// Generate webhook configurations from markers in source code
    Manifests(manifests::ManifestsArgs),
    /// Serve admission plugins as webhooks for any cluster
    Plugins(plugins::PluginsArgs),
    /// Save, verify and restore backups of all stored objects
    Snapshot(snapshot::SnapshotArgs),
    /// Copy stored objects between data directories and etcd clusters
    Store(store::StoreArgs),
    /// Check or evaluate a CEL expression as a match condition
    Cel(cel::CelArgs),
    /// Run a demo: a dozen requests through two sample webhooks
    Demo,
    /// Print the version
    Version,
    /// Generate a shell completion script
    Completions(completions::CompletionsArgs),
    /// Write manual pages to a directory
    Man(man::ManArgs),
}

/// Runs the stand-in for the name the program was started under, or the command in its arguments.
#[must_use]
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let program = arguments.next().unwrap_or_default();
    match Entry::of(&program) {
        Some(entry) => report(entry.run(arguments.collect())),
        None => run(&parse(program, arguments)),
    }
}

/// Parses the command line. As a kubectl plugin, the help shows `kubectl lockgate`.
fn parse(program: OsString, arguments: impl Iterator<Item = OsString>) -> Cli {
    let mut command = Cli::command();
    if Path::new(&program).file_stem() == Some(OsStr::new("kubectl-lockgate")) {
        command = command.bin_name("kubectl lockgate");
    }
    let matches = command
        .try_get_matches_from_mut(iter::once(program).chain(arguments))
        .unwrap_or_else(|error| error.exit());
    let mut cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    if let Command::Serve(args) = &mut cli.command
        && let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        args.set_flags(command, matches);
    }
    cli
}

/// Runs the command and reports its error, if it has one.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    let mut printer = Printer::to_stdout(cli.global.color);
    report(dispatch(cli, &mut printer).and_then(|code| {
        printer.flush()?;
        Ok(code)
    }))
}

fn report(result: Result<ExitCode, Stop>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Done,
        Err(Stop::Output(error)) => {
            Printer::print_error(&format!("cannot write output: {error}"), None);
            ExitCode::Failed
        }
        Err(Stop::Command(error)) => {
            Printer::print_error(&error.message, error.help.as_deref());
            error.code
        }
    }
}

fn dispatch(cli: &Cli, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &cli.command {
        Command::Serve(args) => serve::run(args, printer),
        Command::Lint(args) => lint::run(args, printer),
        Command::Explain(args) => explain::run(args, printer),
        Command::Test(args) => test::run(args, printer),
        Command::Replay(args) => replay::run(args, printer),
        Command::Capture(args) => capture::run(args, printer),
        Command::Init(args) => init::run(args, printer),
        Command::Manifests(args) => manifests::run(args, printer),
        Command::Plugins(args) => plugins::run(args, printer),
        Command::Snapshot(args) => snapshot::run(args, printer),
        Command::Store(args) => store::run(args, printer),
        Command::Cel(args) => cel::run(args, printer),
        Command::Dev(args) => dev::run(args, printer),
        Command::Envtest(args) => envtest::run(args, printer),
        Command::Demo => demo::run(printer),
        Command::Version => {
            printer.line(&format!("lockgate {}", env!("CARGO_PKG_VERSION")))?;
            Ok(ExitCode::Done)
        }
        Command::Completions(args) => completions::run(args, &mut Cli::command(), printer),
        Command::Man(args) => man::run(args, Cli::command(), printer),
    }
}
