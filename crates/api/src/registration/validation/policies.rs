//! Validation of admission policies and their bindings.
//!
//! UPSTREAM: kubernetes pkg/apis/admissionregistration/validation/validation.go.

use std::collections::HashSet;

use lockgate_go::json;

use super::{ExpressionError, check_expression, rules, validate_match_conditions};
use crate::field::{FieldError, FieldErrors, Path, Shown};
use crate::meta::label_selector::ExpressionValues;
use crate::meta::names;
use crate::meta::validation::{SUBDOMAIN_NAMES, invalid_each, validate_metadata};
use crate::registration::policy::{
    AuditAnnotation, Binding, MatchResources, Mutation, NamedRule, ParamKind, ParamRef, Policy,
    PolicyKind, Validation, Variable,
};

/// The maximum number of audit annotations per policy.
pub const MAX_AUDIT_ANNOTATIONS: usize = 20;
/// The maximum length of an audit annotation's value expression, in bytes.
pub const MAX_VALUE_EXPRESSION_BYTES: usize = 5 * 1024;

const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const RESERVED_WORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The role of an expression in a policy. It determines the declared variables and the required result type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A match condition: a boolean, without `variables`.
    MatchCondition,
    /// A validation: a boolean.
    Validation,
    /// A message expression: a string, without the authorizer.
    Message,
    /// The value of an audit annotation: a string or null.
    AuditAnnotation,
    /// An apply configuration.
    ApplyConfiguration,
    /// A list of patch operations.
    JsonPatch,
}

/// The variables of a policy's expressions, in addition to those of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Composition {
    /// Declares `params`.
    pub params: bool,
    /// Declares `variables`, even if there are none.
    pub variables: bool,
}

/// Compiles the expressions of policies. This crate does not depend on the expression language; the caller of the
/// validation passes a compiler.
pub trait PolicyExpressions {
    /// Starts compiling the expressions of one policy.
    fn begin(&self, composition: Composition) -> Box<dyn ComposedExpressions>;
}

/// Compiles the expressions of one policy.
pub trait ComposedExpressions {
    /// Validates a variable and declares it for subsequent expressions.
    ///
    /// # Errors
    ///
    /// The expression is invalid.
    fn declare(&mut self, name: &str, expression: &str) -> Result<(), ExpressionError>;

    /// Validates an expression.
    ///
    /// # Errors
    ///
    /// The expression is invalid.
    fn check(&mut self, expression: &str, role: Role) -> Result<(), ExpressionError>;
}

impl PolicyExpressions for super::Unchecked {
    fn begin(&self, _: Composition) -> Box<dyn ComposedExpressions> {
        Box::new(*self)
    }
}

impl ComposedExpressions for super::Unchecked {
    fn declare(&mut self, _: &str, _: &str) -> Result<(), ExpressionError> {
        Ok(())
    }

    fn check(&mut self, _: &str, _: Role) -> Result<(), ExpressionError> {
        Ok(())
    }
}

/// Validates a new policy.
#[must_use]
pub fn validate_policy(policy: &Policy, expressions: &dyn PolicyExpressions) -> FieldErrors {
    PolicyCheck::new(policy, expressions).run(true)
}

/// Validates an updated policy against the stored one. Unchanged match conditions are not validated again.
#[must_use]
pub fn validate_policy_update(
    new: &Policy,
    old: &Policy,
    expressions: &dyn PolicyExpressions,
) -> FieldErrors {
    let conditions = |policy: &Policy| policy.match_conditions.clone().unwrap_or_default();
    let changed = new.param_kind != old.param_kind || conditions(new) != conditions(old);
    PolicyCheck::new(new, expressions).run(changed)
}

/// Validates a new or updated binding.
#[must_use]
pub fn validate_binding(binding: &Binding) -> FieldErrors {
    let mut errors = validate_metadata(&binding.metadata, SUBDOMAIN_NAMES, &Path::root("metadata"));
    let spec = Path::root("spec");
    let path = spec.child("policyName");
    if binding.policy_name.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else {
        let messages = names::check_subdomain(&binding.policy_name);
        invalid_each(&mut errors, &path, &binding.policy_name, messages);
    }
    if let Some(param_ref) = &binding.param_ref {
        validate_param_ref(&mut errors, param_ref, &spec.child("paramRef"));
    }
    if let Some(resources) = &binding.match_resources {
        let path = spec.child("matchResources");
        validate_match_resources(&mut errors, resources, &path);
        if binding.kind == PolicyKind::Mutating {
            validate_mutating_operations(&mut errors, resources, &path);
        }
    }
    if binding.kind == PolicyKind::Validating {
        let actions = binding.validation_actions.as_deref().unwrap_or_default();
        validate_actions(&mut errors, actions, &spec.child("validationActions"));
    }
    errors
}

