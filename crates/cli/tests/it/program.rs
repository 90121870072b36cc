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
fn the_demo_shows_an_accepted_and_a_refused_configuration() {
    let run = lockgate(&["demo"]);
    insta::assert_snapshot!(run.transcript());
}

#[test]
fn the_readme_shows_what_the_demo_prints() {
    let readme = include_str!("../../../../README.md");
    let shown = readme
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    assert!(lockgate(&["demo"]).stdout.contains(shown));
}
