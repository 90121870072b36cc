//! `lockgate serve`: the API server.

mod console;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use lockgate_admission::https::Redirects;
use lockgate_admission::order::ORDER;
use lockgate_admission::plugin::Admission;
use lockgate_apiserver::{
    AdmissionConsistency, AuthorizationMode, ConnectionLimits, Controllers, FeatureGates,
    KubeVersion, Observer, RequestHeaders, Running, ServiceAccounts, ServiceMapping, ServingFiles,
    Settings, SharedCertificates, StartError, WorkloadSettings, private_file, store_options,
};
use lockgate_offline::capture::Record;
use lockgate_plugins::DefaultTolerationSeconds;
use lockgate_store::{DiskStore, EtcdOptions, EtcdStore, MemoryStore, Store};
use tokio::signal::unix::{SignalKind, signal};

use super::store::{EtcdArgs, explain_etcd, explain_open};
use super::{CommandError, Stop};
use crate::capture_file::{CaptureFile, now};
use crate::exit_code::ExitCode;
use crate::lint::source;
use crate::logging::LogArgs;
use crate::output::Printer;
use crate::text::Source;
use console::BoundConsole;
pub(super) use console::Console;

/// Run a Kubernetes API server with full admission control
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lockgate serve
  lockgate serve --secure-port 0 --kubeconfig-out /tmp/kc
  lockgate serve --map-service shop/webhook:443=127.0.0.1:9443
  lockgate serve --audit-log-path - --token-auth-file tokens.csv
  lockgate serve --data-dir /var/lib/lockgate
  lockgate serve --etcd-servers http://127.0.0.1:2379
  lockgate serve --simulate=workloads
  lockgate serve --kube-version 1.34
  lockgate serve --console

Then: kubectl --kubeconfig lockgate.kubeconfig get namespaces

Admission plugins, in the order they run; those in brackets are off by default:
  [AlwaysAdmit], [NamespaceAutoProvision], NamespaceLifecycle, [NamespaceExists],
  [LimitPodHardAntiAffinityTopology], LimitRanger, ServiceAccount, [NodeRestriction],
  TaintNodesByCondition, [AlwaysPullImages], [ImagePolicyWebhook], PodSecurity,
  [PodNodeSelector], Priority, DefaultTolerationSeconds, [PodTolerationRestriction],
  [EventRateLimit], [ExtendedResourceToleration], DefaultStorageClass,
  StorageObjectInUseProtection, PodGroupProtection,
  [OwnerReferencesPermissionEnforcement], PersistentVolumeClaimResize, RuntimeClass,
  CertificateApproval, CertificateSigning, ClusterTrustBundleAttest,
  CertificateSubjectRestriction, DefaultIngressClass, [DenyServiceExternalIPs],
  PodTopologyLabels, PodGroupWorkloadExists, NodeDeclaredFeatureValidator,
  JobValidation, PodResizeValidator, MutatingAdmissionPolicy, MutatingAdmissionWebhook,
  ValidatingAdmissionPolicy, ValidatingAdmissionWebhook, ResourceQuota, [AlwaysDeny]

