//! Commands whose output is known to differ: the list in `docs/compatibility.md`.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// The commands of a transcript that are listed in the document, one per row: `` | name | `command` | reason | ``.
pub(crate) fn of(transcript: &str) -> BTreeSet<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let text = std::fs::read_to_string(path).unwrap();
    let start = format!("| {transcript} | `");
    let rows = text.lines().filter_map(|line| line.strip_prefix(&start));
    rows.map(|row| {
        let (command, reason) = row.split_once("` | ").unwrap();
        assert!(reason.len() > 10, "`{command}` is listed without a reason");
        command.replace("\\|", "|")
    })
    .collect()
}
