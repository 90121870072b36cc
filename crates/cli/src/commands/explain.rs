//! `lockgate explain`

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lockgate_admission::request::{Operation, Request};
use lockgate_api::document::yaml;
use lockgate_offline::chain::{Chain, Tracing};
use lockgate_offline::cluster::Cluster;
use lockgate_offline::explanation::{Explanation, explain};
use lockgate_offline::manifest;
use lockgate_offline::request::{RequestError, RequestSpec, from_review, user};
use serde_json::{Value, json};

use super::{CommandError, Stop, run_async};
use crate::exit_code::ExitCode;
use crate::input;
use crate::offline::{ClusterArgs, LoadError, read_hooks};
use crate::output::{Printer, explanation};

/// Arguments of `lockgate explain`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate explain -f deploy/ --object pod.yaml
  lockgate explain -f policies/ --object new.yaml --old-object stored.yaml --as ann --as-group dev
  lockgate explain -f policies/ --object pod.yaml --operation DELETE -o json
  lockgate explain --context staging --object pod.yaml --dry-run
  lockgate explain -f deploy/ --object pod.yaml --hooks answers.yaml --expressions
  kubectl get pod web -o yaml | lockgate explain --context staging --object -
  lockgate explain -f deploy/ --request review.json

Exit codes: 0 admission lets the request through, 1 a file or the cluster cannot be read, 2 usage,
3 admission denies the request, 4 invalid input.")]
#[command(long_about = "\
Explain which webhooks and policies apply to a request, and why

Runs a request through the admission chain of the API server in this process. Prints the verdict of each webhook,
policy, binding and parameter. If one does not apply, prints the first predicate that did not match, with the value it
was evaluated on. Match conditions and policy expressions are shown with the value and cost of each subexpression.

Webhooks are not called: they are assumed to allow, unless --hooks sets their responses or URLs.
Configurations, policies, namespaces, RBAC, CustomResourceDefinitions and parameters come from files, from a live
cluster (read-only), or from both: files replace objects of the same name, which shows what a change would do.")]
pub struct ExplainArgs {
    /// Manifests and clusters.
    #[command(flatten)]
    cluster: ClusterArgs,

    /// File with the object of the request, or - for standard input; each document is a request
    #[arg(long, value_name = "FILE|-", required_unless_present = "request")]
    object: Option<PathBuf>,

    /// File with the stored object that the request updates or deletes
    #[arg(long, value_name = "FILE")]
    old_object: Option<PathBuf>,

    /// File with an AdmissionReview to explain instead of an object, or a capture file
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["object", "old_object"])]
    request: Option<PathBuf>,

    /// Operation [default: UPDATE with --old-object, otherwise CREATE]
    #[arg(long, value_name = "OPERATION", ignore_case = true, value_enum)]
    operation: Option<OperationArg>,

    /// User of the request [default: a cluster admin]
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,

    /// Group of the user; repeatable
    #[arg(long = "as-group", value_name = "GROUP")]
    groups: Vec<String>,

    /// Namespace of the request
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Subresource, such as status or scale
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    subresource: String,

    /// Explain a dry run
    #[arg(long)]
    dry_run: bool,

    /// File with the responses of webhooks, or the URLs to call them at
    #[arg(long, value_name = "FILE")]
    hooks: Option<PathBuf>,

    /// Also show the subexpressions of expressions that are true
    #[arg(long)]
    expressions: bool,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum OperationArg {
    /// A new object
    Create,
    /// A changed object
    Update,
    /// A deleted object
    Delete,
    /// A connection, such as pods/exec
    Connect,
}

impl From<OperationArg> for Operation {
    fn from(operation: OperationArg) -> Self {
        match operation {
            OperationArg::Create => Self::Create,
            OperationArg::Update => Self::Update,
            OperationArg::Delete => Self::Delete,
            OperationArg::Connect => Self::Connect,
        }
    }
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A table, the deciding expressions, and the fields set by each webhook or policy
    #[default]
    Table,
    /// One JSON object per request
    Json,
    /// YAML documents
    Yaml,
}

impl From<LoadError> for CommandError {
    fn from(error: LoadError) -> Self {
        let made = match error {
            LoadError::Read(error) => return error.into(),
            LoadError::Live(_) => Self::failed(error.to_string()),
            LoadError::Nothing => Self::usage(error.to_string()),
            _ => Self::invalid_input(error.to_string()),
        };
        match error.help() {
            Some(help) => made.with_help(help),
            None => made,
        }
    }
}

/// Explains the requests.
///
/// # Errors
///
/// Fails if the input cannot be read, or is invalid.
pub fn run(args: &ExplainArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    run_async(explain_all(args, printer))
}

async fn explain_all(args: &ExplainArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let loaded = args.cluster.load().await.map_err(CommandError::from)?;
    let hooks = match &args.hooks {
        Some(file) => read_hooks(file).map_err(CommandError::from)?,
        None => lockgate_offline::hooks::Hooks::default(),
    };
    let requests = requests(args, &loaded.cluster)?;
    let chain = Chain::new(&loaded.cluster, hooks);
    let mut all_allowed = true;
    for (nth, (request, assumptions)) in requests.into_iter().enumerate() {
        let run = chain.run(request, Tracing::Explained).await;
        let mut told = explain(&chain, &run);
        told.assumptions.extend(assumptions);
        told.assumptions.extend(loaded.notes.iter().cloned());
        all_allowed &= told.decision.allowed;
        print(args, nth, &told, printer)?;
    }
    Ok(if all_allowed {
        ExitCode::Done
    } else {
        ExitCode::Findings
    })
}