fn validate_actions(errors: &mut FieldErrors, actions: &[String], path: &Path<'_>) {
    let mut seen = HashSet::new();
    for (index, action) in actions.iter().enumerate() {
        let path = path.index(index);
        if !ACTIONS.contains(&action.as_str()) {
            errors.push(FieldError::not_supported(
                &path,
                Shown::Named(action),
                &ACTIONS,
            ));
        }
        if !seen.insert(action.as_str()) {
            errors.push(FieldError::duplicate(&path, Shown::Named(action)));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure \
                      information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, Shown::List(actions), detail));
    }
    if seen.is_empty() {
        let detail = "at least one validation action is required";
        errors.push(FieldError::required(path, detail));
    }
}

fn validate_param_ref(errors: &mut FieldErrors, param_ref: &ParamRef, path: &Path<'_>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = &param_ref.name;
    if !name.is_empty() {
        let path = path.child("name");
        invalid_each(errors, &path, name, names::check_path_segment(name));
        if param_ref.selector.is_some() {
            errors.push(FieldError::forbidden(&path, EXCLUSIVE));
        }
    }
    match &param_ref.selector {
        Some(selector) => {
            let path = path.child("selector");
            errors.extend(selector.validate(ExpressionValues::Checked, &path));
            if !name.is_empty() {
                errors.push(FieldError::forbidden(&path, EXCLUSIVE));
            }
        }
        None if name.is_empty() => {
            let detail = "one of name or selector must be specified";
            errors.push(FieldError::required(path, detail));
        }
        None => {}
    }
    let path = path.child("parameterNotFoundAction");
    match param_ref.parameter_not_found_action.as_deref() {
        None | Some("") => errors.push(FieldError::required(&path, "")),
        Some("Deny" | "Allow") => {}
        Some(other) => errors.push(FieldError::not_supported(
            &path,
            Shown::Named(other),
            &["Deny", "Allow"],
        )),
    }
}

fn validate_match_resources(errors: &mut FieldErrors, resources: &MatchResources, path: &Path<'_>) {
    let policies = ["Equivalent", "Exact"];
    required_one_of(
        errors,
        resources.match_policy.as_deref(),
        &policies,
        &path.child("matchPolicy"),
    );
    for (name, selector) in [
        ("namespaceSelector", &resources.namespace_selector),
        ("objectSelector", &resources.object_selector),
    ] {
        let path = path.child(name);
        match selector {
            None => errors.push(FieldError::required(&path, "")),
            Some(selector) => errors.extend(selector.validate(ExpressionValues::Checked, &path)),
        }
    }
    for (name, list) in [
        ("resourceRules", &resources.resource_rules),
        ("excludeResourceRules", &resources.exclude_resource_rules),
    ] {
        let path = path.child(name);
        for (index, rule) in list.iter().flatten().enumerate() {
            validate_named_rule(errors, rule, &path.index(index));
        }
    }
}

fn validate_named_rule(errors: &mut FieldErrors, rule: &NamedRule, path: &Path<'_>) {
    let names_path = path.child("resourceNames");
    let mut seen = HashSet::new();
    for (index, name) in rule.resource_names.iter().flatten().enumerate() {
        let path = names_path.index(index);
        invalid_each(errors, &path, name, names::check_path_segment(name));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, Shown::Text(name)));
        }
    }
    rules::validate(errors, &rule.rule, path);
}

/// Deleted objects cannot be mutated.
fn validate_mutating_operations(
    errors: &mut FieldErrors,
    resources: &MatchResources,
    path: &Path<'_>,
) {
    let rules_path = path.child("resourceRules");
    let path = rules_path.child("operations");
    let rules = resources.resource_rules.iter().flatten();
    for operation in rules.flat_map(|rule| rule.rule.operations.iter().flatten()) {
        if !MUTATING_OPERATIONS.contains(&operation.as_str()) {
            errors.push(FieldError::not_supported(
                &path,
                Shown::Named(operation),
                &MUTATING_OPERATIONS,
            ));
        }
    }
}

