//! `lockgate serve`: the API server.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use lockgate_admission::https::Redirects;
use lockgate_apiserver::{
    AuthorizationMode, Controllers, FeatureGates, Running, ServiceMapping, Settings, StartError,
    private_file,
};
use lockgate_store::{DiskStore, MemoryStore, OpenError, Store};
use tokio::signal::unix::{SignalKind, signal};

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::lint::source;
use crate::output::Printer;
use crate::text::Source;

/// Run a Kubernetes-compatible API server whose every write passes admission
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lockgate serve
  lockgate serve --secure-port 0 --kubeconfig-out /tmp/kc
  lockgate serve --map-service shop/webhook:443=127.0.0.1:9443
  lockgate serve --audit-log-path - --token-auth-file tokens.csv
  lockgate serve --data-dir /var/lib/lockgate

Then: kubectl --kubeconfig lockgate.kubeconfig get namespaces

Everything is in memory and gone when the server stops, unless --data-dir names a
folder: then a write is answered when it is on the disk, and survives a crash.")]
pub struct ServeArgs {
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    bind_address: IpAddr,
    /// The port to listen on; 0 for any free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    secure_port: u16,
    /// Where everything is kept; made when absent, and used by one server at a time [default: in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where the server's certificates are kept; they are made when absent [default: in memory, or
    /// the folder `certs` of --data-dir]
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Authorities whose certificates prove who a user is
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Tokens: lines of token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Whether those who show nothing are let in as system:anonymous
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    anonymous_auth: bool,
    /// Who may do what
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "MODE",
        ignore_case = true
    )]
    authorization_mode: Authorization,
    /// What is logged for audit [default: everything, without bodies]
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// Where the audit log goes, as JSON lines; - is standard output
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// The AdmissionConfiguration: credentials for webhooks, static manifests
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
    /// Features to switch on or off: NAME=true,NAME=false
    #[arg(long, value_delimiter = ',', value_name = "GATES")]
    feature_gates: Vec<Gate>,
    /// What a redirect from a webhook means: a failure, or another address to call
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    webhook_redirects: RedirectsArg,
    /// Admission plugins to switch on
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins to switch off
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    disable_admission_plugins: Vec<String>,
    /// What goes on when nobody asks: NAME is on, -NAME is off, * is all [default: *]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        allow_hyphen_values = true
    )]
    controllers: Vec<Controller>,
    /// Requests that only read at a time, watches aside; one user has half of them; 0 is no limit
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    max_requests_inflight: usize,
    /// Requests that write at a time; one user has half of them; 0 is no limit
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    max_mutating_requests_inflight: usize,
    /// How long a request may take
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "DURATION")]
    request_timeout: Duration,
    /// A service reference goes to this address instead: NS/NAME[:PORT]=HOST:PORT
    #[arg(long, value_name = "MAPPING")]
    map_service: Vec<Mapping>,
    /// Manifests to apply through admission at start: a file, a folder, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR")]
    filename: Vec<PathBuf>,
    /// Where to write a kubeconfig with which one may do everything
    #[arg(long, default_value = "lockgate.kubeconfig", value_name = "FILE")]
    kubeconfig_out: PathBuf,
}

/// `NAME=true`.
#[derive(Debug, Clone)]
struct Gate(String, bool);

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("expected NAME=true or NAME=false")?;
        if !FeatureGates::NAMES.contains(&name) {
            return Err(format!(
                "unknown gate `{name}`; there are {}",
                FeatureGates::NAMES.join(", ")
            ));
        }
        let value = value
            .parse()
            .map_err(|_| format!("expected true or false, found `{value}`"))?;
        Ok(Self(name.to_owned(), value))
    }
}

/// `NAME`, `-NAME` or `*`.
#[derive(Debug, Clone)]
struct Controller(String, bool);

impl FromStr for Controller {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, on) = match text.strip_prefix('-') {
            Some(name) => (name, false),
            None => (text, true),
        };
        if !Controllers::default().set(name, on) {
            return Err(format!(
                "unknown controller `{name}`; there are {}",
                Controllers::NAMES.join(", ")
            ));
        }
        Ok(Self(name.to_owned(), on))
    }
}

/// What is on. Those that are not named follow `*`; without it they are on when others are only
/// switched off.
fn controllers(told: &[Controller]) -> Controllers {
    let star = told.iter().rev().find(|Controller(name, _)| name == "*");
    let rest = star.map_or_else(|| told.iter().all(|named| !named.1), |star| star.1);
    let mut controllers = Controllers::all(rest);
    for Controller(name, on) in told.iter().filter(|named| named.0 != "*") {
        controllers.set(name, *on);
    }
    controllers
}

