//! Real etcd processes, and their faults.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::certs::{Authority, Identity};
use rustix::process::{Pid, Signal, kill_process};

/// The startup timeout, far longer than a member needs.
const DEADLINE: Duration = Duration::from_secs(60);
/// The number of a member's log lines that are kept to explain a failure.
const KEPT: usize = 40;

/// The variable with the path of the binary.
const VARIABLE: &str = "LOCKGATE_ETCD";

/// A cluster of etcd members on this machine. Dropping it kills them.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    /// Their data.
    _folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Member {
    args: Vec<String>,
    client: String,
    child: Option<Child>,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl EtcdCluster {
    /// Starts this many members; `None` without etcd, which is reported on stderr.
    ///
    /// # Panics
    ///
    /// Panics if etcd does not start.
    #[must_use]
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, None)
    }

    /// The same with client certificate authentication by a CA.
    ///
    /// # Panics
    ///
    /// Panics if etcd does not start.
    #[must_use]
    pub fn start_with_tls(count: usize, authority: &Authority) -> Option<Self> {
        Self::start_with(count, Some(authority))
    }

    fn start_with(count: usize, authority: Option<&Authority>) -> Option<Self> {
        let Some(binary) = binary() else {
            eprintln!("SKIPPED: there is no etcd in PATH and none in {VARIABLE}");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder for etcd's data");
        let tls = authority.map(|authority| {
            let Identity {
                certificate_pem,
                key_pem,
            } = authority.issue(&["127.0.0.1", "localhost"]);
            let files = [
                ("ca.crt", authority.pem()),
                ("etcd.crt", &certificate_pem),
                ("etcd.key", &key_pem),
            ];
            let paths = files.map(|(name, pem)| {
                let path = folder.path().join(name);
                std::fs::write(&path, pem).expect("a file for etcd");
                path.display().to_string()
            });
            let [ca, certificate, key] = paths;
            [
                String::from("--client-cert-auth"),
                format!("--trusted-ca-file={ca}"),
                format!("--cert-file={certificate}"),
                format!("--key-file={key}"),
            ]
        });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let ports: Vec<_> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers = ports.iter().enumerate();
        let peers = peers.map(|(index, (_, peer))| format!("m{index}=http://127.0.0.1:{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        let members = ports.iter().enumerate().map(|(index, (client, peer))| {
            let data = folder.path().join(index.to_string());
            let client = format!("{scheme}://127.0.0.1:{client}");
            let peer = format!("http://127.0.0.1:{peer}");
            let args = [
                binary.display().to_string(),
                format!("--name=m{index}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster={peers}"),
                // Elections within a second, also on a busy machine.
                String::from("--heartbeat-interval=50"),
                String::from("--election-timeout=500"),
            ];
            let tls = tls.iter().flatten().cloned();
            Member {
                args: args.into_iter().chain(tls).collect(),
                client,
                child: None,
                log: Arc::default(),
            }
        });
        let mut cluster = Self {
            members: members.collect(),
            _folder: folder,
        };
        // Members become ready once there is a quorum.
        let ready: Vec<_> = cluster.members.iter_mut().map(Member::spawn).collect();
        for (ready, member) in ready.into_iter().zip(&cluster.members) {
            member.expect_ready(&ready);
        }
        Some(cluster)
    }

    /// The URLs for clients.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        let members = self.members.iter();
        members.map(|member| member.client.clone()).collect()
    }

    /// Kills a member, as a crash would.
    pub fn kill(&mut self, index: usize) {
        self.members[index].kill();
    }

    /// Starts a killed member, and waits until it serves.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    pub fn restart(&mut self, index: usize) {
        let ready = self.members[index].spawn();
        self.members[index].expect_ready(&ready);
    }

    /// Starts all killed members.
    ///
    /// # Panics
    ///
    /// Panics if they do not start.
    pub fn restart_all(&mut self) {
        let members = self.members.iter_mut();
        let killed = members.filter(|member| member.child.is_none());
        let ready: Vec<_> = killed.map(|member| (member.spawn(), member)).collect();
        for (ready, member) in ready {
            member.expect_ready(&ready);
        }
    }

    /// Suspends a member, with its connections open.
    pub fn pause(&self, index: usize) {
        self.members[index].signal(Signal::STOP);
    }

    /// Resumes a member.
    pub fn resume(&self, index: usize) {
        self.members[index].signal(Signal::CONT);
    }
}

impl Member {
    fn spawn(&mut self) -> mpsc::Receiver<()> {
        let (program, args) = self.args.split_first().expect("a program");
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("etcd starts");
        let stderr = child.stderr.take().expect("its log");
        let (ready, told) = mpsc::channel();
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.contains("ready to serve client requests") {
                    let _ = ready.send(());
                }
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_back(line);
                if log.len() > KEPT {
                    log.pop_front();
                }
            }
        });
        self.child = Some(child);
        told
    }

    fn expect_ready(&self, ready: &mpsc::Receiver<()>) {
        let is_ready = ready.recv_timeout(DEADLINE).is_ok();
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(is_ready, "etcd does not start: {log:#?}");
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let pid = Pid::from_child(child);
            kill_process(pid, signal).expect("it runs");
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The etcd binary to run.
fn binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    candidates.into_iter().find(|path| path.is_file())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its number").port()
}
