//! Validation of webhook configurations.
//!
//! Errors are in a fixed order, and all are reported. Some rules were added to the API later; updates of stored
//! objects that violate them are validated by the old rules. Which rules are relaxed is determined once, from the
//! old object, and applies to every webhook of the new one.
//!
//! UPSTREAM: kubernetes pkg/apis/admissionregistration/validation/validation.go.

mod client_config;
pub mod policies;
mod rules;

use std::collections::HashSet;

use super::hub::{Configuration, ConfigurationKind, MatchCondition, Version, Webhook};
use crate::field::{FieldError, FieldErrors, Path, Shown};
use crate::meta::label_selector::ExpressionValues;
use crate::meta::names;
use crate::meta::validation::{SUBDOMAIN_NAMES, invalid_each, validate_metadata};

/// The maximum number of match conditions per webhook.
pub const MAX_MATCH_CONDITIONS: usize = 64;

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const ALL_SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const TIMEOUT_SECONDS: std::ops::RangeInclusive<i32> = 1..=30;

/// The CEL environment of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// A new expression: only the features of the previous release.
    New,
    /// A stored expression: all features of this release.
    Stored,
}

/// Compiles match conditions. This crate does not depend on the expression language; the caller of the validation
/// passes a compiler.
pub trait ExpressionChecker {
    /// Validates one expression, already trimmed.
    ///
    /// # Errors
    ///
    /// The expression is invalid.
    fn check(&self, expression: &str, environment: Environment) -> Result<(), ExpressionError>;
}

/// An invalid expression. The message is the detail of the field error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// A compilation error, or a wrong result type.
    #[error("{0}")]
    Compilation(String),
    /// Planning failed. The API returns an internal error, without the expression.
    #[error("program instantiation failed: {0}")]
    Program(String),
}

/// Accepts every expression, for callers that only validate the rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unchecked;

impl ExpressionChecker for Unchecked {
    fn check(&self, _: &str, _: Environment) -> Result<(), ExpressionError> {
        Ok(())
    }
}

/// Validates a new configuration in `version`.
#[must_use]
pub fn validate(
    configuration: &Configuration,
    version: Version,
    expressions: &dyn ExpressionChecker,
) -> FieldErrors {
    let stored = HashSet::new();
    let strictness = Strictness {
        match_conditions_changed: true,
        no_side_effects: version == Version::V1,
        recognized_review_version: true,
        unique_names: version == Version::V1,
        expression_values: ExpressionValues::Checked,
        stored_expressions: &stored,
    };
    validate_with(configuration, &strictness, expressions)
}

/// Validates an updated configuration in `version` against the stored one.
#[must_use]
pub fn validate_update(
    new: &Configuration,
    old: &Configuration,
    version: Version,
    expressions: &dyn ExpressionChecker,
) -> FieldErrors {
    let old_hooks = old.webhooks();
    let stored: HashSet<&str> = old_hooks
        .iter()
        .flat_map(|hook| hook.match_conditions.iter().flatten())
        .map(|condition| condition.expression.as_str())
        .collect();
    let strictness = Strictness {
        match_conditions_changed: match_conditions_changed(new.webhooks(), old_hooks),
        no_side_effects: version == Version::V1 && old_hooks.iter().all(has_no_side_effects),
        recognized_review_version: old_hooks.iter().all(has_recognized_review_version),
        unique_names: version == Version::V1 && has_unique_names(old_hooks),
        expression_values: if old_hooks.iter().any(has_selector_errors) {
            ExpressionValues::Unchecked
        } else {
            ExpressionValues::Checked
        },
        stored_expressions: &stored,
    };
    validate_with(new, &strictness, expressions)
}

/// The applicable newer rules.
struct Strictness<'o> {
    match_conditions_changed: bool,
    no_side_effects: bool,
    recognized_review_version: bool,
    unique_names: bool,
    expression_values: ExpressionValues,
    stored_expressions: &'o HashSet<&'o str>,
}

fn match_conditions_changed(new: &[Webhook], old: &[Webhook]) -> bool {
    new.len() != old.len()
        || new
            .iter()
            .zip(old)
            .any(|(new, old)| new.match_conditions != old.match_conditions)
}

fn has_no_side_effects(hook: &Webhook) -> bool {
    hook.side_effects
        .as_deref()
        .is_some_and(|class| NO_SIDE_EFFECTS.contains(&class))
}

