//! Behaviour common to all commands.

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

/// The demo's output without durations, which differ.
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
                // Durations are right-aligned in tables.
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

/// The width of a character and the height of a line, in pixels.
const CELL: (usize, usize) = (8, 18);

/// An SVG of a terminal with these lines.
fn picture(lines: &[&str]) -> String {
    use std::fmt::Write as _;
    let columns = lines.iter().map(|line| line.chars().count()).max();
    let (width, height) = CELL;
    let (wide, high) = (
        columns.unwrap_or(0) * width + 4 * width,
        (lines.len() + 2) * height,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" font-family=\"monospace\" font-size=\"13\">\n\
         <title>lockgate demo</title>\n\
         <rect width=\"{wide}\" height=\"{high}\" rx=\"6\" fill=\"#16181d\"/>\n"
    );
    for (row, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let color = match text.get(..4) {
            _ if text.starts_with('─') || text.starts_with('$') => "#7fd1ff",
            Some("403 ") => "#ff7b72",
            Some("201 ") => "#7ee787",
            Some("Warn") => "#e3b341",
            _ if text.contains("denied 403") => "#ff7b72",
            _ => "#d0d4dc",
        };
        let escaped = line
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let (x, y) = (2 * width, (row + 2) * height - 4);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" fill=\"{color}\" xml:space=\"preserve\">{escaped}</text>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[test]
fn the_picture_of_the_readme_shows_the_demo() {
    let printed = demo();
    let part = |title: &str| -> Vec<&str> {
        let at = printed.find(title).unwrap();
        let from = printed[..at].rfind('\n').unwrap() + 1;
        printed[from..]
            .split("\n\n")
            .next()
            .unwrap()
            .lines()
            .collect()
    };
    // Durations and patches vary in width; the picture omits the tables.
    let is_shown = |line: &&str| !line.contains(" ms ") && !line.contains("TIME");
    let mut lines = vec!["$ lockgate demo", ""];
    for title in [
        "3. A ConfigMap without an owner",
        "8. A Pod with an untagged image",
        "10. The same Pod there",
    ] {
        lines.extend(part(title).into_iter().filter(is_shown));
        lines.push("");
    }
    let picture = picture(&lines);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images/demo.svg");
    if std::env::var_os("LOCKGATE_UPDATE_PICTURES").is_some() {
        std::fs::write(file, &picture).unwrap();
    }
    let drawn = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(
        drawn, picture,
        "draw it again with LOCKGATE_UPDATE_PICTURES=1"
    );
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
