//! `lockgate cel`

mod policy;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use lockgate_api::access::{FixedAuthorizer, User};
use lockgate_api::document::{Span, json, yaml};
use lockgate_cel::admission::{PolicyEvaluation, Request, Variables, compile_expression};
use lockgate_cel::eval::{
    Evaluation, Limits, Program, Recorded, RecordedOutcome, Recording, evaluate, evaluate_recorded,
};
use lockgate_cel::ext::authorizer::AuthorizerValue;
use lockgate_cel::program::CompileError;
use lockgate_go::json::to_string_plain;
use serde_json::{Map, Value as Json, json};

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::input;
use crate::output::Printer;
use crate::output::diagnostic::{Artist, Drawing, Level};
use crate::output::table;
use crate::text::Source;

/// Arguments of `lockgate cel`.
#[derive(Debug, Args)]
#[command(long_about = "\
Check or evaluate a CEL expression as a match condition

Variables, libraries, limits and costs are those of match conditions in Kubernetes 1.36: `object`,
`oldObject`, `request`, `namespaceObject` (always null), `authorizer` and `authorizer.requestResource`.
Results of any type are accepted; a match condition must be `bool`.

With --policy, every expression of a ValidatingAdmissionPolicy or MutatingAdmissionPolicy is checked or
evaluated as the policy does it, with its `variables`, `params` and `namespaceObject`.")]
pub struct CelArgs {
    /// The action.
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Parse and type-check an expression
    Check(CheckArgs),
    /// Evaluate an expression and print its cost
    Eval(EvalArgs),
}

/// Arguments of `lockgate cel check`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate cel check \"request.resource.resource != 'leases'\"
  lockgate cel check --batch expressions.jsonl
  lockgate cel check --policy policy.yaml

Exit codes: 0 the expression is valid, 4 it is not.")]
struct CheckArgs {
    #[command(flatten)]
    what: ExpressionArgs,
}

/// Arguments of `lockgate cel eval`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate cel eval \"object.spec.containers.all(c, c.image.startsWith('registry.example/'))\" \\
      --object pod.yaml
  lockgate cel eval \"request.operation == 'CREATE'\" --request review.json -o json
  lockgate cel eval \"object.spec.replicas > 2 || has(object.metadata.labels)\" \\
      --object deployment.yaml --explain
  lockgate cel eval --batch expressions.jsonl --object pod.json --request request.json
  lockgate cel eval --policy policy.yaml --object deployment.yaml --params limits.yaml
  lockgate cel eval \"variables.replicas <= params.limit\" --policy policy.yaml --object deployment.yaml

Exit codes: 0 evaluated to a value, 1 evaluated to an error, 3 a validation of the policy failed,
4 the expression is not valid.")]
struct EvalArgs {
    #[command(flatten)]
    what: ExpressionArgs,

    /// YAML or JSON file with the variable `object`
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,

    /// YAML or JSON file with the variable `oldObject`
    #[arg(long, value_name = "FILE")]
    old_object: Option<PathBuf>,

    /// File with the variable `request`, or an AdmissionReview, whose objects are used as well
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,

    /// YAML or JSON file with the variable `params`
    #[arg(long, value_name = "FILE", requires = "policy")]
    params: Option<PathBuf>,

    /// YAML or JSON file with the variable `namespaceObject`
    #[arg(long, value_name = "FILE", requires = "policy")]
    namespace_object: Option<PathBuf>,

    /// Answer of `authorizer` to every access check
    #[arg(long, value_enum, default_value_t, value_name = "ANSWER")]
    authorizer: AuthorizerArg,

    /// Print the value and cost of each sub-expression; with -o json as `explain`
    #[arg(long, conflicts_with_all = ["batch", "policy"])]
    explain: bool,
}

