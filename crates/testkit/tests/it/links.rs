//! Every relative link of the documentation has an existing file and heading as its target.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn links_of_the_documentation_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = Vec::new();
    for top in [
        "docs", "bench", "fuzz", "charts", "examples", "apps", "crates",
    ] {
        collect(&root.join(top), &mut pages);
    }
    let tops = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    pages.extend(tops.filter(|path| path.extension().is_some_and(|end| end == "md")));
    assert!(pages.len() > 20, "found {} pages only", pages.len());
    let broken: Vec<String> = pages.iter().flat_map(|page| broken_links(page)).collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// Collects the Markdown files below a directory.
fn collect(directory: &Path, pages: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "node_modules" {
            collect(&path, pages);
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
}

fn broken_links(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut broken = Vec::new();
    for link in links(&text) {
        // External links are not checked.
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
        let target = if file.is_empty() {
            page.to_owned()
        } else {
            page.parent().unwrap().join(file)
        };
        if !target.exists() {
            broken.push(format!("{}: {link}: no such file", page.display()));
        } else if !heading.is_empty() && target.extension().is_some_and(|end| end == "md") {
            let text = fs::read_to_string(&target).unwrap();
            if !anchors(&text).contains(heading) {
                broken.push(format!("{}: {link}: no such heading", page.display()));
            }
        }
    }
    broken
}

/// The targets of `[text](target)` outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Every second piece between backticks is code.
        for piece in line.split('`').step_by(2) {
            let mut rest = piece;
            while let Some((_, tail)) = rest.split_once("](") {
                let Some((target, after)) = tail.split_once(')') else {
                    break;
                };
                found.push(target.trim().to_owned());
                rest = after;
            }
        }
        // A link whose text is code: [`lint`](lint.md).
        for (_, tail) in line
            .match_indices("`](")
            .map(|(at, _)| line.split_at(at + 3))
        {
            if let Some((target, _)) = tail.split_once(')') {
                found.push(target.trim().to_owned());
            }
        }
    }
    found
}

/// The lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The anchors of the headings, as Git hosts generate them.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .flat_map(char::to_lowercase)
                .collect()
        })
        .collect()
}
