//! `lockgate lint`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use lockgate_admission::conditions::RegistrationChecker;
use lockgate_api::kube_version::KubeVersion;
use lockgate_lint::traffic::Exchange;
use lockgate_lint::{Options, Suppressions, docs};
use lockgate_offline::capture;
use lockgate_offline::chain::Chain;
use lockgate_offline::cluster::{Cluster, Validation};
use lockgate_offline::manifest;
use lockgate_offline::traffic::{exchange, sent_again};

use super::{CommandError, Stop, block_on};
use crate::exit_code::ExitCode;
use crate::input;
use crate::lint::check::Risks;
use crate::lint::finding::Severity;
use crate::lint::render::{github, human, json, junit, markdown, sarif, summary};
use crate::lint::source;
use crate::lint::{Report, check, fix};
use crate::live::{CLUSTER_PREFIX, LiveArgs, LiveError};
use crate::offline::{LoadError, read_hooks};
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
  lockgate lint -f deploy/ -o github            # annotate the changed lines in a workflow
  helm template ./chart | lockgate lint -f - --require 1 --profile availability --exclude W001
  lockgate lint --context staging               # the configurations in a cluster, read-only
  lockgate lint -f deploy/ --fix --dry-run      # print the changes of --fix as a diff
  lockgate lint -f deploy/ --capture capture.jsonl
  lockgate lint --explain W011

Exit codes: 0 no findings at or above --fail-on, 1 a file cannot be read or written, 2 usage, 3 findings,
4 a document is neither YAML nor JSON, a capture is invalid, or fewer objects than --require were found.")]
#[command(long_about = "\
Validate webhook configurations and policies as an API server would, and find risks

Reads ValidatingWebhookConfigurations and MutatingWebhookConfigurations (v1 and v1beta1) from files,
directories and standard input, in YAML or JSON, single or in lists. Reports decoding errors, unknown and
duplicate fields, validation errors and the warnings an API server would return.

Valid objects are then checked for risks to availability and security across all files: the total latency of
a request, webhooks that match their own Pods, checks that a label bypasses. Some rules also need Services, workloads,
Namespaces, CustomResourceDefinitions and RBAC; pass them as files, or set --context to read them from a cluster.
Rules about patches and calls need requests recorded by `lockgate capture` or `lockgate serve --capture`.
The annotation lint.lockgate.dev/ignore: W001,W004 disables rules for an object.")]
pub struct LintArgs {
    /// File, directory to search for .yaml, .yml and .json files, or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    filename: Vec<PathBuf>,

    /// Same as -f
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// The cluster to read in addition.
    #[command(flatten)]
    live: LiveArgs,

    /// Kubernetes version to validate for, from 1.33 to 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    kube_version: KubeVersion,

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

    /// Goal that sets the severities of risks
    #[arg(long, value_enum, default_value_t, value_name = "PROFILE")]
    profile: RiskProfile,

    /// Risk rules to skip, such as W001,W004; repeatable
    #[arg(long, value_delimiter = ',', value_name = "RULE")]
    exclude: Vec<String>,

    /// File with findings to ignore, one `RULE` or `RULE KIND/NAME` per line
    #[arg(long, value_name = "FILE")]
    ignore_file: Option<PathBuf>,

    /// Fail if there are fewer configurations, policies and bindings than this
    #[arg(long, default_value_t, hide_default_value = true, value_name = "N")]
    require: usize,

    /// Apply safe fixes to the files: timeouts, selectors and match policies; comments and layout are preserved
    #[arg(long, conflicts_with = "explain")]
    fix: bool,

    /// Print the changes of --fix as a diff and write nothing
    #[arg(long, requires = "fix")]
    dry_run: bool,

    /// Print the fixed text instead of writing it; the report goes to standard error
    #[arg(long, requires = "fix", conflicts_with = "dry_run")]
    stdout: bool,

