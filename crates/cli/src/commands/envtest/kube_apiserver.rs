//! The `kube-apiserver` stand-in: kube-apiserver's command line for this server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockgate_admission::https::Redirects;
use lockgate_api::kube_version::KubeVersionError;
use lockgate_apiserver::{
    AuthorizationMode, Controllers, FeatureGates, KubeVersion, Running, ServiceAccounts,
    ServiceRange, ServiceRouting, ServingFiles, Settings, private_file, store_options,
};
use lockgate_certs::Leaf;
use lockgate_plugins::DefaultTolerationSeconds;
use lockgate_store::MemoryStore;

use super::flags::{Flags, Kind};
use super::kube_apiserver_flags::FLAGS;
use super::parent;
use crate::commands::serve::{
    PluginSwitches, explain, shutdown_signal, start_logging, without_credentials,
};
use crate::commands::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::logging::LogArgs;
use crate::output::Printer;

/// The Kubernetes version that this server reports.
pub(super) const VERSION: &str = lockgate_apiserver::KUBERNETES_VERSION;

/// Flags besides those of kube-apiserver.
const EXTRA_FLAGS: &[(&str, Kind)] = &[
    ("exit-with-parent", Kind::Bool),
    ("strict-flags", Kind::Bool),
];

/// Flags that take effect.
const SUPPORTED_FLAGS: &[&str] = &[
    "admission-control",
    "admission-control-config-file",
    "anonymous-auth",
    "api-audiences",
    "audit-log-path",
    "audit-policy-file",
    "authorization-mode",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "default-not-ready-toleration-seconds",
    "default-unreachable-toleration-seconds",
    "disable-admission-plugins",
    "enable-admission-plugins",
    "enable-aggregator-routing",
    "enable-priority-and-fairness",
    "feature-gates",
    "help",
    "max-mutating-requests-inflight",
    "max-requests-inflight",
    "request-timeout",
    "secure-port",
    "service-account-issuer",
    "service-account-jwks-uri",
    "service-account-key-file",
    "service-account-signing-key-file",
    "service-cluster-ip-range",
    "tls-cert-file",
    "tls-private-key-file",
    "token-auth-file",
    "v",
    "version",
];

/// Flags without client-visible effect, which need no warning.
const HARMLESS: &[&str] = &[
    "advertise-address",
    "contention-profiling",
    "endpoint-reconciler-type",
    "log-flush-frequency",
    "logging-format",
    "profiling",
    "vmodule",
];

/// The grace period for requests at shutdown. Watches end immediately, and a test that stops its server does not
/// wait for responses.
const DRAIN: Duration = Duration::from_millis(20);

fn kind(name: &str) -> Option<Kind> {
    let mut known = FLAGS.iter().chain(EXTRA_FLAGS);
    known.find(|flag| flag.0 == name).map(|flag| flag.1)
}

/// Set flags without effect on this server.
fn without_effect(flags: &Flags) -> Vec<&str> {
    let names = flags.names().filter(|name| match *name {
        // Their values match what the server does anyway.
        "allow-privileged" | "service-account-lookup" | "watch-cache" => {
            flags.is_on(name) == Some(false)
        }
        name => {
            let ours = EXTRA_FLAGS.iter().any(|flag| flag.0 == name);
            let storage = name.starts_with("etcd-") || name.starts_with("storage-");
            !(ours || storage || SUPPORTED_FLAGS.contains(&name) || HARMLESS.contains(&name))
        }
    });
    names.collect()
}

