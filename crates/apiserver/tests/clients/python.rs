//! The official Python client.

use std::path::PathBuf;

use tokio::process::Command;

use crate::support::bare_server;
use crate::tools::installed;

/// Runs a program that exits with an error if a check fails.
async fn run(program: &str) {
    let server = bare_server().await;
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let output = Command::new(installed("python3"))
        .arg(folder.join("python").join(program))
        .current_dir(folder.join("files"))
        .env("KUBECONFIG", server.kubeconfig_path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .await
        .unwrap();
    server.stop().await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typed() {
    run("typed.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamic() {
    run("dynamic.py").await;
}