fn print(
    args: &ExplainArgs,
    nth: usize,
    told: &Explanation,
    printer: &mut Printer,
) -> Result<(), Stop> {
    let value = || serde_json::to_value(told).unwrap_or_default();
    match args.output {
        Format::Table => {
            let separator = if nth == 0 { "" } else { "\n" };
            let text = explanation::render(told, args.expressions);
            printer.text(&format!("{separator}{text}"))?;
        }
        Format::Json => {
            let text = serde_json::to_string_pretty(&value()).unwrap_or_default();
            printer.line(&text)?;
        }
        Format::Yaml => {
            let separator = if nth == 0 { "" } else { "---\n" };
            printer.text(&format!("{separator}{}", yaml::write(&value())))?;
        }
    }
    Ok(())
}

type ExplainedRequest = (Request, Vec<String>);

fn requests(args: &ExplainArgs, cluster: &Cluster) -> Result<Vec<ExplainedRequest>, CommandError> {
    if let Some(file) = &args.request {
        return reviews(file, cluster);
    }
    let old_object = match &args.old_object {
        Some(file) => Some(one_object(file)?),
        None => None,
    };
    let file = args.object.as_deref().unwrap_or_else(|| Path::new("-"));
    let objects = objects(file)?;
    let mut requests = Vec::with_capacity(objects.len());
    for (name, object) in objects {
        let is_delete = args.operation == Some(OperationArg::Delete);
        let (object, old_object) = match old_object.clone() {
            None if is_delete => (None, Some(object)),
            old => (Some(object), old),
        };
        let wanted = RequestSpec {
            operation: args.operation.map(Operation::from),
            object,
            old_object,
            user: user(args.user.as_deref(), &args.groups),
            namespace: args.namespace.clone(),
            subresource: args.subresource.clone(),
            dry_run: args.dry_run,
            ..RequestSpec::default()
        };
        let made = wanted.make(&cluster.kinds);
        let made = made.map_err(|error| unusable(&name, &error))?;
        let mut remarks = made.assumptions;
        let dropped = made.findings.iter();
        remarks.extend(dropped.map(|finding| format!("{finding}: dropped by the server")));
        requests.push((made.request, remarks));
    }
    Ok(requests)
}

fn unusable(name: &str, error: &RequestError) -> CommandError {
    CommandError::invalid_input(format!("{name}: {error}")).with_help(
        "pass an object with apiVersion, kind and metadata, as kubectl get -o yaml prints it",
    )
}

fn reviews(file: &Path, cluster: &Cluster) -> Result<Vec<ExplainedRequest>, CommandError> {
    let source = input::read(file)?;
    let is_capture = source
        .text
        .trim_start()
        .starts_with("{\"format\":\"lockgate-capture\"");
    let reviews: Vec<Value> = if is_capture {
        let capture = lockgate_offline::capture::read(&source.name, &source.text);
        let capture = capture.map_err(|error| CommandError::invalid_input(error.to_string()))?;
        let records = capture.records.into_iter();
        records
            .map(|record| json!({"request": record.request}))
            .collect()
    } else {
        let values = manifest::read_values(&source.name, &source.text);
        let values = values.map_err(LoadError::from)?;
        values.into_iter().map(|(_, value)| value).collect()
    };
    let mut requests = Vec::with_capacity(reviews.len());
    for review in &reviews {
        let request = from_review(review, &cluster.kinds).map_err(|error| {
            CommandError::invalid_input(format!("{}: {error}", source.name))
                .with_help("pass an AdmissionReview request, or a file of `lockgate capture`")
        })?;
        requests.push((request, Vec::new()));
    }
    if requests.is_empty() {
        let message = format!("{}: no request found", source.name);
        return Err(CommandError::invalid_input(message));
    }
    Ok(requests)
}

/// The objects of a file, each with a name.
fn objects(file: &Path) -> Result<Vec<(String, Value)>, CommandError> {
    let source = input::read(file)?;
    let manifests = manifest::read(&source.name, &source.text).map_err(LoadError::from)?;
    if manifests.is_empty() {
        let message = format!("{}: no object found", source.name);
        let help = "pass a manifest, or - for standard input";
        return Err(CommandError::invalid_input(message).with_help(help));
    }
    let objects = manifests.into_iter();
    Ok(objects
        .map(|manifest| (manifest.source.clone(), manifest.value))
        .collect())
}

fn one_object(file: &Path) -> Result<Value, CommandError> {
    let mut objects = objects(file)?;
    if objects.len() > 1 {
        let message = format!(
            "{} has {} objects, expected one",
            file.display(),
            objects.len()
        );
        return Err(CommandError::invalid_input(message));
    }
    Ok(objects.remove(0).1)
}