    /// File of captured requests for the rules about calls and patches; repeatable
    #[arg(long, value_name = "FILE")]
    capture: Vec<PathBuf>,

    /// File with webhooks to call again with the results of captured mutations, in the format of explain --hooks
    #[arg(long, value_name = "FILE", requires = "capture")]
    hooks: Option<PathBuf>,

    /// Print the description of a rule with examples, and exit
    #[arg(long, value_name = "RULE")]
    explain: Option<String>,
}

/// The goal that sets the severities of risks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum RiskProfile {
    /// No preference
    #[default]
    Balanced,
    /// The cluster keeps working when webhooks fail
    Availability,
    /// No request bypasses a check
    Security,
    /// API validation only, no risk rules
    None,
}

impl RiskProfile {
    fn profile(self) -> Option<lockgate_lint::Profile> {
        match self {
            Self::Balanced => Some(lockgate_lint::Profile::Balanced),
            Self::Availability => Some(lockgate_lint::Profile::Availability),
            Self::Security => Some(lockgate_lint::Profile::Security),
            Self::None => None,
        }
    }
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
    /// JUnit XML with one test case per object
    Junit,
    /// A table in Markdown
    Markdown,
}

/// The lowest severity that fails the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FailOn {
    /// Errors only
    Error,
    /// Errors and warnings
    #[default]
    Warning,
    /// No finding
    Never,
}

/// Lints files and clusters.
///
/// # Errors
///
/// A file cannot be read, or standard output cannot be written.
pub fn run(args: &LintArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    if let Some(id) = &args.explain {
        return explain(id, printer);
    }
    let expressions = check::Expressions {
        conditions: RegistrationChecker::of(args.kube_version),
        policies: RegistrationChecker::of(args.kube_version),
        version: args.kube_version,
    };
    let sources = read(args)?;
    let risks = risks(args, &sources)?;
    let risks = match (args.fix, risks) {
        (true, Some(risks)) => return fixed(args, sources, expressions, &risks, printer),
        (true, None) => {
            let message = "--fix requires risk rules, which --profile none disables";
            return Err(CommandError::usage(message).into());
        }
        (false, risks) => risks,
    };
    let report = check::check(sources, expressions, risks.as_ref());
    printer.text(&rendered(args, &report, printer.color()))?;
    printer.flush()?;
    finish(args, &report)
}

/// The report in the selected format.
fn rendered(args: &LintArgs, report: &Report, color: bool) -> String {
    match args.output {
        OutputFormat::Table => human::render(
            report,
            &human::Options {
                color,
                max_findings: args.max_findings,
                defaults: args.defaults,
            },
        ),
        OutputFormat::Json => json::render(report),
        OutputFormat::Sarif => sarif::render(report),
        OutputFormat::Github => github::render(report),
        OutputFormat::Junit => junit::render(report),
        OutputFormat::Markdown => markdown::render(report),
    }
}

/// The summary, and the exit code.
fn finish(args: &LintArgs, report: &Report) -> Result<ExitCode, Stop> {
    Printer::note(&summary(report));
    if !args.capture.is_empty() && report.captured_calls == 0 {
        Printer::note("no captured call matches a webhook of these configurations");
    }
    let found = report.objects.len();
    if found < args.require && !report.has_unreadable() {
        let message = format!("found {found} objects, expected at least {}", args.require);
        let help = "check the rendered manifests; the input may be empty";
        return Err(CommandError::invalid_input(message).with_help(help).into());
    }
    Ok(exit_code(report, args.fail_on))
}

