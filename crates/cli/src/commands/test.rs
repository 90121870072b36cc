//! `lockgate test`

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use lockgate_api::kube_version::KubeVersion;
use lockgate_file_watch::FileWatch;
use lockgate_offline::chain::Tracing;
use lockgate_offline::coverage::Coverage;
use lockgate_offline::hooks::{Hooks, Script};
use lockgate_offline::suite::{self, Case, FileError, Files, Outcome, Suites};

use super::serve::shutdown_signal;
use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::input;
use crate::offline::make_hooks;
use crate::output::test_report::{self, CaseReport, Report};
use crate::output::{Printer, Progress};

/// The maximum number of files to inspect.
const MAX_FILES: usize = 100_000;
/// The polling interval for changed files without file events.
const POLL: Duration = Duration::from_secs(1);
/// The delay after a change: editors truncate and then write a file, or write several.
const DEBOUNCE: Duration = Duration::from_millis(150);

/// Arguments of `lockgate test`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate test .
  lockgate test policies/ --run 'no-latest' -o junit > report.xml
  lockgate test policies/ --coverage
  lockgate test chain-test.yaml --watch
  lockgate test . -o github                   # annotate the changed files in a workflow

Exit codes: 0 all cases passed, 1 a file cannot be read, 2 usage, 3 a case failed,
4 a suite is invalid, or fewer cases than --require were found.")]
#[command(long_about = "\
Test webhook configurations and policies offline

Finds test cases below the paths, in the layouts of kat (tests/POLICY.CASE.deny.object.yaml), kyverno (kyverno-test.yaml, its
ValidatingAdmissionPolicies and MutatingAdmissionPolicies), gator (Suite, templates with CEL), kubescape's library
(tests.json) and AdmissionTest files, which test chains of webhooks and policies. Every case runs through the
admission chain of the API server in this process.")]
pub struct TestArgs {
    /// Files and directories with tests
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Run only cases whose suite/name contains this text
    #[arg(long, value_name = "TEXT")]
    run: Option<String>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,

    /// Report expressions, subexpressions and outcomes that no case reached
    #[arg(long)]
    coverage: bool,

    /// Kubernetes version to run AdmissionTest files on, from 1.33 to 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    kube_version: KubeVersion,

    /// Rerun the tests when a file changes
    #[arg(long, conflicts_with = "require")]
    watch: bool,

    /// Number of cases to run in parallel [default: the number of cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,

    /// Fail if fewer cases than this are found
    #[arg(long, default_value_t = 1, hide_default_value = true, value_name = "N")]
    require: usize,

    /// Show failed cases only
    #[arg(long)]
    fail_only: bool,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A table and the differences of failed cases
    #[default]
    Table,
    /// One JSON object
    Json,
    /// JUnit XML
    Junit,
    /// GitHub workflow commands
    Github,
}

/// The files below the paths, each read once.
struct Disk {
    kube_version: KubeVersion,
    all: Vec<PathBuf>,
    texts: Mutex<HashMap<PathBuf, Result<String, FileError>>>,
}

impl Disk {
    fn new(args: &TestArgs) -> Result<Self, CommandError> {
        let mut all = Vec::new();
        for path in &args.paths {
            let metadata = std::fs::metadata(path).map_err(|error| {
                CommandError::failed(format!("cannot read `{}`: {error}", path.display()))
                    .with_help("pass files or directories with tests")
            })?;
            if !metadata.is_dir() {
                // A case includes the files next to it.
                let folder = path.parent().unwrap_or_else(|| Path::new("."));
                let is_part = folder.file_name().is_some_and(|name| name == "tests");
                if is_part {
                    let above = folder.parent().unwrap_or_else(|| Path::new("."));
                    all.extend(below(above)?);
                } else {
                    all.push(path.clone());
                }
                continue;
            }
            all.extend(below(path)?);
        }
        all.sort();
        all.dedup();
        if all.len() > MAX_FILES {
            let message = format!("more than {MAX_FILES} files found");
            return Err(CommandError::usage(message).with_help("pass the directories with tests"));
        }
        Ok(Self {
            kube_version: args.kube_version,
            all,
            texts: Mutex::default(),
        })
    }
}

fn below(folder: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let enters = |name: &str| !name.starts_with('.') && !matches!(name, "node_modules" | "target");
    let takes = |path: &Path, name: &str| {
        let extension = path.extension().and_then(|it| it.to_str());
        !name.starts_with('.') && matches!(extension, Some("yaml" | "yml" | "json" | "txt"))
    };
    Ok(input::files_below(folder, enters, takes)?)
}

impl Files for Disk {
    fn all(&self) -> &[PathBuf] {
        &self.all
    }

    fn kube_version(&self) -> KubeVersion {
        self.kube_version
    }

    fn read(&self, path: &Path) -> Result<String, FileError> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = texts.entry(path.to_owned()).or_insert_with(|| {
            let source = input::read(path);
            source
                .map(|source| source.text)
                .map_err(|error| FileError(error.to_string()))
        });
        text.clone()
    }

    fn hooks(&self, scripts: Vec<Script>, folder: &Path) -> Result<Hooks, FileError> {
        make_hooks(scripts, folder).map_err(|error| FileError(error.to_string()))
    }
}

/// Runs the tests.
///
/// # Errors
///
/// Fails if the input cannot be read, or is invalid.
pub fn run(args: &TestArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    if args.watch {
        return watch(args, printer);
    }
    run_once(args, printer)
}

