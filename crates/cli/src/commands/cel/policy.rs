//! The expressions of one policy, with their results on an object and their costs.

use std::path::Path;

use lockgate_api::document::yaml;
use lockgate_api::registration::policy::{Mutation, Policy, Registered, decode_policy};
use lockgate_cel::Value;
use lockgate_cel::admission::{Composition, PolicyEvaluation, Role, Variables};
use lockgate_cel::eval::Program;
use lockgate_cel::program::CompileError;
use lockgate_go::json::to_string_plain;
use serde_json::{Map, Value as Json, json};

use super::{OutputFormat, draw, one_line};
use crate::commands::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::input;
use crate::output::{Printer, table};
use crate::text::Source;

/// Reads the first policy in a file.
pub(super) fn read(path: &Path) -> Result<Policy, CommandError> {
    let Source { text, .. } = input::read(path)?;
    let invalid =
        |error: String| CommandError::invalid_input(format!("`{}`: {error}", path.display()));
    let documents = yaml::parse_all(&text).map_err(|error| invalid(error.to_string()))?;
    for document in &documents {
        let root = document.root();
        let member = |name: &str| root.get(name).and_then(|value| value.as_str());
        let version = member("apiVersion").unwrap_or_default();
        let kind = member("kind").unwrap_or_default();
        if let Some(Registered::Policy(kind)) = Registered::identify(version, kind) {
            let decoded = decode_policy(root, kind).map_err(|error| invalid(error.to_string()))?;
            return Ok(decoded.value);
        }
    }
    Err(invalid(String::from("no policy found")).with_help(
        "pass a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy of \
         admissionregistration.k8s.io/v1",
    ))
}

/// The environment of a policy's expressions.
pub(super) fn composition(policy: &Policy) -> Composition {
    let variables = policy.variables.iter().flatten();
    Composition::compile(
        policy.param_kind.is_some(),
        variables.map(|variable| (variable.name.as_str(), variable.expression.as_str())),
    )
}

/// An expression of a policy.
struct Part<'p> {
    field: String,
    expression: &'p str,
    role: Role,
    /// Expressions of one list share the values of variables and their cost.
    list: List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Conditions,
    Variables,
    Validations,
    Messages,
    Annotations,
    Mutation,
}

fn parts(policy: &Policy) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut add = |field: String, expression, role, list| {
        parts.push(Part {
            field,
            expression,
            role,
            list,
        });
    };
    for (n, condition) in policy.match_conditions.iter().flatten().enumerate() {
        let field = format!("matchConditions[{n}] {}", condition.name);
        add(
            field,
            condition.expression.trim(),
            Role::Condition,
            List::Conditions,
        );
    }
    for (n, variable) in policy.variables.iter().flatten().enumerate() {
        let field = format!("variables[{n}] {}", variable.name);
        add(field, &variable.expression, Role::Variable, List::Variables);
    }
    for (n, validation) in policy.validations.iter().flatten().enumerate() {
        let field = format!("validations[{n}].expression");
        add(
            field,
            &validation.expression,
            Role::Condition,
            List::Validations,
        );
    }
    for (n, validation) in policy.validations.iter().flatten().enumerate() {
        if !validation.message_expression.is_empty() {
            let field = format!("validations[{n}].messageExpression");
            let expression = &validation.message_expression;
            add(field, expression, Role::Message, List::Messages);
        }
    }
    for (n, annotation) in policy.audit_annotations.iter().flatten().enumerate() {
        let field = format!("auditAnnotations[{n}] {}", annotation.key);
        let expression = &annotation.value_expression;
        add(field, expression, Role::AuditAnnotation, List::Annotations);
    }
    for (n, mutation) in policy.mutations.iter().flatten().enumerate() {
        let Mutation {
            apply_configuration,
            json_patch,
            ..
        } = mutation;
        if let Some(configuration) = apply_configuration {
            let field = format!("mutations[{n}].applyConfiguration");
            let expression = &configuration.expression;
            add(field, expression, Role::ApplyConfiguration, List::Mutation);
        }
        if let Some(patch) = json_patch {
            let field = format!("mutations[{n}].jsonPatch");
            add(field, &patch.expression, Role::JsonPatch, List::Mutation);
        }
    }
    parts
}

/// The variables of policy expressions beyond those of match conditions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extra<'e> {
    pub(super) namespace: Option<&'e Json>,
    pub(super) params: Option<&'e Json>,
}