#[derive(Debug, Args)]
struct ExpressionArgs {
    /// The expression
    #[arg(
        required_unless_present_any = ["batch", "policy"],
        conflicts_with = "batch",
        value_name = "EXPR"
    )]
    expression: Option<String>,

    /// File with a policy, all of whose expressions are taken; with EXPR, its environment
    #[arg(long, value_name = "FILE", conflicts_with = "batch")]
    policy: Option<PathBuf>,

    /// File of JSON lines with `Id` and `Expr`, or - for standard input; prints a line for each, with
    /// `CompileError`, or `OutType` with `Value`, `ValueStr` or `EvalError`, and `Cost`
    #[arg(long, value_name = "FILE.jsonl")]
    batch: Option<PathBuf>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum OutputFormat {
    /// A table
    #[default]
    Table,
    /// One JSON object, with the fields of --batch
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum AuthorizerArg {
    /// Allow every access check
    #[default]
    AllowAll,
    /// Deny every access check
    DenyAll,
}

/// Checks or evaluates what the arguments name.
///
/// # Errors
///
/// A file cannot be read or is not what it should be, or standard output cannot be written.
pub fn run(args: &CelArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &args.action {
        Action::Check(args) => {
            let Some(file) = &args.what.policy else {
                let describe = compiled(compile_expression, |_, _| Outcome::default());
                return run_each(&args.what, printer, describe);
            };
            let policy = policy::read(file)?;
            if args.what.expression.is_none() {
                return policy::run(&policy, None, args.what.output, printer);
            }
            let composition = policy::composition(&policy);
            let compile = |text: &str| composition.compile_expression(text, None);
            let describe = compiled(compile, |_, _| Outcome::default());
            run_each(&args.what, printer, describe)
        }
        Action::Eval(args) => {
            let inputs = Inputs::read(args)?;
            let variables = inputs.variables(args.authorizer);
            if let Some(file) = &args.what.policy {
                let policy = policy::read(file)?;
                let extra = policy::Extra {
                    namespace: inputs.namespace.as_ref(),
                    params: inputs.params.as_ref(),
                };
                if args.what.expression.is_none() {
                    let variables = Some((&variables, extra));
                    return policy::run(&policy, variables, args.what.output, printer);
                }
                let composition = policy::composition(&policy);
                let named = composition.named();
                let inputs = variables.policy_inputs(extra.namespace, extra.params);
                let compile = |text: &str| composition.compile_expression(text, None);
                let describe = compiled(compile, |_, program| {
                    let mut evaluation = PolicyEvaluation::new(&named, &inputs, None);
                    let before = evaluation.remaining();
                    match evaluation.evaluate(program) {
                        Ok(value) => {
                            let cost = before - evaluation.remaining();
                            outcome(Evaluation { value, cost })
                        }
                        Err(spent) => Outcome::failed(spent.to_string()),
                    }
                });
                return run_each(&args.what, printer, describe);
            }
            let inputs = variables.inputs();
            let describe = compiled(compile_expression, |expression, program| {
                if !args.explain {
                    return outcome(evaluate(program, inputs, Limits::default()));
                }
                let (evaluation, recording) = evaluate_recorded(program, inputs, Limits::default());
                let mut outcome = outcome(evaluation);
                let steps = recording
                    .steps
                    .iter()
                    .map(|step| explained(expression, step));
                outcome
                    .fields
                    .insert(String::from("explain"), Json::Array(steps.collect()));
                outcome.explanation = Some(explanation(expression, &recording));
                outcome
            });
            run_each(&args.what, printer, describe)
        }
    }
}

/// Compiles an expression and says what becomes of its program.
fn compiled(
    compile: impl Fn(&str) -> Result<Program, CompileError>,
    evaluate: impl Fn(&str, &Program) -> Outcome,
) -> impl Fn(&str) -> Result<Outcome, CompileError> {
    move |expression| {
        let program = compile(expression)?;
        let mut outcome = evaluate(expression, &program);
        let out_type = json!(program.output_type().to_string());
        outcome.fields.insert(String::from("OutType"), out_type);
        Ok(outcome)
    }
}

/// The printed result of an evaluation.
fn outcome(evaluation: Evaluation<'_>) -> Outcome {
    let mut fields = Map::new();
    match &evaluation.value {
        Ok(value) => match value.to_proto_json() {
            Some(json) => fields.insert(String::from("Value"), json),
            None => fields.insert(String::from("ValueStr"), json!(value.type_name())),
        },
        Err(error) => fields.insert(String::from("EvalError"), json!(error.to_string())),
    };
    fields.insert(String::from("Cost"), json!(evaluation.cost));
    let shown = evaluation.value.ok().map(|value| value.to_string());
    Outcome {
        fields,
        shown,
        explanation: None,
    }
}

/// A part of an expression, for programs.
fn explained(expression: &str, step: &Recorded) -> Json {
    let (name, text) = match &step.outcome {
        RecordedOutcome::Value(value) => ("value", value),
        RecordedOutcome::Error(error) => ("error", error),
    };
    json!({
        "start": step.span.start,
        "end": step.span.end,
        "depth": step.depth,
        "text": step.span.of(expression),
        "cost": step.cost,
        name: text,
    })
}

/// Widest text and widest value in a table of parts.
const EXPLAINED_WIDTH: usize = 64;
/// Deepest indentation in it.
const EXPLAINED_DEPTH: u32 = 16;

/// The parts of an expression as a table, inner ones indented.
fn explanation(expression: &str, recording: &Recording) -> String {
    let row = |step: &Recorded| {
        let indent = "  ".repeat(step.depth.min(EXPLAINED_DEPTH) as usize);
        let text = step.span.of(expression).unwrap_or_default();
        let outcome = match &step.outcome {
            RecordedOutcome::Value(value) => one_line(value),
            RecordedOutcome::Error(error) => one_line(&format!("error: {error}")),
        };
        vec![
            format!("{indent}{}", one_line(text)),
            step.cost.to_string(),
            outcome,
        ]
    };
    let rows: Vec<_> = recording.steps.iter().map(row).collect();
    let mut table = table::render(&["EXPRESSION", "COST", "VALUE"], &rows);
    if recording.omitted > 0 {
        table.push_str(&format!("{} more not shown\n", recording.omitted));
    }
    table
}

/// Text on one line, cut where it is too wide.
fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut line: String = text.chars().take(EXPLAINED_WIDTH).map(printable).collect();
    if text.chars().nth(EXPLAINED_WIDTH).is_some() {
        line.push('…');
    }
    line
}

