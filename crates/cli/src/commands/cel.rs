//! `lockgate cel`

mod missing;
mod mistake;
mod policy;
mod rule;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use lockgate_admission::conditions::libraries_of;
use lockgate_api::access::{FixedAuthorizer, User};
use lockgate_api::document::{Span, json, yaml};
use lockgate_api::kube_version::KubeVersion;
use lockgate_cel::admission::{Composition, Request, Variables, match_condition_environment};
use lockgate_cel::check::Environment;
use lockgate_cel::crd::OldSelf;
use lockgate_cel::eval::{
    Evaluation, Limits, Named, Program, Recorded, RecordedOutcome, Recording, evaluate,
    evaluate_recorded,
};
use lockgate_cel::ext::authorizer::AuthorizerValue;
use lockgate_cel::program::CompileError;
use lockgate_cel::{Type, compile};
use lockgate_go::json::to_string_plain;
use serde_json::{Map, Value as Json, json};

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::input;
use crate::output::Printer;
use crate::output::diagnostic::{Artist, Drawing, Level};
use crate::output::table;
use crate::text::Source;
use mistake::Mistake;

/// Arguments of `lockgate cel`.
#[derive(Debug, Args)]
#[command(long_about = "\
Check or evaluate a CEL expression as a match condition, policy expression or CRD validation rule

Variables, libraries, limits and costs are those of match conditions in Kubernetes 1.36, or --kube-version: `object`,
`oldObject`, `request`, `namespaceObject` (always null), `authorizer` and `authorizer.requestResource`.
`check` rejects conditions that are not `bool`; `eval` prints results of any type unless --mode is set.

With --policy, every expression of a ValidatingAdmissionPolicy or MutatingAdmissionPolicy is checked or
evaluated in the policy's environment, with `variables`, `params` and `namespaceObject`. --mode policy sets up
that environment without a file.

With --crd or --self, the expression is a rule of x-kubernetes-validations: it has the variables `self` and `oldSelf`,
and must be `bool`. Without an expression, every rule of the CRD is checked.")]
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
  lockgate cel check --kube-version 1.35 \"[2, 1].sort() == [1, 2]\"      # 1.34 rejects it
  lockgate cel check --batch expressions.jsonl
  lockgate cel check --policy policy.yaml
  lockgate cel check --mode policy --variable team=object.metadata.labels.team \\
      \"variables.team in params.teams\"
  lockgate cel check --crd crd.yaml
  lockgate cel check --crd crd.yaml --path spec \"self.minReplicas <= self.maxReplicas\"

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
  lockgate cel eval \"variables.replicas <= params.limit\" --policy policy.yaml --object deployment.yaml \\
      --params limits.yaml
  lockgate cel eval \"self.size >= oldSelf.size\" --self larger.yaml --old-self old.yaml
  lockgate cel eval \"self.minReplicas <= self.maxReplicas\" --crd crd.yaml --path spec --object resource.yaml

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

    /// File with the variable `request`, or an AdmissionReview, whose objects are used too
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,

    /// YAML or JSON file with the variable `params` of a policy
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,

    /// YAML or JSON file with the variable `self` of a rule; types are inferred from the values
    #[arg(long = "self", value_name = "FILE", conflicts_with_all = ["batch", "policy", "crd", "mode"])]
    self_value: Option<PathBuf>,

    /// YAML or JSON file with the variable `oldSelf` of a rule
    #[arg(long, value_name = "FILE", requires = "self_value")]
    old_self: Option<PathBuf>,

    /// YAML or JSON file with the variable `namespaceObject` of a policy
    #[arg(long, value_name = "FILE")]
    namespace_object: Option<PathBuf>,

    /// Decision of `authorizer` for every access check
    #[arg(long, value_enum, default_value_t, value_name = "ANSWER")]
    authorizer: AuthorizerArg,

    /// Print the value and cost of each subexpression; with -o json in the field `explain`
    #[arg(long, conflicts_with = "batch")]
    explain: bool,
}

