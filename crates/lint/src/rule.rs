//! Rules and what they find.

use std::fmt;

use crate::finding::{Grade, Levels, Profile, Severity};
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
    /// The severities.
    pub levels: Levels,
    pub(crate) check: fn(&Context<'_>, &mut Reporter<'_>),
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
}

impl Reporter<'_> {
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
        if let Some(severity) = self.rule.levels.severity(self.profile, grade) {
            self.findings.push(Finding {
                rule: self.rule,
                severity,
                object,
                webhook,
                path,
                message,
            });
        }
    }
}
