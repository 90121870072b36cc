//! The measured sides: how each is started, and its processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::client::{self, TOKEN};
use crate::process;

/// The startup timeout on a busy machine.
const START: Duration = Duration::from_secs(120);

/// A measurable server.
pub trait Side {
    /// The description in one line.
    async fn version(&self) -> Result<String>;

    /// Starts it with an empty store, and waits until it is ready.
    async fn start(&self) -> Result<Running>;
}

/// A running side.
#[derive(Debug)]
pub struct Running {
    pub port: u16,
    /// The time from the start of the first process to readiness.
    pub took: Duration,
    /// In start order.
    processes: Vec<Child>,
    /// The program and arguments of the server, the last process.
    server: (PathBuf, Vec<String>),
    /// Removed on drop.
    _folder: TempDir,
}

impl Running {
    fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().filter_map(Child::id)
    }

    /// The CPU time of all processes so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.pids().map(process::cpu_time).sum()
    }

    /// The resident memory of all processes.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.pids().map(process::resident_bytes).sum()
    }

    /// The memory of the server alone, the last process.
    pub fn server_bytes(&self) -> Result<u64> {
        let server = self.pids().last().context("no server")?;
        process::resident_bytes(server)
    }

    /// The CPU time of the server alone.
    pub fn server_cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pids().last().context("no server")?)
    }

    /// Restarts the server on the data in etcd. Returns the time until it is ready.
    pub async fn restart(&mut self) -> Result<Duration> {
        if let Some(mut server) = self.processes.pop() {
            process::end(&mut server).await?;
        }
        let started = Instant::now();
        let (program, arguments) = &self.server;
        let folder = self._folder.path();
        self.processes
            .push(spawn(program, arguments, folder, "server.log")?);
        while !client::is_ready(self.port).await {
            if started.elapsed() > START {
                bail!("the server does not start:\n{}", logs(folder));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(started.elapsed())
    }

    /// Stops all processes in reverse order, and removes their data.
    pub async fn stop(mut self) {
        while let Some(mut process) = self.processes.pop() {
            // The process may already have exited.
            let _ = process::end(&mut process).await;
        }
    }
}

/// The data directory: in memory if available, so that no disk is measured.
fn folder() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() {
        tempfile::tempdir_in(memory)?
    } else {
        tempfile::tempdir()?
    })
}

fn spawn(program: &Path, arguments: &[String], folder: &Path, log: &str) -> Result<Child> {
    let log = std::fs::File::create(folder.join(log))?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))
}

/// Waits until a side is ready.
async fn ready(
    started: Instant,
    port: u16,
    mut processes: Vec<Child>,
    server: (PathBuf, Vec<String>),
    folder: TempDir,
) -> Result<Running> {
    // Each readiness request costs a TLS handshake, so a side with etcd is polled less often.
    let pause = Duration::from_millis(if processes.len() > 1 { 20 } else { 1 });
    while !client::is_ready(port).await {
        let mut ended = false;
        for process in &mut processes {
            ended |= process.try_wait()?.is_some();
        }
        if ended || started.elapsed() > START {
            bail!("the server does not start:\n{}", logs(folder.path()));
        }
        tokio::time::sleep(pause).await;
    }
    Ok(Running {
        port,
        took: started.elapsed(),
        processes,
        server,
        _folder: folder,
    })
}

fn logs(folder: &Path) -> String {
    let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    ["etcd.log", "server.log"].map(read).concat()
}

