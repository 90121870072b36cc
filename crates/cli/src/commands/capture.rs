//! `lockgate capture`

mod forward;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use lockgate_api::document::yaml;
use lockgate_offline::audit::{self, Skipped};
use lockgate_offline::capture::{Record, RecordedCall, RecordedDecision, header, redact};
use lockgate_offline::kinds::OfflineKinds;
use lockgate_webhook::{
    BoxFuture, Context, FailurePolicy, Fault, Handler, ManifestOptions, Registration, Response,
    Rule, SideEffects, Webhooks,
};
use serde_json::{Value, json};

use self::forward::{Forward, ForwardArgs};
use super::webhook_server::{self, WebhookServerArgs};
use super::{CommandError, Stop, run_async};
use crate::capture_file::{CaptureFile, CaptureFileError, now};
use crate::exit_code::ExitCode;
use crate::input;
use crate::offline::read_manifests;
use crate::output::Printer;

/// The path of the capturing webhook.
const PATH: &str = "/capture";
/// The name of the capturing webhook.
const NAME: &str = "capture.lockgate.dev";

/// Arguments of `lockgate capture`.
#[derive(Debug, Args)]
#[command(long_about = "\
Capture requests into a file for lockgate replay

A capture has one request per line, as JSON, with its outcome. The contents of Secrets and tokens are redacted.
`lockgate serve --capture FILE` captures the requests of a server. These commands capture from the audit log of any API
server, or as a webhook in any cluster that allows every request or forwards it to another webhook and records its response.")]
pub struct CaptureArgs {
    #[command(subcommand)]
    command: CaptureCommand,
}

