//! `x-kubernetes-validations`: compiles and evaluates the validation rules of a schema.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/cel/validation.go

use serde_json::Value as Json;

use lockgate_api::field::{ErrorType, FieldError, FieldErrors};
use lockgate_cel::crd::{Inputs, OldSelf, Rule, Scope};
use lockgate_cel::limits::VALIDATION_RULES_BUDGET;
use lockgate_cel::value::Error as EvalError;
use lockgate_cel::{Limits, Value};
use lockgate_go::quote::quote;

use super::correlation::{Correlation, MapList};
use super::error::{self, MAX_ERRORS};
use super::field_path;
use super::json::shown;
use super::path::Path;
use super::props::Props;
use super::schema::{Node, Type};
use crate::upstream_error::UpstreamError;

/// The maximum length of the result of a `messageExpression`, in bytes.
// UPSTREAM: apiserver pkg/apis/cel/config.go
const MAX_MESSAGE: usize = 5 * 1024;

const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further \
    validation rules will be run";

/// The validation rules of one schema.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The schema as CEL type.
    schema: lockgate_cel::schema::Schema,
    rules: Box<[CompiledRule]>,
}

#[derive(Debug)]
struct CompiledRule {
    /// The name of the rule in errors: its message or, without one, its expression.
    name: Box<str>,
    has_message: bool,
    /// An empty rule is skipped.
    program: Option<Result<Rule, UpstreamError>>,
    message: Option<Rule>,
    message_text: Box<str>,
    error_type: ErrorType,
    field_path: Box<str>,
    old_self: OldSelf,
}

impl Rules {
    /// Compiles the validation rules of a schema, if it has any.
    ///
    /// A compilation error is reported when the rule would be evaluated: definitions are validated before they are
    /// stored.
    pub(crate) fn compile(props: Props<'_>, is_root: bool) -> Option<Box<Self>> {
        let rules: Vec<Props<'_>> = props.schemas("x-kubernetes-validations").collect();
        if rules.is_empty() {
            return None;
        }
        let schema = lockgate_cel::schema::Schema::from_json(&props.to_json()).ok()?;
        let schema = if is_root {
            schema.into_resource_root()
        } else {
            schema
        };
        let scope = Scope::new(&schema)?;
        let rules = rules
            .into_iter()
            .map(|rule| CompiledRule::new(rule, props, &scope))
            .collect();
        Some(Box::new(Self { schema, rules }))
    }
}

impl CompiledRule {
    fn new(rule: Props<'_>, schema: Props<'_>, scope: &Scope) -> Self {
        let text = rule.text("rule");
        let message = rule.text("message");
        let expression = rule.text("messageExpression");
        let old_self = if rule.flag("optionalOldSelf") {
            OldSelf::Optional
        } else {
            OldSelf::Value
        };
        let program = (!text.trim().is_empty()).then(|| {
            scope
                .compile_rule(text, old_self)
                .map_err(|error| error.to_string().into())
        });
        let name = if message.is_empty() { text } else { message };
        Self {
            name: name.trim().into(),
            has_message: !message.is_empty(),
            message: match program {
                Some(Ok(_)) if !expression.is_empty() => {
                    scope.compile_message(expression, old_self).ok()
                }
                _ => None,
            },
            message_text: expression.into(),
            program,
            error_type: match rule.text("reason") {
                "FieldValueForbidden" => ErrorType::Forbidden,
                "FieldValueRequired" => ErrorType::Required,
                "FieldValueDuplicate" => ErrorType::Duplicate,
                _ => ErrorType::Invalid,
            },
            field_path: match rule.text("fieldPath") {
                "" => Box::default(),
                path => field_path::resolve(path, schema, field_path::Brackets::Allow)
                    .map(|found| found.printed.into())
                    .unwrap_or_default(),
            },
            old_self,
        }
    }

    fn default_message(&self) -> String {
        if self.has_message {
            self.name.to_string()
        } else {
            format!("failed rule: {}", self.name)
        }
    }
}

/// The result of evaluating the validation rules of an object.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) errors: FieldErrors,
    /// Ratcheted errors, whose values are unchanged.
    pub(crate) warnings: Vec<String>,
}

/// Evaluates all validation rules of a schema on a value and its old value, within a cost budget.
///
/// Returns the remaining budget; `None` if a rule exhausted it.
pub(crate) fn run(
    schema: &Node,
    value: &Json,
    old: Option<&Json>,
    correlation: Option<&Correlation<'_>>,
    path: &Path<'_>,
    budget: u64,
) -> (Outcome, Option<u64>) {
    let mut runner = Runner {
        outcome: Outcome::default(),
        budget,
    };
    let ratchet = Ratchet {
        current: correlation,
        nearest: None,
    };
    let done = runner.visit(schema, value, old, ratchet, path);
    let budget = runner.budget;
    (runner.outcome, done.ok().map(|()| budget))
}

