//! Runs the guides: writes their files, executes their commands, and compares the output.
//!
//! A YAML or JSON block whose first line is `# NAME` or whose info string is `json NAME` is a file. In a `console`
//! block, lines after `$ ` are commands and the others their output; `…` matches anything up to the next given line.

use std::path::Path;
use std::process::Command;

use crate::served::Served;

fn run(guide: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(guide);
    let text = std::fs::read_to_string(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_lockgate"));
    let search = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut commands = 0;
    for block in text.split("\n```").skip(1).step_by(2) {
        let (info, body) = block.split_once('\n').unwrap_or((block, ""));
        let mut words = info.split_whitespace();
        match words.next() {
            Some("yaml") => {
                let name = body.lines().next().and_then(|line| line.strip_prefix("# "));
                if let Some(name) = name.filter(|name| name.ends_with(".yaml")) {
                    write(folder.path(), name, body);
                }
            }
            Some("json") => {
                if let Some(name) = words.next() {
                    write(folder.path(), name, body);
                }
            }
            Some("console") => {
                for (command, wanted) in steps(body) {
                    commands += 1;
                    let output = Command::new("sh")
                        .args(["-c", &command])
                        .current_dir(folder.path())
                        .env("PATH", &search)
                        .env("NO_COLOR", "1")
                        .env_remove("KUBECONFIG")
                        .output()
                        .unwrap();
                    let printed = String::from_utf8(output.stdout).unwrap()
                        + &String::from_utf8(output.stderr).unwrap();
                    assert!(
                        matches(&printed, &wanted),
                        "{guide}: $ {command}\nprints\n{printed}\nand the guide says\n{wanted}"
                    );
                }
            }
            _ => {}
        }
    }
    assert!(commands > 0, "{guide} has no commands");
}

fn write(folder: &Path, name: &str, body: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("{body}\n")).unwrap();
}

/// The commands of a block with their output.
fn steps(body: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in body.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push((command.to_owned(), String::new())),
            None => {
                if let Some((command, printed)) = steps.last_mut() {
                    if command.ends_with('\\') {
                        command.pop();
                        command.push_str(line.trim_start());
                    } else {
                        printed.push_str(line);
                        printed.push('\n');
                    }
                }
            }
        }
    }
    steps
}

/// Compares line by line, ignoring trailing spaces; a line of `…` matches any lines.
fn matches(printed: &str, wanted: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    };
    let (printed, wanted) = (lines(printed.trim_end()), lines(wanted.trim_end()));
    let mut at = 0;
    let mut skips = false;
    for line in &wanted {
        if line == "…" {
            skips = true;
            continue;
        }
        let found = printed
            .get(at..)
            .unwrap_or_default()
            .iter()
            .position(|it| it == line);
        match found {
            Some(0) => at += 1,
            Some(more) if skips => at += more + 1,
            _ => return false,
        }
        skips = false;
    }
    skips || at == printed.len()
}

#[test]
fn compares_with_gaps() {
    assert!(matches("a\nb\nc\n", "a\n…\nc\n"));
    assert!(matches("a\nb\n", "a\n…\n"));
    assert!(!matches("a\nb\n", "a\n"));
    assert!(!matches("a\nb\n", "b\n"));
}

#[test]
fn the_guide_to_explain_works() {
    run("explain.md");
}

#[test]
fn the_guide_to_test_works() {
    run("test.md");
}

#[test]
fn the_guide_to_replay_works() {
    run("replay.md");
}

/// A page whose commands need a server: the page's `lockgate serve` is started and keeps running, while everything
/// after it is run as in another terminal. The files are those of the examples.
struct Live {
    folder: tempfile::TempDir,
    served: Option<Served>,
    ran: usize,
}