Objects are kept in memory unless --data-dir or --etcd-servers is set; with these, a write is
acknowledged once it is durable. RUST_LOG overrides the logging flags.")]
pub struct ServeArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    bind_address: IpAddr,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    secure_port: u16,
    /// IP address to advertise in the endpoints of the Service kubernetes [default: with --etcd-servers, the address of
    /// the outgoing interface]
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// Directory to store objects in; created if missing, used by one server at a time [default: in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// etcd servers to connect to, comma separated; several API servers may share one etcd cluster [default: objects
    /// in memory]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "URLS",
        conflicts_with = "data_dir",
        help_heading = "Etcd"
    )]
    etcd_servers: Vec<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Interval of etcd compaction requests; 0 disables them
    #[arg(long, default_value = "5m", value_parser = parse_interval, value_name = "DURATION", help_heading = "Etcd")]
    etcd_compaction_interval: Duration,
    /// Consistency of the objects that admission and authorization read when several servers share etcd
    #[arg(
        long,
        value_enum,
        default_value_t = Consistency::Eventual,
        value_name = "LEVEL",
        help_heading = "Etcd"
    )]
    admission_consistency: Consistency,
    /// Directory for the server's certificates and keys, generated if missing [default: in memory, `certs`
    /// in --data-dir, or in etcd]
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Serving certificate, followed by its intermediates [default: issued by the server's CA]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Additional DNS names and IP addresses for the generated serving certificate
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        conflicts_with = "tls_cert_file"
    )]
    tls_san: Vec<String>,
    /// CA bundle that verifies client certificates
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// CA bundle that verifies the client certificates of authenticating proxies, before X-Remote-* headers are trusted
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Allowed common names of proxy client certificates [default: any that the CA signed]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        requires = "requestheader_client_ca_file"
    )]
    requestheader_allowed_names: Vec<String>,
    /// Request headers to inspect for user names
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "X-Remote-User",
        value_name = "NAMES"
    )]
    requestheader_username_headers: Vec<String>,
    /// Request headers to inspect for user uids
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "X-Remote-Uid",
        value_name = "NAMES"
    )]
    requestheader_uid_headers: Vec<String>,
    /// Request headers to inspect for groups
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "X-Remote-Group",
        value_name = "NAMES"
    )]
    requestheader_group_headers: Vec<String>,
    /// Request header prefixes to inspect for extra values
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "X-Remote-Extra-",
        value_name = "PREFIXES"
    )]
    requestheader_extra_headers_prefix: Vec<String>,
    /// Client certificate for requests to aggregated API servers [default: generated, signed by a separate CA]
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// Private key of --proxy-client-cert-file
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// Static bearer tokens, one `token,user,uid,"group1,group2"` per line
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    #[command(flatten)]
    service_accounts: ServiceAccountArgs,
    /// Allow anonymous requests as system:anonymous
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    anonymous_auth: bool,
    /// Authorization mode
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "MODE",
        ignore_case = true
    )]
    authorization_mode: Authorization,
    /// Audit policy file [default: every request at level Metadata]
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// Write audit events to this file as JSON lines; - is standard output
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// AdmissionConfiguration file: webhook credentials, static manifests, plugin configuration
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
    /// Kubernetes version to emulate, from 1.33 to 1.37: its kinds, feature gates and CEL libraries
    #[arg(long, value_name = "VERSION", default_value_t)]
    kube_version: KubeVersion,
    /// Feature gates as NAME=true or NAME=false pairs
    #[arg(long, value_delimiter = ',', value_name = "GATES")]
    feature_gates: Vec<Gate>,
    /// Handling of redirects from webhooks
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    webhook_redirects: RedirectsArg,
    /// Allow plain HTTP for webhooks on `localhost` and loopback addresses
    #[arg(long, value_enum, value_name = "WHERE")]
    allow_http_webhooks: Option<HttpWebhooks>,
    /// Admission plugins to enable in addition to the defaults (see below)
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    disable_admission_plugins: Vec<String>,
    /// Admission plugins to run instead of the defaults; deprecated
    #[arg(long, value_delimiter = ',', value_name = "NAMES", hide = true)]
    admission_control: Option<Vec<String>>,
    /// tolerationSeconds of the not-ready:NoExecute toleration added to Pods without one
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    default_not_ready_toleration_seconds: i64,
    /// tolerationSeconds of the unreachable:NoExecute toleration added to Pods without one
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    default_unreachable_toleration_seconds: i64,
    /// Controllers to run; -NAME disables one, * enables all [default: *]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        allow_hyphen_values = true
    )]
    controllers: Vec<Controller>,
    /// Cluster components to simulate: `workloads` runs the workload controllers, a scheduler and nodes whose
    /// Pods become ready
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    simulate: Vec<Part>,
    /// Name of the simulated node; several nodes are numbered from 0
    #[arg(long, default_value = "lockgate-node", value_name = "NAME")]
    simulate_node_name: String,
    /// Number of simulated nodes
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    simulate_nodes: u16,
    /// Time until a scheduled simulated Pod runs, and run time of each init container
    #[arg(long, default_value = "100ms", value_parser = parse_duration, value_name = "DURATION")]
    simulate_start_after: Duration,
    /// Time until a running simulated Pod with readiness probes is ready
    #[arg(long, default_value = "100ms", value_parser = parse_duration, value_name = "DURATION")]
    simulate_ready_after: Duration,
    /// Run time of containers of simulated Pods whose restart policy is not Always
    #[arg(long, default_value = "100ms", value_parser = parse_duration, value_name = "DURATION")]
    simulate_complete_after: Duration,
    /// Time until a deleted simulated Pod stops
    #[arg(long, default_value = "100ms", value_parser = parse_duration, value_name = "DURATION")]
    simulate_stop_after: Duration,
    /// Queue requests according to FlowSchemas and PriorityLevelConfigurations
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    enable_priority_and_fairness: bool,
    /// Maximum number of non-mutating requests in flight; 0 for no limit. Priority levels share the sum of both limits
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    max_requests_inflight: usize,
    /// Maximum number of mutating requests in flight; 0 for no limit
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    max_mutating_requests_inflight: usize,
    /// Maximum number of open connections [default: half of the open file limit, at most 8192]
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<NonZeroUsize>,
    /// Timeout of requests
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "DURATION")]
    request_timeout: Duration,
    /// Time to keep serving after SIGTERM while /readyz fails, so that load balancers remove the server
    #[arg(long, default_value = "0", value_parser = parse_interval, value_name = "DURATION")]
    shutdown_delay_duration: Duration,
    /// Route a Service to a local address: NS/NAME[:PORT]=HOST:PORT; * in NS or NAME matches any text; repeatable
    #[arg(long, value_name = "MAPPING")]
    map_service: Vec<Mapping>,
    /// Manifests to apply at startup: a file, a directory, or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR")]
    filename: Vec<PathBuf>,
    /// Capture requests into this file for `lockgate replay`; the contents of Secrets are redacted
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// Serve a web console with the admission trace of each request [default: 127.0.0.1:6480]; HTTPS on
    /// non-loopback addresses
    #[arg(
        long,
        value_name = "IP:PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:6480"
    )]
    console: Option<SocketAddr>,
    /// Write an admin kubeconfig to this file [default: lockgate.kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
    #[command(flatten)]
    logging: LogArgs,
    /// The flags and their values, defaults included, for `/flagz`.
    #[arg(skip)]
    flags: BTreeMap<String, String>,
}