#[derive(Debug, Subcommand)]
enum CaptureCommand {
    /// Capture from an audit log
    Audit(AuditArgs),
    /// Capture as a webhook that allows every request or forwards it to another webhook
    Webhook(WebhookArgs),
    /// Print the webhook configuration that registers the capturing webhook
    Manifest(ManifestArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate capture audit audit.log --to capture.jsonl
  kubectl get --raw /logs/audit.log | lockgate capture audit - > capture.jsonl

Events need the level Request or RequestResponse; patches need RequestResponse.
Exit codes: 0 done, 1 a file cannot be read or written, 2 usage, 4 no usable audit event found.")]
struct AuditArgs {
    /// Audit log in JSON lines, or - for standard input
    #[arg(value_name = "FILE|-")]
    log: PathBuf,

    /// File to create [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate capture webhook --to capture.jsonl --self-signed localhost --ca-out ca.crt
  lockgate capture webhook --to capture.jsonl --cert-dir /certs
  lockgate capture webhook --to capture.jsonl --cert-dir /certs \\
    --forward https://images.hooks.svc/validate --forward-ca-file ca.crt --forward-name images.example.com

Register the webhook with `lockgate capture manifest`. It stops on SIGTERM and SIGINT. If the webhook behind --forward does
not respond, the call fails and the failurePolicy applies as before.")]
struct WebhookArgs {
    /// File to create
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    #[command(flatten)]
    server: WebhookServerArgs,

    #[command(flatten)]
    forward: ForwardArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate capture manifest --service tools/capture
  lockgate capture manifest --url https://localhost:9443 --ca-bundle ca.crt | kubectl apply -f -
  kubectl get validatingwebhookconfiguration images -o yaml |
    lockgate capture manifest --service tools/capture --ca-bundle ca.crt --of -")]
struct ManifestArgs {
    /// Service of the webhook, as NAMESPACE/NAME
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        required_unless_present = "url",
        conflicts_with = "url"
    )]
    service: Option<String>,

    /// URL of the webhook, without a path
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// File with the CA certificates of the webhook
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,

    /// Webhook configuration to redirect to the capturing webhook, or - for standard input
    #[arg(long, value_name = "FILE|-")]
    of: Option<PathBuf>,

    /// Webhook in that configuration; required if it has several
    #[arg(long, value_name = "NAME", requires = "of")]
    webhook: Option<String>,
}

impl From<CaptureFileError> for CommandError {
    fn from(error: CaptureFileError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            CaptureFileError::Exists(_) => failed
                .with_help("captures are never overwritten: set another file, or remove this one"),
            CaptureFileError::Io { .. } => failed,
        }
    }
}

/// Runs a capture subcommand.
///
/// # Errors
///
/// A file cannot be read or written.
pub fn run(args: &CaptureArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &args.command {
        CaptureCommand::Audit(args) => from_audit(args, printer),
        CaptureCommand::Webhook(args) => run_async(serve(args, printer)),
        CaptureCommand::Manifest(args) => manifest(args, printer),
    }
}

fn from_audit(args: &AuditArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let source = input::read(&args.log).map_err(CommandError::from)?;
    let kinds = OfflineKinds::default();
    let mut records: Vec<Record> = Vec::new();
    let (mut without_object, mut patches, mut others) = (0, 0, 0);
    for (number, line) in (1..).zip(source.text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let event: Value = serde_json::from_str(line).map_err(|error| {
            let message = format!("{}:{number}: {error}", source.name);
            CommandError::invalid_input(message)
                .with_help("pass an audit log in JSON format, one event per line")
        })?;
        match audit::record(&event, &kinds) {
            Ok(record) => records.push(record),
            Err(Skipped::NoObject) => without_object += 1,
            Err(Skipped::Patch) => patches += 1,
            Err(_) => others += 1,
        }
    }
    if records.is_empty() {
        let message = format!("{}: no usable audit event found", source.name);
        let help = "audit writes at level Request, and patches at level RequestResponse";
        return Err(CommandError::invalid_input(message).with_help(help).into());
    }
    match &args.to {
        Some(path) => {
            let file = CaptureFile::create(path, "audit").map_err(CommandError::from)?;
            for record in &records {
                file.write(record).map_err(CommandError::from)?;
            }
        }
        None => {
            printer.line(&serde_json::to_string(&header("audit")).unwrap_or_default())?;
            for record in &records {
                printer.line(&record.to_line())?;
            }
            printer.flush()?;
        }
    }
    Printer::note(&format!(
        "{} requests; skipped: {without_object} without an object, {patches} patches without a result, \
         {others} other than writes",
        records.len()
    ));
    Ok(ExitCode::Done)
}

/// Records reviews, and allows or forwards them.
struct Capturing {
    file: CaptureFile,
    forward: Option<Forward>,
}

impl Capturing {
    async fn answer(&self, ctx: &Context) -> Result<Response, Fault> {
        let mut record = record(ctx);
        let answer = match &self.forward {
            None => Ok(Response::allow()),
            Some(forward) => {
                let (call, answer) = forward.call(ctx).await;
                record.decision = answer.as_ref().ok().map(|answer| RecordedDecision {
                    allowed: answer.is_allowed(),
                    code: answer.denial().map(|denial| denial.status().code),
                    message: answer.denial().map(ToString::to_string).unwrap_or_default(),
                    warnings: answer.warnings().to_vec(),
                });
                record.calls.push(call);
                answer
            }
        };
        redact(&mut record);
        if let Err(error) = self.file.write(&record) {
            tracing::error!(%error, "capture failed");
        }
        answer
    }
}

impl Handler for Capturing {
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        Box::pin(self.answer(ctx))
    }
}

fn record(ctx: &Context) -> Record {
    let parse = |text: Option<&str>| -> Value {
        let text = text.and_then(|text| serde_json::from_str(text).ok());
        text.unwrap_or_default()
    };
    let kind = |kind: &lockgate_api::admission::GroupVersionKind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let resource = |of: &lockgate_api::admission::GroupVersionResource| json!({"group": of.group, "version": of.version, "resource": of.resource});
    let user = ctx.user();
    Record {
        time: now(),
        request: json!({
            "operation": ctx.operation().as_str(), "kind": kind(ctx.kind()), "resource": resource(ctx.resource()),
            "subResource": ctx.sub_resource(), "requestKind": kind(ctx.request_kind()),
            "requestResource": resource(ctx.request_resource()),
            "name": ctx.name(), "namespace": ctx.namespace(),
            "userInfo": {"username": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra},
            "object": parse(ctx.object_text()), "oldObject": parse(ctx.old_object_text()),
            "options": parse(ctx.options_text()), "dryRun": ctx.is_dry_run(),
        }),
        decision: Some(RecordedDecision {
            allowed: true,
            ..RecordedDecision::default()
        }),
        calls: Vec::<RecordedCall>::new(),
        mutated: None,
    }
}

