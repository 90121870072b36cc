//! The rules on realistic manifests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod catalogue;
mod projects;
mod rules;
mod suppression;

use lockgate_lint::{Finding, Options, Profile, Set, check};

/// A time at which the certificates of these tests are valid: early 2027.
const NOW: i64 = 1_800_000_000;

/// The findings in a manifest with a profile.
fn lint_in(profile: Profile, text: &str) -> Vec<Finding> {
    let mut set = Set::default();
    set.add_text(text).unwrap();
    let options = Options {
        profile,
        now: NOW,
        ..Options::default()
    };
    check(&set, &options)
}

/// The identifiers of the rules with findings, without duplicates.
fn rules_in(profile: Profile, text: &str) -> Vec<&'static str> {
    let mut ids: Vec<&str> = lint_in(profile, text)
        .iter()
        .map(|finding| finding.rule.id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The messages of one rule in the default profile.
fn messages(rule: &str, text: &str) -> Vec<String> {
    lint_in(Profile::Balanced, text)
        .into_iter()
        .filter(|finding| finding.rule.id == rule)
        .map(|finding| format!("{}: {}", finding.severity.name(), finding.message))
        .collect()
}