/// Runs the server until SIGTERM or SIGINT, or until the parent process exits.
pub(super) fn run(arguments: impl IntoIterator<Item = String>) -> Result<ExitCode, Stop> {
    let flags = Flags::parse("kube-apiserver", kind, arguments)
        .map_err(|error| CommandError::failed(error.to_string()))?;
    let mut printer = Printer::to_stdout(crate::output::ColorChoice::Never);
    if flags.is_on("help") == Some(true) {
        printer.text(&help())?;
        printer.flush()?;
        return Ok(ExitCode::Done);
    }
    if flags.last("version").is_some_and(|value| value != "false") {
        printer.line(&format!("Kubernetes {VERSION}"))?;
        printer.flush()?;
        return Ok(ExitCode::Done);
    }
    let runtime = tokio::runtime::Runtime::new().map_err(|error| {
        CommandError::failed(format!("cannot start the async runtime: {error}"))
    })?;
    let ended = runtime.block_on(serve(&flags));
    // Remaining computations are not awaited.
    runtime.shutdown_background();
    Ok(ended?)
}

async fn serve(flags: &Flags) -> Result<ExitCode, CommandError> {
    start_logging(&LogArgs::with_verbosity(match number(flags, "v", 0)? {
        ..4 => 0,
        4..8 => 1,
        8.. => 2,
    }))?;
    let shutdown = shutdown_signal()?;
    let ignored = without_effect(flags);
    if !ignored.is_empty() {
        let names: Vec<String> = ignored.iter().map(|name| format!("--{name}")).collect();
        let names = names.join(", ");
        if flags.is_on("strict-flags") == Some(true) {
            return Err(CommandError::failed(format!(
                "flags without effect on this server: {names}"
            ))
            .with_help("remove these flags, or remove --strict-flags"));
        }
        tracing::warn!(flags = names, "flags without effect on this server");
    }
    let settings = settings(flags)?;
    let running = Running::start(
        settings,
        Arc::new(MemoryStore::with_options(store_options())),
    )
    .await
    .map_err(explain)?;
    tracing::info!(url = running.url(), took = ?running.took(), "serving");
    let orphaned = async {
        match flags.is_on("exit-with-parent") {
            Some(false) => std::future::pending().await,
            _ => parent::exited().await,
        }
    };
    tokio::select! {
        _ = shutdown => {}
        () = orphaned => tracing::warn!("parent process exited, shutting down"),
    }
    running.stop().await;
    // UPSTREAM: apiserver pkg/server/signal.go: SIGINT is handled like SIGTERM.
    Ok(ExitCode::Done)
}

fn number(flags: &Flags, name: &str, default: i64) -> Result<i64, CommandError> {
    let Some(text) = flags.last(name) else {
        return Ok(default);
    };
    text.parse().map_err(|_| invalid(name, text))
}

fn count(flags: &Flags, name: &str, default: usize) -> Result<usize, CommandError> {
    match flags.last(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| invalid(name, text)),
    }
}

fn invalid(name: &str, value: &str) -> CommandError {
    CommandError::failed(format!("invalid value `{value}` for --{name}"))
}

fn path(flags: &Flags, name: &str) -> Option<PathBuf> {
    flags.non_empty(name).map(PathBuf::from)
}