fn registration() -> Registration {
    registered(Registration::validating(NAME))
}

fn registered(registration: Registration) -> Registration {
    registration
        .path(PATH)
        .rule(
            Rule::resources(["*/*"])
                .groups(["*"])
                .versions(["*"])
                .all_operations(),
        )
        .failure_policy(FailurePolicy::Ignore)
        .side_effects(SideEffects::NoneOnDryRun)
        .timeout_seconds(2)
}

async fn serve(args: &WebhookArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let forward = args.forward.open(NAME)?;
    let certificates = args.server.certificates("lockgate-capture")?;
    let file = CaptureFile::create(&args.to, "webhook").map_err(CommandError::from)?;
    // Forwarded responses may have patches.
    let registration = match &forward {
        Some(_) => registered(Registration::mutating(NAME)),
        None => registration(),
    };
    let webhooks = Webhooks::new().with(registration, Capturing { file, forward });
    let server = args.server.server(webhooks, certificates);
    webhook_server::run(server, PATH, printer, |_| {}).await?;
    Ok(ExitCode::Done)
}

/// The configuration of another webhook, redirected to the capturing one.
fn redirected(args: &ManifestArgs, file: &Path, client: Value) -> Result<String, CommandError> {
    let mut found = read_manifests(file)
        .map_err(|error| CommandError::invalid_input(error.to_string()))?
        .into_iter()
        .filter(|manifest| manifest.text("kind").ends_with("WebhookConfiguration"));
    let (Some(mut manifest), None) = (found.next(), found.next()) else {
        let message = format!("expected one webhook configuration in `{}`", file.display());
        return Err(CommandError::invalid_input(message));
    };
    let webhooks = manifest.value["webhooks"].as_array_mut();
    let mut webhooks: Vec<&mut Value> = webhooks.into_iter().flatten().collect();
    let names: Vec<String> = webhooks
        .iter()
        .map(|webhook| webhook["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    if let Some(name) = &args.webhook {
        webhooks.retain(|webhook| webhook["name"] == name.as_str());
    }
    let [webhook] = webhooks.as_mut_slice() else {
        let message = "set --webhook to the webhook whose calls to capture";
        let help = format!("the webhooks are {}", names.join(", "));
        return Err(CommandError::usage(message).with_help(help));
    };
    webhook["clientConfig"] = client;
    // Server-managed metadata cannot be applied.
    if let Some(metadata) = manifest.value["metadata"].as_object_mut() {
        for member in [
            "managedFields",
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "generation",
        ] {
            metadata.remove(member);
        }
    }
    Ok(yaml::write(&manifest.value))
}

fn manifest(args: &ManifestArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let mut options = ManifestOptions::new();
    if let Some(service) = &args.service {
        let (namespace, name) = service.split_once('/').ok_or_else(|| {
            CommandError::usage(format!("`{service}` is not a Service reference"))
                .with_help("write --service NAMESPACE/NAME")
        })?;
        options = options.service(namespace, name);
    }
    if let Some(url) = &args.url {
        options = options.url(url);
    }
    if let Some(file) = &args.ca_bundle {
        let source = input::read(file).map_err(CommandError::from)?;
        options = options.ca_bundle(source.text);
    }
    let file = Arc::new(NoCapture);
    let webhooks = Webhooks::new().with(registration(), file);
    let text = webhooks.manifests(&options).to_yaml();
    let text = match &args.of {
        None => text,
        Some(file) => {
            let own = yaml::parse(&text).ok();
            let own = own.and_then(|own| serde_json::from_str::<Value>(&own.root().to_json()).ok());
            let client = own.map(|mut own| own["webhooks"][0]["clientConfig"].take());
            redirected(args, file, client.unwrap_or_default())?
        }
    };
    printer.text(&text)?;
    Ok(ExitCode::Done)
}

/// A handler for when only the registration is needed.
struct NoCapture;

impl Handler for NoCapture {
    fn handle<'f>(&'f self, _: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        Box::pin(async { Ok(Response::allow()) })
    }
}
