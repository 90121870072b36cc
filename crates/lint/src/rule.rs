//! Rules and findings.

use std::fmt;

use crate::finding::{Grade, Levels, Profile, Severity};
use crate::fix::Fix;
use crate::set::{Hook, Set};

/// A rule of the catalogue.
pub struct Rule {
    /// The identifier, such as `W001`.
    pub id: &'static str,
    /// The title.
    pub title: &'static str,
    /// The problem in a cluster.
    pub summary: &'static str,
    /// The remedy.
    pub advice: &'static str,
    /// Manifests with a finding of this rule.
    pub bad: &'static str,
    /// The same manifests without the finding.
    pub good: &'static str,
    /// Captured calls for the examples, if the rule uses them.
    pub captured: Option<Captured>,
    /// The change made by `--fix`, if any.
    pub fix: Option<&'static str>,
    /// The severities.
    pub levels: Levels,
    pub(crate) check: fn(&Context<'_>, &mut Reporter<'_>),
}

/// Captures for the examples of a rule: lines of a capture file, without its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured {
    /// Captured with the bad manifests.
    pub bad: &'static str,
    /// Captured with the good manifests.
    pub good: &'static str,
    /// The number of captures of each request.
    pub times: usize,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Rule {}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A finding of a rule at one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// The severity.
    pub severity: Severity,
    /// The object, by its number in the [`Set`].
    pub object: usize,
    /// The webhook's name, if it is about one.
    pub webhook: Option<String>,
    /// The field, such as `webhooks[0].timeoutSeconds`.
    pub path: String,
    /// The message.
    pub message: String,
    /// A safe fix, if any.
    pub fix: Option<Fix>,
}

/// The input of rules.
#[derive(Debug)]
pub(crate) struct Context<'c> {
    pub(crate) set: &'c Set,
    /// Seconds since 1970.
    pub(crate) now: i64,
}

/// Collects the findings of one rule.
#[derive(Debug)]
pub(crate) struct Reporter<'r> {
    pub(crate) rule: &'static Rule,
    pub(crate) profile: Profile,
    pub(crate) findings: &'r mut Vec<Finding>,
    /// The fix for the next finding.
    pub(crate) fix: Option<Fix>,
}

impl Reporter<'_> {
    /// Sets the fix for the next finding.
    pub(crate) fn fixing(&mut self, fix: Fix) -> &mut Self {
        self.fix = Some(fix);
        self
    }

    /// Reports about a field of a webhook.
    pub(crate) fn hook(&mut self, hook: &Hook, field: &str, message: String) {
        self.graded(Grade::Usual, hook, field, message);
    }

    /// The same with a grade.
    pub(crate) fn graded(&mut self, grade: Grade, hook: &Hook, field: &str, message: String) {
        let name = Some(hook.webhook.name.clone());
        self.add(grade, hook.object, name, hook.path(field), message);
    }

    /// Reports about a field of an object.
    pub(crate) fn object(&mut self, grade: Grade, object: usize, path: &str, message: String) {
        self.add(grade, object, None, path.to_owned(), message);
    }

    fn add(
        &mut self,
        grade: Grade,
        object: usize,
        webhook: Option<String>,
        path: String,
        message: String,
    ) {
        let fix = self.fix.take();
        if let Some(severity) = self.rule.levels.severity(self.profile, grade) {
            self.findings.push(Finding {
                rule: self.rule,
                severity,
                object,
                webhook,
                path,
                message,
                fix,
            });
        }
    }
}
