//! `lockgate dev`: an API server and a webhook under development.

mod authority;
mod chart;
mod inject;
mod process;
mod ready;
mod watch;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lockgate_apiserver::{
    FeatureGates, KubeVersion, Observer, Plugins, Running, ServiceMapping, Settings, store_options,
};
use lockgate_store::MemoryStore;

use super::serve::{
    ServiceName, explain, parse_duration, read_all, shutdown_signal, start_logging,
    write_kubeconfig,
};
use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::logging::LogArgs;
use crate::output::{Printer, trace};
use crate::text::Source;
use authority::{Authority, Pair};
use inject::{CaInjector, services_of};
use process::Process;
use ready::Probe;
use watch::Watch;

/// Run a webhook locally with an API server that calls it
#[derive(Debug, Args)]
#[command(after_help = "\
The webhook is started with these environment variables:
  WEBHOOK_CERT_DIR   directory with tls.crt, tls.key and ca.crt
  WEBHOOK_PORT       port to listen on
  KUBECONFIG         admin kubeconfig

Services referenced by webhook configurations are routed to the webhook, and its CA is injected as
their caBundle. Manifests are applied once the webhook serves that certificate. Rendered charts work
unchanged: missing namespaces are created, objects of unknown kinds are stored without further effect,
and a cert-manager Certificate immediately yields its Secret.

Examples:
  lockgate dev -f manifests/ -- cargo run
  lockgate dev --service shop/webhook -f config/ -- ./webhook --port 9443
  lockgate dev --watch -f manifests/ -- cargo run
  lockgate dev --timeout 20m -f manifests/ -- cargo run --release
  helm template my-chart | lockgate dev -f - -- cargo run

Then: kubectl --kubeconfig lockgate.kubeconfig apply -f pod.yaml")]
pub struct DevArgs {
    /// Service of the webhook: NS/NAME [default: the Services referenced by the configurations in -f]
    #[arg(long, value_name = "NS/NAME")]
    service: Vec<ServiceName>,
    /// Kubernetes version to emulate, from 1.33 to 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    kube_version: KubeVersion,
    /// Port the webhook listens on
    #[arg(long, default_value_t = 9443, value_name = "PORT")]
    webhook_port: u16,
    /// Directory for the webhook's certificate [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    webhook_cert_dir: Option<PathBuf>,
    /// Port of the API server; 0 picks a free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    secure_port: u16,
    /// Manifests to apply once the webhook listens: a file, a directory, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR")]
    filename: Vec<PathBuf>,
    /// Write an admin kubeconfig to this file
    #[arg(long, default_value = "lockgate.kubeconfig", value_name = "FILE")]
    kubeconfig_out: PathBuf,
    /// Do not print the admission trace of each request
    #[arg(long, short)]
    quiet: bool,
    /// Time to wait for the webhook to listen, including its build
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "DURATION")]
    timeout: Duration,
    /// Restart the webhook and reapply the manifests when a file changes [default: the working
    /// directory]; repeatable. Hidden files and build outputs are ignored
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "."
    )]
    watch: Vec<PathBuf>,
    #[command(flatten)]
    logging: LogArgs,
    /// Command that runs the webhook
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs both until one of them exits or a signal arrives.
///
/// # Errors
///
/// One of them cannot start, or the webhook exits.
pub fn run(args: &DevArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    super::run_async(develop(args, printer))
}

async fn develop(args: &DevArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    start_logging(&args.logging)?;
    let mut shutdown = Box::pin(shutdown_signal()?);
    let sources = read_all(&args.filename)?;
    let services = services(args, &sources)?;
    let folder = CertificateDir::of(args)?;
    let authority = Authority::new().map_err(|error| io_error("issue a certificate", error))?;
    let probe = Probe::new(args.webhook_port, &authority)?;
    if probe.is_open().await {
        let port = args.webhook_port;
        return Err(
            CommandError::failed(format!("port {port} is already in use"))
                .with_help("stop the program that uses it, or set another --webhook-port")
                .into(),
        );
    }
    let pair = authority
        .issue(&services)
        .map_err(|error| io_error("issue a certificate", error))?;
    pair.write(folder.path())
        .map_err(|error| io_error(&format!("write `{}`", folder.path().display()), error))?;

    let running = Running::start(
        settings(args, &services, &authority),
        Arc::new(MemoryStore::with_options(store_options())),
    )
    .await
    .map_err(explain)?;
    write_kubeconfig(&running, &args.kubeconfig_out)?;
    let kubeconfig = std::path::absolute(&args.kubeconfig_out)
        .map_err(|error| io_error("find the working directory", error))?;
    let mut development = Development {
        args,
        running: &running,
        probe,
        pair,
        folder: folder.path(),
        kubeconfig: &kubeconfig,
        sources,
        watch: watched(args),
    };
    let result = loop {
        match development.run(&mut shutdown, printer).await {
            Ok(Next::Restart) => {}
            Ok(Next::Stop(code)) => break Ok(code),
            Err(error) => break Err(error),
        }
    };
    running.stop().await;
    result
}

/// The watched files: the paths of `--watch` and the manifests.
fn watched(args: &DevArgs) -> Option<Watch> {
    if args.watch.is_empty() {
        return None;
    }
    let manifests = args.filename.iter().filter(|path| path.as_os_str() != "-");
    Some(Watch::new(
        args.watch.iter().chain(manifests).cloned().collect(),
    ))
}

/// The next step after the webhook exits.
enum Next {
    Restart,
    Stop(ExitCode),
}

