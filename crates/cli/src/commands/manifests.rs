//! `lockgate manifests`

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use lockgate_admission::conditions::RegistrationChecker;
use lockgate_api::document::yaml;
use lockgate_webhook::ManifestOptions;
use serde_json::{Value, json};
use similar::TextDiff;

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::input;
use crate::manifests::markers::Reading;
use crate::manifests::{Mistake, build, definition, source};
use crate::output::Printer;

/// The time limit of the exact diff; after it, a coarser diff is printed.
const DIFF_TIMEOUT: Duration = Duration::from_secs(2);

/// Arguments of `lockgate manifests`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lockgate manifests src/
  lockgate manifests src/ --service policy/webhooks --inject-ca-from policy/serving-cert
  lockgate manifests src/ --url https://localhost:9443 --ca-bundle ca.crt -o json
  lockgate manifests api/ internal/ --output-file config/webhook/manifests.yaml
  lockgate manifests src/ --definition config/crd/          # whole CustomResourceDefinitions, with `conversion`
  lockgate manifests src/ --check deploy/webhooks.yaml        # in a pipeline

Exit codes: 0 printed, written or up to date, 1 a file cannot be read or written, 2 usage,
3 the file of --check is out of date, 4 a marker is invalid.")]
#[command(long_about = "\
Generate webhook configurations from markers in source code

Reads Rust and Go files. `+kubebuilder:webhook:` and `+kubebuilder:webhookconfiguration:` comments in either language
generate what controller-gen generates from them. Rust files may also use `#[webhook(...)]` attributes: group,
version and resource are inferred from a type imported from `k8s_openapi` or derived with `#[kube(...)]` in
the same file; otherwise set them in the attribute. `#[conversion(...)]` attributes and
`+lockgate:conversion:` comments generate the `conversion` of CustomResourceDefinitions: kustomize patches, or with
--definition the complete definitions. Manifests that an API server would reject are errors at the
position of the marker.")]
pub struct ManifestsArgs {
    /// File, or directory to search for .rs and .go files
    #[arg(value_name = "PATH", required = true)]
    sources: Vec<PathBuf>,

    /// The address of the webhooks.
    #[command(flatten)]
    client_config: ClientConfigArgs,

    /// Print these CustomResourceDefinitions with their `conversion` instead of a patch; file or directory, repeatable
    #[arg(long, value_name = "PATH")]
    definition: Vec<PathBuf>,

    /// URL paths of the webhooks
    #[arg(long, value_enum, default_value_t, value_name = "STYLE")]
    paths: PathStyle,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,

    /// Compare with this file and print the difference
    #[arg(long, value_name = "FILE", conflicts_with = "output_file")]
    check: Option<PathBuf>,

    /// Write to this file
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
}

/// The address of the webhooks, and the CA of their certificate.
#[derive(Debug, Args)]
pub(super) struct ClientConfigArgs {
    /// Service of the webhooks, unless a marker sets one [default: system/webhook-service]
    #[arg(long, value_name = "NS/NAME[:PORT]", conflicts_with = "url")]
    service: Option<String>,

    /// URL of the webhooks instead of a Service: https://HOST[:PORT][/PATH]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// PEM file for the caBundle
    #[arg(long, value_name = "FILE", conflicts_with = "inject_ca_from")]
    ca_bundle: Option<PathBuf>,

    /// cert-manager Certificate whose CA cert-manager injects as caBundle
    #[arg(long, value_name = "NS/NAME")]
    inject_ca_from: Option<String>,
}

/// The URL paths of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PathStyle {
    /// The path in the marker
    #[default]
    Kubebuilder,
    /// The alias in the attribute; for comments, verb and kind: /validate-pod
    Logical,
}

/// The format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// One YAML document per kind
    #[default]
    Yaml,
    /// One JSON List
    Json,
}

