//! What every command has in common.

use super::lockgate;

#[test]
fn prints_its_version() {
    let run = lockgate(&["version"]);
    assert_eq!(run.code, Some(0));
    assert_eq!(
        run.stdout,
        format!("lockgate {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn help_is_as_documented() {
    for (name, args) in [
        ("help", &["--help"][..]),
        ("help_lint", &["lint", "--help"]),
        ("help_lint_short", &["lint", "-h"]),
        ("help_manifests", &["manifests", "--help"]),
    ] {
        let run = lockgate(args);
        assert_eq!(run.code, Some(0));
        insta::assert_snapshot!(name, run.stdout);
    }
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    for args in [
        &["lnt"][..],
        &[],
        &["lint"],
        &["lint", "-o", "xml", "x"],
        &["lint", "--no-such"],
    ] {
        let run = lockgate(args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
        assert!(!run.stderr.is_empty());
    }
    assert!(
        lockgate(&["lnt"]).stderr.contains("'lint'"),
        "suggests the nearest command"
    );
}

#[test]
fn completes_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let run = lockgate(&["completions", shell]);
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("lockgate"));
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let run = lockgate(&["man", pages.to_str().unwrap()]);
    assert_eq!(run.code, Some(0), "{}", run.transcript());
    for (page, text) in [
        ("lockgate.1", "lockgate\\-serve(1)"),
        ("lockgate-serve.1", "\\-\\-secure\\-port"),
        ("lockgate-envtest-start.1", "one line of JSON"),
    ] {
        let written = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(written.contains(text), "{page}: {written}");
    }
    let refused = lockgate(&["man", "/dev/null/man1"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("cannot write manual pages"));
}

#[test]
fn as_a_plugin_of_kubectl_it_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-lockgate");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_lockgate"), &plugin).unwrap();
    let output = std::process::Command::new(&plugin)
        .args(["lint", "--help"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Usage: kubectl lockgate lint"), "{help}");
}

/// The demo's output without the times, which differ.
fn demo() -> String {
    let run = lockgate(&["demo"]);
    assert_eq!(run.code, Some(0), "{}", run.transcript());
    let mut text = String::new();
    for line in run.stdout.split_inclusive('\n') {
        for word in line.split_inclusive(' ') {
            let time = word.trim();
            let is_time = time.parse::<f64>().is_ok() && !time.ends_with('.') && time.contains('.');
            match is_time {
                false => text.push_str(word),
                // In a table the time is aligned to the right.
                true if line.starts_with("   ") => {
                    text.push_str(&format!("{:>width$} ", "0.0", width = time.len()));
                }
                true => text.push_str("0.0 "),
            }
        }
    }
    text
}

#[test]
fn the_demo_shows_what_becomes_of_a_dozen_requests() {
    insta::assert_snapshot!(demo());
}

#[test]
fn the_readme_shows_what_the_demo_prints() {
    let readme = include_str!("../../../../README.md");
    let shown = readme
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    assert!(demo().contains(shown), "{}", demo());
}