/// The result of checking an expression.
#[derive(Default)]
struct Outcome {
    /// In the words of the recordings under `conformance/`.
    fields: Map<String, Json>,
    /// The value as people read it.
    shown: Option<String>,
    /// Formats the values of all sub-expressions.
    explanation: Option<String>,
}

impl Outcome {
    fn failed(error: String) -> Self {
        Self {
            fields: Map::from_iter([(String::from("EvalError"), json!(error))]),
            ..Self::default()
        }
    }
}

fn run_each(
    what: &ExpressionArgs,
    printer: &mut Printer,
    describe: impl Fn(&str) -> Result<Outcome, CompileError>,
) -> Result<ExitCode, Stop> {
    match (&what.batch, &what.expression) {
        (Some(batch), _) => run_batch(batch, printer, describe),
        (None, Some(expression)) => run_one(expression, what.output, printer, describe),
        (None, None) => Err(CommandError::usage("no expression").into()),
    }
}

fn run_one(
    expression: &str,
    output: OutputFormat,
    printer: &mut Printer,
    describe: impl Fn(&str) -> Result<Outcome, CompileError>,
) -> Result<ExitCode, Stop> {
    let Outcome {
        fields,
        shown,
        explanation,
    } = match describe(expression) {
        Ok(outcome) => outcome,
        Err(error) if output == OutputFormat::Json => {
            printer.line(&to_string_plain(
                &json!({ "CompileError": error.to_string() }),
            ))?;
            return Ok(ExitCode::InvalidInput);
        }
        Err(error) => {
            printer.text(&draw(expression, &error, printer.color()))?;
            return Ok(ExitCode::InvalidInput);
        }
    };
    let code = if fields.contains_key("EvalError") {
        ExitCode::Failed
    } else {
        ExitCode::Done
    };
    if output == OutputFormat::Json {
        printer.line(&to_string_plain(&fields))?;
        return Ok(code);
    }
    let text = |value: &Json| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let cells = [
        ("TYPE", fields.get("OutType").map(text)),
        ("COST", fields.get("Cost").map(text)),
        ("VALUE", shown),
        ("ERROR", fields.get("EvalError").map(text)),
    ];
    let (headers, row): (Vec<&str>, Vec<String>) = cells
        .into_iter()
        .filter_map(|(header, value)| Some((header, value?)))
        .unzip();
    printer.text(&table::render(&headers, &[row]))?;
    if let Some(explanation) = explanation {
        printer.text(&format!("\n{explanation}"))?;
    }
    Ok(code)
}

/// Draws every issue of an expression at its place.
fn draw(expression: &str, error: &CompileError, color: bool) -> String {
    let source = Source::new("<input>", expression);
    let artist = Artist::new(color);
    let drawing = |message: &str, span: Span| {
        artist.draw(&Drawing {
            severity: Level::Error,
            code: String::from("error[expression]"),
            message,
            help: None,
            source: &source,
            span,
            label: "",
        })
    };
    match error {
        CompileError::Issues { issues, .. } => issues
            .iter()
            .map(|issue| {
                let span = issue.offset.map_or_else(
                    || Span::new(0, expression.len()),
                    |at| Span::new(at as usize, at as usize + 1),
                );
                drawing(&issue.message, span)
            })
            .collect(),
        other => drawing(&other.to_string(), Span::new(0, expression.len())),
    }
}

