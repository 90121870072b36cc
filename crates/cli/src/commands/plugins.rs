//! `lockgate plugins`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};
use lockgate_plugins::catalogue::{self, MakeError, OFFERS, Offer, Use};
use lockgate_plugins::in_tree::Configuration;
use lockgate_plugins::lookup::{LiveLookup, Lookup};
use lockgate_plugins::{ReadyMade, served};
use lockgate_webhook::server::{ClientAuth, ProbePaths};
use lockgate_webhook::{ManifestOptions, Manifests, Webhooks};
use serde_json::{Value, json};

use super::manifests::{ClientConfigArgs, Format};
use super::webhook_server::{self, WebhookServerArgs};
use super::{CommandError, Stop, run_async};
use crate::exit_code::ExitCode;
use crate::logging::LogArgs;
use crate::output::{Printer, table};

/// Arguments of `lockgate plugins`.
#[derive(Debug, Args)]
pub struct PluginsArgs {
    #[command(subcommand)]
    command: PluginsCommand,
}

#[derive(Debug, Subcommand)]
enum PluginsCommand {
    /// List the admission plugins that can be served as webhooks
    List(ListArgs),
    /// Print the webhook configurations of admission plugins
    Manifests(ManifestsArgs),
    /// Serve admission plugins as webhooks
    Serve(Box<ServeArgs>),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: ListFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum ListFormat {
    /// One line per plugin
    #[default]
    Table,
    /// JSON with the webhooks and RBAC rules of each plugin
    Json,
}

/// The selected plugins.
#[derive(Debug, Args)]
struct SelectionArgs {
    /// Plugins by name (see `lockgate plugins list`)
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    plugins: Vec<String>,

    /// AdmissionConfiguration file with the configurations of the plugins
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,

    /// Namespaces to exclude from the webhooks
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    exempt_namespaces: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate plugins manifests --plugins AlwaysPullImages,PodNodeSelector --service lockgate/plugins
  lockgate plugins manifests --plugins LimitRanger --url https://localhost:9443 --ca-bundle ca.crt")]
struct ManifestsArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    client_config: ClientConfigArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate plugins serve --plugins AlwaysPullImages --self-signed localhost --ca-out ca.crt
  lockgate plugins serve --plugins LimitRanger,PodSecurity --cert-dir /certs --kubeconfig ~/.kube/config
  lockgate plugins manifests --plugins AlwaysPullImages --url https://localhost:9443 \\
    --ca-bundle ca.crt | kubectl apply -f -

Prints the address to standard output when the server is ready. Stops on SIGTERM and SIGINT after
answering what it has received.")]
struct ServeArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Kubeconfig of the cluster to read objects from [default: in a Pod, its service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    server: WebhookServerArgs,

    /// Require client certificates signed by this CA
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,

    /// Serve /healthz and /readyz over HTTP at this address
    #[arg(long, value_name = "IP:PORT")]
    health_probe_bind_address: Option<SocketAddr>,

    /// Serve /metrics over HTTP at this address
    #[arg(long, value_name = "IP:PORT")]
    metrics_bind_address: Option<SocketAddr>,

    #[command(flatten)]
    log: LogArgs,
}

/// Runs a plugins subcommand.
///
/// # Errors
///
/// A plugin is unknown or its configuration invalid, a file cannot be read or written, or the server
/// does not start.
pub fn run(args: &PluginsArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    match &args.command {
        PluginsCommand::List(args) => list(args, printer),
        PluginsCommand::Manifests(args) => {
            let made = args.selection.plugins.iter();
            let made = made.map(|name| catalogue::sample(name));
            let made = made.collect::<Result<Vec<_>, _>>().map_err(refused)?;
            let webhooks = args.selection.served(&made);
            let manifests = webhooks.manifests(&named(args.client_config.options()?));
            printer.text(&match args.output {
                Format::Yaml => manifests.to_yaml(),
                Format::Json => manifests.to_json(),
            })?;
            Ok(ExitCode::Done)
        }
        PluginsCommand::Serve(args) => {
            args.log
                .start()
                .map_err(|error| CommandError::usage(error.to_string()))?;
            run_async(serve(args, printer))
        }
    }
}

fn named(options: ManifestOptions) -> ManifestOptions {
    options
        .mutating_name("lockgate-plugins")
        .validating_name("lockgate-plugins")
}

impl SelectionArgs {
    fn webhooks(&self, lookup: Option<&Arc<dyn Lookup>>) -> Result<Webhooks, CommandError> {
        let names: Vec<&str> = self.plugins.iter().map(String::as_str).collect();
        let file = self.admission_control_config_file.as_deref();
        let made = catalogue::make(&names, lookup, Configuration(file)).map_err(refused)?;
        Ok(self.served(&made))
    }

    fn served(&self, plugins: &[Box<dyn ReadyMade>]) -> Webhooks {
        let plugins: Vec<&dyn ReadyMade> = plugins.iter().map(AsRef::as_ref).collect();
        let exempt = self.exempt_namespaces.iter().map(String::as_str);
        let exempt: Vec<&str> = exempt.filter(|name| !name.is_empty()).collect();
        served(&plugins, &exempt)
    }