/// An empty list is a separate error and relaxes nothing.
fn has_recognized_review_version(hook: &Webhook) -> bool {
    let versions = hook
        .admission_review_versions
        .as_deref()
        .unwrap_or_default();
    versions.is_empty() || versions.iter().any(|version| is_recognized(version))
}

fn is_recognized(version: &str) -> bool {
    REVIEW_VERSIONS.contains(&version)
}

fn has_unique_names(hooks: &[Webhook]) -> bool {
    let mut seen = HashSet::new();
    hooks.iter().all(|hook| seen.insert(&hook.name))
}

fn has_selector_errors(hook: &Webhook) -> bool {
    let path = Path::root("selector");
    [&hook.namespace_selector, &hook.object_selector]
        .into_iter()
        .flatten()
        .any(|selector| {
            !selector
                .validate(ExpressionValues::Checked, &path)
                .is_empty()
        })
}

fn validate_with(
    configuration: &Configuration,
    strictness: &Strictness<'_>,
    expressions: &dyn ExpressionChecker,
) -> FieldErrors {
    let mut errors = validate_metadata(
        &configuration.metadata,
        SUBDOMAIN_NAMES,
        &Path::root("metadata"),
    );
    let webhooks_path = Path::root("webhooks");
    let mut names = HashSet::new();
    for (index, hook) in configuration.webhooks().iter().enumerate() {
        let path = webhooks_path.index(index);
        let mut check = WebhookCheck {
            hook,
            strictness,
            expressions,
            path: &path,
            errors: &mut errors,
        };
        check.run(configuration.kind);
        if strictness.unique_names && !hook.name.is_empty() && !names.insert(&hook.name) {
            errors.push(FieldError::duplicate(
                &path.child("name"),
                Shown::Text(&hook.name),
            ));
        }
    }
    errors
}

/// Validates one webhook, field by field in the order of reported errors.
struct WebhookCheck<'w> {
    hook: &'w Webhook,
    strictness: &'w Strictness<'w>,
    expressions: &'w dyn ExpressionChecker,
    path: &'w Path<'w>,
    errors: &'w mut FieldErrors,
}

