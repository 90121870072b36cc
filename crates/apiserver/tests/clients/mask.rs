//! Replaces output that differs between runs with placeholders, so that the rest can be compared.

use std::sync::LazyLock;

use regex_automata::meta::Regex;
use serde_json::Value;

/// The replacements, in order. A pattern without a replacement removes its line.
const RULES: &[(&str, Option<&str>)] = &[
    // ANSI colours.
    (r"\x1b\[[0-9;]*m", Some("")),
    // Watches that end with the client, which only some builds report.
    (
        r"(?m)^.*(?:reflector|streamwatcher|informerwatcher)\.go.*\n",
        None,
    ),
    // Version skew warnings, which depend on the installed clients.
    (
        r"(?m)^WARNING: (?:version difference|This version information).*\n",
        None,
    ),
    (r"version\.Info\{[^}]*\}", Some("RELEASE")),
    (r"(?m)^([IWE])[0-9]{4} [0-9:.]+ +[0-9]+ ", Some("LOG ")),
    (
        r"(?:https?://)?(?:127\.0\.0\.1|localhost):[0-9]+",
        Some("SERVER"),
    ),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", Some("TOKEN")),
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", Some("UID")),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", Some("TIME")),
    (
        r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}",
        Some("TIME"),
    ),
    (
        r"[A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ [0-9:]{8} [0-9]{4}",
        Some("TIME"),
    ),
    (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{8,} [+-][0-9]{4}(?: UTC)?(?: m=\S+)?",
        Some("TIME"),
    ),
    (
        r#"(resourceVersion"?: )"[0-9]+""#,
        Some("resourceVersion: VERSION"),
    ),
    (
        r"Resource Version: +[0-9]+",
        Some("Resource Version: VERSION"),
    ),
    (r"/\S*/(?:LIVE|MERGED)-[0-9]+/", Some("")),
    (
        r"credential-id: X509SHA256=[0-9a-f]+",
        Some("credential-id: CREDENTIAL"),
    ),
    (r"X509SHA256=[0-9a-f]{64}", Some("CREDENTIAL")),
    (r"debugger-[a-z0-9]{5}\b", Some("debugger-RANDOM")),
    (r"\bv1\.[0-9]+\.[0-9]+[-+.\w]*", Some("RELEASE")),
    (r"\bv5\.[0-9]+\.[0-9]+[-+.\w]*", Some("RELEASE")),
    (r"\b10\.[0-9]+\.[0-9]+\.[0-9]+\b", Some("ADDRESS")),
    (r"\b(?:[0-9]+(?:\.[0-9]+)?(?:ms|[dhms]))+\b", Some("AGE")),
    (r"(?m) +$", Some("")),
];

static PATTERNS: LazyLock<Vec<(Regex, Option<&str>)>> = LazyLock::new(|| {
    let compile = |pattern| Regex::new(pattern).expect("a pattern written here");
    RULES
        .iter()
        .map(|(pattern, word)| (compile(pattern), *word))
        .collect()
});

/// Replaces everything in the output that differs between runs.
pub(crate) fn mask(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, word) in PATTERNS.iter() {
        let mut replaced = String::with_capacity(text.len());
        let mut end = 0;
        for found in pattern.find_iter(&text) {
            replaced.push_str(&text[end..found.start()]);
            replaced.push_str(word.unwrap_or_default());
            end = found.end();
        }
        replaced.push_str(&text[end..]);
        text = replaced;
    }
    // The order of the fields of an object is irrelevant.
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(&text)
        && text.trim_end().lines().count() == 1
    {
        return format!("{object}\n");
    }
    text.lines()
        .map(|line| format!("{}\n", narrow(line)))
        .collect()
}

/// Normalises the spacing of a line whose columns are at least three spaces apart, as column widths depend on the
/// values. The indentation is kept.
fn narrow(line: &str) -> String {
    let body = line.trim_start_matches(' ');
    let mut narrowed = line[..line.len() - body.len()].to_owned();
    let mut spaces = 0;
    for letter in body.chars() {
        if letter == ' ' {
            spaces += 1;
            continue;
        }
        narrowed.push_str(match spaces {
            0 => "",
            1 => " ",
            _ => "   ",
        });
        spaces = 0;
        narrowed.push(letter);
    }
    narrowed
}