/// Tokens of service accounts, and their OpenID discovery.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service accounts")]
struct ServiceAccountArgs {
    /// Issuer of service account tokens; repeat to accept tokens of further issuers. OpenID discovery needs an https URL
    /// [default: https://kubernetes.default.svc.cluster.local]
    #[arg(long, value_name = "URL")]
    service_account_issuer: Vec<String>,
    /// JWKS URI to serve in /.well-known/openid-configuration [default: /openid/v1/jwks of this server]
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
    /// Private key that signs service account tokens [default: `sa.key` in --cert-dir, or generated]
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Public or private keys that verify service account tokens [default: the signing key]
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// Accepted audiences of service account tokens [default: the issuers]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    api_audiences: Vec<String>,
}

impl ServiceAccountArgs {
    fn settings(&self) -> ServiceAccounts {
        let mut accounts = ServiceAccounts {
            api_audiences: self.api_audiences.clone(),
            signing_key_file: self.service_account_signing_key_file.clone(),
            key_files: self.service_account_key_file.clone(),
            jwks_uri: self.service_account_jwks_uri.clone(),
            ..ServiceAccounts::default()
        };
        if !self.service_account_issuer.is_empty() {
            accounts.issuers = self.service_account_issuer.clone();
        }
        accounts
    }
}

/// A cluster component that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Workload controllers, a scheduler and the kubelets of the nodes
    Workloads,
}

/// `NAME=true`.
#[derive(Debug, Clone)]
struct Gate(String, bool);

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("expected NAME=true or NAME=false")?;
        if !FeatureGates::NAMES.contains(&name) {
            return Err(format!(
                "unknown feature gate `{name}`; known gates: {}",
                FeatureGates::NAMES.join(", ")
            ));
        }
        let value = value
            .parse()
            .map_err(|_| format!("expected true or false, found `{value}`"))?;
        Ok(Self(name.to_owned(), value))
    }
}

/// `NAME`, `-NAME` or `*`.
#[derive(Debug, Clone)]
struct Controller(String, bool);

impl FromStr for Controller {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, on) = match text.strip_prefix('-') {
            Some(name) => (name, false),
            None => (text, true),
        };
        if !Controllers::default().set(name, on) {
            return Err(format!(
                "unknown controller `{name}`; known controllers: {}",
                Controllers::NAMES.join(", ")
            ));
        }
        Ok(Self(name.to_owned(), on))
    }
}