/// The settings of the flags, with kube-apiserver's defaults.
fn settings(flags: &Flags) -> Result<Settings, CommandError> {
    let bind_address: IpAddr = match flags.non_empty("bind-address") {
        None => Ipv4Addr::UNSPECIFIED.into(),
        Some(text) => text.parse().map_err(|_| invalid("bind-address", text))?,
    };
    let switches = PluginSwitches {
        enable: flags.all("enable-admission-plugins"),
        disable: flags.all("disable-admission-plugins"),
        exactly: match flags.all("admission-control") {
            [] => None,
            named => Some(named),
        },
    };
    switches.check()?;
    let audit_log_path = path(flags, "audit-log-path");
    let defaults = Settings::default();
    Ok(Settings {
        bind_address,
        secure_port: secure_port(flags)?,
        serving_files: Some(serving_files(flags, bind_address)?),
        client_ca_file: path(flags, "client-ca-file"),
        token_auth_file: path(flags, "token-auth-file"),
        service_accounts: service_accounts(flags),
        flags: Some(set_flags(flags)),
        anonymous_auth: flags.is_on("anonymous-auth").unwrap_or(true),
        authorization_mode: authorization_mode(flags)?,
        // Without an audit log the policy has no effect.
        audit_policy_file: path(flags, "audit-policy-file").filter(|_| audit_log_path.is_some()),
        audit_log_path,
        admission_control_config_file: path(flags, "admission-control-config-file"),
        feature_gates: feature_gates(flags)?,
        webhook_redirects: Redirects::Follow,
        enable_plugins: switches.enabled(),
        disable_plugins: switches.disabled(),
        tolerations: DefaultTolerationSeconds {
            not_ready_seconds: number(flags, "default-not-ready-toleration-seconds", 300)?,
            unreachable_seconds: number(flags, "default-unreachable-toleration-seconds", 300)?,
        },
        // kube-apiserver does not run kube-controller-manager's controllers.
        controllers: Controllers::all(false),
        descriptions: Some(lockgate_descriptions::text),
        priority_and_fairness: flags.is_on("enable-priority-and-fairness").unwrap_or(true),
        max_requests_inflight: count(
            flags,
            "max-requests-inflight",
            defaults.max_requests_inflight,
        )?,
        max_mutating_requests_inflight: count(
            flags,
            "max-mutating-requests-inflight",
            defaults.max_mutating_requests_inflight,
        )?,
        request_timeout: match flags.last("request-timeout") {
            None => defaults.request_timeout,
            Some(text) => crate::commands::serve::parse_duration(text)
                .map_err(|_| invalid("request-timeout", text))?,
        },
        service_routing: match flags.is_on("enable-aggregator-routing") {
            Some(true) => ServiceRouting::Endpoints,
            _ => ServiceRouting::EndpointsOrClusterIp,
        },
        service_range: service_range(flags)?,
        drain: DRAIN,
        ..defaults
    })
}

fn secure_port(flags: &Flags) -> Result<u16, CommandError> {
    let number = number(flags, "secure-port", 6443)?;
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        // UPSTREAM: apiserver pkg/server/options/serving.go
        _ => Err(CommandError::failed(format!(
            "--secure-port {number} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
        ))),
    }
}

/// The certificate of the flags, the one in --cert-dir, or a new one there.
///
/// UPSTREAM: apiserver pkg/server/options/serving.go (MaybeDefaultWithSelfSignedCerts)
fn serving_files(flags: &Flags, bind_address: IpAddr) -> Result<ServingFiles, CommandError> {
    match (
        path(flags, "tls-cert-file"),
        path(flags, "tls-private-key-file"),
    ) {
        (Some(certificate), Some(key)) => return Ok(ServingFiles { certificate, key }),
        (None, None) => {}
        _ => {
            return Err(CommandError::failed(
                "--tls-cert-file and --tls-private-key-file are required together",
            ));
        }
    }
    let folder = path(flags, "cert-dir").unwrap_or_else(|| PathBuf::from("/var/run/kubernetes"));
    let files = ServingFiles {
        certificate: folder.join("apiserver.crt"),
        key: folder.join("apiserver.key"),
    };
    if files.certificate.exists() && files.key.exists() {
        return Ok(files);
    }
    let mut names = vec![
        String::from("localhost"),
        String::from("kubernetes"),
        String::from("kubernetes.default"),
        String::from("kubernetes.default.svc"),
        String::from("127.0.0.1"),
        bind_address.to_string(),
    ];
    names.extend(flags.non_empty("advertise-address").map(str::to_owned));
    let pair = Leaf::server("kube-apiserver", names)
        .self_signed()
        .map_err(|error| CommandError::failed(format!("cannot issue a certificate: {error}")))?;
    let write = |file: &Path, text: &str| {
        std::fs::create_dir_all(&folder)
            .and_then(|()| private_file::write(file, text))
            .map_err(|error| {
                CommandError::failed(format!("cannot write `{}`: {error}", file.display()))
                    .with_help("set another --cert-dir")
            })
    };
    write(&files.key, &pair.key_pem)?;
    write(&files.certificate, &pair.certificate_pem)?;
    Ok(files)
}