/// Like [`run`], with the cost budget of an object.
pub(crate) fn run_object(
    schema: &Node,
    value: &Json,
    old: Option<&Json>,
    correlation: Option<&Correlation<'_>>,
) -> Outcome {
    run(
        schema,
        value,
        old,
        correlation,
        &Path::ROOT,
        VALIDATION_RULES_BUDGET,
    )
    .0
}

/// The correlation of a value, and of the nearest enclosing value that has one.
#[derive(Debug, Clone, Copy)]
struct Ratchet<'c, 'a> {
    current: Option<&'c Correlation<'a>>,
    nearest: Option<&'c Correlation<'a>>,
}

impl<'c, 'a> Ratchet<'c, 'a> {
    /// Returns true if errors of this value are ratcheted.
    fn is_ratcheted(self) -> bool {
        let correlation = self.current.or(self.nearest);
        correlation.is_some_and(Correlation::is_unchanged)
    }

    fn child_key(self, name: &str) -> Option<Correlation<'a>> {
        self.current.and_then(|current| current.key(name))
    }

    fn child_index(self, index: usize) -> Option<Correlation<'a>> {
        self.current.and_then(|current| current.index(index))
    }

    /// The ratchet of a child, with its correlation, if any.
    fn child<'d>(self, name: Option<&str>, found: Option<&'d Correlation<'a>>) -> Ratchet<'d, 'a>
    where
        'c: 'd,
    {
        let Some(current) = self.current else {
            return self;
        };
        // Both objects are converted to the same version, so these fields cannot change.
        if self.nearest.is_none() && matches!(name, Some("apiVersion" | "kind")) {
            return Ratchet {
                current: None,
                nearest: None,
            };
        }
        Ratchet {
            current: found,
            nearest: Some(current),
        }
    }
}

/// The cost budget is exhausted.
struct Exhausted;

struct Runner {
    outcome: Outcome,
    budget: u64,
}