/// Checks every expression of a policy, and evaluates the valid ones if variables are given.
pub(super) fn run(
    policy: &Policy,
    variables: Option<(&Variables<'_>, Extra<'_>)>,
    output: OutputFormat,
    printer: &mut Printer,
) -> Result<ExitCode, Stop> {
    let composition = composition(policy);
    let parts = parts(policy);
    let programs: Vec<Result<_, CompileError>> = parts
        .iter()
        .map(|part| composition.program(part.expression, part.role))
        .collect();
    let named = composition.named();
    let inputs = variables.map(|(variables, extra)| {
        [variables.clone(), variables.clone().without_authorizer()]
            .map(|variables| variables.policy_inputs(extra.namespace, extra.params))
    });
    let mut rows = Vec::new();
    let mut verdict = Verdict::default();
    let mut current: Option<(List, PolicyEvaluation<'_>)> = None;
    for (part, program) in parts.iter().zip(&programs) {
        let mut row = Row::new(&part.field);
        match (program, &inputs) {
            (Err(error), _) => row.fail("CompileError", error.to_string()),
            (Ok(program), None) => row.output_type(program),
            (Ok(program), Some(inputs)) => {
                row.output_type(program);
                let shares = !matches!(part.list, List::Variables | List::Mutation);
                let inputs = &inputs[usize::from(part.list == List::Messages)];
                let mut evaluation = match current.take() {
                    Some((list, evaluation)) if list == part.list && shares => evaluation,
                    _ => PolicyEvaluation::new(&named, inputs, None),
                };
                let before = evaluation.remaining();
                match evaluation.evaluate(program) {
                    Ok(value) => {
                        row.cost(before - evaluation.remaining());
                        if let Ok(Value::Bool(holds)) = value {
                            verdict.take(part.list, holds);
                        }
                        match value {
                            Ok(value) => row.value(value.to_json(), &value.to_string()),
                            Err(error) => row.fail("EvalError", error.to_string()),
                        }
                    }
                    Err(spent) => row.fail("EvalError", spent.to_string()),
                }
                current = Some((part.list, evaluation));
            }
        }
        rows.push(row);
    }
    let failed = |name: &str| rows.iter().any(|row| row.fields.contains_key(name));
    let code = if failed("CompileError") {
        ExitCode::InvalidInput
    } else if failed("EvalError") {
        ExitCode::Failed
    } else if verdict.is_denied() {
        ExitCode::Findings
    } else {
        ExitCode::Done
    };
    match output {
        OutputFormat::Json => {
            let rows: Vec<Json> = rows.into_iter().map(|row| row.fields.into()).collect();
            printer.line(&to_string_plain(&json!({
                "policy": policy.metadata.name,
                "matches": verdict.matches,
                "expressions": rows,
            })))?;
        }
        OutputFormat::Table => {
            for (part, program) in parts.iter().zip(&programs) {
                if let Err(error) = program {
                    let names = composition.environment();
                    printer.text(&draw(part.expression, error, names, printer.color()))?;
                }
            }
            let rows: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
            let headers = ["FIELD", "TYPE", "COST", "VALUE"];
            printer.text(&table::render(&headers, &rows))?;
            if !verdict.matches {
                printer
                    .line("the match conditions evaluate to false: the policy does not apply")?;
            }
        }
    }
    Ok(code)
}

/// The decision of the policy as a whole.
struct Verdict {
    matches: bool,
    holds: bool,
}

impl Default for Verdict {
    fn default() -> Self {
        Self {
            matches: true,
            holds: true,
        }
    }
}

impl Verdict {
    fn take(&mut self, list: List, holds: bool) {
        match list {
            List::Conditions => self.matches &= holds,
            List::Validations => self.holds &= holds,
            _ => {}
        }
    }

    fn is_denied(&self) -> bool {
        self.matches && !self.holds
    }
}

/// The result of one expression.
struct Row {
    fields: Map<String, Json>,
    shown: String,
}

impl Row {
    fn new(field: &str) -> Self {
        Self {
            fields: Map::from_iter([(String::from("Field"), json!(field))]),
            shown: String::new(),
        }
    }

    fn output_type(&mut self, program: &Program) {
        let of = json!(program.output_type().to_string());
        self.fields.insert(String::from("OutType"), of);
    }

    fn cost(&mut self, cost: u64) {
        self.fields.insert(String::from("Cost"), json!(cost));
    }

    fn value(&mut self, json: Option<Json>, shown: &str) {
        match json {
            Some(json) => {
                let is_plain = !json.is_object() && !json.is_array();
                self.shown = one_line(&if is_plain {
                    shown.to_owned()
                } else {
                    to_string_plain(&json)
                });
                self.fields.insert(String::from("Value"), json);
            }
            None => {
                self.shown = one_line(shown);
                self.fields.insert(String::from("ValueStr"), json!(shown));
            }
        }
    }

    fn fail(&mut self, name: &str, error: String) {
        self.shown = one_line(&format!("error: {error}"));
        self.fields.insert(name.to_owned(), json!(error));
    }

    fn cells(&self) -> Vec<String> {
        let cell = |name: &str| match self.fields.get(name) {
            None => String::new(),
            Some(Json::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        vec![
            cell("Field"),
            cell("OutType"),
            cell("Cost"),
            self.shown.clone(),
        ]
    }
}
