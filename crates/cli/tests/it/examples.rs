//! The examples of `--help`, and the commands of the documentation: each is parsed, and those that need no cluster and
//! no other program are run.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory as _;
use lockgate_cli::args::Cli;

use super::fixtures;

/// Substrings of commands that are not run here: they need a cluster, another program or a network, or run until
/// stopped. They are tested elsewhere.
const NOT_RUN: [&str; 21] = [
    "--context",
    "--kubeconfig admin.conf",
    "podman ",
    "lockgate snapshot",
    "helm ",
    "kubectl ",
    "cargo ",
    "go test",
    "lockgate serve",
    "lockgate dev",
    "lockgate demo",
    "lockgate plugins serve",
    "lockgate store copy",
    "capture webhook",
    "envtest start",
    "envtest install",
    "--watch",
    "--webhook https",
    "source <(",
    "${fpath",
    "lockgate completions",
];

/// The lines of a help text after `Examples:`, with continuation lines joined and comments removed.
fn lines_of(help: &str) -> Vec<String> {
    let Some((_, rest)) = help.split_once("Examples:\n") else {
        return Vec::new();
    };
    let mut lines: Vec<String> = Vec::new();
    let mut continues = false;
    for line in rest.lines().take_while(|line| !line.trim().is_empty()) {
        let line = line.split("  #").next().unwrap_or_default().trim();
        let whole = line.strip_suffix('\\').unwrap_or(line).trim_end();
        match lines.last_mut() {
            Some(last) if continues => {
                last.push(' ');
                last.push_str(whole);
            }
            _ => lines.push(whole.to_owned()),
        }
        continues = line.ends_with(['\\', '|']);
    }
    lines
}

/// The examples of a command and its subcommands.
fn examples(command: &clap::Command, found: &mut Vec<String>) {
    let help = command
        .get_after_long_help()
        .or_else(|| command.get_after_help());
    if let Some(help) = help {
        found.extend(lines_of(&help.to_string()));
    }
    for inner in command.get_subcommands() {
        examples(inner, found);
    }
}

/// The arguments of each `lockgate …` in a shell line, without redirections.
fn invocations(line: &str) -> Vec<Vec<String>> {
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    let (mut word, mut has_word, mut quote) = (String::new(), false, None);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let end_word = |commands: &mut Vec<Vec<String>>, word: &mut String, has: &mut bool| {
            if std::mem::take(has)
                && let Some(last) = commands.last_mut()
            {
                last.push(std::mem::take(word));
            }
        };
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('"'), '\\') => word.extend(characters.next()),
            (Some(_), inside) => word.push(inside),
            (None, '\'' | '"') => {
                quote = Some(character);
                has_word = true;
            }
            (None, '|' | '&' | ';' | '(' | ')') => {
                end_word(&mut commands, &mut word, &mut has_word);
                commands.push(Vec::new());
            }
            // A redirection is followed by a file.
            (None, '>' | '<') => {
                end_word(&mut commands, &mut word, &mut has_word);
                while characters.next_if(|next| " >&".contains(*next)).is_some() {}
                while characters.next_if(|next| !next.is_whitespace()).is_some() {}
            }
            (None, blank) if blank.is_whitespace() => {
                end_word(&mut commands, &mut word, &mut has_word);
            }
            (None, other) => {
                word.push(other);
                has_word = true;
            }
        }
    }
    if has_word && let Some(last) = commands.last_mut() {
        last.push(word);
    }
    let is_ours = |words: &Vec<String>| words.first().is_some_and(|first| first == "lockgate");
    commands.into_iter().filter(is_ours).collect()
}