impl Live {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("pod.yaml", POD), ("my-webhook.yaml", WEBHOOK)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self {
            folder,
            served: None,
            ran: 0,
        }
    }

    fn serve(&mut self, line: &str) {
        self.served = None;
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("lockgate"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
        let mut words: Vec<&str> = words.collect();
        // The ports may be in use.
        if let Some(at) = words.iter().position(|word| *word == "--secure-port") {
            words.drain(at..at + 2);
        }
        command
            .args(words)
            .arg("--secure-port=0")
            .current_dir(self.folder.path());
        let mut served = Served::start(command);
        served.port();
        self.served = Some(served);
    }

    fn run(&mut self, line: &str) {
        let folder = self.folder.path();
        let line = line.replace(
            "/var/lib/lockgate",
            &folder.join("data").display().to_string(),
        );
        let line = line.split("  #").next().unwrap_or_default().trim();
        if line.starts_with("lockgate serve") {
            self.serve(line);
        } else if line.starts_with("export ") {
            // It is set for all further commands.
        } else {
            let program = Path::new(env!("CARGO_BIN_EXE_lockgate"));
            let search = format!(
                "{}:{}",
                program.parent().unwrap().display(),
                std::env::var("PATH").unwrap()
            );
            if line.starts_with("lockgate snapshot restore") {
                // Without a running server.
                self.served = None;
            }
            let output = Command::new("bash")
                .args(["-c", line])
                .current_dir(folder)
                .env("PATH", search)
                .env("HOME", folder)
                .env("KUBECONFIG", "lockgate.kubeconfig")
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "$ {line}\n{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        self.ran += 1;
    }
}

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
  "spec": {"containers": [{"name": "c", "image": "nginx"}]}}"#;
/// It matches no resource, so no webhook server is needed.
const WEBHOOK: &str = r#"{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
  "metadata": {"name": "name"}, "webhooks": [{"name": "a.example.com", "sideEffects": "None",
  "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}}]}"#;

/// The commands of a page's shell blocks, with continuation lines joined.
fn commands(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("\n```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.split_once('\n'));
    let shell = blocks.filter(|(info, _)| info.trim() == "sh");
    shell
        .flat_map(|(_, body)| {
            let joined = body.replace("\\\n", " ");
            joined.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_commands_of_serving_work() {
    let mut live = Live::new();
    for line in commands("serve.md") {
        live.run(&line);
    }
    assert!(live.ran > 4, "{}", live.ran);
}

#[test]
fn the_commands_of_simulation_work() {
    let mut live = Live::new();
    for line in commands("simulate.md") {
        live.run(&line);
    }
    assert!(live.ran > 5, "{}", live.ran);
}

/// Copies and servers on etcd are tested elsewhere.
#[test]
fn the_commands_of_backups_work() {
    let mut live = Live::new();
    live.run("lockgate serve --data-dir /var/lib/lockgate");
    let lines = commands("storage.md").into_iter();
    for line in lines.filter(|line| line.starts_with("lockgate snapshot")) {
        live.run(&line);
    }
    assert_eq!(live.ran, 4);
    live.run("lockgate serve --data-dir /var/lib/lockgate");
}

#[test]
fn the_commands_of_migration_work() {
    let mut live = Live::new();
    let lines = commands("migration.md").into_iter();
    for line in lines.filter(|line| line.starts_with("lockgate ")) {
        live.run(&line);
    }
    assert_eq!(live.ran, 2);
    let installed = live.folder.path().join("bin/envtest/kube-apiserver");
    assert!(installed.exists());
}

/// NAME is the configuration that blocks all requests.
#[test]
fn the_commands_of_a_lockout_work() {
    let mut live = Live::new();
    live.run("lockgate serve");
    live.run("kubectl apply -f my-webhook.yaml");
    let (deletions, others): (Vec<_>, Vec<_>) = commands("operations/bootstrapping.md")
        .into_iter()
        .partition(|line| line.contains("delete"));
    assert_eq!((deletions.len(), others.len()), (1, 2));
    for line in others.iter().chain(&deletions) {
        live.run(&line.replace("NAME", "name"));
    }
}