/// The set flags, for `/flagz`.
fn set_flags(flags: &Flags) -> BTreeMap<String, String> {
    let told = flags.names().map(|name| {
        let value = without_credentials(&flags.all(name).join(","));
        (name.to_owned(), value)
    });
    told.collect()
}

fn service_accounts(flags: &Flags) -> ServiceAccounts {
    let mut accounts = ServiceAccounts {
        api_audiences: flags.all("api-audiences").to_vec(),
        signing_key_file: path(flags, "service-account-signing-key-file"),
        jwks_uri: flags
            .non_empty("service-account-jwks-uri")
            .map(str::to_owned),
        key_files: flags
            .all("service-account-key-file")
            .iter()
            .map(PathBuf::from)
            .collect(),
        ..ServiceAccounts::default()
    };
    if !flags.all("service-account-issuer").is_empty() {
        accounts.issuers = flags.all("service-account-issuer").to_vec();
    }
    accounts
}

/// UPSTREAM: kubernetes pkg/kubeapiserver/options/authorization.go: a request is allowed if any authorizer allows it.
fn authorization_mode(flags: &Flags) -> Result<AuthorizationMode, CommandError> {
    let modes = flags.all("authorization-mode");
    let is_known = |mode: &&String| matches!(mode.as_str(), "AlwaysAllow" | "Node" | "RBAC");
    if let Some(mode) = modes.iter().find(|mode| !is_known(mode)) {
        return Err(CommandError::failed(format!(
            "--authorization-mode `{mode}` is not supported"
        ))
        .with_help("supported modes are RBAC, Node,RBAC and AlwaysAllow"));
    }
    let has = |mode: &str| modes.iter().any(|named| named == mode);
    Ok(match (has("AlwaysAllow"), has("RBAC"), has("Node")) {
        (true, ..) | (_, false, false) => AuthorizationMode::AlwaysAllow,
        (_, true, false) => AuthorizationMode::Rbac,
        (_, true, true) => AuthorizationMode::NodeAndRbac,
        (_, false, true) => {
            return Err(CommandError::failed(
                "--authorization-mode `Node` is not supported without RBAC",
            )
            .with_help("use --authorization-mode=Node,RBAC"));
        }
    })
}

/// The version of `--emulated-version`, or of the environment, where a project's matrix sets it for the stand-in.
fn kube_version(flags: &Flags) -> Result<KubeVersion, CommandError> {
    let emulated = flags.all("emulated-version").last().map(String::as_str);
    let variable = std::env::var("LOCKGATE_KUBE_VERSION").ok();
    let Some(text) = emulated.or(variable.as_deref()) else {
        return Ok(KubeVersion::REFERENCE);
    };
    let number = text.strip_prefix("kube=").unwrap_or(text);
    number.parse().map_err(|error: KubeVersionError| {
        CommandError::failed(format!("invalid argument for --emulated-version: {error}"))
    })
}

/// The feature gates that this server has; logs a warning for the others.
fn feature_gates(flags: &Flags) -> Result<FeatureGates, CommandError> {
    let mut gates = FeatureGates::of(kube_version(flags)?);
    let mut others = Vec::new();
    let texts = flags.all("feature-gates").iter();
    for text in texts.flat_map(|text| text.split(',')) {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let parts = text.split_once('=');
        let value = parts.and_then(|(_, value)| value.trim().to_lowercase().parse().ok());
        let (Some((name, _)), Some(on)) = (parts, value) else {
            return Err(CommandError::failed(format!(
                "invalid argument `{text}` for --feature-gates: expected NAME=true or NAME=false"
            )));
        };
        let name = name.strip_prefix("kube:").unwrap_or(name);
        if !gates.set(name, on) {
            others.push(name);
        }
    }
    if !others.is_empty() {
        if flags.is_on("strict-flags") == Some(true) {
            return Err(CommandError::failed(format!(
                "feature gates without effect on this server: {}",
                others.join(", ")
            )));
        }
        tracing::warn!(
            gates = others.join(","),
            "feature gates without effect on this server"
        );
    }
    Ok(gates)
}

