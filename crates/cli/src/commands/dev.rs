//! `lockgate dev`: the API server, and a webhook that runs beside it.

mod authority;
mod inject;
mod process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use lockgate_apiserver::{Observer, Plugins, Running, ServiceMapping, Settings};
use lockgate_store::MemoryStore;
use tokio::net::TcpStream;

use super::serve::{ServiceName, apply_all, explain, read_all, told_to_stop, write_kubeconfig};
use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::{Printer, trace};
use crate::text::Source;
use authority::Authority;
use inject::{CaInjector, services_of};
use process::Process;

/// How long a webhook may take to listen.
const TO_LISTEN: Duration = Duration::from_secs(60);

/// How often it is looked whether the webhook listens.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Run a webhook on this machine behind an API server of its own
#[derive(Debug, Args)]
#[command(after_help = "\
The webhook is started with these variables:
  WEBHOOK_CERT_DIR   a folder with tls.crt, tls.key and ca.crt for it to serve with
  WEBHOOK_PORT       the port to listen on
  KUBECONFIG         a kubeconfig with which it may do everything

Services that webhook configurations name lead to it. Configurations get the authority of its certificate
as their caBundle, whether they wait for cert-manager to do so or not. Manifests are applied once it listens.

Examples:
  lockgate dev -f manifests/ -- cargo run
  lockgate dev --service shop/webhook -f config/ -- ./webhook --port 9443
  lockgate dev --service shaper-system/shaper-webhooks -- ./shaper-webhooks

Then: kubectl --kubeconfig lockgate.kubeconfig apply -f pod.yaml")]
pub struct DevArgs {
    /// A service that leads to the webhook: NS/NAME [default: those that the configurations of -f name]
    #[arg(long, value_name = "NS/NAME")]
    service: Vec<ServiceName>,
    /// The port the webhook listens on
    #[arg(long, default_value_t = 9443, value_name = "PORT")]
    webhook_port: u16,
    /// The folder its certificate is put in [default: one that is removed at the end]
    #[arg(long, value_name = "DIR")]
    webhook_cert_dir: Option<PathBuf>,
    /// The port the API server listens on; 0 for any free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    secure_port: u16,
    /// Manifests to apply through admission once the webhook listens
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR")]
    filename: Vec<PathBuf>,
    /// Where to write a kubeconfig with which one may do everything
    #[arg(long, default_value = "lockgate.kubeconfig", value_name = "FILE")]
    kubeconfig_out: PathBuf,
    /// Do not show what admission does with each request
    #[arg(long, short)]
    quiet: bool,
    /// The webhook: a program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs both until one of them ends or we are told to stop.
///
/// # Errors
///
/// One of them cannot start, or the webhook ends by itself.
pub fn run(args: &DevArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    super::run_async(develop(args, printer))
}

async fn develop(args: &DevArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let told_to_stop = told_to_stop()?;
    let sources = read_all(&args.filename)?;
    let services = services(args, &sources)?;
    let folder = Folder::of(args)?;
    let authority = Authority::new().map_err(|error| cannot("make a certificate", error))?;
    let pair = authority
        .issue(&services)
        .map_err(|error| cannot("make a certificate", error))?;
    pair.write(folder.path())
        .map_err(|error| cannot(&format!("write `{}`", folder.path().display()), error))?;

    let running = Running::start(
        settings(args, &services, &authority),
        Arc::new(MemoryStore::new()),
    )
    .await
    .map_err(explain)?;
    write_kubeconfig(&running, &args.kubeconfig_out)?;
    let kubeconfig = std::path::absolute(&args.kubeconfig_out)
        .map_err(|error| cannot("find the current folder", error))?;
    let mut process = Process::start(
        &args.command,
        &[
            ("WEBHOOK_CERT_DIR", folder.path().as_os_str()),
            ("WEBHOOK_PORT", args.webhook_port.to_string().as_ref()),
            ("KUBECONFIG", kubeconfig.as_os_str()),
        ],
    )?;

    let work = async {
        let took = listens(args.webhook_port).await?;
        apply_all(&running, &sources).await?;
        printer.line(&format!(
            "the webhook listens on port {} after {:.1} s; serving on {}; kubeconfig in {}",
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
        ended = process.ended() => Err(CommandError::failed(format!("the webhook ended: {ended}")).into()),
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
        secure_port: args.secure_port,
        services: mappings.collect(),
        plugins: Plugins::default().with(CaInjector::new(services, authority)),
        observer: (!args.quiet).then_some(observer),
        ..Settings::default()
    }
}

/// The services that lead to the webhook.
fn services(args: &DevArgs, sources: &[Source]) -> Result<Vec<ServiceName>, CommandError> {
    let mut services = args.service.clone();
    for source in sources {
        services.extend(services_of(&source.text));
    }
    services.sort();
    services.dedup();
    if services.is_empty() {
        return Err(
            CommandError::usage("no service leads to the webhook").with_help(
                "name it with --service NS/NAME, or give configurations that name it with -f",
            ),
        );
    }
    Ok(services)
}

/// Waits until somebody listens on a port, and says how long it took.
async fn listens(port: u16) -> Result<Duration, CommandError> {
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if start.elapsed() > TO_LISTEN {
            let limit = TO_LISTEN.as_secs();
            let message = format!("nobody listens on port {port} after {limit} seconds");
            let help = "the webhook finds the port in WEBHOOK_PORT; --webhook-port changes it";
            return Err(CommandError::failed(message).with_help(help));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(start.elapsed())
}

fn cannot(what: &str, error: impl std::fmt::Display) -> CommandError {
    CommandError::failed(format!("cannot {what}: {error}"))
}

/// Where the certificate is.
enum Folder {
    Kept(PathBuf),
    Removed(tempfile::TempDir),
}

impl Folder {
    fn of(args: &DevArgs) -> Result<Self, CommandError> {
        let Some(path) = &args.webhook_cert_dir else {
            let folder = tempfile::Builder::new().prefix("lockgate-dev-").tempdir();
            let folder = folder.map_err(|error| cannot("make a temporary folder", error))?;
            return Ok(Self::Removed(folder));
        };
        std::fs::create_dir_all(path)
            .map_err(|error| cannot(&format!("make `{}`", path.display()), error))?;
        Ok(Self::Kept(path.clone()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Removed(folder) => folder.path(),
        }
    }
}