async fn output_of(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output().await;
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// The token of a user with few permissions.
pub const HOSTILE_TOKEN: &str = "bench-hostile-token";

/// Writes the tokens of both sides.
fn write_tokens(folder: &Path) -> Result<String> {
    let path = folder.join("tokens.csv");
    let users = format!("{TOKEN},admin,1,\"system:masters\"\n{HOSTILE_TOKEN},eve,2\n");
    std::fs::write(&path, users)?;
    Ok(path.display().to_string())
}

/// Starts an etcd with its data in memory and without fsync. Returns its URL.
fn start_etcd(binary: &Path, folder: &Path) -> Result<(Child, String)> {
    let (port, peer) = (process::free_port()?, process::free_port()?);
    let url = format!("http://127.0.0.1:{port}");
    let arguments = [
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        String::from("--unsafe-no-fsync"),
    ];
    Ok((spawn(binary, &arguments, folder, "etcd.log")?, url))
}

/// `lockgate serve` with its defaults, in memory or on etcd.
#[derive(Debug)]
pub struct Lockgate {
    binary: PathBuf,
    etcd: Option<PathBuf>,
}

impl Lockgate {
    pub fn new(binary: &Path) -> Self {
        Self {
            binary: binary.to_owned(),
            etcd: None,
        }
    }

    pub fn on_etcd(binary: &Path, etcd: &Path) -> Self {
        Self {
            binary: binary.to_owned(),
            etcd: Some(etcd.to_owned()),
        }
    }
}

impl Side for Lockgate {
    async fn version(&self) -> Result<String> {
        output_of(&self.binary).await
    }

    async fn start(&self) -> Result<Running> {
        let folder = folder()?;
        let path = folder.path();
        let port = process::free_port()?;
        let mut arguments = vec![
            String::from("serve"),
            format!("--secure-port={port}"),
            format!("--token-auth-file={}", write_tokens(path)?),
            format!("--kubeconfig-out={}", path.join("kubeconfig").display()),
        ];
        let started = Instant::now();
        let mut processes = Vec::new();
        if let Some(etcd) = &self.etcd {
            let (etcd, url) = start_etcd(etcd, path)?;
            processes.push(etcd);
            arguments.push(format!("--etcd-servers={url}"));
        }
        processes.push(spawn(&self.binary, &arguments, path, "server.log")?);
        let server = (self.binary.clone(), arguments);
        ready(started, port, processes, server, folder).await
    }
}

/// kube-apiserver with its defaults, on an etcd with its data in memory and without fsync.
#[derive(Debug)]
pub struct Pair {
    kube_apiserver: PathBuf,
    etcd: PathBuf,
}

impl Pair {
    pub fn new(kube_apiserver: &Path, etcd: &Path) -> Self {
        Self {
            kube_apiserver: kube_apiserver.to_owned(),
            etcd: etcd.to_owned(),
        }
    }
}

impl Side for Pair {
    async fn version(&self) -> Result<String> {
        let server = output_of(&self.kube_apiserver).await?;
        let etcd = output_of(&self.etcd).await?;
        Ok(format!(
            "kube-apiserver {}, {}",
            server.trim_start_matches("Kubernetes "),
            etcd.replace(" Version:", "")
        ))
    }

    async fn start(&self) -> Result<Running> {
        let folder = folder()?;
        let path = folder.path();
        let port = process::free_port()?;
        let key = rcgen::KeyPair::generate()?;
        let (private, public) = (path.join("sa.key"), path.join("sa.pub"));
        std::fs::write(&private, key.serialize_pem())?;
        std::fs::write(&public, key.public_key_pem())?;
        let started = Instant::now();
        let (etcd, url) = start_etcd(&self.etcd, path)?;
        let server_arguments = vec![
            format!("--etcd-servers={url}"),
            String::from("--bind-address=127.0.0.1"),
            String::from("--advertise-address=127.0.0.1"),
            // The Service `kubernetes` is not used, and its address may not be reachable from this host.
            String::from("--endpoint-reconciler-type=none"),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", path.join("certs").display()),
            format!("--token-auth-file={}", write_tokens(path)?),
            String::from("--authorization-mode=RBAC"),
            String::from("--service-cluster-ip-range=10.0.0.0/24"),
            String::from("--service-account-issuer=https://kubernetes.default.svc"),
            format!("--service-account-key-file={}", public.display()),
            format!("--service-account-signing-key-file={}", private.display()),
        ];
        let server = spawn(&self.kube_apiserver, &server_arguments, path, "server.log")?;
        let command = (self.kube_apiserver.clone(), server_arguments);
        ready(started, port, vec![etcd, server], command, folder).await
    }
}
