//! The guides, run: their files are written, their commands executed, and their output compared.
//!
//! A block of YAML or JSON whose first line is `# NAME` or whose info string is `json NAME` is a file. In a
//! block of `console`, lines after `$ ` are commands and the others what they print; `…` stands for anything
//! up to the next line that is given.

use std::path::Path;
use std::process::Command;

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

/// The commands of a block with what each prints.
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

/// Compares line by line; spaces at the end do not count, and a line of `…` stands for any lines.
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