/// The parse error of a command line, if any.
fn refusal(words: &[String]) -> Option<String> {
    use clap::error::ErrorKind;
    match Cli::command().try_get_matches_from(words) {
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => None,
        Err(error) if error.kind() == ErrorKind::DisplayVersion => None,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn reads_lines_as_a_shell_does() {
    let line = "helm template x | lockgate lint -f - > out && (lockgate cel check \"a \\\"b\\\" 'c'\"; echo)";
    let want = [
        vec!["lockgate", "lint", "-f", "-"],
        vec!["lockgate", "cel", "check", "a \"b\" 'c'"],
    ];
    assert_eq!(invocations(line), want);
}

#[test]
fn every_example_of_the_help_works() {
    let mut found = Vec::new();
    examples(&Cli::command(), &mut found);
    assert!(found.len() > 60, "{} examples", found.len());
    let mut ran = 0;
    for line in &found {
        let invocations = invocations(line);
        for words in &invocations {
            assert_eq!(refusal(words), None, "{line}");
        }
        let is_run = !invocations.is_empty() && NOT_RUN.iter().all(|part| !line.contains(part));
        if is_run {
            run(line);
            ran += 1;
        }
    }
    assert!(ran > 35, "{ran} examples were run");
}

/// Runs a line in a folder with the files of the examples.
fn run(line: &str) {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixtures().join("examples"), folder.path());
    if line.contains("--to capture.jsonl") {
        // Captures are never overwritten.
        std::fs::remove_file(folder.path().join("capture.jsonl")).unwrap();
    }
    run_in(folder.path(), line);
}

fn run_in(folder: &Path, line: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_lockgate"));
    let search = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", line])
        .current_dir(folder)
        .env("PATH", search)
        .env("HOME", folder)
        .env("NO_COLOR", "1")
        .env_remove("KUBECONFIG")
        .output()
        .unwrap();
    let code = output.status.code();
    // 3: success with findings.
    assert!(
        matches!(code, Some(0 | 3)),
        "{line}\n{code:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&place).unwrap();
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), &place).unwrap();
        }
    }
}

/// The Markdown files of the repository.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![
        root.join("docs"),
        root.join("examples"),
        root.join("packages"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() && name != "node_modules" && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// Pages that `guides` runs in full.
const RUN_ELSEWHERE: [&str; 3] = ["docs/explain.md", "docs/test.md", "docs/replay.md"];

/// The folder in which the commands of a page are run.
fn folder_of(page: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    if page.starts_with(&examples) {
        copy(page.parent().unwrap(), folder.path());
    } else {
        copy(&fixtures().join("examples"), folder.path());
        std::os::unix::fs::symlink(examples, folder.path().join("examples")).unwrap();
        // Other file names used in pages.
        for (name, file) in [
            ("rendered.yaml", "charts/rendered.yaml"),
            ("hooks.yaml", "answers.yaml"),
            ("web.yaml", "deployment.yaml"),
        ] {
            std::fs::copy(folder.path().join(file), folder.path().join(name)).unwrap();
        }
    }
    folder
}

#[test]
fn every_command_of_the_documentation_is_one() {
    let (mut seen, mut ran) = (0, 0);
    let mut wrong = Vec::new();
    for page in pages() {
        let is_run_elsewhere = RUN_ELSEWHERE.iter().any(|end| page.ends_with(end));
        let folder = folder_of(&page);
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("\n```").skip(1).step_by(2) {
            let (info, body) = block.split_once('\n').unwrap_or((block, ""));
            let is_console = info.starts_with("console");
            if !is_console && !matches!(info.trim(), "sh" | "bash" | "shell") {
                continue;
            }
            let joined = body.replace("\\\n", " ");
            for line in joined.lines() {
                let line = match (is_console, line.strip_prefix("$ ")) {
                    (true, None) => continue,
                    (_, command) => command.unwrap_or(line),
                };
                let line = line.split(" #").next().unwrap_or_default();
                let line = line.replace("cargo run --release -- ", "lockgate ");
                // `...` marks omissions.
                if line.contains("...") || line.contains('…') {
                    continue;
                }
                let invocations = invocations(&line);
                for words in &invocations {
                    seen += 1;
                    if let Some(error) = refusal(words) {
                        wrong.push(format!("{}: {line}\n{error}", page.display()));
                    }
                }
                let is_run = !invocations.is_empty()
                    && !is_run_elsewhere
                    && NOT_RUN.iter().all(|part| !line.contains(part));
                if is_run {
                    run_in(folder.path(), &line);
                    ran += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 40, "{seen} commands");
    assert!(ran > 15, "{ran} commands were run");
}