#[derive(Debug, Args)]
struct ExpressionArgs {
    /// CEL expression
    #[arg(
        required_unless_present_any = ["batch", "policy", "crd"],
        conflicts_with = "batch",
        value_name = "EXPR"
    )]
    expression: Option<String>,

    /// File with a policy: checks or evaluates all its expressions, or EXPR in its environment
    #[arg(long, value_name = "FILE", conflicts_with = "batch")]
    policy: Option<PathBuf>,

    /// Environment of the expression [default: a match condition]
    #[arg(long, value_enum, value_name = "MODE", conflicts_with_all = ["policy", "batch", "crd"])]
    mode: Option<Mode>,

    /// Kubernetes version whose CEL libraries are available to new expressions, from 1.33 to 1.37
    #[arg(long, value_name = "VERSION", default_value_t, conflicts_with_all = ["policy", "crd"])]
    kube_version: KubeVersion,

    /// Declare a variable of a policy: NAME=EXPR; repeatable
    #[arg(long, value_name = "NAME=EXPR", conflicts_with_all = ["policy", "batch", "crd"])]
    variable: Vec<String>,

    /// File with a CustomResourceDefinition whose schema types `self`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "batch"])]
    crd: Option<PathBuf>,

    /// Field path of `self` in the custom resource, such as `spec` or `spec.ports[0]` [default: the whole resource]
    #[arg(long, value_name = "PATH", requires = "crd")]
    path: Option<String>,

    /// Make `oldSelf` optional, as `optionalOldSelf: true` does
    #[arg(long)]
    optional_old_self: bool,

    /// File of JSON lines with `Id` and `Expr`, or - for standard input; prints one line per expression, with
    /// `CompileError`, or `OutType` with `Value`, `ValueStr` or `EvalError`, and `Cost`
    #[arg(long, value_name = "FILE.jsonl")]
    batch: Option<PathBuf>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: OutputFormat,
}

