//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::{cel, completions, dev, lint, manifests, serve};

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

Data goes to standard output, everything else to standard error.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Settings every command has.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// Settings every command has.
#[derive(Debug, Clone, Args)]
pub struct GlobalArgs {
    /// When to use colour; `auto` means on a terminal without NO_COLOR
    #[arg(long, value_enum, default_value_t, global = true, value_name = "WHEN")]
    pub color: ColorChoice,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a Kubernetes-compatible API server whose every write passes admission
    Serve(Box<serve::ServeArgs>),
    /// Run a webhook on this machine behind an API server of its own
    Dev(dev::DevArgs),
    /// Check webhook configurations and policies before a server does
    Lint(lint::LintArgs),
    /// Print the webhook configurations that source code asks for
    Manifests(manifests::ManifestsArgs),
    /// Check or evaluate a CEL expression as a match condition sees it
    Cel(cel::CelArgs),
    /// Show what Lockgate does, on samples of its own
    Demo,
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}