fn run_once(args: &TestArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let started = Instant::now();
    let disk = Disk::new(args)?;
    let mut suites = suite::load(&disk);
    if let Some(text) = &args.run {
        let named = |case: &Case| format!("{}/{}", case.suite, case.name).contains(text);
        suites.cases.retain(named);
    }
    let (cases, broken) = (suites.cases.len(), suites.broken.len());
    if cases < args.require && broken == 0 {
        let message = format!("found {cases} cases, expected at least {}", args.require);
        let help = "`lockgate test --help` lists the supported layouts";
        return Err(CommandError::invalid_input(message).with_help(help).into());
    }
    let outcomes = run_all(args, &suites)?;
    let report = report(args, suites, outcomes, started.elapsed());
    let text = match args.output {
        Format::Table => test_report::table(&report, args.fail_only),
        Format::Json => test_report::json(&report),
        Format::Junit => test_report::junit(&report),
        Format::Github => test_report::github(&report),
    };
    printer.text(&text)?;
    printer.flush()?;
    if args.output != Format::Table {
        Printer::note(&test_report::summary(&report));
    }
    Ok(if report.failed() > 0 {
        ExitCode::Findings
    } else if broken > 0 {
        ExitCode::InvalidInput
    } else {
        ExitCode::Done
    })
}

/// Runs the cases on several threads. Outcomes keep the order of the cases.
fn run_all(args: &TestArgs, suites: &Suites) -> Result<Vec<Outcome>, CommandError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, usize::from).min(256);
    let jobs = jobs.min(suites.cases.len().max(1));
    let tracing = if args.coverage {
        Tracing::Explained
    } else {
        Tracing::Verdicts
    };
    let next = AtomicUsize::new(0);
    let progress = Progress::new(suites.cases.len());
    let failed_to_start =
        |error: std::io::Error| CommandError::failed(format!("cannot start a runtime: {error}"));
    let work = || -> std::io::Result<Vec<(usize, Outcome)>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut outcomes = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = suites.cases.get(at) else {
                return Ok(outcomes);
            };
            outcomes.push((at, runtime.block_on(case.run(tracing))));
            progress.step();
        }
    };
    let mut all: Vec<(usize, Outcome)> = Vec::with_capacity(suites.cases.len());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(outcomes) => all.extend(outcomes.map_err(failed_to_start)?),
                Err(_) => return Err(CommandError::failed("a case panicked")),
            }
        }
        Ok(())
    })?;
    progress.end();
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, outcome)| outcome).collect())
}

fn report(args: &TestArgs, suites: Suites, outcomes: Vec<Outcome>, elapsed: Duration) -> Report {
    let mut coverage = Coverage::default();
    let mut seen: Vec<*const suite::World> = Vec::new();
    let mut cases = Vec::with_capacity(outcomes.len());
    for (case, outcome) in suites.cases.iter().zip(outcomes) {
        if args.coverage {
            let world = std::sync::Arc::as_ptr(&case.world);
            if !seen.contains(&world) {
                seen.push(world);
                coverage.expect(case.world.chain());
            }
            if let Some(run) = &outcome.run {
                coverage.add(run);
            }
        }
        cases.push(CaseReport {
            suite: case.suite.clone(),
            name: case.name.clone(),
            file: case.file.clone(),
            failures: outcome.failures,
            elapsed: outcome.elapsed,
        });
    }
    let broken = suites.broken.into_iter();
    Report {
        cases,
        broken: broken
            .map(|(file, error)| (file, error.to_string()))
            .collect(),
        coverage: args.coverage.then(|| coverage.report()),
        elapsed,
    }
}

/// Runs the tests whenever a file changes, until interrupted.
fn watch(args: &TestArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    super::run_async(async {
        // Once for all runs: a signal during a run is handled after it.
        let mut shutdown = Box::pin(shutdown_signal()?);
        loop {
            let mut watch = FileWatch::new(folders(&args.paths));
            let watched = watch.begin().is_ok();
            // Taken before the files are read, so that a change during the run causes another run.
            let stamp = stamp(&args.paths);
            match run_once(args, printer) {
                Ok(_) => {}
                Err(Stop::Command(error)) => {
                    Printer::print_error(&error.message, error.help.as_deref());
                }
                Err(output) => return Err(output),
            }
            Printer::note("waiting for changes, press Ctrl-C to stop");
            let changed = async {
                loop {
                    if watched {
                        let _ = tokio::time::timeout(POLL, watch.changed()).await;
                    } else {
                        tokio::time::sleep(POLL).await;
                    }
                    if self::stamp(&args.paths) != stamp {
                        tokio::time::sleep(DEBOUNCE).await;
                        return;
                    }
                }
            };
            tokio::select! {
                () = changed => {}
                code = &mut shutdown => return Ok(code),
            }
        }
    })
}

fn folders(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = paths
        .iter()
        .flat_map(|path| below(path).unwrap_or_default())
        .filter_map(|file| file.parent().map(Path::to_owned))
        .chain(paths.iter().cloned())
        .collect();
    folders.sort();
    folders.dedup();
    folders
}

/// The files with their sizes and modification times. The times are coarse: two changes may have the same.
fn stamp(paths: &[PathBuf]) -> Vec<(PathBuf, Option<(u64, std::time::SystemTime)>)> {
    let files = paths.iter().flat_map(|path| match path.is_dir() {
        true => below(path).unwrap_or_default(),
        false => vec![path.clone()],
    });
    let stamped = files.map(|file| {
        let found = std::fs::metadata(&file).and_then(|it| Ok((it.len(), it.modified()?)));
        (file, found.ok())
    });
    stamped.collect()
}
