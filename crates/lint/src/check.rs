//! Runs the rules over a set.

use crate::finding::Profile;
use crate::rule::{Context, Finding, Reporter};
use crate::rules::RULES;
use crate::set::Set;
use crate::suppression::Suppressions;

/// Options of a check.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The profile, which sets the severities.
    pub profile: Profile,
    /// Suppressed findings.
    pub suppressions: Suppressions,
    /// Seconds since 1970, to check the expiry of certificates; 0 disables that check.
    pub now: i64,
}

/// Runs every rule of the profile. Findings are sorted by object, then by rule.
#[must_use]
pub fn check(set: &Set, options: &Options) -> Vec<Finding> {
    let context = Context {
        set,
        now: options.now,
    };
    let mut findings = Vec::new();
    for &rule in RULES {
        if rule.levels.of(options.profile).is_none() || options.suppressions.excludes(rule.id) {
            continue;
        }
        let mut reporter = Reporter {
            rule,
            profile: options.profile,
            findings: &mut findings,
            fix: None,
        };
        (rule.check)(&context, &mut reporter);
    }
    findings.retain(|finding| !options.suppressions.suppresses(set, finding));
    findings.sort_by_key(|finding| finding.object);
    findings
}
