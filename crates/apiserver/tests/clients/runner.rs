//! Runs transcripts, with every version of the client and a new server for each run.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt as _;
use lockgate_apiserver::TestServer;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::controller::Cluster;
use crate::mask::mask;
use crate::support::bare_server;
use crate::transcript::{Transcript, block, blocks};

/// The timeout of a command.
const DEADLINE: Duration = Duration::from_secs(60);

/// The number of concurrent transcripts: some commands wait and leave the CPU idle.
const AT_ONCE: usize = 4;

/// A version of a client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) version: String,
    /// The program names in commands, and their paths.
    pub(crate) programs: Vec<(&'static str, PathBuf)>,
}

/// The handling of client output.
enum Aim {
    /// Compares it with the recording.
    Compare,
    /// Records differences from the recording.
    RecordDifferences,
    /// Records the output with another server, which this program starts. It prints the path of a kubeconfig and serves
    /// until its standard input is closed.
    Record(PathBuf),
}

fn aim() -> Aim {
    match std::env::var("LOCKGATE_RECORD") {
        Err(_) => Aim::Compare,
        Ok(value) if value == "differences" => Aim::RecordDifferences,
        Ok(program) => Aim::Record(program.into()),
    }
}

/// The server of a transcript.
enum Place {
    Own(Box<TestServer>),
    Other(Box<Child>, PathBuf),
}

impl Place {
    async fn start(aim: &Aim) -> Self {
        let Aim::Record(program) = aim else {
            return Self::Own(Box::new(bare_server().await));
        };
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let path = lines.lines().next_line().await.unwrap().unwrap();
        Self::Other(Box::new(child), path.into())
    }

    fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Own(server) => server.kubeconfig_path(),
            Self::Other(_, path) => path.clone(),
        }
    }

    async fn stop(self) {
        match self {
            Self::Own(server) => server.stop().await,
            Self::Other(mut child, _) => {
                drop(child.stdin.take());
                let _ = child.wait().await;
            }
        }
    }
}

/// Creates the folder of a run, with the files and programs that the commands use.
fn furnish(client: &Client) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients/files");
    copy(&files, &folder.path().join("work"));
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    for (name, path) in &client.programs {
        std::os::unix::fs::symlink(path, programs.join(name)).unwrap();
    }
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The output of each step of a transcript.
async fn run(aim: &Aim, transcript: &Transcript, client: &Client) -> Vec<String> {
    let place = Place::start(aim).await;
    let folder = furnish(client);
    let cluster = if transcript.name == "helm" {
        Some(Cluster::start(&place.kubeconfig(), &folder.path().join("work")).await)
    } else {
        None
    };
    let mut path = folder.path().join("bin").into_os_string();
    path.push(":/usr/local/bin:/usr/bin:/bin");
    let mut printed = Vec::new();
    for step in &transcript.steps {
        let child = Command::new("sh")
            .args(["-c", &format!("{{ {}\n}} 2>&1", step.command)])
            .current_dir(folder.path().join("work"))
            .env_clear()
            .env("PATH", &path)
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .env("KUBECONFIG", place.kubeconfig())
            // Not worth a garbage collection: these programs run for a tenth of a second.
            .env("GOGC", "off")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(DEADLINE, child).await;
        let output = output
            .unwrap_or_else(|_| panic!("`{}` hangs", step.command))
            .unwrap();
        let mut text = mask(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            let _ = writeln!(text, "[exit code {}]", output.status.code().unwrap_or(-1));
            assert!(
                !step.is_silent,
                "{}: `{}`: {text}",
                client.version, step.command
            );
        }
        printed.push(text);
    }
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
    place.stop().await;
    printed
}

/// Runs a transcript with each of these clients, and compares the output.
pub(crate) async fn check(name: &str, clients: &[Client]) {
    assert!(
        !clients.is_empty(),
        "no client to run `{name}` with; see tools/need.sh"
    );
    let aim = aim();
    let mut transcript = Transcript::read(name);
    let runs = clients.iter().map(|client| run(&aim, &transcript, client));
    let printed: Vec<Vec<String>> = futures_util::stream::iter(runs)
        .buffered(AT_ONCE)
        .collect()
        .await;
    let is_recording = matches!(aim, Aim::Record(_));
    if is_recording {
        transcript.versions = clients
            .iter()
            .map(|client| client.version.clone())
            .collect();
    }
    let labels = clients
        .iter()
        .map(|client| transcript.nearest(&client.version));
    let labels: Vec<String> = labels.collect();
    let of_step = |index: usize| -> Vec<(String, String)> {
        let versions = labels.iter().cloned();
        versions
            .zip(printed.iter().map(|texts| texts[index].clone()))
            .collect()
    };
    let mut wrong = String::new();
    let mut different = BTreeSet::new();
    for (index, step) in transcript
        .steps
        .iter_mut()
        .enumerate()
        .filter(|(_, step)| !step.is_silent)
    {
        match &aim {
            Aim::Record(_) => {
                step.recorded = blocks(&of_step(index), true);
                step.ours.clear();
            }
            Aim::RecordDifferences => {
                let mut differing = of_step(index);
                differing
                    .retain(|(version, text)| block(&step.recorded, version).unwrap_or("") != text);
                step.ours = blocks(&differing, differing.len() == clients.len());
            }
            Aim::Compare => {}
        }
        for (version, text) in of_step(index) {
            let recorded = block(&step.recorded, &version).unwrap_or("");
            let expected = block(&step.ours, &version).unwrap_or(recorded);
            if text != expected {
                let command = &step.command;
                let _ = writeln!(
                    wrong,
                    "\n{version} $ {command}\nexpected:\n{expected}printed:\n{text}"
                );
            } else if expected == recorded && block(&step.ours, &version).is_some() {
                let _ = writeln!(wrong, "\n{version} $ {}\ndiffers no more", step.command);
            }
        }
        if !step.ours.is_empty() {
            different.insert(step.command.clone());
        }
    }
    match aim {
        Aim::Compare => {
            assert!(wrong.is_empty(), "{name}:{wrong}");
            let known = crate::differences::of(name);
            assert_eq!(
                different, known,
                "what docs/compatibility.md lists for `{name}` is not what differs"
            );
        }
        _ => transcript.write(),
    }
}