/// The environment of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// `matchConditions` of a webhook; must be `bool`
    MatchCondition,
    /// An admission policy, with `variables`, `params` and `namespaceObject`
    Policy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum OutputFormat {
    /// A table
    #[default]
    Table,
    /// One JSON object with the fields of --batch
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

/// Checks or evaluates expressions.
///
/// # Errors
///
/// Fails if a file cannot be read or is invalid, or standard output cannot be written.
pub fn run(args: &CelArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &args.action {
        Action::Check(args) => check(&args.what, printer),
        Action::Eval(args) => eval(args, printer),
    }
}

fn check(what: &ExpressionArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    if let Some(file) = &what.crd {
        let definition = rule::Definition::read(file)?;
        if what.expression.is_none() {
            return rule::check_all(&definition, what.output, printer);
        }
        let path = what.path.as_deref().unwrap_or_default();
        let subject = rule::Subject::of_definition(&definition, path, None, None, what.old_self())?;
        let describe = |text: &str| subject.describe(text, false);
        return run_each(what, &subject.known(), printer, describe);
    }
    let nothing = |_: &str, _: &Program| Outcome::default();
    if let Some(composition) = what.composition()? {
        let names = composition.environment();
        let compile = |text: &str| composition.compile_expression(text, None);
        return run_each(what, &Known::of(names), printer, compiled(compile, nothing));
    }
    if let Some(file) = &what.policy {
        let policy = policy::read(file)?;
        if what.expression.is_none() {
            return policy::run(&policy, None, what.output, printer);
        }
        let composition = policy::composition(&policy);
        let compile = |text: &str| composition.compile_expression(text, None);
        let names = composition.environment();
        return run_each(what, &Known::of(names), printer, compiled(compile, nothing));
    }
    let environment = what.environment();
    // Batches compare expressions of any type with recorded results.
    let expected = match what.batch {
        Some(_) => None,
        None => Some(&Type::Bool),
    };
    let compile = |text: &str| compile(text, &environment, expected);
    run_each(
        what,
        &Known::of(&environment),
        printer,
        compiled(compile, nothing),
    )
}

fn eval(args: &EvalArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let what = &args.what;
    let inputs = Inputs::read(args)?;
    if let Some(file) = &what.crd {
        let definition = rule::Definition::read(file)?;
        if what.expression.is_none() {
            return rule::check_all(&definition, what.output, printer);
        }
        let (object, old) = (inputs.object.as_ref(), inputs.old_object.as_ref());
        if object.is_none() {
            return Err(CommandError::usage("--crd requires a custom resource")
                .with_help("pass it with --object")
                .into());
        }
        let path = what.path.as_deref().unwrap_or_default();
        let subject =
            rule::Subject::of_definition(&definition, path, object, old, what.old_self())?;
        let describe = |text: &str| subject.describe(text, args.explain);
        return run_each(what, &subject.known(), printer, describe);
    }
    if let Some(file) = &args.self_value {
        let old = args.old_self.as_deref().map(read_object).transpose()?;
        let subject = rule::Subject::of_values(read_object(file)?, old, what.old_self())?;
        let describe = |text: &str| subject.describe(text, args.explain);
        return run_each(what, &subject.known(), printer, describe);
    }
    let known_variables = inputs.known();
    let variables = inputs.variables(args.authorizer);
    let extra = policy::Extra {
        namespace: inputs.namespace.as_ref(),
        params: inputs.params.as_ref(),
    };
    let policy = what.policy.as_deref().map(policy::read).transpose()?;
    if let (Some(policy), None) = (&policy, &what.expression) {
        let variables = Some((&variables, extra));
        return policy::run(policy, variables, what.output, printer);
    }
    let composition = match &policy {
        Some(policy) => Some(policy::composition(policy)),
        None => what.composition()?,
    };
    if let Some(composition) = &composition {
        let named = composition.named();
        let inputs = variables.policy_inputs(extra.namespace, extra.params);
        let compile = |text: &str| composition.compile_expression(text, None);
        let describe = compiled(compile, |expression, program| {
            let named = Named::new(&named, &inputs, Limits::default());
            let (evaluation, recording) = named.evaluate_recorded(program);
            let cost = evaluation.cost.saturating_add(named.take_cost());
            let recording = args.explain.then_some(recording);
            evaluation_outcome(expression, Evaluation { cost, ..evaluation }, recording)
        });
        let known = Known {
            names: composition.environment(),
            variables: known_variables,
        };
        return run_each(what, &known, printer, describe);
    }
    if extra.namespace.is_some() || extra.params.is_some() {
        return Err(
            CommandError::usage("--params and --namespace-object require a policy")
                .with_help("set --policy FILE or --mode policy")
                .into(),
        );
    }
    let inputs = variables.inputs();
    let environment = what.environment();
    let expected = match what.mode {
        Some(Mode::MatchCondition) => Some(&Type::Bool),
        _ => None,
    };
    let compile = |text: &str| compile(text, &environment, expected);
    let describe = compiled(compile, |expression, program| {
        if !args.explain {
            return outcome(evaluate(program, inputs, Limits::default()));
        }
        let (evaluation, recording) = evaluate_recorded(program, inputs, Limits::default());
        evaluation_outcome(expression, evaluation, Some(recording))
    });
    let known = Known {
        names: &environment,
        variables: known_variables,
    };
    run_each(what, &known, printer, describe)
}

impl ExpressionArgs {
    fn old_self(&self) -> OldSelf {
        match self.optional_old_self {
            true => OldSelf::Optional,
            false => OldSelf::Value,
        }
    }

    /// The environment of match conditions in the selected version.
    fn environment(&self) -> Environment {
        let environment = match_condition_environment().clone();
        environment.with_libraries(libraries_of(self.kube_version))
    }

    /// The environment of `--mode policy`, if selected.
    fn composition(&self) -> Result<Option<Composition>, CommandError> {
        if self.mode != Some(Mode::Policy) && self.variable.is_empty() {
            return Ok(None);
        }
        let mut composition =
            Composition::new(true).with_libraries(libraries_of(self.kube_version));
        for variable in &self.variable {
            let (name, expression) = variable.split_once('=').ok_or_else(|| {
                CommandError::usage(format!("expected NAME=EXPR, found `{variable}`"))
            })?;
            composition.declare(name, expression).map_err(|error| {
                CommandError::invalid_input(format!("variable `{name}`: {error}"))
            })?;
        }
        Ok(Some(composition))
    }
}

/// The printed result of an evaluation, and of its parts if they were recorded.
fn evaluation_outcome(
    expression: &str,
    evaluation: Evaluation<'_>,
    recording: Option<Recording>,
) -> Outcome {
    let mut outcome = outcome(evaluation);
    if let Some(recording) = recording {
        let steps = recording
            .steps
            .iter()
            .map(|step| explained(expression, step));
        outcome
            .fields
            .insert(String::from("explain"), steps.collect());
        outcome.explanation = Some(explanation(expression, &recording));
    }
    outcome
}

/// Compiles an expression and returns the outcome of its program.
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

/// A subexpression in JSON output.
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

/// The maximum width of an expression and of a value in a table of subexpressions.
const EXPLAINED_WIDTH: usize = 64;
/// The maximum indentation of that table.
const EXPLAINED_DEPTH: u32 = 16;

/// The subexpressions as a table, indented by depth.
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

/// The text on one line, truncated.
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
    /// In the format of the recordings under `conformance/`.
    fields: Map<String, Json>,
    /// The value for human-readable output.
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

/// The names in scope, for suggestions.
struct Known<'k> {
    names: &'k Environment,
    /// The variables that have a value.
    variables: Vec<(&'static str, &'k Json)>,
}

