//! The top-level modules of every crate form a DAG: understanding a module requires those it uses, and never itself
//! again.
//!
//! The graph is computed from the sources: a module uses another when one of its files names it after
//! `crate::`, or after enough `super::`. Test modules are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates with remaining cycles, and their sizes. An entry that is no longer needed, or larger than needed, fails the
/// test, so that the list only shrinks.
const KNOTS: &[(&str, &[usize])] = &[];

/// Crates whose `lib.rs` lists the modules bottom up: each uses only its own group and those above.
const ORDERED: &[&str] = &["api", "apiserver", "cel", "go", "store"];

type Graph = BTreeMap<String, BTreeSet<String>>;

fn workspace() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.parent().unwrap().to_owned()
}

/// The crates of the workspace by folder name.
fn crates() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for parent in ["crates", "apps", "examples"] {
        let Ok(folders) = fs::read_dir(workspace().join(parent)) else {
            continue;
        };
        for folder in folders {
            let folder = folder.unwrap().path();
            if folder.join("src").is_dir() {
                let name = folder.file_name().unwrap().to_string_lossy().into_owned();
                found.insert(name, folder.join("src"));
            }
        }
    }
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The path of the module in a file: `["write", "create"]` for `write/create.rs`, empty for the root.
fn module_path(src: &Path, file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(src).unwrap().with_extension("");
    let mut steps: Vec<String> = relative
        .iter()
        .map(|step| step.to_string_lossy().into_owned())
        .collect();
    if steps.last().is_some_and(|last| last == "mod") {
        steps.pop();
    }
    if matches!(steps.as_slice(), [root] if root == "lib" || root == "main") {
        steps.clear();
    }
    steps
}

/// The identifiers and punctuation of a source text, without comments, literals and test modules.
fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if let Some(length) = raw_string(rest) {
            at += length;
        } else if bytes[at] == b'"' {
            at += quoted(rest, b'"');
        } else if bytes[at] == b'\'' {
            // A lifetime has no closing quote.
            let letter = rest[1..].chars().next().map_or(1, char::len_utf8);
            let is_char = rest[1..].starts_with('\\') || rest[1 + letter..].starts_with('\'');
            at += if is_char { quoted(rest, b'\'') } else { 1 };
        } else if is_word(bytes[at]) {
            let end = rest.bytes().position(|byte| !is_word(byte));
            let end = end.unwrap_or(rest.len());
            tokens.push(&rest[..end]);
            at += end;
        } else {
            if !bytes[at].is_ascii_whitespace() {
                tokens.push(&rest[..1]);
            }
            at += 1;
        }
    }
    without_tests(tokens)
}

/// The length of the raw string at the start of a text.
fn raw_string(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = rest.bytes().take_while(|&byte| byte == b'#').count();
    let body = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close)? + close.len();
    Some(text.len() - body.len() + end)
}

/// The length of the literal at the start of a text.
fn quoted(text: &str, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// Removes the items after `#[cfg(test)]`.
fn without_tests(tokens: Vec<&str>) -> Vec<&str> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].starts_with(&CFG_TEST) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        at += CFG_TEST.len();
        let mut depth = 0_usize;
        while at < tokens.len() {
            let token = tokens[at];
            at += 1;
            match token {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(token, "}" | ";") {
                break;
            }
        }
    }
    kept
}

/// The top-level modules that a file names.
fn used(path: &[String], tokens: &[&str], modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(after) = after_root(path, tokens, at) else {
            at += 1;
            continue;
        };
        at = after;
        if tokens.get(at) == Some(&"{") {
            // A group of imports: only its first level names modules.
            let mut depth = 0;
            let mut starts = false;
            while at < tokens.len() {
                match tokens[at] {
                    "{" => {
                        depth += 1;
                        starts = depth == 1;
                    }
                    "}" => depth -= 1,
                    "," => starts = depth == 1,
                    word => {
                        if starts && modules.contains(word) {
                            used.insert(word.to_owned());
                        }
                        starts = false;
                    }
                }
                at += 1;
                if depth == 0 {
                    break;
                }
            }
        } else if let Some(&word) = tokens.get(at)
            && modules.contains(word)
        {
            used.insert(word.to_owned());
        }
    }
    used
}

/// The position after `crate::`, or after as many `super::` as lead to the root.
fn after_root(path: &[String], tokens: &[&str], at: usize) -> Option<usize> {
    if tokens[at..].starts_with(&["crate", ":", ":"]) {
        return Some(at + 3);
    }
    let is_path_start = at == 0 || tokens[at - 1] != ":";
    let steps = tokens[at..]
        .chunks(3)
        .take_while(|chunk| *chunk == ["super", ":", ":"])
        .count();
    (is_path_start && !path.is_empty() && steps == path.len()).then_some(at + 3 * steps)
}