/// A webhook under development, with its environment.
struct Development<'d> {
    args: &'d DevArgs,
    running: &'d Running,
    probe: Probe,
    pair: Pair,
    folder: &'d Path,
    kubeconfig: &'d Path,
    sources: Vec<Source>,
    watch: Option<Watch>,
}

impl Development<'_> {
    /// Runs the webhook until it must restart or stop.
    async fn run(
        &mut self,
        shutdown: &mut Pin<Box<impl Future<Output = ExitCode>>>,
        printer: &mut Printer,
    ) -> Result<Next, Stop> {
        let port = self.args.webhook_port.to_string();
        let variables: [(&str, &OsStr); 3] = [
            ("WEBHOOK_CERT_DIR", self.folder.as_os_str()),
            ("WEBHOOK_PORT", port.as_ref()),
            ("KUBECONFIG", self.kubeconfig.as_os_str()),
        ];
        let mut process = Process::start(&self.args.command, &variables)?;
        let is_watched = self.watch.is_some();
        let next = {
            let work = async {
                let (command, timeout) = (&self.args.command, self.args.timeout);
                let took = self.probe.until_ready(command, timeout).await?;
                chart::apply(self.running, &self.sources, &self.pair).await?;
                printer.line(&format!(
                    "Webhook ready on port {port} in {:.1} s; API server on {}; run `export KUBECONFIG={}`",
                    took.as_secs_f64(),
                    self.running.url(),
                    self.args.kubeconfig_out.display()
                ))?;
                printer.flush()?;
                std::future::pending::<Result<Next, Stop>>().await
            };
            let watch = &mut self.watch;
            let changed = async {
                match watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(work, changed);
            tokio::select! {
                code = &mut *shutdown => Ok(Next::Stop(code)),
                path = &mut changed => restart(&path),
                failed = &mut work => match failed {
                    Err(Stop::Command(error)) if is_watched => {
                        // The next change may fix it.
                        Printer::print_error(&error.message, error.help.as_deref());
                        wait(shutdown, &mut changed).await
                    }
                    other => other,
                },
                ended = process.ended() => {
                    if is_watched {
                        Printer::note(&format!("webhook exited ({ended}); waiting for a change"));
                        wait(shutdown, &mut changed).await
                    } else {
                        Err(CommandError::failed(format!("webhook exited ({ended})")).into())
                    }
                }
            }
        };
        process.stop().await;
        if matches!(next, Ok(Next::Restart)) {
            match read_all(&self.args.filename) {
                // Standard input has already been read.
                Ok(sources)
                    if !self
                        .args
                        .filename
                        .iter()
                        .any(|path| path.as_os_str() == "-") =>
                {
                    self.sources = sources;
                }
                Ok(_) => {}
                Err(error) => Printer::print_error(&error.message, error.help.as_deref()),
            }
        }
        next
    }
}

fn restart(path: &Path) -> Result<Next, Stop> {
    Printer::note(&format!("`{}` changed, restarting", path.display()));
    Ok(Next::Restart)
}

/// Waits for a change or a signal.
async fn wait(
    shutdown: &mut Pin<Box<impl Future<Output = ExitCode>>>,
    changed: &mut Pin<&mut impl Future<Output = PathBuf>>,
) -> Result<Next, Stop> {
    tokio::select! {
        code = &mut *shutdown => Ok(Next::Stop(code)),
        path = &mut *changed => restart(&path),
    }
}

fn settings(args: &DevArgs, services: &[ServiceName], authority: &Authority) -> Settings {
    let mappings = services.iter().map(|service| ServiceMapping {
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        port: None,
        address: format!("127.0.0.1:{}", args.webhook_port),
    });
    let observer = Observer::new(|admission| {
        let text = trace::one_request(admission);
        if !text.is_empty() {
            Printer::note(&text);
        }
    });
    Settings {
        descriptions: Some(lockgate_descriptions::text),
        secure_port: args.secure_port,
        services: mappings.collect(),
        plugins: Plugins::default().with(CaInjector::new(services, authority)),
        observer: (!args.quiet).then_some(observer),
        feature_gates: FeatureGates::of(args.kube_version),
        ..Settings::default()
    }
}

/// The Services of the webhook.
fn services(args: &DevArgs, sources: &[Source]) -> Result<Vec<ServiceName>, CommandError> {
    let mut services = args.service.clone();
    for source in sources {
        services.extend(services_of(&source.text));
    }
    services.sort();
    services.dedup();
    if services.is_empty() {
        return Err(
            CommandError::usage("no Service found for the webhook").with_help(
                "set --service NS/NAME, or pass configurations that reference one with -f",
            ),
        );
    }
    Ok(services)
}

fn io_error(what: &str, error: impl std::fmt::Display) -> CommandError {
    CommandError::failed(format!("cannot {what}: {error}"))
}

/// The directory of the webhook's certificate.
enum CertificateDir {
    Kept(PathBuf),
    Removed(tempfile::TempDir),
}

impl CertificateDir {
    fn of(args: &DevArgs) -> Result<Self, CommandError> {
        let Some(path) = &args.webhook_cert_dir else {
            let folder = tempfile::Builder::new().prefix("lockgate-dev-").tempdir();
            let folder = folder.map_err(|error| io_error("create a temporary directory", error))?;
            return Ok(Self::Removed(folder));
        };
        std::fs::create_dir_all(path)
            .map_err(|error| io_error(&format!("create `{}`", path.display()), error))?;
        Ok(Self::Kept(path.clone()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Removed(folder) => folder.path(),
        }
    }
}