fn run_batch(
    path: &Path,
    printer: &mut Printer,
    describe: impl Fn(&str) -> Result<Outcome, CompileError>,
) -> Result<ExitCode, Stop> {
    let Source { text, .. } = input::read(path).map_err(CommandError::from)?;
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let bad = |what: &str| {
            let place = format!("{}:{}", path.display(), index + 1);
            CommandError::invalid_input(format!("{place}: {what}"))
                .with_help("each line is a JSON object with the strings `Id` and `Expr`")
        };
        // A line may hold a recorded value, nested deeper than a recursive reader goes.
        let case = json::parse(line.as_bytes()).map_err(|error| bad(&error.to_string()))?;
        let text = |name: &str| case.root().get(name).and_then(|value| value.as_str());
        let Some(expression) = text("Expr") else {
            return Err(bad("`Expr` is missing or not a text").into());
        };
        let mut fields = match describe(expression) {
            Ok(outcome) => outcome.fields,
            Err(error) => {
                Map::from_iter([(String::from("CompileError"), json!(error.to_string()))])
            }
        };
        fields.insert(String::from("Id"), json!(text("Id")));
        printer.line(&to_string_plain(&fields))?;
    }
    Ok(ExitCode::Done)
}

/// The variables as they were read.
struct Inputs {
    object: Option<Json>,
    old_object: Option<Json>,
    request: Json,
    facts: Request,
    namespace: Option<Json>,
    params: Option<Json>,
}

impl Inputs {
    fn read(args: &EvalArgs) -> Result<Self, CommandError> {
        let read = |path: &Option<PathBuf>| path.as_deref().map(read_object).transpose();
        let mut object = read(&args.object)?;
        let mut old_object = read(&args.old_object)?;
        let namespace = read(&args.namespace_object)?;
        let params = read(&args.params)?;
        let Some(mut request) = read(&args.request)? else {
            let facts = Request::default();
            return Ok(Self {
                object,
                old_object,
                request: facts.to_json(),
                facts,
                namespace,
                params,
            });
        };
        if let Some(review) = request.get_mut("request") {
            request = review.take();
        }
        let Some(fields) = request.as_object_mut() else {
            return Err(CommandError::invalid_input("--request is not an object")
                .with_help("pass an AdmissionReview, or its `request`"));
        };
        object = object.or_else(|| fields.remove("object").filter(|value| !value.is_null()));
        old_object = old_object.or_else(|| fields.remove("oldObject").filter(|v| !v.is_null()));
        // A condition sees these members, but never their values.
        for (name, value) in [
            ("uid", json!("")),
            ("object", Json::Null),
            ("oldObject", Json::Null),
        ] {
            fields.insert(name.to_owned(), value);
        }
        let facts = Request::from_json(&request);
        Ok(Self {
            object,
            old_object,
            request,
            facts,
            namespace,
            params,
        })
    }

    fn variables(&self, answer: AuthorizerArg) -> Variables<'_> {
        let authorizer = match answer {
            AuthorizerArg::AllowAll => FixedAuthorizer::AllowAll,
            AuthorizerArg::DenyAll => FixedAuthorizer::DenyAll,
        };
        let user = User {
            name: self.facts.username.clone(),
            uid: self.facts.user_uid.clone(),
            groups: self.facts.groups.clone(),
            extra: self.facts.extra.clone(),
        };
        let authorizer = AuthorizerValue::new(Arc::new(user), Arc::new(authorizer));
        Variables::new(&self.request)
            .object(self.object.as_ref())
            .old_object(self.old_object.as_ref())
            .authorizer(authorizer, &self.facts)
    }
}

/// Reads an object in YAML, of which JSON is a part.
fn read_object(path: &Path) -> Result<Json, CommandError> {
    let Source { text, .. } = input::read(path)?;
    let invalid =
        |error: String| CommandError::invalid_input(format!("`{}`: {error}", path.display()));
    // JSON is read as such, so that numbers keep what they say.
    if let Ok(json) = serde_json::from_str(&text) {
        return Ok(json);
    }
    let document = yaml::parse(&text).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_str(&document.root().to_json()).map_err(|error| invalid(error.to_string()))
}