impl Runner {
    fn visit(
        &mut self,
        schema: &Node,
        value: &Json,
        old: Option<&Json>,
        ratchet: Ratchet<'_, '_>,
        path: &Path<'_>,
    ) -> Result<(), Exhausted> {
        if !schema.has_rules || value.is_null() {
            return Ok(());
        }
        let found = self.outcome.errors.len() + self.outcome.warnings.len();
        if found >= MAX_ERRORS {
            return Err(Exhausted);
        }
        if let Some(rules) = &schema.rules {
            self.run_rules(rules, schema, value, old, ratchet, path)?;
        }
        match value {
            Json::Array(elements) => {
                let Some(items) = schema.items.as_deref().filter(|items| items.has_rules) else {
                    return Ok(());
                };
                let old = old.and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
                let old = MapList::new(schema, old);
                for (at, element) in elements.iter().enumerate() {
                    let found = ratchet.child_index(at);
                    let ratchet = ratchet.child(None, found.as_ref());
                    self.visit(items, element, old.get(element), ratchet, &path.index(at))?;
                }
            }
            Json::Object(entries) => {
                let old = old
                    .and_then(Json::as_object)
                    .filter(|_| schema.correlatable);
                let old = |name: &str| old.and_then(|old| old.get(name));
                if let Some(entry) = schema.entries() {
                    for (name, value) in entries {
                        let found = ratchet.child_key(name);
                        let ratchet = ratchet.child(Some(name), found.as_ref());
                        self.visit(entry, value, old(name), ratchet, &path.key(name))?;
                    }
                }
                for (name, value) in entries {
                    let Some(property) = schema.properties.get(name.as_str()) else {
                        continue;
                    };
                    if property.has_rules {
                        let found = ratchet.child_key(name);
                        let ratchet = ratchet.child(Some(name), found.as_ref());
                        self.visit(property, value, old(name), ratchet, &path.child(name))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn run_rules(
        &mut self,
        rules: &Rules,
        schema: &Node,
        value: &Json,
        old: Option<&Json>,
        ratchet: Ratchet<'_, '_>,
        path: &Path<'_>,
    ) -> Result<(), Exhausted> {
        let invalid = |detail: String| error::invalid_text(path, schema.kind.name(), detail);
        if self.budget == 0 {
            self.outcome.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
            return Err(Exhausted);
        }
        let old = old.filter(|old| !old.is_null());
        for rule in &rules.rules {
            let program = match &rule.program {
                None => continue,
                Some(Ok(program)) => program,
                Some(Err(reason)) => {
                    let error = invalid(format!("rule compile error: {reason}"));
                    self.outcome.errors.push(error);
                    continue;
                }
            };
            let uses_old_self = program.uses_old_self();
            if uses_old_self && old.is_none() && rule.old_self == OldSelf::Value {
                continue;
            }
            let inputs = Inputs::new(&rules.schema, value, old, rule.old_self);
            let evaluation = program.evaluate(&inputs, Limits::default());
            let Some(left) = self.budget.checked_sub(evaluation.cost) else {
                self.outcome.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
                return Err(Exhausted);
            };
            self.budget = left;
            match evaluation.value {
                Ok(Value::Bool(true)) => continue,
                Ok(_) => {}
                Err(failure) => {
                    let (detail, is_last) = describe(&failure, &rule.name);
                    self.outcome.errors.push(invalid(detail));
                    if is_last {
                        return Err(Exhausted);
                    }
                    continue;
                }
            }
            let is_ratcheted = || !uses_old_self && ratchet.is_ratcheted();
            let place = if rule.field_path.is_empty() {
                path.to_string()
            } else {
                path.child(&rule.field_path).to_string()
            };
            let message = match rule.message.as_ref() {
                None => None,
                Some(message) => match self.message(message, &inputs, &rule.message_text) {
                    Ok(message) => message,
                    Err(detail) => {
                        let error = error::invalid_text(&place, schema.kind.name(), detail);
                        self.add(error, is_ratcheted());
                        return Err(Exhausted);
                    }
                },
            };
            let detail = message.unwrap_or_else(|| rule.default_message());
            let error = violation(rule.error_type, &place, schema, value, detail);
            self.add(error, is_ratcheted());
        }
        Ok(())
    }

    fn add(&mut self, error: FieldError, forgiven: bool) {
        if forgiven {
            self.outcome.warnings.push(error.to_string());
        } else {
            self.outcome.errors.push(error);
        }
    }

    /// The result of a `messageExpression`; `None` if it is unusable.
    fn message(
        &mut self,
        message: &Rule,
        inputs: &Inputs<'_>,
        text: &str,
    ) -> Result<Option<String>, UpstreamError> {
        let evaluation = message.evaluate(inputs, Limits::default());
        self.budget = self.budget.checked_sub(evaluation.cost).ok_or(
            "messageExpression evaluation failed due to running out of cost budget, no further \
             validation rules will be run",
        )?;
        let value = match evaluation.value {
            Ok(value) => value,
            Err(EvalError::CostLimit) => {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {}",
                    quote(text)
                )
                .into());
            }
            Err(_) => return Ok(None),
        };
        let message = value.as_str().unwrap_or_default().trim();
        let is_usable =
            !message.is_empty() && message.len() <= MAX_MESSAGE && !message.contains('\n');
        Ok(is_usable.then(|| message.to_owned()))
    }
}

/// The message about a failed rule, and true if no further rules may be evaluated.
fn describe(failure: &EvalError, rule: &str) -> (String, bool) {
    let text = failure.to_string();
    if text.starts_with("no such overload") {
        let detail = format!(
            "'{text}': call arguments did not match a supported operator, function or macro \
             signature for rule: {rule}"
        );
        (detail, false)
    } else if matches!(failure, EvalError::CostLimit) {
        let detail = format!(
            "'{text}': no further validation rules will be run due to call cost exceeds limit for \
             rule: {rule}"
        );
        (detail, true)
    } else {
        (format!("{text} evaluating rule: {rule}"), false)
    }
}

fn violation(
    error_type: ErrorType,
    place: &str,
    schema: &Node,
    value: &Json,
    detail: String,
) -> FieldError {
    let is_shown = !matches!(schema.kind, Type::Object | Type::Array);
    match error_type {
        ErrorType::Forbidden => error::forbidden(&place, detail),
        ErrorType::Required => error::required(&place, detail),
        ErrorType::Duplicate if is_shown => error::duplicate(&place, &shown(value)),
        ErrorType::Duplicate => {
            let mut error = error::invalid_without_value(&place, "");
            error.error_type = ErrorType::Duplicate;
            error
        }
        _ if is_shown => error::invalid(&place, &shown(value), detail),
        _ => error::invalid_without_value(&place, &detail),
    }
}