/// Prints, writes or compares the manifests.
///
/// # Errors
///
/// The command line is invalid, a file cannot be read or written, or a marker is invalid.
pub fn run(args: &ManifestsArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let mut options = args.client_config.options()?;
    if args.paths == PathStyle::Logical {
        options = options.logical_paths();
    }
    let mut programs = Vec::new();
    for path in &args.sources {
        programs.extend(source::read(path).map_err(CommandError::from)?);
    }
    let reading = Reading::of(&programs);
    for remark in &reading.remarks {
        Printer::note(remark);
    }
    refuse(&reading.mistakes)?;
    if reading.found.is_empty() && reading.conversions.is_empty() {
        let error = CommandError::invalid_input("no webhook markers found");
        let help = "mark a webhook with `#[webhook(...)]` or `+kubebuilder:webhook:...`, a conversion with \
                    `#[conversion(...)]` or `+lockgate:conversion:...`";
        return Err(error.with_help(help).into());
    }
    if let Some(name) = &reading.mutating_name {
        options = options.mutating_name(name);
    }
    if let Some(name) = &reading.validating_name {
        options = options.validating_name(name);
    }
    let (manifests, mistakes) = build(&reading.found, &options, RegistrationChecker::REFERENCE);
    refuse(&mistakes)?;
    let registrations = reading.conversions.iter().map(|one| &one.registration);
    let manifests = manifests.with_conversions(registrations, &options);
    let definitions = if args.definition.is_empty() {
        manifests.definition_patches().to_vec()
    } else {
        let (definitions, mistakes) =
            definition::complete(&args.definition, &manifests, &reading.conversions)
                .map_err(CommandError::from)?;
        refuse(&mistakes)?;
        definitions
    };
    let objects: Vec<Value> = manifests
        .to_values()
        .into_iter()
        .chain(definitions)
        .collect();
    let text = match args.output {
        Format::Yaml => objects
            .iter()
            .map(|object| format!("---\n{}", yaml::write(object)))
            .collect(),
        Format::Json => {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
            format!("{list:#}\n")
        }
    };
    match (&args.check, &args.output_file) {
        (Some(file), _) => compare(file, &text, printer),
        (None, Some(file)) => {
            std::fs::write(file, text).map_err(|error| {
                CommandError::failed(format!("cannot write `{}`: {error}", file.display()))
            })?;
            Ok(ExitCode::Done)
        }
        (None, None) => {
            printer.text(&text)?;
            Ok(ExitCode::Done)
        }
    }
}

/// Prints all errors, and fails with the last one.
fn refuse(mistakes: &[Mistake]) -> Result<(), CommandError> {
    let Some((last, others)) = mistakes.split_last() else {
        return Ok(());
    };
    let text = |mistake: &Mistake| format!("{}: {}", mistake.place, mistake.message);
    for mistake in others {
        Printer::print_error(&text(mistake), mistake.help.as_deref());
    }
    let error = CommandError::invalid_input(text(last));
    Err(match &last.help {
        Some(help) => error.with_help(help),
        None => error,
    })
}

impl ClientConfigArgs {
    pub(super) fn options(&self) -> Result<ManifestOptions, CommandError> {
        let mut options = ManifestOptions::new();
        if let Some(service) = &self.service {
            let wrong = || {
                let error = CommandError::usage(format!("`{service}` is not a Service reference"));
                error.with_help("expected NAMESPACE/NAME or NAMESPACE/NAME:PORT")
            };
            let (namespace, name) = pair(service).ok_or_else(wrong)?;
            let (name, port) = match name.split_once(':') {
                Some((name, port)) => (name, Some(port.parse().map_err(|_| wrong())?)),
                None => (name, None),
            };
            options = options.service(namespace, name);
            if let Some(port) = port {
                options = options.port(port);
            }
        }
        if let Some(url) = &self.url {
            if !url.starts_with("https://") {
                let error = CommandError::usage(format!("`{url}` does not start with https://"));
                return Err(error.with_help("API servers call webhooks over HTTPS only"));
            }
            options = options.url(url);
        }
        if let Some(file) = &self.ca_bundle {
            let pem = input::read(file)?;
            if !pem.text.contains("-----BEGIN CERTIFICATE-----") {
                let message = format!("`{}` contains no PEM certificate", file.display());
                return Err(CommandError::invalid_input(message));
            }
            options = options.ca_bundle(pem.text);
        }
        if let Some(certificate) = &self.inject_ca_from {
            pair(certificate).ok_or_else(|| {
                let error =
                    CommandError::usage(format!("`{certificate}` is not a Certificate reference"));
                error.with_help("expected NAMESPACE/NAME")
            })?;
            options = options.inject_ca_from(certificate);
        }
        Ok(options)
    }
}

/// The two parts of `namespace/name`.
fn pair(text: &str) -> Option<(&str, &str)> {
    let (namespace, name) = text.split_once('/')?;
    let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    is_whole.then_some((namespace, name))
}

fn compare(file: &Path, text: &str, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let stored = input::read(file).map_err(CommandError::from)?;
    if stored.text == text {
        return Ok(ExitCode::Done);
    }
    let mut settings = TextDiff::configure();
    settings.timeout(DIFF_TIMEOUT);
    let diff = settings.diff_lines(stored.text.as_str(), text);
    let mut shown = diff.unified_diff();
    let shown = shown
        .header(&stored.name, "from the source code")
        .to_string();
    printer.text(&shown)?;
    printer.flush()?;
    Printer::note(&format!("`{}` is out of date", stored.name));
    Ok(ExitCode::Findings)
}
