//! Every installed kubectl, running the recorded transcripts.

use crate::runner::{Client, check};
use crate::tools::kubectls;

/// The transcripts.
const NAMES: [&str; 5] = ["core", "custom", "generators", "reads", "writes"];

/// The versions that run a transcript. The oldest and the newest run all transcripts, each version in between runs one,
/// which takes a third of the time; with `LOCKGATE_CLIENTS=all` each version runs all.
fn versions(name: &str) -> Vec<Client> {
    let found = kubectls();
    let all = std::env::var_os("LOCKGATE_CLIENTS").is_some_and(|value| value == "all")
        || std::env::var_os("LOCKGATE_RECORD").is_some();
    let last = found.len().saturating_sub(1);
    let mine = |index: usize| NAMES.get(index % NAMES.len()) == Some(&name);
    let chosen = found.iter().enumerate();
    chosen
        .filter(|(index, _)| all || *index == 0 || *index == last || mine(*index))
        .map(|(_, client)| client.clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn core() {
    check("core", &versions("core")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom() {
    check("custom", &versions("custom")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generators() {
    check("generators", &versions("generators")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads() {
    check("reads", &versions("reads")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes() {
    check("writes", &versions("writes")).await;
}