    fn reads_cluster(&self) -> bool {
        let reads = |offer: &Offer| !offer.reads.is_empty();
        let mut chosen = OFFERS.iter().filter(|offer| {
            let is_chosen = |name: &String| name == offer.name;
            self.plugins.iter().any(is_chosen)
        });
        chosen.any(reads)
    }
}

fn refused(error: MakeError) -> CommandError {
    let message = error.to_string();
    match &error {
        MakeError::Unknown(name) => {
            let nearest = OFFERS
                .iter()
                .map(|offer| (strsim::damerau_levenshtein(offer.name, name), offer.name))
                .min();
            let help = match nearest {
                Some((distance, nearest)) if distance <= 3 => format!("did you mean {nearest}?"),
                _ => String::from("`lockgate plugins list` lists the plugins"),
            };
            CommandError::usage(message).with_help(help)
        }
        MakeError::NoCluster(_) => CommandError::usage(message)
            .with_help("set --kubeconfig, or run in a pod with a service account"),
        _ => CommandError::invalid_input(message),
    }
}

fn list(args: &ListArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    if args.output == ListFormat::Json {
        let all = OFFERS.iter().map(described);
        let all = all.collect::<Result<Vec<Value>, CommandError>>()?;
        printer.text(&format!("{:#}\n", json!({ "plugins": all })))?;
        return Ok(ExitCode::Done);
    }
    let row = |offer: &Offer| {
        let configuration = match offer.configuration {
            Use::None => "",
            Use::Optional => "optional",
            Use::Required => "required",
        };
        let reads = if offer.reads.is_empty() {
            ""
        } else {
            "cluster"
        };
        [offer.name, configuration, reads, offer.summary]
            .map(str::to_owned)
            .to_vec()
    };
    let rows: Vec<_> = OFFERS.iter().map(row).collect();
    let headers = ["NAME", "CONFIGURATION", "READS", "DESCRIPTION"];
    printer.text(&table::render(&headers, &rows))?;
    Ok(ExitCode::Done)
}

/// A plugin with the webhooks and RBAC rules that it needs, from which the chart is generated.
fn described(offer: &Offer) -> Result<Value, CommandError> {
    let reads: Vec<Value> = offer
        .reads
        .iter()
        .map(|resource| {
            json!({
                "apiGroups": [resource.group],
                "resources": [resource.plural],
                "verbs": ["get", "list"],
            })
        })
        .collect();
    let plugin = catalogue::sample(offer.name).map_err(refused)?;
    let webhooks = plugin.webhooks();
    let registrations = webhooks.iter().map(|(registration, _)| registration);
    let manifests = Manifests::of(registrations, &named(ManifestOptions::new()));
    let of_kind = |kind: &str| {
        let values = manifests.to_values();
        let found = values.into_iter().find(|value| value["kind"] == kind);
        let mut webhooks = found.map_or_else(|| json!([]), |mut found| found["webhooks"].take());
        for webhook in webhooks.as_array_mut().into_iter().flatten() {
            // The chart sets the rest of clientConfig.
            let path = webhook["clientConfig"]["service"]["path"].take();
            webhook["clientConfig"] = json!({"service": {"path": path}});
        }
        webhooks
    };
    Ok(json!({
        "name": offer.name,
        "description": offer.summary,
        "configuration": match offer.configuration {
            Use::None => "none",
            Use::Optional => "optional",
            Use::Required => "required",
        },
        "rules": reads,
        "mutating": of_kind("MutatingWebhookConfiguration"),
        "validating": of_kind("ValidatingWebhookConfiguration"),
    }))
}

async fn serve(args: &ServeArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let lookup = match args.selection.reads_cluster() {
        true => Some(cluster(args.kubeconfig.as_deref()).await?),
        false => None,
    };
    let webhooks = args.selection.webhooks(lookup.as_ref())?;
    let certificates = args.server.certificates("lockgate-plugins")?;
    let mut server = args.server.server(webhooks, certificates);
    if let Some(file) = &args.client_ca_file {
        server = server.client_auth(ClientAuth::new().client_ca(file));
    }
    if let Some(address) = args.health_probe_bind_address {
        server = server.probes(address, ProbePaths::default());
    }
    if let Some(address) = args.metrics_bind_address {
        server = server.metrics(address, "/metrics");
    }
    let plugins = args.selection.plugins.join(",");
    let started = |address| tracing::info!(%address, plugins, "serving");
    webhook_server::run(server, "", printer, started).await?;
    Ok(ExitCode::Done)
}

/// The cluster that plugins read from.
async fn cluster(kubeconfig: Option<&Path>) -> Result<Arc<dyn Lookup>, CommandError> {
    let config = match kubeconfig {
        Some(file) => {
            let invalid = |error: &dyn std::fmt::Display| {
                let message = format!("cannot use kubeconfig `{}`: {error}", file.display());
                CommandError::invalid_input(message)
            };
            let read = Kubeconfig::read_from(file).map_err(|error| invalid(&error))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|error| invalid(&error))?
        }
        None => kube::Config::incluster().map_err(|error| {
            CommandError::usage(format!("no cluster to read objects from: {error}"))
                .with_help("set --kubeconfig, or run in a pod with a service account")
        })?,
    };
    let client = kube::Client::try_from(config)
        .map_err(|error| CommandError::failed(format!("cannot connect to the cluster: {error}")))?;
    Ok(Arc::new(LiveLookup::new(client)))
}