fn validate_param_kind(errors: &mut FieldErrors, kind: &ParamKind, path: &Path<'_>) {
    let version_path = path.child("apiVersion");
    let api_version = kind.api_version.as_str();
    let (group, version) = match api_version {
        "/" => ("", ""),
        text => text.split_once('/').unwrap_or(("", text)),
    };
    if api_version.is_empty() {
        errors.push(FieldError::required(&version_path, ""));
    } else if version.contains('/') {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        let shown = Shown::Text(api_version);
        errors.push(FieldError::invalid(&version_path, shown, detail));
    } else {
        invalid_if_any(errors, &version_path, group, |group| {
            if group.is_empty() {
                Vec::new()
            } else {
                names::check_subdomain(group)
            }
        });
        if version.is_empty() {
            let shown = Shown::Text(api_version);
            let detail = "version must be specified";
            errors.push(FieldError::invalid(&version_path, shown, detail));
        } else {
            invalid_if_any(errors, &version_path, version, names::check_dns1035_label);
        }
    }
    let path = path.child("kind");
    if kind.kind.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    let problems = names::check_dns1035_label(&kind.kind.to_lowercase());
    if !problems.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.push(FieldError::invalid(&path, Shown::Text(&kind.kind), detail));
    }
}

/// Joins all errors of a value into one.
fn invalid_if_any(
    errors: &mut FieldErrors,
    path: &Path<'_>,
    value: &str,
    check: impl Fn(&str) -> Vec<String>,
) {
    let problems = check(value);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(
            path,
            Shown::Text(value),
            problems.join(","),
        ));
    }
}

fn required_one_of(
    errors: &mut FieldErrors,
    value: Option<&str>,
    supported: &[&str],
    path: &Path<'_>,
) {
    match value {
        None => errors.push(FieldError::required(path, "")),
        Some(value) if !supported.contains(&value) => {
            let shown = Shown::Named(value);
            errors.push(FieldError::not_supported(path, shown, supported));
        }
        Some(_) => {}
    }
}

/// Validates one policy, field by field in the order of reported errors.
struct PolicyCheck<'p> {
    policy: &'p Policy,
    expressions: Box<dyn ComposedExpressions>,
    errors: FieldErrors,
}

impl<'p> PolicyCheck<'p> {
    fn new(policy: &'p Policy, expressions: &dyn PolicyExpressions) -> Self {
        let has_variables = policy
            .variables
            .as_ref()
            .is_some_and(|variables| !variables.is_empty());
        let composition = Composition {
            params: policy.param_kind.is_some(),
            variables: has_variables || policy.kind == PolicyKind::Mutating,
        };
        Self {
            policy,
            expressions: expressions.begin(composition),
            errors: FieldErrors::new(),
        }
    }

    fn run(mut self, with_conditions: bool) -> FieldErrors {
        let policy = self.policy;
        let metadata = Path::root("metadata");
        self.errors = validate_metadata(&policy.metadata, SUBDOMAIN_NAMES, &metadata);
        let spec = Path::root("spec");
        let path = spec.child("failurePolicy");
        let failure_policy = policy.failure_policy.as_deref();
        required_one_of(&mut self.errors, failure_policy, &["Fail", "Ignore"], &path);
        if let Some(kind) = &policy.param_kind {
            validate_param_kind(&mut self.errors, kind, &spec.child("paramKind"));
        }
        self.match_constraints(&spec.child("matchConstraints"));
        if with_conditions {
            let conditions = policy.match_conditions.as_deref().unwrap_or_default();
            let path = spec.child("matchConditions");
            let expressions = &mut self.expressions;
            validate_match_conditions(&mut self.errors, conditions, &path, &mut |expression| {
                expressions.check(expression, Role::MatchCondition)
            });
        }
        let path = spec.child("variables");
        for (index, variable) in policy.variables.iter().flatten().enumerate() {
            self.variable(variable, &path.index(index));
        }
        match policy.kind {
            PolicyKind::Validating => self.validations(&spec),
            PolicyKind::Mutating => self.mutations(&spec),
        }
        self.errors
    }

