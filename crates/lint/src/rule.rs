//! Rules and what they find.

use std::fmt;

use crate::finding::{Grade, Levels, Profile, Severity};
use crate::fix::Fix;
use crate::set::{Hook, Set};

/// A rule of the catalogue.
pub struct Rule {
    /// The identifier, as in `W001`.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What goes wrong in a cluster, and when.
    pub summary: &'static str,
    /// What to do.
    pub advice: &'static str,
    /// Manifests with a finding of this rule.
    pub bad: &'static str,
    /// The same without.
    pub good: &'static str,
    /// Calls that the examples are about, where the rule looks at calls.
    pub captured: Option<Captured>,
    /// The change that `--fix` makes, if it makes one.
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
    /// How often each request was captured.
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

/// What a rule says about one place.
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
    /// The field, as in `webhooks[0].timeoutSeconds`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// A change that answers it, where one is safe.
    pub fix: Option<Fix>,
}

/// What rules look at.
#[derive(Debug)]
pub(crate) struct Context<'c> {
    pub(crate) set: &'c Set,
    /// Seconds since 1970.
    pub(crate) now: i64,
}

/// Takes the findings of one rule.
#[derive(Debug)]
pub(crate) struct Reporter<'r> {
    pub(crate) rule: &'static Rule,
    pub(crate) profile: Profile,
    pub(crate) findings: &'r mut Vec<Finding>,
    /// The fix of the next finding.
    pub(crate) fix: Option<Fix>,
}

impl Reporter<'_> {
    /// Gives the next finding a fix.
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