/// What a redirect from a webhook means.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum RedirectsArg {
    /// The call failed
    #[default]
    Refuse,
    /// Call the other address, as kube-apiserver does
    Follow,
}

/// Who may do what.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Authorization {
    /// What roles and bindings say
    #[default]
    #[value(name = "RBAC")]
    Rbac,
    /// Everybody may do everything
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || String::from("expected a duration such as `60s` or `1m30s`");
    let span = lockgate_go::time::Duration::parse(text).map_err(|_| expected())?;
    let span = span.to_std().filter(|span| !span.is_zero());
    span.ok_or_else(|| String::from("a request needs some time"))
}

/// `NS/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServiceName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!("expected NS/NAME, found `{text}`")),
        }
    }
}

/// `NS/NAME[:PORT]=HOST:PORT`.
#[derive(Debug, Clone)]
struct Mapping(ServiceMapping);

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected NS/NAME[:PORT]=HOST:PORT, found `{text}`");
        let (service, address) = text.split_once('=').ok_or_else(expected)?;
        let (service, port) = match service.split_once(':') {
            None => (service, None),
            Some((service, port)) => (service, Some(port.parse().map_err(|_| expected())?)),
        };
        let service: ServiceName = service.parse().map_err(|_| expected())?;
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err(expected());
        }
        Ok(Self(ServiceMapping {
            namespace: service.namespace,
            name: service.name,
            port,
            address: address.to_owned(),
        }))
    }
}

impl ServeArgs {
    fn settings(&self) -> Settings {
        let mut feature_gates = FeatureGates::default();
        for Gate(name, on) in &self.feature_gates {
            feature_gates.set(name, *on);
        }
        Settings {
            bind_address: self.bind_address,
            secure_port: self.secure_port,
            // Kubeconfigs and tokens last as long as what they are for.
            cert_dir: self
                .cert_dir
                .clone()
                .or_else(|| Some(self.data_dir.as_ref()?.join("certs"))),
            client_ca_file: self.client_ca_file.clone(),
            token_auth_file: self.token_auth_file.clone(),
            anonymous_auth: self.anonymous_auth,
            authorization_mode: match self.authorization_mode {
                Authorization::Rbac => AuthorizationMode::Rbac,
                Authorization::AlwaysAllow => AuthorizationMode::AlwaysAllow,
            },
            audit_policy_file: self.audit_policy_file.clone(),
            audit_log_path: self.audit_log_path.clone(),
            admission_control_config_file: self.admission_control_config_file.clone(),
            feature_gates,
            webhook_redirects: match self.webhook_redirects {
                RedirectsArg::Refuse => Redirects::Refuse,
                RedirectsArg::Follow => Redirects::Follow,
            },
            enable_plugins: self.enable_admission_plugins.clone(),
            disable_plugins: self.disable_admission_plugins.clone(),
            controllers: controllers(&self.controllers),
            max_requests_inflight: self.max_requests_inflight,
            max_mutating_requests_inflight: self.max_mutating_requests_inflight,
            request_timeout: self.request_timeout,
            services: self
                .map_service
                .iter()
                .map(|mapping| mapping.0.clone())
                .collect(),
            ..Settings::default()
        }
    }
}

/// Runs the server until it is told to stop.
///
/// # Errors
///
/// The server cannot start.
pub fn run(args: &ServeArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    super::run_async(serve(args, printer))
}