    fn match_constraints(&mut self, path: &Path<'_>) {
        let Some(constraints) = &self.policy.match_constraints else {
            self.errors.push(FieldError::required(path, ""));
            return;
        };
        validate_match_resources(&mut self.errors, constraints, path);
        if constraints
            .resource_rules
            .as_ref()
            .is_none_or(Vec::is_empty)
        {
            let path = path.child("resourceRules");
            self.errors.push(FieldError::required(&path, ""));
        }
        if self.policy.kind == PolicyKind::Mutating {
            validate_mutating_operations(&mut self.errors, constraints, path);
        }
    }

    fn variable(&mut self, variable: &Variable, path: &Path<'_>) {
        let name = &variable.name;
        let name_path = path.child("name");
        if name.trim().is_empty() {
            self.errors
                .push(FieldError::required(&name_path, "name is not specified"));
        } else if !is_identifier(name) {
            self.errors.push(FieldError::invalid(
                &name_path,
                Shown::Text(name),
                "must be a valid CEL identifier",
            ));
        }
        let path = path.child("expression");
        if variable.expression.trim().is_empty() {
            self.errors
                .push(FieldError::required(&path, "expression is not specified"));
            return;
        }
        let outcome = self.expressions.declare(name, &variable.expression);
        check_expression(&mut self.errors, &variable.expression, outcome, &path);
    }

    fn expression(&mut self, checked: &str, shown: &str, role: Role, path: &Path<'_>) {
        let outcome = self.expressions.check(checked, role);
        check_expression(&mut self.errors, shown, outcome, path);
    }

    fn validations(&mut self, spec: &Path<'_>) {
        let policy = self.policy;
        let validations = policy.validations.as_deref().unwrap_or_default();
        let annotations = policy.audit_annotations.as_deref().unwrap_or_default();
        if validations.is_empty() && annotations.is_empty() {
            for name in ["validations", "auditAnnotations"] {
                let detail = "validations or auditAnnotations must contain at least one item";
                self.errors
                    .push(FieldError::required(&spec.child(name), detail));
            }
            return;
        }
        let path = spec.child("validations");
        for (index, validation) in validations.iter().enumerate() {
            self.validation(validation, &path.index(index));
        }
        let path = spec.child("auditAnnotations");
        if annotations.len() > MAX_AUDIT_ANNOTATIONS {
            let shown: Vec<String> = annotations
                .iter()
                .map(|annotation| {
                    format!(
                        "{{\"Key\":{},\"ValueExpression\":{}}}",
                        json::to_string(&annotation.key),
                        json::to_string(&annotation.value_expression)
                    )
                })
                .collect();
            let shown = format!("[{}]", shown.join(","));
            let detail =
                format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
            self.errors
                .push(FieldError::invalid(&path, Shown::Rendered(&shown), detail));
        }
        let mut keys = HashSet::new();
        for (index, annotation) in annotations.iter().enumerate() {
            let path = path.index(index);
            self.audit_annotation(annotation, &path);
            if !keys.insert(&annotation.key) {
                let shown = Shown::Text(&annotation.key);
                self.errors
                    .push(FieldError::duplicate(&path.child("key"), shown));
            }
        }
    }

    fn validation(&mut self, validation: &Validation, path: &Path<'_>) {
        let expression = &validation.expression;
        let expression_path = path.child("expression");
        if expression.trim().is_empty() {
            self.errors.push(FieldError::required(
                &expression_path,
                "expression is not specified",
            ));
        } else {
            self.expression(expression, expression, Role::Validation, &expression_path);
        }
        let message = &validation.message_expression;
        let message_path = path.child("messageExpression");
        if message.is_empty() {
        } else if message.trim().is_empty() {
            self.errors.push(FieldError::invalid(
                &message_path,
                Shown::Text(message),
                "must be non-empty if specified",
            ));
        } else {
            self.expression(message, message, Role::Message, &message_path);
        }
        self.message(&validation.message, &path.child("message"));
        if let Some(reason) = validation.reason.as_deref()
            && !REASONS.contains(&reason)
        {
            self.errors.push(FieldError::not_supported(
                &path.child("reason"),
                Shown::Named(reason),
                &REASONS,
            ));
        }
    }

