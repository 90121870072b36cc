//! The tutorial's code matches this example.

use std::path::Path;
use std::process::Command;

/// The text of a file of this repository.
fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).expect("the file is in the repository")
}

/// Checks that the tutorial shows a text in a block of its own.
fn is_shown(text: &str, what: &str) {
    let tutorial = file("docs/tutorial.md");
    let shown = tutorial.split("\n```").any(|block| {
        let code = block.split_once('\n').map_or("", |(_, code)| code);
        code.trim() == text.trim()
    });
    assert!(
        shown,
        "docs/tutorial.md does not show {what} as it is:\n{text}"
    );
}

#[test]
fn the_tutorial_shows_this_program() {
    for path in ["src/lib.rs", "src/main.rs", "tests/webhook.rs"] {
        is_shown(&file(&format!("examples/first-webhook/{path}")), path);
    }
}

#[test]
fn the_tutorial_shows_what_is_registered() {
    let run = Command::new(env!("CARGO_BIN_EXE_first-webhook"))
        .arg("manifests")
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let printed = String::from_utf8(run.stdout).unwrap();
    assert_eq!(printed, file("examples/first-webhook/webhook.yaml"));
    is_shown(&printed, "the manifests");
}