/// The first IP range; a second one, of the other family, is ignored.
fn service_range(flags: &Flags) -> Result<ServiceRange, CommandError> {
    // UPSTREAM: kubernetes pkg/kubeapiserver/options/options.go (DefaultServiceIPCIDR)
    let text = flags.non_empty("service-cluster-ip-range");
    let text = text.unwrap_or("10.0.0.0/24");
    let first = text.split(',').next().unwrap_or(text);
    ServiceRange::parse(first.trim()).ok_or_else(|| {
        CommandError::failed(format!(
            "invalid value `{text}` for --service-cluster-ip-range"
        ))
        .with_help("IPv4 ranges such as 10.0.0.0/24 are supported")
    })
}

/// The help text with one flag per line: envtest searches it for flags.
fn help() -> String {
    let mut text = format!(
        "Lockgate as kube-apiserver {VERSION}, for tests: a server with kube-apiserver's command line that\n\
         keeps its objects in memory and needs no etcd. See docs/envtest.md.\n\n\
         Usage:\n  kube-apiserver [flags]\n\nFlags:\n\n"
    );
    for (title, used) in [
        ("", true),
        ("\nFlags that are accepted and ignored:\n\n", false),
    ] {
        text.push_str(title);
        for (name, kind) in FLAGS.iter().chain(EXTRA_FLAGS) {
            let ours = EXTRA_FLAGS.iter().any(|flag| flag.0 == *name);
            if (ours || SUPPORTED_FLAGS.contains(name)) != used {
                continue;
            }
            let value = match kind {
                Kind::Bool => "",
                Kind::Version => "[=true]",
                Kind::Text => " string",
                Kind::List => " strings",
                Kind::Int => " int",
                Kind::Float => " float",
                Kind::Duration => " duration",
            };
            text.push_str(&format!("      --{name}{value}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> Flags {
        let arguments = line.split_whitespace().map(str::to_owned);
        Flags::parse("kube-apiserver", kind, arguments).unwrap()
    }

    fn settings_of(line: &str) -> Result<Settings, String> {
        settings(&flags(line)).map_err(|error| error.to_string())
    }

    #[test]
    fn knows_its_own_flags_and_has_help_for_each() {
        let help = help();
        for name in SUPPORTED_FLAGS.iter().chain(HARMLESS) {
            assert!(FLAGS.iter().any(|flag| flag.0 == *name), "{name}");
        }
        for (name, _) in FLAGS.iter().chain(EXTRA_FLAGS) {
            let lines = help.lines().map(str::trim_start);
            let of = lines.filter(|line| {
                let flag = line
                    .strip_prefix("--")
                    .and_then(|line| line.strip_prefix(name));
                flag.is_some_and(|rest| {
                    !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-')
                })
            });
            assert_eq!(of.count(), 1, "{name}");
        }
        // envtest disables the insecure port if there is such a flag.
        assert!(!help.contains("--insecure-port"));
    }

    #[test]
    fn takes_the_command_lines_of_test_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display();
        // controller-runtime
        let found = settings_of(&format!(
            "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir={dir} \
             --client-ca-file={dir}/ca.crt --disable-admission-plugins=ServiceAccount \
             --etcd-servers=http://127.0.0.1:2379 --secure-port=4711 \
             --service-account-issuer=https://127.0.0.1:4711/ --service-account-jwks-uri=https://keys/set \
             --service-account-key-file={dir}/sa-signer.crt \
             --service-account-signing-key-file={dir}/sa-signer.key --service-cluster-ip-range=10.0.0.0/24"
        ))
        .unwrap();
        assert_eq!(found.secure_port, 4711);
        assert_eq!(found.authorization_mode, AuthorizationMode::Rbac);
        assert_eq!(found.disable_plugins, ["ServiceAccount"]);
        assert_eq!(found.service_accounts.issuers, ["https://127.0.0.1:4711/"]);
        let jwks_uri = found.service_accounts.jwks_uri.as_deref();
        assert_eq!(jwks_uri, Some("https://keys/set"));
        assert_eq!(
            found.service_range,
            ServiceRange::parse("10.0.0.0/24").unwrap()
        );
        assert_eq!(found.controllers, Controllers::all(false));
        assert_eq!(found.cert_dir, None);
        // fabric8: values after a space, and a bare boolean in between
        let found = settings_of(&format!(
            "--cert-dir {dir} --secure-port 4712 --etcd-servers http://0.0.0.0:2379 --authorization-mode RBAC \
             --service-account-issuer https://localhost --service-account-issuer {dir}/sa.pub \
             --service-account-signing-key-file a --service-account-signing-key-file b \
             --allow-privileged --disable-admission-plugins ServiceAccount"
        ))
        .unwrap();
        assert_eq!(found.service_accounts.issuers.len(), 2);
        assert_eq!(
            found.service_accounts.signing_key_file,
            Some(PathBuf::from("b"))
        );
        assert!(folder.path().join("apiserver.crt").exists());
    }

    #[test]
    fn tells_which_flags_do_nothing() {
        let found = flags(
            "--etcd-servers=x --storage-media-type=x --allow-privileged --v=2 --strict-flags \
             --event-ttl=1h --runtime-config=api/all=true --advertise-address=127.0.0.1",
        );
        assert_eq!(without_effect(&found), ["event-ttl", "runtime-config"]);
        assert_eq!(
            without_effect(&flags("--allow-privileged=false")),
            ["allow-privileged"]
        );
    }

    #[test]
    fn refuses_what_it_cannot_do() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display();
        for (line, expected) in [
            (
                "--authorization-mode=Webhook",
                "--authorization-mode `Webhook` is not supported",
            ),
            (
                "--authorization-mode=Node",
                "--authorization-mode `Node` is not supported without RBAC",
            ),
            (
                "--secure-port=0",
                "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
            ),
            (
                "--bind-address=here",
                "invalid value `here` for --bind-address",
            ),
            (
                "--tls-cert-file=x",
                "--tls-cert-file and --tls-private-key-file are required together",
            ),
            (
                "--service-cluster-ip-range=fd00::/112",
                "invalid value `fd00::/112` for --service-cluster-ip-range",
            ),
            (
                "--request-timeout=0s",
                "invalid value `0s` for --request-timeout",
            ),
            (
                "--feature-gates=A",
                "invalid argument `A` for --feature-gates: expected NAME=true or NAME=false",
            ),
            (
                "--feature-gates=A=true --strict-flags",
                "feature gates without effect on this server: A",
            ),
            (
                "--admission-control=A",
                "admission-control plugin \"A\" is unknown",
            ),
        ] {
            let found = settings_of(&format!("--cert-dir={dir} {line}"));
            assert_eq!(found.unwrap_err(), expected, "{line}");
        }
    }

    #[test]
    fn has_the_defaults_of_kube_apiserver() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display();
        let found = settings_of(&format!(
            "--cert-dir={dir} --audit-policy-file=p --feature-gates=kube:GenericWorkload=true,Other=false"
        ))
        .unwrap();
        assert_eq!(found.authorization_mode, AuthorizationMode::AlwaysAllow);
        assert_eq!(found.audit_policy_file, None);
        assert!(found.feature_gates.is_on("GenericWorkload"));
        let both = settings_of(&format!("--cert-dir={dir} --authorization-mode=RBAC,Node"));
        assert_eq!(
            both.unwrap().authorization_mode,
            AuthorizationMode::NodeAndRbac
        );
    }
}