    fn message(&mut self, message: &str, path: &Path<'_>) {
        let trimmed = message.trim();
        let problem = if !message.is_empty() && trimmed.is_empty() {
            "must be non-empty if specified"
        } else if trimmed.contains(['\n', '\r']) {
            "must not contain line breaks"
        } else {
            return;
        };
        let shown = Shown::Text(message);
        self.errors.push(FieldError::invalid(path, shown, problem));
    }

    fn audit_annotation(&mut self, annotation: &AuditAnnotation, path: &Path<'_>) {
        let key_path = path.child("key");
        let name = &self.policy.metadata.name;
        if name.is_empty() {
            self.errors.push(FieldError::invalid(
                &key_path,
                Shown::Text(&annotation.key),
                "requires metadata.name be non-empty",
            ));
        } else {
            let key = format!("{name}/{}", annotation.key);
            let messages = names::check_qualified_name(&key);
            invalid_each(&mut self.errors, &key_path, &key, messages);
        }
        let path = path.child("valueExpression");
        let trimmed = annotation.value_expression.trim();
        if trimmed.is_empty() {
            let detail = "valueExpression is not specified";
            self.errors.push(FieldError::required(&path, detail));
        } else if trimmed.len() > MAX_VALUE_EXPRESSION_BYTES {
            let detail = format!("must not exceed {MAX_VALUE_EXPRESSION_BYTES} bytes in length");
            self.errors.push(FieldError::required(&path, detail));
        } else {
            let written = &annotation.value_expression;
            self.expression(trimmed, written, Role::AuditAnnotation, &path);
        }
    }

    fn mutations(&mut self, spec: &Path<'_>) {
        let policy = self.policy;
        let mutations = policy.mutations.as_deref().unwrap_or_default();
        let path = spec.child("mutations");
        if mutations.is_empty() {
            let detail = "mutations must contain at least one item";
            self.errors.push(FieldError::required(&path, detail));
        }
        for (index, mutation) in mutations.iter().enumerate() {
            self.mutation(mutation, &path.index(index));
        }
        let path = spec.child("reinvocationPolicy");
        let chosen = Some(policy.reinvocation_policy.as_str()).filter(|chosen| !chosen.is_empty());
        required_one_of(&mut self.errors, chosen, &["IfNeeded", "Never"], &path);
    }

    fn mutation(&mut self, mutation: &Mutation, path: &Path<'_>) {
        let type_path = path.child("patchType");
        let apply = mutation.apply_configuration.as_ref();
        let apply = ("applyConfiguration", apply.map(|apply| &apply.expression));
        let patch = mutation.json_patch.as_ref();
        let patch = ("jsonPatch", patch.map(|patch| &patch.expression));
        let (role, (wanted, expression), (other, unwanted)) = match mutation.patch_type.as_str() {
            "" => {
                self.errors.push(FieldError::required(&type_path, ""));
                return;
            }
            "JSONPatch" => (Role::JsonPatch, patch, apply),
            "ApplyConfiguration" => (Role::ApplyConfiguration, apply, patch),
            unknown => {
                let shown = Shown::Named(unknown);
                self.errors
                    .push(FieldError::not_supported(&type_path, shown, &PATCH_TYPES));
                return;
            }
        };
        let patch_type = &mutation.patch_type;
        let wanted_path = path.child(wanted);
        match expression {
            None => {
                let detail = format!("must be specified when patchType is {patch_type}");
                self.errors.push(FieldError::required(&wanted_path, detail));
            }
            Some(expression) => {
                let path = wanted_path.child("expression");
                match expression.trim() {
                    "" => self.errors.push(FieldError::required(&path, "")),
                    trimmed => self.expression(trimmed, trimmed, role, &path),
                }
            }
        }
        if unwanted.is_some() {
            let shown = format!("{{{other}}}");
            let detail = format!("must not be specified when patchType is {patch_type}");
            self.errors.push(FieldError::invalid(
                &path.child(other),
                Shown::Text(&shown),
                detail,
            ));
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    let starts = |byte: u8| byte == b'_' || byte.is_ascii_alphabetic();
    bytes.next().is_some_and(starts)
        && bytes.all(|byte| starts(byte) || byte.is_ascii_digit())
        && !RESERVED_WORDS.contains(&name)
}

#[cfg(test)]
mod tests;