/// Fixes the files, or shows the fixes as a diff.
fn fixed(
    args: &LintArgs,
    sources: Vec<Source>,
    expressions: check::Expressions<'_>,
    risks: &Risks,
    printer: &mut Printer,
) -> Result<ExitCode, Stop> {
    let stdin = Path::new("-");
    let has_stdin = args
        .filename
        .iter()
        .chain(&args.paths)
        .any(|path| path == stdin);
    if has_stdin && !args.stdout && !args.dry_run {
        let help = "--stdout prints the fixed text, --dry-run a diff";
        let message = "--fix cannot write to standard input";
        return Err(CommandError::usage(message).with_help(help).into());
    }
    // Objects of a cluster are read-only.
    let may_fix = |source: &Source| !source.name.starts_with(CLUSTER_PREFIX);
    let found = match args.dry_run {
        true => Some(check::check(copied(&sources), expressions, Some(risks))),
        false => None,
    };
    let fixed = fix::fix(sources, expressions, risks, may_fix);
    for name in &fixed.left {
        Printer::note(&format!(
            "{name}: cannot apply the fixes safely to this layout"
        ));
    }
    if args.stdout {
        let texts = fixed.report.sources.iter().filter(|source| may_fix(source));
        for (at, source) in texts.enumerate() {
            let separated = at == 0 || source.text.starts_with("---");
            printer.text(if separated { "" } else { "---\n" })?;
            printer.text(&source.text)?;
        }
        printer.flush()?;
        let told = rendered(args, &fixed.report, false);
        told.lines().for_each(Printer::note);
        return finish(args, &fixed.report);
    }
    if let Some(found) = found {
        for (at, before) in &fixed.before {
            if let Some(source) = fixed.report.sources.get(*at) {
                let diff = similar::TextDiff::from_lines(before, &source.text);
                let mut diff = diff.unified_diff();
                let diff = diff.header(&source.name, &source.name);
                printer.text(&diff.to_string())?;
            }
        }
        printer.flush()?;
        Printer::note(&format!(
            "{} of {} findings can be fixed",
            fixed.fixes,
            found.findings.len()
        ));
        return finish(args, &found);
    }
    for (at, _) in &fixed.before {
        if let Some(source) = fixed.report.sources.get(*at) {
            replace_file(Path::new(&source.name), &source.text)?;
        }
    }
    printer.text(&rendered(args, &fixed.report, printer.color()))?;
    printer.flush()?;
    Printer::note(&format!(
        "fixed {} findings in {} files",
        fixed.fixes,
        fixed.before.len()
    ));
    finish(args, &fixed.report)
}

fn copied(sources: &[Source]) -> Vec<Source> {
    let sources = sources.iter();
    sources
        .map(|source| Source::new(source.name.clone(), source.text.clone()))
        .collect()
}

/// Replaces a file atomically, keeping its permissions. A symbolic link is preserved.
fn replace_file(path: &Path, text: &str) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| {
        CommandError::failed(format!("cannot write `{}`: {error}", path.display()))
    };
    let target = std::fs::canonicalize(path).map_err(failed)?;
    let folder = target.parent().unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".lockgate-fix")
        .tempfile_in(folder)
        .map_err(failed)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    let permissions = std::fs::metadata(&target).map_err(failed)?.permissions();
    file.as_file()
        .set_permissions(permissions)
        .map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&target).map_err(|error| failed(error.error))?;
    Ok(())
}

fn explain(id: &str, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let Some(rule) = lockgate_lint::find(id) else {
        return Err(unknown_rule(id).into());
    };
    printer.text(&format!("# {}\n\n{}", rule.id, docs::section(rule)))?;
    printer.flush()?;
    Ok(ExitCode::Done)
}

fn unknown_rule(id: &str) -> CommandError {
    let ids: Vec<&str> = lockgate_lint::RULES.iter().map(|rule| rule.id).collect();
    CommandError::usage(format!("unknown rule `{id}`"))
        .with_help(format!("known rules: {}", ids.join(", ")))
}