impl WebhookCheck<'_> {
    fn run(&mut self, kind: ConfigurationKind) {
        self.name();
        let rules_path = self.path.child("rules");
        for (index, rule) in self.hook.rules.iter().flatten().enumerate() {
            rules::validate(self.errors, rule, &rules_path.index(index));
        }
        self.one_of(
            "failurePolicy",
            self.hook.failure_policy.as_deref(),
            &["Fail", "Ignore"],
        );
        self.one_of(
            "matchPolicy",
            self.hook.match_policy.as_deref(),
            &["Equivalent", "Exact"],
        );
        self.side_effects();
        self.timeout();
        self.selectors();
        if kind == ConfigurationKind::Mutating {
            let policy = self.hook.reinvocation_policy.as_deref();
            self.one_of("reinvocationPolicy", policy, &["IfNeeded", "Never"]);
        }
        let path = self.path.child("clientConfig");
        client_config::validate(self.errors, &self.hook.client_config, &path);
        if self.strictness.match_conditions_changed {
            self.match_conditions();
        }
        self.review_versions();
    }

    fn name(&mut self) {
        let path = self.path.child("name");
        let name = &self.hook.name;
        if name.is_empty() {
            self.errors.push(FieldError::required(&path, ""));
            return;
        }
        let mut problem = names::check_subdomain(name).join(",");
        if problem.is_empty() && name.split('.').count() < 3 {
            problem =
                String::from("should be a domain with at least three segments separated by dots");
        }
        if !problem.is_empty() {
            self.errors
                .push(FieldError::invalid(&path, Shown::Text(name), problem));
        }
    }

    fn one_of(&mut self, name: &str, value: Option<&str>, supported: &[&str]) {
        if let Some(value) = value
            && !supported.contains(&value)
        {
            let path = self.path.child(name);
            self.errors.push(FieldError::not_supported(
                &path,
                Shown::Named(value),
                supported,
            ));
        }
    }

    fn side_effects(&mut self) {
        let allowed: &[&str] = if self.strictness.no_side_effects {
            &NO_SIDE_EFFECTS
        } else {
            &ALL_SIDE_EFFECTS
        };
        let value = self.hook.side_effects.as_deref();
        if value.is_none() {
            let detail = format!("must specify one of {}", allowed.join(", "));
            self.errors.push(FieldError::required(
                &self.path.child("sideEffects"),
                detail,
            ));
        }
        self.one_of("sideEffects", value, allowed);
    }

    fn timeout(&mut self) {
        if let Some(seconds) = self.hook.timeout_seconds
            && !TIMEOUT_SECONDS.contains(&seconds)
        {
            let path = self.path.child("timeoutSeconds");
            let detail = "the timeout value must be between 1 and 30 seconds";
            self.errors.push(FieldError::invalid(
                &path,
                Shown::Integer(seconds.into()),
                detail,
            ));
        }
    }

    fn selectors(&mut self) {
        let selectors = [
            ("namespaceSelector", &self.hook.namespace_selector),
            ("objectSelector", &self.hook.object_selector),
        ];
        for (name, selector) in selectors {
            if let Some(selector) = selector {
                let values = self.strictness.expression_values;
                self.errors
                    .extend(selector.validate(values, &self.path.child(name)));
            }
        }
    }

    fn match_conditions(&mut self) {
        let conditions = self.hook.match_conditions.as_deref().unwrap_or_default();
        let path = self.path.child("matchConditions");
        let stored = self.strictness.stored_expressions;
        let expressions = self.expressions;
        validate_match_conditions(self.errors, conditions, &path, &mut |expression| {
            let environment = if stored.contains(expression) {
                Environment::Stored
            } else {
                Environment::New
            };
            expressions.check(expression, environment)
        });
    }

    fn review_versions(&mut self) {
        let path = self.path.child("admissionReviewVersions");
        let versions = self
            .hook
            .admission_review_versions
            .as_deref()
            .unwrap_or_default();
        if versions.is_empty() {
            let detail = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
            self.errors.push(FieldError::required(&path, detail));
            return;
        }
        let mut seen = HashSet::new();
        for (index, version) in versions.iter().enumerate() {
            let path = path.index(index);
            if seen.insert(version) {
                let messages = names::check_dns1035_label(version);
                invalid_each(self.errors, &path, version, messages);
            } else {
                let shown = Shown::Text(version);
                self.errors
                    .push(FieldError::invalid(&path, shown, "duplicate version"));
            }
        }
        if self.strictness.recognized_review_version && !versions.iter().any(|v| is_recognized(v)) {
            let detail = format!(
                "must include at least one of {}",
                REVIEW_VERSIONS.join(", ")
            );
            self.errors
                .push(FieldError::invalid(&path, Shown::List(versions), detail));
        }
    }
}

/// Validates match conditions of any kind. `check` compiles an expression, already trimmed.
fn validate_match_conditions(
    errors: &mut FieldErrors,
    conditions: &[MatchCondition],
    path: &Path<'_>,
    check: &mut dyn FnMut(&str) -> Result<(), ExpressionError>,
) {
    if conditions.len() > MAX_MATCH_CONDITIONS {
        errors.push(FieldError::too_many(
            path,
            conditions.len(),
            MAX_MATCH_CONDITIONS,
        ));
    }
    let mut names = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let expression_path = path.child("expression");
        match condition.expression.trim() {
            "" => errors.push(FieldError::required(&expression_path, "")),
            trimmed => check_expression(errors, trimmed, check(trimmed), &expression_path),
        }
        let name_path = path.child("name");
        if condition.name.is_empty() {
            errors.push(FieldError::required(&name_path, ""));
            continue;
        }
        let messages = names::check_qualified_name(&condition.name);
        invalid_each(errors, &name_path, &condition.name, messages);
        if !names.insert(&condition.name) {
            let shown = Shown::Text(&condition.name);
            errors.push(FieldError::duplicate(&name_path, shown));
        }
    }
}

/// Records the error of compiling an expression.
fn check_expression(
    errors: &mut FieldErrors,
    shown: &str,
    outcome: Result<(), ExpressionError>,
    path: &Path<'_>,
) {
    if let Err(error) = outcome {
        errors.push(match &error {
            ExpressionError::Program(_) => FieldError::internal(path, error.to_string()),
            ExpressionError::Compilation(detail) => {
                FieldError::invalid(path, Shown::Text(shown), detail.clone())
            }
        });
    }
}