async fn serve(args: &ServeArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let told_to_stop = told_to_stop()?;
    let sources = read_all(&args.filename)?;
    let started = Instant::now();
    if let Some(folder) = &args.data_dir {
        private_file::secure_folder(folder).map_err(|error| {
            CommandError::failed(format!("cannot use `{}`: {error}", folder.display()))
        })?;
    }
    let disk = match &args.data_dir {
        Some(folder) => Some(DiskStore::open(folder).map_err(explain_open)?),
        None => None,
    };
    let store: Arc<dyn Store> = match &disk {
        Some(disk) => Arc::new(disk.clone()),
        None => Arc::new(MemoryStore::new()),
    };
    let running = Running::start(args.settings(), store)
        .await
        .map_err(explain)?;
    write_kubeconfig(&running, &args.kubeconfig_out)?;
    apply_all(&running, &sources).await?;
    printer.line(&format!(
        "serving on {} after {:.1} ms; kubeconfig in {}",
        running.url(),
        started.elapsed().as_secs_f64() * 1000.0,
        args.kubeconfig_out.display()
    ))?;
    printer.flush()?;
    let failed = async {
        match &disk {
            Some(disk) => disk.failed().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(told_to_stop);
    let code = tokio::select! {
        code = &mut told_to_stop => code,
        failure = failed => {
            // Reads go on, which is worth more than an exit code.
            Printer::note(&format!("{failure}"));
            told_to_stop.await
        }
    };
    running.stop().await;
    if let Some(disk) = disk {
        disk.close().await;
    }
    Ok(code)
}

/// Waits until somebody tells the process to stop. It hears from now on.
pub(super) fn told_to_stop() -> Result<impl Future<Output = ExitCode>, CommandError> {
    let signals = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        return Err(CommandError::failed("cannot listen for signals"));
    };
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => ExitCode::Interrupted,
            _ = terminate.recv() => ExitCode::Done,
        }
    })
}

/// Reads the manifests of these files and folders.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<Source>, CommandError> {
    let mut sources = Vec::new();
    for path in paths {
        sources.extend(source::read(path)?);
    }
    Ok(sources)
}

/// Applies manifests through admission, and tells of each.
pub(super) async fn apply_all(running: &Running, sources: &[Source]) -> Result<(), CommandError> {
    for source in sources {
        let applied = running.apply(&source.text).await.map_err(|error| {
            CommandError::invalid_input(format!("`{}` was not applied: {error}", source.name))
        })?;
        Printer::note(&format!("applied {applied} objects of {}", source.name));
    }
    Ok(())
}

pub(super) fn write_kubeconfig(running: &Running, path: &Path) -> Result<(), CommandError> {
    private_file::write(path, &running.kubeconfig()).map_err(|error| {
        CommandError::failed(format!("cannot write `{}`: {error}", path.display()))
            .with_help("name another file with --kubeconfig-out")
    })
}

fn explain_open(error: OpenError) -> CommandError {
    let failed = CommandError::failed(error.to_string());
    match error {
        OpenError::InUse { .. } => {
            failed.with_help("stop that process, or name another --data-dir")
        }
        OpenError::Newer { .. } => {
            failed.with_help("use the version that wrote it, or name another --data-dir")
        }
        OpenError::Damaged { .. } => failed.with_help(
            "put back a copy of the folder, or name another --data-dir; see docs/storage.md",
        ),
        _ => failed,
    }
}

/// What to do about a server that does not start.
pub(super) fn explain(error: StartError) -> CommandError {
    let failed = CommandError::failed(error.to_string());
    match error {
        StartError::Listen { .. } => {
            failed.with_help("choose another --secure-port, or 0 for any free one")
        }
        StartError::Plugins(_) => failed.with_help("see --help for how plugins are named"),
        _ => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_controllers() {
        let read = |text: &str| {
            let told: Vec<Controller> = text.split(',').map(|name| name.parse().unwrap()).collect();
            controllers(&told)
        };
        let without = Controllers {
            garbage_collector: false,
            ..Controllers::default()
        };
        assert_eq!(controllers(&[]), Controllers::default());
        assert_eq!(read("-garbage-collector-controller"), without);
        assert_eq!(read("*,-garbage-collector-controller"), without);
        let alone = Controllers {
            namespace: true,
            ..Controllers::all(false)
        };
        assert_eq!(read("namespace-controller"), alone);
        assert_eq!(read("-*"), Controllers::all(false));
        assert_eq!(read("-*,namespace-controller"), alone);
        let error = "nodes".parse::<Controller>().unwrap_err();
        assert!(error.starts_with("unknown controller `nodes`; there are clusterrole"));
    }

    #[test]
    fn reads_mappings() {
        let Mapping(mapping) = "shop/hook:8443=127.0.0.1:9443".parse().unwrap();
        assert_eq!(
            (mapping.namespace.as_str(), mapping.name.as_str()),
            ("shop", "hook")
        );
        assert_eq!(
            (mapping.port, mapping.address.as_str()),
            (Some(8443), "127.0.0.1:9443")
        );
        assert_eq!("a/b=h:1".parse::<Mapping>().unwrap().0.port, None);
        for wrong in ["", "a=b:1", "a/b", "a/b=h", "a/b:x=h:1", "/b=h:1"] {
            assert!(wrong.parse::<Mapping>().is_err(), "{wrong}");
        }
    }
}
