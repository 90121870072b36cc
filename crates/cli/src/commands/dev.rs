//! `lockgate dev`: the API server, and a webhook that runs beside it.

mod authority;
mod inject;
mod process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use lockgate_apiserver::{Observer, Plugins, Running, ServiceMapping, Settings, store_options};
use lockgate_store::MemoryStore;
use tokio::net::TcpStream;

use super::serve::{
    ServiceName, apply_all, explain, parse_duration, read_all, start_logging, told_to_stop,
    write_kubeconfig,
};
use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::logging::LogArgs;
use crate::output::{Printer, trace};
use crate::text::Source;
use authority::Authority;
use inject::{CaInjector, services_of};
use process::Process;

/// The interval at which the webhook's port is tried.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// After this time a line says what is waited for: `cargo run` builds first.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// Run a webhook locally with an API server that calls it
#[derive(Debug, Args)]
#[command(after_help = "\
The webhook is started with these environment variables:
  WEBHOOK_CERT_DIR   directory with tls.crt, tls.key and ca.crt
  WEBHOOK_PORT       port to listen on
  KUBECONFIG         admin kubeconfig

Services referenced by webhook configurations are routed to the webhook, and its CA is injected as
their caBundle. Manifests are applied once the webhook listens.

Examples:
  lockgate dev -f manifests/ -- cargo run
  lockgate dev --service shop/webhook -f config/ -- ./webhook --port 9443
  lockgate dev --timeout 20m -f manifests/ -- cargo run --release

Then: kubectl --kubeconfig lockgate.kubeconfig apply -f pod.yaml")]
pub struct DevArgs {
    /// Service of the webhook: NS/NAME [default: the Services that the configurations in -f reference]
    #[arg(long, value_name = "NS/NAME")]
    service: Vec<ServiceName>,
    /// Port the webhook listens on
    #[arg(long, default_value_t = 9443, value_name = "PORT")]
    webhook_port: u16,
    /// Directory for the webhook's certificate [default: a temporary one]
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
    /// How long to wait for the webhook to listen, its build included
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "DURATION")]
    timeout: Duration,
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
/// One of them cannot start, or the webhook ends by itself.
pub fn run(args: &DevArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    super::run_async(develop(args, printer))
}

async fn develop(args: &DevArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    start_logging(&args.logging)?;
    let told_to_stop = told_to_stop()?;
    let sources = read_all(&args.filename)?;
    let services = services(args, &sources)?;
    if is_open(args.webhook_port).await {
        let port = args.webhook_port;
        return Err(
            CommandError::failed(format!("port {port} is already in use"))
                .with_help("stop the program that listens there, or set another --webhook-port")
                .into(),
        );
    }
    let folder = Folder::of(args)?;
    let authority = Authority::new().map_err(|error| cannot("issue a certificate", error))?;
    let pair = authority
        .issue(&services)
        .map_err(|error| cannot("issue a certificate", error))?;
    pair.write(folder.path())
        .map_err(|error| cannot(&format!("write `{}`", folder.path().display()), error))?;

    let running = Running::start(
        settings(args, &services, &authority),
        Arc::new(MemoryStore::with_options(store_options())),
    )
    .await
    .map_err(explain)?;
    write_kubeconfig(&running, &args.kubeconfig_out)?;
    let kubeconfig = std::path::absolute(&args.kubeconfig_out)
        .map_err(|error| cannot("find the working directory", error))?;
    let mut process = Process::start(
        &args.command,
        &[
            ("WEBHOOK_CERT_DIR", folder.path().as_os_str()),
            ("WEBHOOK_PORT", args.webhook_port.to_string().as_ref()),
            ("KUBECONFIG", kubeconfig.as_os_str()),
        ],
    )?;

    let work = async {
        let took = listens(args).await?;
        apply_all(&running, &sources).await?;
        printer.line(&format!(
            "Webhook ready on port {} in {:.1} s; API server on {}; run `export KUBECONFIG={}`",
            args.webhook_port,
            took.as_secs_f64(),
            running.url(),
            args.kubeconfig_out.display()
        ))?;
        printer.flush()?;
        std::future::pending::<Result<ExitCode, Stop>>().await
    };
    let result = tokio::select! {
        code = told_to_stop => Ok(code),
        failed = work => failed,
        ended = process.ended() => Err(CommandError::failed(format!("webhook exited ({ended})")).into()),
    };
    process.stop().await;
    running.stop().await;
    result
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

async fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

/// Waits until the webhook listens, and returns how long it took.
async fn listens(args: &DevArgs) -> Result<Duration, CommandError> {
    let (start, port) = (Instant::now(), args.webhook_port);
    let limit = format!("{:?}", args.timeout);
    let mut is_said = false;
    while !is_open(port).await {
        if start.elapsed() > args.timeout {
            let message = format!("webhook did not open port {port} within {limit}");
            let help =
                "the webhook gets its port in WEBHOOK_PORT; --timeout allows for longer builds";
            return Err(CommandError::failed(message).with_help(help));
        }
        if !is_said && start.elapsed() > SAY_AFTER {
            let command = args.command.join(" ");
            Printer::note(&format!(
                "waiting for `{command}` to build and to open port {port}, at most {limit}"
            ));
            is_said = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(start.elapsed())
}

fn cannot(what: &str, error: impl std::fmt::Display) -> CommandError {
    CommandError::failed(format!("cannot {what}: {error}"))
}

/// The directory of the webhook's certificate.
enum Folder {
    Kept(PathBuf),
    Removed(tempfile::TempDir),
}

impl Folder {
    fn of(args: &DevArgs) -> Result<Self, CommandError> {
        let Some(path) = &args.webhook_cert_dir else {
            let folder = tempfile::Builder::new().prefix("lockgate-dev-").tempdir();
            let folder = folder.map_err(|error| cannot("create a temporary directory", error))?;
            return Ok(Self::Removed(folder));
        };
        std::fs::create_dir_all(path)
            .map_err(|error| cannot(&format!("create `{}`", path.display()), error))?;
        Ok(Self::Kept(path.clone()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Removed(folder) => folder.path(),
        }
    }
}
