//! The rules as a page of Markdown.

use std::fmt::Write as _;

use crate::finding::{Levels, Profile};
use crate::rule::Rule;
use crate::rules::RULES;

/// The page of all rules, as `docs/lint-rules.md` has it.
#[must_use]
pub fn page() -> String {
    let mut out = String::from(
        "# Rules of `lockgate lint`\n\n\
         Generated from the rules in `crates/lint`; `lockgate lint --explain W001` prints one of them. \
         How to run, suppress and fail on them is in [lint.md](lint.md).\n\n\
         | Rule | | balanced | availability | security |\n|---|---|---|---|---|\n",
    );
    for rule in RULES {
        let Rule { id, title, .. } = rule;
        let anchor = id.to_lowercase();
        let _ = writeln!(
            out,
            "| [{id}](#{anchor}) | {title} | {} |",
            severities(&rule.levels).join(" | ")
        );
    }
    for rule in RULES {
        let _ = write!(out, "\n## {}\n\n{}", rule.id, section(rule));
    }
    out
}

/// The section of one rule, without its heading.
#[must_use]
pub fn section(rule: &Rule) -> String {
    let Rule {
        title,
        summary,
        advice,
        bad,
        good,
        captured,
        fix,
        ..
    } = rule;
    let fix = fix
        .map(|fix| format!("`--fix` {fix}.\n\n"))
        .unwrap_or_default();
    let needs = match captured {
        Some(_) => "Requires `--capture`. ",
        None => "",
    };
    let example = |manifests: &str, lines: Option<&str>| {
        let lines = lines.zip(*captured).map(|(lines, captured)| {
            let times = match captured.times {
                1 => String::new(),
                times => format!(", {times} times"),
            };
            format!("\nCaptured{times}:\n\n```json\n{}\n```\n", lines.trim())
        });
        let manifests = manifests.trim();
        format!("```yaml\n{manifests}\n```\n{}", lines.unwrap_or_default())
    };
    let levels: Vec<String> = Profile::ALL
        .iter()
        .zip(severities(&rule.levels))
        .map(|(profile, severity)| format!("{} {severity}", profile.name()))
        .collect();
    format!(
        "**{title}.** {summary}\n\n{advice}\n\n{fix}{needs}Severity: {}.\n\nBad:\n\n{}\nGood:\n\n{}",
        levels.join(", "),
        example(bad, captured.map(|captured| captured.bad)),
        example(good, captured.map(|captured| captured.good)),
    )
}

fn severities(levels: &Levels) -> Vec<&'static str> {
    Profile::ALL
        .iter()
        .map(|profile| {
            levels
                .of(*profile)
                .map_or("off", |severity| severity.name())
        })
        .collect()
}
