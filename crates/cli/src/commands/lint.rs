//! `lockgate lint`

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use lockgate_admission::conditions::{MatchConditionChecker, PolicyExpressionChecker};

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::lint::finding::Severity;
use crate::lint::render::{github, human, json, sarif, summary};
use crate::lint::source;
use crate::lint::{Report, check};
use crate::output::Printer;
use crate::text::Source;

/// Arguments of `lockgate lint`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate lint -f webhooks.yaml
  lockgate lint deploy/ charts/rendered.yaml
  helm template my-release ./chart | lockgate lint -f -
  kubectl get validatingwebhookconfigurations -o yaml | lockgate lint -f - -o json
  lockgate lint -f deploy/ -o github            # in a workflow, beside the changed lines

Exit codes: 0 no findings at or above --fail-on, 1 a file cannot be read, 2 usage, 3 findings,
4 a document is neither YAML nor JSON.")]
#[command(long_about = "\
Validate webhook configurations and policies as an API server would

Reads ValidatingWebhookConfigurations and MutatingWebhookConfigurations (v1 and v1beta1) from files,
directories and standard input, in YAML or JSON, single or in lists. Reports decoding errors, unknown and
duplicate fields, validation errors and the warnings an API server would return. Other kinds are ignored.")]
pub struct LintArgs {
    /// File, directory to search for .yaml, .yml and .json files, or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    filename: Vec<PathBuf>,

    /// Files and directories, as -f
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: OutputFormat,

    /// Lowest severity that causes exit code 3
    #[arg(long, value_enum, default_value_t, value_name = "SEVERITY")]
    fail_on: FailOn,

    /// Maximum number of findings in the table; other formats show all
    #[arg(long, default_value_t = 100, value_name = "N")]
    max_findings: usize,

    /// Also show defaults that differ between v1 and v1beta1
    #[arg(long)]
    defaults: bool,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// Findings underlined in the source, then a table
    #[default]
    Table,
    /// One JSON object
    Json,
    /// SARIF 2.1.0
    Sarif,
    /// GitHub workflow commands
    Github,
}

/// The severity from which findings fail the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FailOn {
    /// Errors only
    Error,
    /// Errors and warnings
    #[default]
    Warning,
    /// Neither
    Never,
}

/// Lints what the arguments name.
///
/// # Errors
///
/// A file cannot be read, or standard output cannot be written.
pub fn run(args: &LintArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let expressions = check::Expressions {
        conditions: &MatchConditionChecker,
        policies: &PolicyExpressionChecker,
    };
    let report = check::check(read(args)?, expressions);
    let text = match args.output {
        OutputFormat::Table => human::render(
            &report,
            &human::Options {
                color: printer.color(),
                max_findings: args.max_findings,
                defaults: args.defaults,
            },
        ),
        OutputFormat::Json => json::render(&report),
        OutputFormat::Sarif => sarif::render(&report),
        OutputFormat::Github => github::render(&report),
    };
    printer.text(&text)?;
    printer.flush()?;
    Printer::note(&summary(&report));
    Ok(exit_code(&report, args.fail_on))
}

fn read(args: &LintArgs) -> Result<Vec<Source>, CommandError> {
    let paths: Vec<&PathBuf> = args.filename.iter().chain(&args.paths).collect();
    if paths.is_empty() {
        return Err(CommandError::usage("no files given").with_help(
            "pass files or directories, or - for standard input: lockgate lint -f FILE",
        ));
    }
    let mut sources = Vec::new();
    for path in paths {
        sources.extend(source::read(path)?);
    }
    Ok(sources)
}

fn exit_code(report: &Report, fail_on: FailOn) -> ExitCode {
    if report.has_unreadable() {
        return ExitCode::InvalidInput;
    }
    let threshold = match fail_on {
        FailOn::Error => Severity::Error,
        FailOn::Warning => Severity::Warning,
        FailOn::Never => return ExitCode::Done,
    };
    if report
        .findings
        .iter()
        .any(|finding| finding.severity >= threshold)
    {
        ExitCode::Findings
    } else {
        ExitCode::Done
    }
}
