//! `lockgate envtest`: the server in place of the control plane that test libraries start.
//!
//! `install` writes the binaries that envtest starts. Each is a copy of this program, which decides by its
//! `argv[0]` which one it is. `start` is for test libraries other than envtest.

mod etcd;
mod flags;
mod install;
mod kube_apiserver;
mod kube_apiserver_flags;
mod kubectl;
mod parent;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::serve::{self, Console, ServeArgs, StartedServer, shutdown_signal, write_kubeconfig};
use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::Printer;

/// Run as the control plane of envtest
#[derive(Debug, Args)]
pub struct EnvtestArgs {
    #[command(subcommand)]
    command: EnvtestCommand,
}

#[derive(Debug, Subcommand)]
enum EnvtestCommand {
    /// Install kube-apiserver, etcd and kubectl for envtest into a directory
    Install(InstallArgs),
    /// Start a test server, print its address and kubeconfig as one line of JSON, and stop with the parent process
    Start(Box<StartArgs>),
}

/// Install kube-apiserver, etcd and kubectl for envtest into a directory
#[derive(Debug, Args)]
#[command(after_help = "\
kube-apiserver and etcd are copies of this program. kubectl is a copy of the one on PATH. If a copy of it does
not work, kubectl is a copy of this program that runs the one on PATH.

Examples:
  lockgate envtest install bin/envtest
  lockgate envtest install bin/envtest --kubectl /usr/local/bin/kubectl
  export KUBEBUILDER_ASSETS=$PWD/bin/envtest && go test ./...")]
pub struct InstallArgs {
    /// Directory to write to; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// kubectl to install [default: the one on PATH]
    #[arg(long, value_name = "FILE")]
    kubectl: Option<PathBuf>,
    /// Replace files that were not installed by this command
    #[arg(long)]
    force: bool,
}

/// Start a test server, print its address and kubeconfig as one line of JSON, and stop with the parent process
#[derive(Debug, Args)]
#[command(
    mut_arg("secure_port", |arg| arg.default_value("0")),
    mut_arg("kubeconfig_out", |arg| arg.help("Write an admin kubeconfig to this file [default: a temporary file]")),
    after_help = "\
Prints one line to standard output when the server is ready:
  {\"url\":\"https://127.0.0.1:40001\",\"ca\":\"-----BEGIN CERTIFICATE-----…\",\"kubeconfig\":\"/tmp/…\",\"pid\":7}

The server stops on SIGTERM and SIGINT, and when its parent process exits.

Examples:
  lockgate envtest start
  lockgate envtest start -f config/crd --controllers -garbage-collector-controller"
)]
pub struct StartArgs {
    #[command(flatten)]
    serve: ServeArgs,
}

/// Runs a subcommand.
///
/// # Errors
///
/// The files cannot be written, or the server cannot start.
pub fn run(args: &EnvtestArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &args.command {
        EnvtestCommand::Install(args) => install::run(args, printer),
        EnvtestCommand::Start(args) => super::run_async(start(args, printer)),
    }
}

async fn start(args: &StartArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let shutdown = shutdown_signal()?;
    // Removed when the server ends.
    let folder = tempfile::Builder::new()
        .prefix("lockgate-envtest-")
        .tempdir()
        .map_err(|error| CommandError::failed(format!("cannot create a directory: {error}")))?;
    let kubeconfig = match args.serve.kubeconfig_out() {
        Some(path) => std::path::absolute(path).map_err(|error| {
            CommandError::failed(format!("cannot find the working directory: {error}"))
        })?,
        None => folder.path().join("kubeconfig"),
    };
    let StartedServer {
        running,
        disk,
        console,
        ..
    } = serve::launch(&args.serve).await?;
    write_kubeconfig(&running, &kubeconfig)?;
    let line = serde_json::json!({
        "url": running.url(),
        "ca": running.ca_pem(),
        "kubeconfig": kubeconfig,
        "pid": std::process::id(),
        "console": console.as_ref().map(Console::url),
    });
    printer.line(&line.to_string())?;
    printer.flush()?;
    let code = tokio::select! {
        code = shutdown => code,
        () = parent::exited() => ExitCode::Done,
    };
    if let Some(console) = console {
        console.close().await;
    }
    running.stop().await;
    if let Some(disk) = disk {
        disk.close().await;
    }
    Ok(code)
}

/// A program that this one stands in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The API server.
    KubeApiserver,
    /// Its store.
    Etcd,
    /// The client.
    Kubectl,
}

impl Entry {
    /// The entry for the name the program was started under.
    #[must_use]
    pub fn of(program: &OsStr) -> Option<Self> {
        match Path::new(program).file_name()?.to_str()? {
            "kube-apiserver" => Some(Self::KubeApiserver),
            "etcd" => Some(Self::Etcd),
            "kubectl" => Some(Self::Kubectl),
            _ => None,
        }
    }

    /// Runs it with the arguments after the name.
    ///
    /// # Errors
    ///
    /// Fails if the arguments are invalid, or the server cannot start.
    pub fn run(self, arguments: Vec<OsString>) -> Result<ExitCode, Stop> {
        let texts = |arguments: Vec<OsString>| -> Result<Vec<String>, CommandError> {
            let texts = arguments.into_iter().map(OsString::into_string);
            texts.collect::<Result<_, _>>().map_err(|argument| {
                CommandError::failed(format!("`{}` is not UTF-8", argument.display()))
            })
        };
        match self {
            Self::KubeApiserver => kube_apiserver::run(texts(arguments)?),
            Self::Etcd => etcd::run(texts(arguments)?),
            Self::Kubectl => kubectl::run(arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_entries_by_name() {
        for (name, expected) in [
            ("/a/b/kube-apiserver", Some(Entry::KubeApiserver)),
            ("etcd", Some(Entry::Etcd)),
            ("./kubectl", Some(Entry::Kubectl)),
            ("lockgate", None),
            ("kubectl-lockgate", None),
            ("/", None),
        ] {
            assert_eq!(Entry::of(OsStr::new(name)), expected, "{name}");
        }
    }
}
