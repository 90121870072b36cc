//! Suppression of accepted findings.

use crate::rule::Finding;
use crate::rules::find;
use crate::set::{IGNORE_ANNOTATION, Set};

/// The rules to ignore: everywhere, or for one object.
///
/// The annotation [`IGNORE_ANNOTATION`] of an object ignores rules too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suppressions {
    everywhere: Vec<String>,
    /// The rule, and the object as [`Set::title`] has it.
    objects: Vec<(String, String)>,
}

/// An invalid suppression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuppressionError {
    /// There is no such rule.
    #[error("unknown rule `{0}`")]
    UnknownRule(String),
    /// The line has extra words.
    #[error("expected `RULE` or `RULE KIND/NAME`, found `{0}`")]
    Line(String),
}

impl Suppressions {
    /// Ignores a rule everywhere.
    ///
    /// # Errors
    ///
    /// There is no such rule.
    pub fn exclude(&mut self, rule: &str) -> Result<(), SuppressionError> {
        let rule = known(rule)?;
        self.everywhere.push(rule);
        Ok(())
    }

    /// Reads lines of `RULE` or `RULE KIND/NAME`. Blank lines and what follows `#` are comments.
    ///
    /// # Errors
    ///
    /// The number of the line, from 1, and what is wrong with it.
    pub fn read(&mut self, text: &str) -> Result<(), (usize, SuppressionError)> {
        for (index, line) in text.lines().enumerate() {
            let at = |error| (index + 1, error);
            let code = line.split('#').next().unwrap_or_default().trim();
            let mut words = code.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (None, ..) => {}
                (Some(rule), None, _) => self.exclude(rule).map_err(at)?,
                (Some(rule), Some(object), None) if object.contains('/') => {
                    self.objects
                        .push((known(rule).map_err(at)?, object.to_owned()));
                }
                _ => return Err(at(SuppressionError::Line(code.to_owned()))),
            }
        }
        Ok(())
    }

    pub(crate) fn excludes(&self, rule: &str) -> bool {
        self.everywhere.iter().any(|excluded| excluded == rule)
    }

    pub(crate) fn suppresses(&self, set: &Set, finding: &Finding) -> bool {
        let id = finding.rule.id;
        let annotated = set
            .info(finding.object)
            .and_then(|info| info.annotations.get(IGNORE_ANNOTATION))
            .is_some_and(|list| {
                list.split(',')
                    .any(|rule| matches!(rule.trim(), r if r == id || r == "*"))
            });
        annotated || {
            let mut for_rule = self.objects.iter().filter(|(rule, _)| rule == id);
            for_rule.any(|(_, object)| *object == set.title(finding.object))
        }
    }
}

fn known(rule: &str) -> Result<String, SuppressionError> {
    match find(rule) {
        Some(rule) => Ok(rule.id.to_owned()),
        None => Err(SuppressionError::UnknownRule(rule.to_owned())),
    }
}
