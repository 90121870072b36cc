//! `lockgate replay`

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use lockgate_offline::capture::{self, Capture};
use lockgate_offline::cluster::{Cluster, Validation};
use lockgate_offline::replay::{Changed, Replay, Report};

use super::{CommandError, Stop, run_async};
use crate::exit_code::ExitCode;
use crate::input;
use crate::offline::{ClusterArgs, LoadError, live_caller, read_manifests, webhook_at};
use crate::output::{Printer, Progress};

/// Arguments of `lockgate replay`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate replay capture.jsonl -f deploy/
  lockgate replay capture.jsonl -f new/ --baseline old/ -o json
  lockgate replay capture.jsonl -f policies/ --policies
  lockgate replay capture.jsonl -f deploy/ --kube-version 1.34
  lockgate replay capture.jsonl --webhook https://localhost:9443/validate --ca-file ca.crt --name pods.example.com

Exit codes: 0 nothing changes, 1 a file cannot be read, 2 usage, 3 something changes, 4 invalid input.")]
#[command(long_about = "\
Replay captured requests and show what would change

Runs each captured request through other webhook configurations and policies (-f, or a live cluster), or through one
webhook (--webhook). Compares decisions, messages, objects and warnings with the capture, or with the results of
--baseline. Webhooks in configurations return their captured responses. With --kube-version, files that a server of
that version rejects are errors, and requests for resources that it does not serve are reported.")]
pub struct ReplayArgs {
    /// Capture file of `lockgate serve --capture` or `lockgate capture`, or AdmissionReviews as JSON lines
    #[arg(value_name = "FILE|-")]
    file: PathBuf,

    /// The configurations and policies to replay with.
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Compare with the outcomes of these manifests instead of the captured outcomes; repeatable
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "webhook")]
    baseline: Vec<PathBuf>,

    /// Replay policies only, without webhooks
    #[arg(long, conflicts_with = "webhook")]
    policies: bool,

    /// URL of a webhook to send the requests to
    #[arg(long, value_name = "URL", conflicts_with_all = ["filename", "context", "kubeconfig"])]
    webhook: Option<String>,

    /// CA bundle that verifies the webhook
    #[arg(long, value_name = "FILE", requires = "webhook")]
    ca_file: Option<PathBuf>,

    /// Name of the captured webhook whose responses to compare with
    #[arg(
        long,
        value_name = "NAME",
        default_value = "replay.lockgate.dev",
        requires = "webhook"
    )]
    name: String,

    /// Timeout of a call in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "webhook", value_parser = clap::value_parser!(u8).range(1..=30))]
    timeout: u8,

    /// Number of requests to replay in parallel
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A diff of outcomes
    #[default]
    Diff,
    /// One JSON object
    Json,
}

/// Replays captured requests.
///
/// # Errors
///
/// Fails if the input cannot be read, or is invalid.
pub fn run(args: &ReplayArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    run_async(replay(args, printer))
}

async fn replay(args: &ReplayArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let source = input::read(&args.file).map_err(CommandError::from)?;
    let capture = capture::read(&source.name, &source.text).map_err(|error| {
        CommandError::invalid_input(error.to_string()).with_help(
            "pass a file of `lockgate serve --capture` or `lockgate capture`, or AdmissionReviews as JSON lines",
        )
    })?;
    let replay = prepare(args, &capture).await?;
    let replay = Arc::new(replay.at(args.cluster.kube_version));
    let report = run_all(args, replay, capture).await?;
    match args.output {
        Format::Diff => printer.text(&report.to_text())?,
        Format::Json => {
            let text = serde_json::to_string_pretty(&report).unwrap_or_default();
            printer.line(&text)?;
        }
    }
    Ok(if report.changed.is_empty() {
        ExitCode::Done
    } else {
        ExitCode::Findings
    })
}

async fn prepare(args: &ReplayArgs, capture: &Capture) -> Result<Replay, CommandError> {
    if let Some(url) = &args.webhook {
        let config = webhook_at(url, args.ca_file.as_deref())?;
        let caller = live_caller();
        let made = Replay::on_webhook(&args.name, config, caller, args.timeout, capture);
        return made.map_err(|error| {
            CommandError::usage(error.to_string()).with_help("set --name to the name of a webhook")
        });
    }
    let mut cluster = args.cluster.load().await.map_err(|error| match error {
        LoadError::Nothing => CommandError::usage("no manifests, cluster or webhook given")
            .with_help("pass -f with configurations and policies, --context, or --webhook URL"),
        other => other.into(),
    })?;
    let mut baseline = match args.baseline.as_slice() {
        [] => None,
        paths => Some(read_cluster(paths)?),
    };
    if args.policies {
        cluster.cluster.configurations.clear();
        if let Some(baseline) = &mut baseline {
            baseline.configurations.clear();
        }
    }
    Ok(Replay::on_cluster(
        &cluster.cluster,
        baseline.as_ref(),
        capture,
    ))
}

fn read_cluster(paths: &[PathBuf]) -> Result<Cluster, CommandError> {
    let mut manifests = Vec::new();
    for path in paths {
        manifests.extend(read_manifests(path)?);
    }
    let cluster = Cluster::from_manifests(manifests, Validation::Strict);
    Ok(cluster.map_err(LoadError::from)?)
}

async fn run_all(
    args: &ReplayArgs,
    replay: Arc<Replay>,
    capture: Capture,
) -> Result<Report, CommandError> {
    let records = Arc::new(capture.records);
    let progress = Arc::new(Progress::new(records.len()));
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..usize::from(args.jobs).min(records.len().max(1)) {
        let (replay, records) = (Arc::clone(&replay), Arc::clone(&records));
        let (next, progress) = (Arc::clone(&next), Arc::clone(&progress));
        tasks.spawn(async move {
            let mut outcomes: Vec<(usize, Option<Changed>)> = Vec::new();
            loop {
                let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(record) = records.get(at) else {
                    return outcomes;
                };
                outcomes.push((at, replay.one(at + 1, record).await));
                progress.step();
            }
        });
    }
    let mut outcomes = Vec::with_capacity(records.len());
    while let Some(joined) = tasks.join_next().await {
        let joined = joined.map_err(|error| CommandError::failed(error.to_string()))?;
        outcomes.extend(joined);
    }
    progress.end();
    outcomes.sort_by_key(|(at, _)| *at);
    let mut report = Report::default();
    for (_, changed) in outcomes {
        report.add(changed);
    }
    Ok(report)
}