impl<'k> Known<'k> {
    fn of(names: &'k Environment) -> Self {
        Self {
            names,
            variables: Vec::new(),
        }
    }
}

fn run_each(
    what: &ExpressionArgs,
    known: &Known<'_>,
    printer: &mut Printer,
    describe: impl Fn(&str) -> Result<Outcome, CompileError>,
) -> Result<ExitCode, Stop> {
    match (&what.batch, &what.expression) {
        (Some(batch), _) => run_batch(batch, printer, describe),
        (None, Some(expression)) => run_one(expression, what.output, known, printer, describe),
        (None, None) => Err(CommandError::usage("no expression given").into()),
    }
}

fn run_one(
    expression: &str,
    output: OutputFormat,
    known: &Known<'_>,
    printer: &mut Printer,
    describe: impl Fn(&str) -> Result<Outcome, CompileError>,
) -> Result<ExitCode, Stop> {
    let Outcome {
        mut fields,
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
            printer.text(&draw(expression, &error, known.names, printer.color()))?;
            return Ok(ExitCode::InvalidInput);
        }
    };
    let error = fields.get("EvalError").and_then(Json::as_str);
    let code = match error {
        Some(_) => ExitCode::Failed,
        None => ExitCode::Done,
    };
    let help = error.and_then(|error| missing::help(error, expression, &known.variables));
    if let Some(help) = &help {
        fields.insert(String::from("Help"), json!(help));
    }
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
    if let Some(help) = help {
        printer.line(&format!("help: {help}"))?;
    }
    if let Some(explanation) = explanation {
        printer.text(&format!("\n{explanation}"))?;
    }
    Ok(code)
}

/// Draws every issue of an expression, underlined.
fn draw(expression: &str, error: &CompileError, names: &Environment, color: bool) -> String {
    let source = Source::new("<input>", expression);
    let artist = Artist::new(color);
    let drawing = |message: &str, span: Span, help: Option<&str>| {
        artist.draw(&Drawing {
            severity: Level::Error,
            code: String::from("error[expression]"),
            message,
            help,
            source: &source,
            span,
            label: "",
        })
    };
    match error {
        CompileError::Issues { issues, .. } => issues
            .iter()
            .map(|issue| {
                let Mistake { span, help } = mistake::locate(expression, issue, names);
                drawing(&issue.message, span, help.as_deref())
            })
            .collect(),
        CompileError::Type { expected, .. } if expected == "bool" => {
            let help = "a condition must be true or false: compare the value with something";
            let whole = Span::new(0, expression.len());
            drawing(&error.to_string(), whole, Some(help))
        }
        other => drawing(&other.to_string(), Span::new(0, expression.len()), None),
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
        // A line may hold a recorded value nested too deeply for a recursive parser.
        let case = json::parse(line.as_bytes()).map_err(|error| bad(&error.to_string()))?;
        let text = |name: &str| case.root().get(name).and_then(|value| value.as_str());
        let Some(expression) = text("Expr") else {
            return Err(bad("`Expr` is missing or not a string").into());
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

/// The variables as read from the files.
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
        // A condition has these fields, but never their values.
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

    /// The variables set by flags.
    fn known(&self) -> Vec<(&'static str, &Json)> {
        let given = [
            ("object", self.object.as_ref()),
            ("oldObject", self.old_object.as_ref()),
            ("request", Some(&self.request)),
            ("namespaceObject", self.namespace.as_ref()),
            ("params", self.params.as_ref()),
        ];
        let given = given.into_iter();
        given
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
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

/// Reads an object in YAML or JSON.
fn read_object(path: &Path) -> Result<Json, CommandError> {
    let Source { text, .. } = input::read(path)?;
    let invalid =
        |error: String| CommandError::invalid_input(format!("`{}`: {error}", path.display()));
    // JSON is parsed as JSON, so that numbers keep their exact value.
    if let Ok(json) = serde_json::from_str(&text) {
        return Ok(json);
    }
    let document = yaml::parse(&text).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_str(&document.root().to_json()).map_err(|error| invalid(error.to_string()))
}