/// The controllers to run. A controller without an entry follows `*`; without `*` it runs if all entries
/// disable controllers.
fn controllers(told: &[Controller]) -> Controllers {
    let star = told.iter().rev().find(|Controller(name, _)| name == "*");
    let rest = star.map_or_else(|| told.iter().all(|named| !named.1), |star| star.1);
    let mut controllers = Controllers::all(rest);
    for Controller(name, on) in told.iter().filter(|named| named.0 != "*") {
        controllers.set(name, *on);
    }
    controllers
}

/// Handling of redirects from webhooks.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum RedirectsArg {
    /// Fail the call
    #[default]
    Refuse,
    /// Follow redirects, as kube-apiserver does
    Follow,
}

/// The addresses at which webhooks may be called over plain HTTP.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum HttpWebhooks {
    /// `localhost`, 127.0.0.0/8 and ::1
    Localhost,
}

/// The consistency of the objects that admission and authorization read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Consistency {
    /// Read from a watch cache, up to milliseconds behind etcd, as kube-apiserver does
    Eventual,
    /// Include every write acknowledged by any server; costs a round trip to etcd per write
    Linearizable,
}

/// Authorization mode.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Authorization {
    /// Roles and role bindings
    #[default]
    #[value(name = "RBAC")]
    Rbac,
    /// RBAC, and nodes may read the objects their Pods reference
    #[value(name = "Node,RBAC")]
    NodeAndRbac,
    /// Allow every request
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || String::from("expected a duration such as `60s` or `1m30s`");
    let span = lockgate_go::time::Duration::parse(text).map_err(|_| expected())?;
    let span = span.to_std().filter(|span| !span.is_zero());
    span.ok_or_else(|| String::from("must be greater than zero"))
}

/// Parses a duration that may be zero.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => parse_duration(text),
    }
}

/// `NS/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServiceName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!("expected NS/NAME, found `{text}`")),
        }
    }
}

/// `NS/NAME[:PORT]=HOST:PORT`.
#[derive(Debug, Clone)]
struct Mapping(ServiceMapping);

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected NS/NAME[:PORT]=HOST:PORT, found `{text}`");
        let (service, address) = text.split_once('=').ok_or_else(expected)?;
        let (service, port) = match service.split_once(':') {
            None => (service, None),
            Some((service, port)) => (service, Some(port.parse().map_err(|_| expected())?)),
        };
        let service: ServiceName = service.parse().map_err(|_| expected())?;
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err(expected());
        }
        Ok(Self(ServiceMapping {
            namespace: service.namespace,
            name: service.name,
            port,
            address: address.to_owned(),
        }))
    }
}

/// The flags that enable and disable plugins.
#[derive(Debug)]
pub(super) struct PluginSwitches<'f> {
    pub(super) enable: &'f [String],
    pub(super) disable: &'f [String],
    /// The complete list of `--admission-control`.
    pub(super) exactly: Option<&'f [String]>,
}