fn graph(src: &Path) -> Graph {
    let files: Vec<(Vec<String>, PathBuf)> = sources(src)
        .into_iter()
        .map(|file| (module_path(src, &file), file))
        .collect();
    let modules: BTreeSet<String> = files
        .iter()
        .filter_map(|(path, _)| path.first().cloned())
        .filter(|module| module != "tests")
        .collect();
    let mut graph: Graph = modules
        .iter()
        .map(|module| (module.clone(), BTreeSet::new()))
        .collect();
    for (path, file) in &files {
        if path.iter().any(|step| step == "tests") {
            continue;
        }
        let Some(edges) = path.first().and_then(|module| graph.get_mut(module)) else {
            continue;
        };
        let text = fs::read_to_string(file).unwrap();
        let mut found = used(path, &tokens(&text), &modules);
        found.remove(&path[0]);
        edges.extend(found);
    }
    graph
}

/// The modules reachable from a module in at least one step.
fn reachable<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&'g str> = graph[from].iter().map(String::as_str).collect();
    while let Some(module) = open.pop() {
        if seen.insert(module) {
            open.extend(graph[module].iter().map(String::as_str));
        }
    }
    seen
}

/// The strongly connected components with more than one module, largest first.
fn knots(graph: &Graph) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|module| (module.as_str(), reachable(graph, module)))
        .collect();
    let mut knots: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, uses) in &reachable {
        let knot: Vec<String> = uses
            .iter()
            .filter(|other| reachable[*other].contains(module))
            .map(|&other| other.to_owned())
            .collect();
        if knot.len() > 1 {
            knots.insert(knot);
        }
    }
    let mut knots: Vec<Vec<String>> = knots.into_iter().collect();
    knots.sort_by_key(|knot| std::cmp::Reverse(knot.len()));
    knots
}

#[test]
fn the_modules_of_a_crate_form_no_circles() {
    let mut wrong = Vec::new();
    for (name, src) in crates() {
        let knots = knots(&graph(&src));
        let sizes: Vec<usize> = knots.iter().map(Vec::len).collect();
        let allowed = KNOTS.iter().find(|(known, _)| *known == name);
        let allowed = allowed.map(|(_, sizes)| *sizes).unwrap_or_default();
        if sizes != allowed {
            wrong.push(format!(
                "{name}: allowed {allowed:?}, found {sizes:?} {knots:?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "break new circles; take an entry that is too large out of KNOTS:\n{}",
        wrong.join("\n")
    );
}

/// The modules that a `lib.rs` declares, in groups separated by blank lines.
fn declared(src: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(src.join("lib.rs")).unwrap();
    let mut groups = vec![Vec::new()];
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let module = match words.as_slice() {
            ["mod", name] | ["pub", "mod", name] | ["pub(crate)", "mod", name] => {
                name.strip_suffix(';')
            }
            [] => {
                groups.push(Vec::new());
                None
            }
            _ => None,
        };
        if let (Some(module), Some(group)) = (module, groups.last_mut()) {
            group.push(module.to_owned());
        }
    }
    groups
}

#[test]
fn modules_use_only_those_listed_above_them() {
    let crates = crates();
    for &name in ORDERED {
        let src = &crates[name];
        let mut level = BTreeMap::new();
        for (index, group) in declared(src).into_iter().enumerate() {
            level.extend(group.into_iter().map(|module| (module, index)));
        }
        for (module, uses) in graph(src) {
            for used in uses {
                assert!(
                    level[&used] <= level[&module],
                    "{name}: `{module}` uses `{used}`, which lib.rs lists below it"
                );
            }
        }
    }
}

#[test]
fn sees_every_way_of_naming_a_module() {
    let modules: BTreeSet<String> = ["a", "b", "c", "d"].map(String::from).into();
    let uses = |path: &[&str], text: &str| -> Vec<String> {
        let path: Vec<String> = path.iter().map(|&step| step.to_owned()).collect();
        used(&path, &tokens(text), &modules).into_iter().collect()
    };
    assert_eq!(
        uses(&["x"], "use crate::a::B; fn f() { crate::b::g() }"),
        ["a", "b"]
    );
    assert_eq!(
        uses(&["x"], "use crate::{a::{self, b}, c, nothing::d};"),
        ["a", "c"]
    );
    assert_eq!(uses(&["x"], "use super::a; use super::super::b;"), ["a"]);
    assert_eq!(
        uses(&["x", "y"], "use super::a; use super::super::b;"),
        ["b"]
    );
    assert_eq!(
        uses(
            &["x"],
            "// crate::a\n/* crate::b */ \"crate::c\" r#\"crate::d\"# 'x' '\\'' &'a"
        ),
        [""; 0]
    );
    assert_eq!(
        uses(
            &["x"],
            "#[cfg(test)] mod tests { use crate::a; } use crate::b;"
        ),
        ["b"]
    );
}

#[test]
fn finds_knots() {
    let graph: Graph = [
        ("a", vec!["b"]),
        ("b", vec!["c"]),
        ("c", vec!["a", "d"]),
        ("d", vec![]),
        ("e", vec!["f"]),
        ("f", vec!["e"]),
    ]
    .into_iter()
    .map(|(module, uses)| {
        let uses = uses.into_iter().map(String::from).collect();
        (module.to_owned(), uses)
    })
    .collect();
    assert_eq!(knots(&graph), [vec!["a", "b", "c"], vec!["e", "f"]]);
}
