//! Admission scenarios against recordings of kube-apiserver: the response, its warnings, every review that a webhook
//! received, the audit annotations and the metrics.
//!
//! `docs/conformance.md` describes how to run other scenarios, or a selection.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod client;
mod gaps;
mod hooks;
mod image_policy;
mod node;
mod normalise;
mod pattern;
mod plugins;
mod run;
mod scenario;
mod validation;

use std::collections::VecDeque;
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex};

use lockgate_api::admission::UserInfo;
use lockgate_apiserver::{Controllers, Settings, TestServer};
use tokio::task::JoinSet;

use client::{AuditLog, Client};
use gaps::{Gaps, Verdict};
use hooks::{Certificates, Hooks};
use node::Node;
use run::Bench;
use scenario::Scenario;

/// The maximum number of reported differences per scenario.
const MAX_LINES: usize = 20;

/// The audit policy of scenarios: everything is logged.
const AUDIT_POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n";

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_end_as_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join("conformance");
    // Cargo runs tests in the crate's folder, not in the current one.
    let folder = |variable| std::env::var_os(variable).map(|path| root.join(path));
    let scenarios = folder("LOCKGATE_SCENARIOS");
    let only = std::env::var("LOCKGATE_SCENARIO").ok();
    let whole = scenarios.is_none() && only.is_none();
    let scenarios = scenarios.unwrap_or_else(|| own.join("scenarios"));
    let expected =
        folder("LOCKGATE_EXPECTED").unwrap_or_else(|| scenarios.with_file_name("expected"));
    let gaps = std::fs::read_to_string(own.join("gaps.toml")).unwrap();
    let gaps = Gaps::parse(&gaps).unwrap();
    let scenarios = scenario::load(&scenarios, only.as_deref().unwrap_or("*")).unwrap();
    assert!(!scenarios.is_empty(), "no scenario was chosen");
    let names: Vec<String> = scenarios
        .iter()
        .map(|scenario| scenario.name.clone())
        .collect();

    let mut report = Report::default();
    if whole {
        let names = [names, plugins::all_scenarios()].concat();
        for name in gaps.unknown(&names) {
            report.fail(name, "gaps.toml lists it, and there is no such scenario");
        }
    }
    let set_up = SetUp {
        settings: Arc::new(|_| settings()),
        has_metrics: true,
    };
    for (name, outcome) in run_all(scenarios, set_up).await {
        let lines = match outcome {
            Ok(observed) => differences(&expected, &name, &observed),
            Err(error) => vec![format!("not run: {error}")],
        };
        report.add(&name, gaps.judge(&name, lines));
    }
    report.end();
}

/// The server configuration of the recorded scenarios.
#[derive(Clone)]
struct SetUp {
    /// Its settings; the folder is for the files they refer to.
    settings: Arc<dyn Fn(&Path) -> Settings + Send + Sync>,
    has_metrics: bool,
}

/// Runs scenarios on several servers concurrently, and sequentially on each server.
async fn run_all(scenarios: Vec<Scenario>, set_up: SetUp) -> Vec<(String, Result<Node, String>)> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    // Twice as many servers as cores: some scenarios wait for slow webhooks.
    let servers = (2 * cores).min(scenarios.len());
    let certificates = Arc::new(Certificates::make());
    let mut queue: VecDeque<Scenario> = scenarios.into();
    // Scenarios with delays run first, so that they do not run last and alone.
    queue
        .make_contiguous()
        .sort_by_key(|scenario| !scenario.spec.to_json().contains("\"delay\": "));
    let queue = Arc::new(Mutex::new(queue));
    let mut workers = JoinSet::new();
    for _ in 0..servers {
        let (queue, certificates) = (Arc::clone(&queue), Arc::clone(&certificates));
        let set_up = set_up.clone();
        workers.spawn(async move {
            let folder = tempfile::tempdir().unwrap();
            let (server, mut bench) = start(folder.path(), &certificates, &set_up).await;
            let mut outcomes = Vec::new();
            loop {
                let next = queue.lock().unwrap().pop_front();
                let Some(Scenario { name, spec }) = next else {
                    break;
                };
                let outcome = run::run(&mut bench, &spec).await;
                outcomes.push((name, outcome));
            }
            server.stop().await;
            bench.hooks.stop().await;
            outcomes
        });
    }
    let mut outcomes = workers.join_all().await.concat();
    outcomes.sort_by(|(a, _), (b, _)| a.cmp(b));
    outcomes
}

async fn start(folder: &Path, certificates: &Certificates, set_up: &SetUp) -> (TestServer, Bench) {
    let policy = folder.join("policy.yaml");
    let log = folder.join("audit.log");
    std::fs::write(&policy, AUDIT_POLICY).unwrap();
    let admin = UserInfo {
        username: String::from("admin"),
        uid: String::from("admin"),
        groups: Some(vec![String::from("system:masters")]),
        extra: None,
    };
    let server = TestServer::start_with(Settings {
        tokens: vec![(String::from("T"), admin)],
        audit_policy_file: Some(policy),
        audit_log_path: Some(log.clone()),
        ..(set_up.settings)(folder)
    })
    .await
    .unwrap();
    let bench = Bench {
        client: Client::new(server.address(), server.ca_pem(), "T"),
        hooks: Hooks::start(certificates).await,
        audit: AuditLog::open(&log).unwrap(),
        has_metrics: set_up.has_metrics,
    };
    (server, bench)
}

/// The recordings are of an API server without controllers, except for the deletion of namespaces.
fn settings() -> Settings {
    Settings {
        controllers: Controllers {
            namespace: true,
            ..Controllers::all(false)
        },
        // It was disabled in the recordings.
        disable_plugins: vec![String::from("ServiceAccount")],
        ..Settings::default()
    }
}

/// The differences of a run from its recording.
fn differences(expected: &Path, name: &str, observed: &Node) -> Vec<String> {
    let file = expected.join(format!("{name}.json"));
    let recording = std::fs::read_to_string(&file)
        .map_err(|error| error.to_string())
        .and_then(|text| Node::parse_json(&text));
    match recording {
        Ok(recording) => normalise::differences(&recording, observed),
        Err(error) => vec![format!("no recording {}: {error}", file.display())],
    }
}

/// The final report.
#[derive(Debug, Default)]
struct Report {
    agreed: usize,
    known: usize,
    failed: Vec<String>,
}

impl Report {
    fn add(&mut self, name: &str, verdict: Verdict) {
        match verdict {
            Verdict::Agrees => self.agreed += 1,
            Verdict::KnownGap => self.known += 1,
            Verdict::UnexpectedPass => {
                self.fail(
                    name,
                    "gaps.toml lists it, but it ends as recorded: remove it there",
                );
            }
            Verdict::Differs(lines) => {
                let mut shown = lines.iter().take(MAX_LINES).cloned().collect::<Vec<_>>();
                if lines.len() > MAX_LINES {
                    shown.push(format!("… and {} more", lines.len() - MAX_LINES));
                }
                self.fail(name, &shown.join("\n"));
            }
        }
    }

    fn fail(&mut self, name: &str, text: &str) {
        let text = text.replace('\n', "\n     ");
        self.failed.push(format!("FAIL {name}\n     {text}"));
    }

    /// Prints the report, and fails the test on any failure.
    fn end(self) {
        let Self {
            agreed,
            known,
            failed,
        } = self;
        let count = failed.len();
        let summary = format!("{agreed} as recorded, {known} known to differ, {count} failed");
        assert!(failed.is_empty(), "{}\n{summary}", failed.join("\n"));
        println!("{summary}");
    }
}