impl PluginSwitches<'_> {
    /// Validates the deprecated `--admission-control`.
    ///
    /// UPSTREAM: kubernetes pkg/kubeapiserver/options/admission.go
    pub(super) fn check(&self) -> Result<(), CommandError> {
        let Some(named) = self.exactly else {
            return Ok(());
        };
        Printer::note(
            "Flag --admission-control has been deprecated, Use --enable-admission-plugins or \
             --disable-admission-plugins instead. Will be removed in a future version.",
        );
        if !self.enable.is_empty() || !self.disable.is_empty() {
            return Err(CommandError::failed(
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are \
                 mutually exclusive",
            ));
        }
        match named.iter().find(|name| !ORDER.contains(&name.as_str())) {
            Some(name) => Err(CommandError::failed(format!(
                "admission-control plugin {name:?} is unknown"
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn enabled(&self) -> Vec<String> {
        self.exactly.unwrap_or(self.enable).to_vec()
    }

    pub(super) fn disabled(&self) -> Vec<String> {
        let Some(named) = self.exactly else {
            return self.disable.to_vec();
        };
        let others = ORDER.iter().map(|name| (*name).to_owned());
        others.filter(|name| !named.contains(name)).collect()
    }
}

impl ServeArgs {
    /// Keeps the raw flag values.
    pub(crate) fn set_flags(&mut self, command: &clap::Command, matches: &clap::ArgMatches) {
        for argument in command.get_arguments() {
            let Some(name) = argument.get_long() else {
                continue;
            };
            let values = matches.try_get_raw(argument.get_id().as_str());
            let values = values.ok().flatten().into_iter().flatten();
            let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
            let told = without_credentials(&values.join(","));
            self.flags.insert(name.to_owned(), told);
        }
    }

    fn plugins(&self) -> PluginSwitches<'_> {
        PluginSwitches {
            enable: &self.enable_admission_plugins,
            disable: &self.disable_admission_plugins,
            exactly: self.admission_control.as_deref(),
        }
    }

    /// The file for the admin kubeconfig, if set.
    pub(super) fn kubeconfig_out(&self) -> Option<&Path> {
        self.kubeconfig_out.as_deref()
    }

    fn simulated_workloads(&self) -> Option<WorkloadSettings> {
        let settings = WorkloadSettings {
            node_name: self.simulate_node_name.clone(),
            nodes: self.simulate_nodes,
            start_after: self.simulate_start_after,
            ready_after: self.simulate_ready_after,
            complete_after: self.simulate_complete_after,
            stop_after: self.simulate_stop_after,
        };
        self.simulate.contains(&Part::Workloads).then_some(settings)
    }

    /// The etcd cluster to store objects in, if set.
    fn etcd(&self) -> Result<Option<EtcdOptions>, CommandError> {
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        let interval = self.etcd_compaction_interval;
        self.etcd.options(&self.etcd_servers, interval).map(Some)
    }

    /// Rejects a connection limit above the open file limit: connections beyond the latter could not be accepted, and
    /// no idle connection would be closed for them.
    fn check_connections(&self) -> Result<(), CommandError> {
        match (self.max_connections, ConnectionLimits::open_files()) {
            (Some(most), Some(files)) if most.get() >= files => {
                let message =
                    format!("--max-connections {most} exceeds the open file limit of {files}");
                Err(CommandError::usage(message).with_help(
                    "raise the limit with `ulimit -n` to twice the connections, or lower --max-connections",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Rejects feature gates that the version does not have.
    fn check_gates(&self) -> Result<(), CommandError> {
        let version = self.kube_version;
        for Gate(name, _) in &self.feature_gates {
            if !FeatureGates::names(version).any(|known| known == name) {
                let message = format!("Kubernetes {version} has no feature gate `{name}`");
                let known: Vec<&str> = FeatureGates::names(version).collect();
                let help = format!("known gates: {}", known.join(", "));
                return Err(CommandError::usage(message).with_help(help));
            }
        }
        Ok(())
    }

    fn settings(&self) -> Settings {
        let mut feature_gates = FeatureGates::of(self.kube_version);
        for Gate(name, on) in &self.feature_gates {
            feature_gates.set(name, *on);
        }
        feature_gates.http_on_loopback =
            matches!(self.allow_http_webhooks, Some(HttpWebhooks::Localhost));
        Settings {
            bind_address: self.bind_address,
            secure_port: self.secure_port,
            // Kubeconfigs and tokens stay valid as long as the stored objects.
            cert_dir: self
                .cert_dir
                .clone()
                .or_else(|| Some(self.data_dir.as_ref()?.join("certs"))),
            admission_consistency: match self.admission_consistency {
                Consistency::Eventual => AdmissionConsistency::Eventual,
                Consistency::Linearizable => AdmissionConsistency::Linearizable,
            },
            client_ca_file: self.client_ca_file.clone(),
            request_headers: RequestHeaders {
                client_ca_file: self.requestheader_client_ca_file.clone(),
                allowed_names: self.requestheader_allowed_names.clone(),
                username: self.requestheader_username_headers.clone(),
                uid: self.requestheader_uid_headers.clone(),
                group: self.requestheader_group_headers.clone(),
                extra_prefix: self.requestheader_extra_headers_prefix.clone(),
            },
            proxy_client_files: files(&self.proxy_client_cert_file, &self.proxy_client_key_file),
            serving_files: files(&self.tls_cert_file, &self.tls_private_key_file),
            extra_hosts: self.tls_san.clone(),
            token_auth_file: self.token_auth_file.clone(),
            service_accounts: self.service_accounts.settings(),
            flags: (!self.flags.is_empty()).then(|| self.flags.clone()),
            anonymous_auth: self.anonymous_auth,
            authorization_mode: match self.authorization_mode {
                Authorization::Rbac => AuthorizationMode::Rbac,
                Authorization::NodeAndRbac => AuthorizationMode::NodeAndRbac,
                Authorization::AlwaysAllow => AuthorizationMode::AlwaysAllow,
            },
            audit_policy_file: self.audit_policy_file.clone(),
            audit_log_path: self.audit_log_path.clone(),
            admission_control_config_file: self.admission_control_config_file.clone(),
            feature_gates,
            webhook_redirects: match self.webhook_redirects {
                RedirectsArg::Refuse => Redirects::Refuse,
                RedirectsArg::Follow => Redirects::Follow,
            },
            enable_plugins: self.plugins().enabled(),
            disable_plugins: self.plugins().disabled(),
            tolerations: DefaultTolerationSeconds {
                not_ready_seconds: self.default_not_ready_toleration_seconds,
                unreachable_seconds: self.default_unreachable_toleration_seconds,
            },
            controllers: controllers(&self.controllers),
            simulate_workloads: self.simulated_workloads(),
            descriptions: Some(lockgate_descriptions::text),
            priority_and_fairness: self.enable_priority_and_fairness,
            max_requests_inflight: self.max_requests_inflight,
            max_mutating_requests_inflight: self.max_mutating_requests_inflight,
            connections: match self.max_connections {
                Some(most) => ConnectionLimits {
                    connections: most.get(),
                    ..ConnectionLimits::default()
                },
                None => ConnectionLimits::default(),
            },
            request_timeout: self.request_timeout,
            advertise_address: self.advertise_address,
            shutdown_delay: self.shutdown_delay_duration,
            services: self
                .map_service
                .iter()
                .map(|mapping| mapping.0.clone())
                .collect(),
            ..Settings::default()
        }
    }
}

/// The value of a flag with the credentials in its URLs redacted.
pub(super) fn without_credentials(value: &str) -> String {
    let told = value.split(',').map(|part| {
        let Some((scheme, rest)) = part.split_once("://") else {
            return part.to_owned();
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        match rest.get(..end).and_then(|host| host.rfind('@')) {
            Some(at) => {
                let host = rest.get(at..).unwrap_or_default();
                format!("{scheme}://CLASSIFIED{host}")
            }
            None => part.to_owned(),
        }
    });
    told.collect::<Vec<_>>().join(",")
}

/// A certificate and its key, if both are set.
fn files(certificate: &Option<PathBuf>, key: &Option<PathBuf>) -> Option<ServingFiles> {
    Some(ServingFiles {
        certificate: certificate.clone()?,
        key: key.clone()?,
    })
}

/// Runs the server until SIGINT or SIGTERM.
///
/// # Errors
///
/// The server cannot start.
pub fn run(args: &ServeArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    super::run_async(serve(args, printer))
}

/// A started server.
#[derive(Debug)]
pub(super) struct StartedServer {
    pub(super) running: Running,
    /// The store, if it is on disk.
    pub(super) disk: Option<DiskStore>,
    pub(super) console: Option<Console>,
    started: Instant,
}

/// Starts the server and applies manifests.
pub(super) async fn launch(args: &ServeArgs) -> Result<StartedServer, CommandError> {
    args.plugins().check()?;
    args.check_gates()?;
    args.check_connections()?;
    start_logging(&args.logging)?;
    let sources = read_all(&args.filename)?;
    let started = Instant::now();
    if let Some(folder) = &args.data_dir {
        private_file::private_folder(folder).map_err(|error| {
            CommandError::failed(format!("cannot use `{}`: {error}", folder.display()))
        })?;
    }
    let disk = match &args.data_dir {
        Some(folder) => Some(DiskStore::open_with(folder, store_options()).map_err(explain_open)?),
        None => None,
    };
    let mut settings = args.settings();
    let store: Arc<dyn Store> = match (&disk, args.etcd()?) {
        (Some(disk), _) => Arc::new(disk.clone()),
        (None, None) => Arc::new(MemoryStore::with_options(store_options())),
        (None, Some(options)) => {
            let store = EtcdStore::open(options).await.map_err(explain_etcd)?;
            if settings.cert_dir.is_none() {
                settings.certificates = Some(shared_certificates(&store).await?);
            }
            Arc::new(store)
        }
    };
    let console = args.console.map(BoundConsole::bind);
    let console = match console {
        Some(opening) => Some(opening.await?),
        None => None,
    };
    let capture = match &args.capture {
        Some(path) => Some(capture_observer(path)?),
        None => None,
    };
    let observers = [console.as_ref().map(BoundConsole::observer), capture];
    let settings = Settings {
        observer: Observer::all(observers.into_iter().flatten()),
        ..settings
    };
    let running = Running::start(settings, store).await.map_err(explain)?;
    let console = console.map(|opening| opening.open(&running));
    for part in running.parts() {
        Printer::note(&part);
    }
    if let Some(simulated) = args.simulated_workloads() {
        let (count, name) = (simulated.nodes, &simulated.node_name);
        Printer::note(&format!(
            "simulated: workloads on {count} x {name}; Pods become ready, but no container runs"
        ));
    }
    apply_all(&running, &sources).await?;
    for part in running.policies() {
        Printer::note(&part);
    }
    Ok(StartedServer {
        running,
        disk,
        console,
        started,
    })
}

/// Captures every request that passes admission.
fn capture_observer(path: &Path) -> Result<Observer, CommandError> {
    let file = CaptureFile::create(path, "serve")?;
    let observe = move |admission: &Admission| {
        if let Some(record) = Record::of(admission, now())
            && let Err(error) = file.write(&record)
        {
            tracing::error!(%error, "capture failed");
        }
    };
    Ok(Observer::new(observe).recording_objects())
}

async fn serve(args: &ServeArgs, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let shutdown = shutdown_signal()?;
    let StartedServer {
        running,
        disk,
        console,
        started,
    } = launch(args).await?;
    let kubeconfig = args.kubeconfig_out();
    let kubeconfig = kubeconfig.unwrap_or_else(|| Path::new("lockgate.kubeconfig"));
    write_kubeconfig(&running, kubeconfig)?;
    printer.line(&format!(
        "Listening on {} (ready in {:.1} ms); run `export KUBECONFIG={}`",
        running.url(),
        started.elapsed().as_secs_f64() * 1000.0,
        kubeconfig.display()
    ))?;
    if let Some(console) = &console {
        printer.line(&format!("Console on {}", console.url()))?;
    }
    printer.flush()?;
    let failed = async {
        match &disk {
            Some(disk) => disk.failed().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(shutdown);
    let code = tokio::select! {
        code = &mut shutdown => code,
        failure = failed => {
            // Reads keep working, which is worth more than an exit code.
            Printer::note(&format!("{failure}"));
            shutdown.await
        }
    };
    if let Some(console) = console {
        console.close().await;
    }
    running.stop().await;
    if let Some(disk) = disk {
        disk.close().await;
    }
    Ok(code)
}

/// Installs handlers for SIGINT and SIGTERM, and returns a future that waits for one.
pub(super) fn shutdown_signal() -> Result<impl Future<Output = ExitCode>, CommandError> {
    let signals = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        return Err(CommandError::failed("cannot listen for signals"));
    };
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => ExitCode::Interrupted,
            _ = terminate.recv() => ExitCode::Done,
        }
    })
}

/// Starts logging according to the flags and the environment.
pub(super) fn start_logging(logging: &LogArgs) -> Result<(), CommandError> {
    logging.start().map_err(|error| {
        CommandError::usage(error.to_string())
            .with_help("for example RUST_LOG=info,lockgate_admission=debug")
    })
}

/// Reads the manifests of these files and directories.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<Source>, CommandError> {
    let mut sources = Vec::new();
    for path in paths {
        sources.extend(source::read(path)?);
    }
    Ok(sources)
}

/// Applies manifests through admission, and prints a line for each.
pub(super) async fn apply_all(running: &Running, sources: &[Source]) -> Result<(), CommandError> {
    for source in sources {
        let applied = running.apply(&source.text).await.map_err(|error| {
            CommandError::invalid_input(format!("cannot apply `{}`: {error}", source.name))
        })?;
        for warning in &applied.warnings {
            Printer::note(&format!("Warning: {warning}"));
        }
        let objects = match applied.objects.len() {
            1 => String::from("1 object"),
            count => format!("{count} objects"),
        };
        Printer::note(&format!("applied {objects} from {}", source.name));
    }
    Ok(())
}

pub(super) fn write_kubeconfig(running: &Running, path: &Path) -> Result<(), CommandError> {
    private_file::write(path, &running.kubeconfig()).map_err(|error| {
        CommandError::failed(format!("cannot write `{}`: {error}", path.display()))
            .with_help("set another file with --kubeconfig-out")
    })
}

/// The certificates that all servers on an etcd cluster share; the first server stores them.
async fn shared_certificates(store: &EtcdStore) -> Result<SharedCertificates, CommandError> {
    let made =
        SharedCertificates::make().map_err(|error| CommandError::failed(error.to_string()))?;
    let made =
        serde_json::to_vec(&made).map_err(|error| CommandError::failed(error.to_string()))?;
    let agreed = store.agree("certificates", made.into()).await;
    let agreed = agreed.map_err(|error| CommandError::failed(error.to_string()))?;
    serde_json::from_slice(&agreed).map_err(|error| {
        CommandError::failed(format!(
            "cannot read the certificates stored in etcd: {error}"
        ))
        .with_help("set --cert-dir to a directory with the same files on every server")
    })
}

/// Adds advice to a start error.
pub(super) fn explain(error: StartError) -> CommandError {
    let failed = CommandError::failed(error.to_string());
    match error {
        StartError::Listen { .. } => {
            failed.with_help("set another --secure-port, or 0 for a free one")
        }
        StartError::Plugins(_) => failed.with_help("docs/plugins.md lists the names of plugins"),
        _ => failed,
    }
}

#[cfg(test)]
mod tests {
    use lockgate_admission::order::is_on_by_default;

    use super::*;

    #[test]
    fn names_every_plugin_in_the_help() {
        use clap::Args as _;
        let command = ServeArgs::augment_args(clap::Command::new("serve"));
        let help = command.get_after_help().unwrap().to_string();
        let told: String = help.split_whitespace().collect();
        let shown = ORDER.map(|name| match is_on_by_default(name) {
            true => name.to_owned(),
            false => format!("[{name}]"),
        });
        assert!(told.contains(&shown.join(",")), "{help}");
    }

    #[test]
    fn switches_controllers() {
        let read = |text: &str| {
            let told: Vec<Controller> = text.split(',').map(|name| name.parse().unwrap()).collect();
            controllers(&told)
        };
        let without = Controllers {
            garbage_collector: false,
            ..Controllers::default()
        };
        assert_eq!(controllers(&[]), Controllers::default());
        assert_eq!(read("-garbage-collector-controller"), without);
        assert_eq!(read("*,-garbage-collector-controller"), without);
        let alone = Controllers {
            namespace: true,
            ..Controllers::all(false)
        };
        assert_eq!(read("namespace-controller"), alone);
        assert_eq!(read("-*"), Controllers::all(false));
        assert_eq!(read("-*,namespace-controller"), alone);
        let error = "nodes".parse::<Controller>().unwrap_err();
        assert!(error.starts_with("unknown controller `nodes`; known controllers: clusterrole"));
    }

    #[test]
    fn tells_flags_without_credentials() {
        use clap::{Args as _, FromArgMatches as _};
        let mut command = ServeArgs::augment_args(clap::Command::new("serve"));
        let line = "serve --etcd-servers http://root:hunter2@etcd:2379,http://b --secure-port 0 \
                    --service-account-issuer https://a --service-account-issuer https://b";
        let matches = command
            .try_get_matches_from_mut(line.split_whitespace())
            .unwrap();
        let mut args = ServeArgs::from_arg_matches(&matches).unwrap();
        args.set_flags(&command, &matches);
        let told = args.settings().flags.unwrap();
        for (name, want) in [
            ("etcd-servers", "http://CLASSIFIED@etcd:2379,http://b"),
            ("secure-port", "0"),
            ("bind-address", "127.0.0.1"),
            ("service-account-issuer", "https://a,https://b"),
            ("data-dir", ""),
            ("anonymous-auth", "true"),
        ] {
            assert_eq!(told.get(name).map(String::as_str), Some(want), "{name}");
        }
        for (value, want) in [
            ("https://u:p@q@host/a@b", "https://CLASSIFIED@host/a@b"),
            ("https://host/a@b", "https://host/a@b"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_credentials(value), want);
        }
    }

    #[test]
    fn reads_mappings() {
        let Mapping(mapping) = "shop/hook:8443=127.0.0.1:9443".parse().unwrap();
        assert_eq!(
            (mapping.namespace.as_str(), mapping.name.as_str()),
            ("shop", "hook")
        );
        assert_eq!(
            (mapping.port, mapping.address.as_str()),
            (Some(8443), "127.0.0.1:9443")
        );
        assert_eq!("a/b=h:1".parse::<Mapping>().unwrap().0.port, None);
        assert_eq!("*/b-*=h:1".parse::<Mapping>().unwrap().0.name, "b-*");
        for wrong in ["", "a=b:1", "a/b", "a/b=h", "a/b:x=h:1", "/b=h:1"] {
            assert!(wrong.parse::<Mapping>().is_err(), "{wrong}");
        }
    }
}