/// The risk rules to check; `None` with `--profile none`.
fn risks(args: &LintArgs, sources: &[Source]) -> Result<Option<Risks>, CommandError> {
    let mut suppressions = Suppressions::default();
    for rule in &args.exclude {
        let excluded = suppressions.exclude(rule.trim());
        excluded.map_err(|_| unknown_rule(rule))?;
    }
    if let Some(file) = &args.ignore_file {
        let source = input::read(file)?;
        suppressions.read(&source.text).map_err(|(line, error)| {
            CommandError::invalid_input(format!("{}:{line}: {error}", source.name))
                .with_help("expected `RULE` or `RULE KIND/NAME` per line; comments start with #")
        })?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map(|since| since.as_secs()).unwrap_or_default();
    let Some(profile) = args.profile.profile() else {
        return Ok(None);
    };
    Ok(Some(Risks {
        options: Options {
            profile,
            suppressions,
            now: i64::try_from(now).unwrap_or_default(),
        },
        traffic: traffic(args, sources)?,
    }))
}

/// The captured requests, and the results of calling the webhooks of `--hooks` again.
fn traffic(args: &LintArgs, sources: &[Source]) -> Result<Vec<Exchange>, CommandError> {
    let mut exchanges = Vec::new();
    if args.capture.is_empty() {
        return Ok(exchanges);
    }
    // Errors in the manifests are reported as findings.
    let mut cluster = Cluster::default();
    for source in sources {
        for manifest in manifest::read(&source.name, &source.text).unwrap_or_default() {
            let _ = cluster.add(manifest, Validation::Stored);
        }
    }
    let chain = match &args.hooks {
        Some(file) => {
            let wrong = |error: LoadError| CommandError::invalid_input(error.to_string());
            Some(Chain::new(&cluster, read_hooks(file).map_err(wrong)?))
        }
        None => None,
    };
    for file in &args.capture {
        let source = input::read(file)?;
        let capture = capture::read(&source.name, &source.text).map_err(|error| {
            CommandError::invalid_input(error.to_string())
                .with_help("pass a file of `serve --capture` or `lockgate capture`")
        })?;
        let read = capture
            .records
            .iter()
            .map(|record| exchange(record, &cluster.kinds));
        exchanges.extend(read);
        if let Some(chain) = &chain {
            let again = async {
                let mut again = Vec::new();
                for record in &capture.records {
                    again.extend(sent_again(record, chain, &cluster.kinds).await);
                }
                again
            };
            exchanges.extend(block_on(again)?);
        }
    }
    Ok(exchanges)
}

fn read(args: &LintArgs) -> Result<Vec<Source>, CommandError> {
    let paths: Vec<&PathBuf> = args.filename.iter().chain(&args.paths).collect();
    if paths.is_empty() && !args.live.is_given() {
        return Err(CommandError::usage("no files given").with_help(
            "pass files or directories, or - for standard input: lockgate lint -f FILE",
        ));
    }
    let mut sources = Vec::new();
    if args.live.is_given() {
        let read = |error: LiveError| {
            CommandError::failed(error.to_string())
                .with_help("check the kubeconfig, and that its user may list the resource")
        };
        sources = block_on(read_cluster(&args.live))?.map_err(read)?;
    }
    for path in paths {
        sources.extend(source::read(path)?);
    }
    Ok(sources)
}

/// The objects of a cluster, one source per resource.
async fn read_cluster(live: &LiveArgs) -> Result<Vec<Source>, LiveError> {
    let live = live.connect().await?;
    let mut objects = live.objects().await?;
    let backends = live.backends().await?;
    objects.manifests.extend(backends.manifests);
    for note in objects.notes.iter().chain(&backends.notes) {
        Printer::note(note);
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for manifest in objects.manifests {
        let text = texts.entry(manifest.source).or_default();
        // Pretty-printed, so that underlined fields are on their own lines.
        let shown = serde_json::to_string_pretty(&manifest.value).unwrap_or_default();
        text.push_str("---\n");
        text.push_str(&shown);
        text.push('\n');
    }
    let sources = texts.into_iter();
    Ok(sources
        .map(|(name, text)| Source::new(name, text))
        .collect())
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
