//! End-to-end tests of the binary: a real process, its output and exit code.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod agreement;
mod cel;
mod charts;
mod console;
mod dev;
mod durability;
mod envtest;
mod examples;
mod fixing;
mod guides;
mod hostile;
mod lint;
mod logging;
mod manifests;
mod offline;
mod on_etcd;
mod plugins;
mod program;
mod quotas;
mod served;
mod storage;
mod workloads;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs `lockgate` in the fixtures folder.
fn lockgate(args: &[&str]) -> Run {
    lockgate_with_stdin(args, "")
}

/// Runs `lockgate` with standard input.
fn lockgate_with_stdin(args: &[&str], stdin: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockgate"))
        .args(args)
        .current_dir(fixtures())
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = stdin.to_owned();
    // Written concurrently with reading, so that full pipes cannot deadlock.
    let writer = std::thread::spawn(move || {
        // The program may close its standard input early.
        let _ = pipe.write_all(input.as_bytes());
    });
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Run {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The result of a run.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// The exit code and all output, for snapshots.
    fn transcript(&self) -> String {
        format!(
            "exit code: {}\n----- stdout -----\n{}----- stderr -----\n{}",
            self.code
                .map_or_else(|| String::from("none"), |code| code.to_string()),
            self.stdout,
            self.stderr
        )
    }
}
