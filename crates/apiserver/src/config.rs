//! All settings, with their defaults and the reason for each.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockgate_admission::https::Redirects;
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_api::admission::UserInfo;
use lockgate_api::kube_version::KubeVersion;
use lockgate_go::quote::quote;
use lockgate_go::url::Url;
use lockgate_listener::Limits as ConnectionLimits;
use lockgate_plugins::DefaultTolerationSeconds;
use lockgate_plugins::in_tree::Gates;

/// The authorization mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuthorizationMode {
    /// RBAC; `system:masters` has all permissions.
    #[default]
    Rbac,
    /// RBAC, and node authorization by the Pods on each node.
    NodeAndRbac,
    /// Allows all requests.
    AlwaysAllow,
}

/// A mapping of a Service to another address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceMapping {
    /// The namespace of the Service; `*` matches any text.
    pub namespace: String,
    /// The name of the Service; `*` matches any text.
    pub name: String,
    /// Its port; `None` for every port.
    pub port: Option<i32>,
    /// The `host:port` to call instead.
    pub address: String,
}

/// How Services are resolved to addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceRouting {
    /// To a ready endpoint of its EndpointSlices, or to its ClusterIP without one: the result of kube-apiserver with
    /// kube-proxy, without kube-proxy.
    #[default]
    EndpointsOrClusterIp,
    /// To a ready endpoint only, as `--enable-aggregator-routing` of kube-apiserver does.
    Endpoints,
}

/// The range of cluster IPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

impl ServiceRange {
    /// The addresses of a CIDR such as `10.0.0.0/24`, without its network and broadcast address.
    /// Returns `None` unless it is an IPv4 range with at least two addresses left.
    #[must_use]
    pub fn parse(cidr: &str) -> Option<Self> {
        let (address, bits) = cidr.split_once('/')?;
        let (address, bits): (Ipv4Addr, u32) = (address.parse().ok()?, bits.parse().ok()?);
        if !(4..=30).contains(&bits) {
            return None;
        }
        let hosts = u32::MAX >> bits;
        let network = u32::from(address) & !hosts;
        Some(Self {
            first: (network + 1).into(),
            last: (network + hosts - 1).into(),
        })
    }

    pub(crate) fn bounds(self) -> (u32, u32) {
        (self.first.into(), self.last.into())
    }
}

impl Default for ServiceRange {
    /// 10.96.0.0/12, the range of most clusters.
    fn default() -> Self {
        Self {
            first: Ipv4Addr::new(10, 96, 0, 1),
            last: Ipv4Addr::new(10, 111, 255, 254),
        }
    }
}

/// A serving certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingFiles {
    /// The certificate, followed by its intermediates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The settings for ServiceAccount tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccounts {
    /// The issuer of new tokens, and further accepted issuers.
    pub issuers: Vec<String>,
    /// The audiences of this server; the issuers by default.
    pub api_audiences: Vec<String>,
    /// The private key that signs tokens, as PEM. The default is `sa.key` in the certificate directory, or an in-memory
    /// key.
    pub signing_key_file: Option<PathBuf>,
    /// Public keys, private keys or certificates that verify tokens; the signing key by default.
    pub key_files: Vec<PathBuf>,
    /// The JWKS URI in OpenID discovery; `None` means this server's.
    pub jwks_uri: Option<String>,
}

impl Default for ServiceAccounts {
    fn default() -> Self {
        Self {
            issuers: vec![String::from("https://kubernetes.default.svc.cluster.local")],
            api_audiences: Vec::new(),
            signing_key_file: None,
            key_files: Vec::new(),
            jwks_uri: None,
        }
    }
}

impl ServiceAccounts {
    /// Validates the issuers and the JWKS URI.
    ///
    /// UPSTREAM: kubernetes pkg/kubeapiserver/options/authentication.go (Validate)
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, issuer) in self.issuers.iter().enumerate() {
            let told = quote(issuer);
            if issuer.contains(':')
                && let Err(error) = Url::parse(issuer)
            {
                return Err(format!(
                    "service-account-issuer {told} contained a ':' but was not a valid URL: {error}"
                ));
            }
            if issuer.is_empty() {
                return Err(String::from(
                    "service-account-issuer should not be an empty string",
                ));
            }
            if self.issuers.iter().take(index).any(|other| other == issuer) {
                return Err(format!(
                    "service-account-issuer {told} is already specified"
                ));
            }
        }
        let Some(uri) = &self.jwks_uri else {
            return Ok(());
        };
        match Url::parse(uri) {
            Err(error) => Err(format!(
                "service-account-jwks-uri must be a valid URL: {error}"
            )),
            Ok(url) if url.scheme() != "https" => Err(format!(
                "service-account-jwks-uri requires https scheme, parsed as: {uri}"
            )),
            Ok(_) => Ok(()),
        }
    }
}

/// Feature gates, with the defaults of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// The Kubernetes version whose kinds are served and whose expressions are accepted.
    pub kube_version: KubeVersion,
    /// `AdmissionWebhookMatchConditions`: if disabled, stored conditions are ignored and new ones dropped.
    pub match_conditions: bool,
    /// `ManifestBasedAdmissionControlConfig`: static webhook configurations in files.
    pub static_manifests: bool,
    /// `ConstrainedImpersonation`: permissions to impersonate for some requests only.
    pub constrained_impersonation: bool,
    /// `--allow-http-webhooks=localhost`, which upstream does not have: webhook URLs may be plain HTTP to loopback
    /// hosts. It affects validation like the gates, so it is passed along with them.
    pub http_on_loopback: bool,
    /// The gates of in-tree plugins.
    pub plugins: Gates,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self::of(KubeVersion::REFERENCE)
    }
}

impl FeatureGates {
    /// The names of all gates.
    pub const NAMES: [&'static str; 8] = [
        "AdmissionWebhookMatchConditions",
        "ClusterTrustBundle",
        "ConstrainedImpersonation",
        "GangScheduling",
        "GenericWorkload",
        "ManifestBasedAdmissionControlConfig",
        "WorkloadAwarePreemption",
        "WorkloadWithJob",
    ];

    /// The gates that were added in newer versions, with the first version that has them.
    ///
    /// UPSTREAM: kubernetes_feature_enabled of kube-apiserver v1.36.4 with --emulated-version=1.33, 1.34 and 1.35
    const SINCE: [(&'static str, KubeVersion); 6] = [
        ("ConstrainedImpersonation", KubeVersion::V1_35),
        ("GangScheduling", KubeVersion::V1_35),
        ("GenericWorkload", KubeVersion::V1_35),
        ("ManifestBasedAdmissionControlConfig", KubeVersion::V1_36),
        ("WorkloadAwarePreemption", KubeVersion::V1_36),
        ("WorkloadWithJob", KubeVersion::V1_36),
    ];

    /// The defaults of a version.
    #[must_use]
    pub fn of(kube_version: KubeVersion) -> Self {
        Self {
            kube_version,
            match_conditions: true,
            // Beta and enabled since 1.37.
            static_manifests: kube_version >= KubeVersion::V1_37,
            // Beta and enabled since 1.36.
            constrained_impersonation: kube_version >= KubeVersion::V1_36,
            http_on_loopback: false,
            plugins: Gates::default(),
        }
    }

    /// The names of the gates of a version.
    pub fn names(version: KubeVersion) -> impl Iterator<Item = &'static str> {
        let is_newer = move |name: &str| {
            let mut since = Self::SINCE.iter();
            since.any(|(newer, first)| *newer == name && *first > version)
        };
        Self::NAMES.into_iter().filter(move |name| !is_newer(name))
    }

    /// Returns true if the gate of this name is enabled.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        match name {
            "AdmissionWebhookMatchConditions" => self.match_conditions,
            "ClusterTrustBundle" => self.plugins.cluster_trust_bundle,
            "ConstrainedImpersonation" => self.constrained_impersonation,
            "GangScheduling" => self.plugins.gang_scheduling,
            "GenericWorkload" => self.plugins.generic_workload,
            "ManifestBasedAdmissionControlConfig" => self.static_manifests,
            "WorkloadAwarePreemption" => self.plugins.workload_aware_preemption,
            "WorkloadWithJob" => self.plugins.workload_with_job,
            _ => false,
        }
    }

    /// Sets a gate by name. Returns false if it is unknown.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        match name {
            "AdmissionWebhookMatchConditions" => self.match_conditions = on,
            "ClusterTrustBundle" => self.plugins.cluster_trust_bundle = on,
            "ConstrainedImpersonation" => self.constrained_impersonation = on,
            "GangScheduling" => self.plugins.gang_scheduling = on,
            "GenericWorkload" => self.plugins.generic_workload = on,
            "ManifestBasedAdmissionControlConfig" => self.static_manifests = on,
            "WorkloadAwarePreemption" => self.plugins.workload_aware_preemption = on,
            "WorkloadWithJob" => self.plugins.workload_with_job = on,
            _ => return false,
        }
        true
    }
}

/// The identity headers of an authenticating proxy. They are trusted from clients with a certificate of the proxy CA
/// only, and published for aggregated servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaders {
    /// The CA of authenticating proxies. `None` disables them.
    pub client_ca_file: Option<PathBuf>,
    /// The allowed common names of their certificates; all if empty.
    pub allowed_names: Vec<String>,
    /// The headers with the username; the first one present is used.
    pub username: Vec<String>,
    /// The headers with the UID.
    pub uid: Vec<String>,
    /// The headers with groups, all of which are used.
    pub group: Vec<String>,
    /// The prefixes of headers with extra values.
    pub extra_prefix: Vec<String>,
}

impl Default for RequestHeaders {
    /// kubeadm's header names.
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            group: one("X-Remote-Group"),
            extra_prefix: one("X-Remote-Extra-"),
        }
    }
}

/// The controllers to run, by the names of kube-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controllers {
    /// `namespace-controller`: deletes the contents of deleted namespaces.
    pub namespace: bool,
    /// `garbage-collector-controller`: deletes objects whose owners do not exist, and handles the finalizers `orphan`
    /// and `foregroundDeletion`.
    pub garbage_collector: bool,
    /// `serviceaccount-controller`: creates the ServiceAccount `default` in every namespace.
    pub service_account: bool,
    /// `root-ca-certificate-publisher-controller`: creates the ConfigMap `kube-root-ca.crt` in every namespace, with
    /// which Pods verify this server.
    pub root_ca: bool,
    /// `resourcequota-controller`: updates the usage in the status of quotas.
    pub resource_quota: bool,
    /// `clusterrole-aggregation-controller`: updates the rules of cluster roles with an aggregation rule.
    pub role_aggregation: bool,
    /// `validatingadmissionpolicy-status-controller`: type-checks the expressions of policies with the schemas of the
    /// matched resources, and sets warnings in the status.
    pub policy_status: bool,
    /// `persistentvolumeclaim-protection-controller`: releases a deleted claim when no Pod uses it.
    pub claim_protection: bool,
    /// `persistentvolume-protection-controller`: releases a deleted volume when no claim is bound to it.
    pub volume_protection: bool,
    /// `volumeattributesclass-protection-controller`: releases a deleted class when no volume and no claim uses it.
    pub attributes_class_protection: bool,
}

impl Default for Controllers {
    /// All controllers: clients written for a cluster rely on them.
    fn default() -> Self {
        Self::all(true)
    }
}

impl Controllers {
    /// The names of all controllers.
    pub const NAMES: [&'static str; 10] = [
        "clusterrole-aggregation-controller",
        "garbage-collector-controller",
        "namespace-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "resourcequota-controller",
        "root-ca-certificate-publisher-controller",
        "serviceaccount-controller",
        "validatingadmissionpolicy-status-controller",
        "volumeattributesclass-protection-controller",
    ];

    /// Enables or disables all controllers.
    #[must_use]
    pub fn all(on: bool) -> Self {
        Self {
            namespace: on,
            garbage_collector: on,
            service_account: on,
            root_ca: on,
            resource_quota: on,
            role_aggregation: on,
            policy_status: on,
            claim_protection: on,
            volume_protection: on,
            attributes_class_protection: on,
        }
    }

    /// Returns true if the controller of this name is enabled.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        match name {
            "clusterrole-aggregation-controller" => self.role_aggregation,
            "garbage-collector-controller" => self.garbage_collector,
            "namespace-controller" => self.namespace,
            "persistentvolume-protection-controller" => self.volume_protection,
            "persistentvolumeclaim-protection-controller" => self.claim_protection,
            "resourcequota-controller" => self.resource_quota,
            "root-ca-certificate-publisher-controller" => self.root_ca,
            "serviceaccount-controller" => self.service_account,
            "validatingadmissionpolicy-status-controller" => self.policy_status,
            "volumeattributesclass-protection-controller" => self.attributes_class_protection,
            _ => false,
        }
    }

    /// Enables or disables a controller by name; `*` means all. Returns false if it is unknown.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        match name {
            "*" => *self = Self::all(on),
            "clusterrole-aggregation-controller" => self.role_aggregation = on,
            "garbage-collector-controller" => self.garbage_collector = on,
            "namespace-controller" => self.namespace = on,
            "persistentvolume-protection-controller" => self.volume_protection = on,
            "persistentvolumeclaim-protection-controller" => self.claim_protection = on,
            "resourcequota-controller" => self.resource_quota = on,
            "root-ca-certificate-publisher-controller" => self.root_ca = on,
            "serviceaccount-controller" => self.service_account = on,
            "validatingadmissionpolicy-status-controller" => self.policy_status = on,
            "volumeattributesclass-protection-controller" => self.attributes_class_protection = on,
            _ => return false,
        }
        true
    }
}

/// Receives the trace of every admission run when it completes.
#[derive(Clone)]
pub struct Observer {
    observe: Arc<dyn Fn(&Admission) + Send + Sync>,
    records_objects: bool,
}

impl Observer {
    /// Creates an observer. It is called synchronously, before the response is sent.
    pub fn new(observe: impl Fn(&Admission) + Send + Sync + 'static) -> Self {
        Self {
            observe: Arc::new(observe),
            records_objects: false,
        }
    }

    /// The same with the objects before and after each change in traces.
    #[must_use]
    pub fn recording_objects(mut self) -> Self {
        self.records_objects = true;
        self
    }

    /// Combines several observers; `None` for none.
    pub fn all(observers: impl IntoIterator<Item = Self>) -> Option<Self> {
        let observers: Vec<Self> = observers.into_iter().collect();
        if observers.is_empty() {
            return None;
        }
        let records_objects = observers.iter().any(|one| one.records_objects);
        let observe = move |admission: &Admission| {
            for observer in &observers {
                observer.notify(admission);
            }
        };
        Some(Self {
            observe: Arc::new(observe),
            records_objects,
        })
    }

    pub(crate) fn notify(&self, admission: &Admission) {
        (self.observe)(admission);
    }

    /// Enables the trace of a request.
    pub(crate) fn prepare(&self, admission: Admission) -> Admission {
        match self.records_objects {
            true => admission.record_objects(),
            false => admission,
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// Plugins of an embedding program. They run before webhooks are called.
#[derive(Clone, Default)]
pub struct Plugins(pub(crate) Vec<Arc<dyn Plugin>>);

impl Plugins {
    /// Adds a plugin.
    #[must_use]
    pub fn with(mut self, plugin: impl Plugin + 'static) -> Self {
        self.0.push(Arc::new(plugin));
        self
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|plugin| plugin.name());
        f.debug_list().entries(names).finish()
    }
}

/// The consistency of the objects that admission and authorization read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdmissionConsistency {
    /// As observed by a watch, with a delay of milliseconds. As kube-apiserver.
    #[default]
    Eventual,
    /// Every object whose write was acknowledged before the request, by any server. Costs a round trip to the store per
    /// write.
    Linearizable,
}

/// Certificates and keys, as PEM, that servers on one store share, so that clients of one server are clients of all.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedCertificates {
    /// The CA of serving and client certificates.
    pub(crate) ca: String,
    /// Its key.
    pub(crate) ca_key: String,
    /// The key that signs ServiceAccount tokens.
    pub(crate) token_key: String,
    /// The CA of the client certificate for aggregated servers.
    pub(crate) front_proxy_ca: String,
    /// The client certificate for aggregated servers.
    pub(crate) front_proxy_client: String,
    /// Its key.
    pub(crate) front_proxy_key: String,
}

impl fmt::Debug for SharedCertificates {
    /// Hides keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCertificates").finish_non_exhaustive()
    }
}

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The listen address. Loopback by default, so that a test server is not exposed to a network.
    pub bind_address: IpAddr,
    /// The port; 0 selects a free one, so that many servers can run concurrently.
    pub secure_port: u16,
    /// The directory for certificates and the token signing key. `None` keeps them in memory, for servers that live as
    /// long as a test.
    pub cert_dir: Option<PathBuf>,
    /// Certificates and keys that are shared by all servers on one store. Ignored with `cert_dir`.
    pub certificates: Option<SharedCertificates>,
    /// The consistency of webhook configurations, policies, namespaces and roles on a write, if other servers change
    /// them.
    pub admission_consistency: AdmissionConsistency,
    /// The serving certificate, if it is not issued by the server's own CA.
    pub serving_files: Option<ServingFiles>,
    /// The limits of connections.
    pub connections: ConnectionLimits,
    /// Additional names and addresses in the server's certificate.
    pub extra_hosts: Vec<String>,
    /// Client CAs, in addition to the server's own.
    pub client_ca_file: Option<PathBuf>,
    /// The headers of proxies.
    pub request_headers: RequestHeaders,
    /// The client certificate for aggregated servers. By default the server generates one with a separate CA, which it
    /// publishes.
    pub proxy_client_files: Option<ServingFiles>,
    /// Tokens, in the format of kube-apiserver.
    pub token_auth_file: Option<PathBuf>,
    /// Additional tokens, for embedding programs.
    pub tokens: Vec<(String, UserInfo)>,
    /// The settings for ServiceAccount tokens.
    pub service_accounts: ServiceAccounts,
    /// The flags of the program by name, for `/flagz`. They contain no secrets: users with access to metrics can read
    /// them. `None` disables the page.
    pub flags: Option<BTreeMap<String, String>>,
    /// Allow anonymous requests as `system:anonymous`. Enabled by default, since probes are anonymous.
    pub anonymous_auth: bool,
    /// The authorization mode.
    pub authorization_mode: AuthorizationMode,
    /// The maximum number of concurrent read requests; zero means no limit. Without priority and fairness one user gets
    /// at most half of them, and watches, health checks and `system:masters` are exempt.
    /// UPSTREAM: 400.
    pub max_requests_inflight: usize,
    /// The maximum number of concurrent write requests. UPSTREAM: 200.
    pub max_mutating_requests_inflight: usize,
    /// The descriptions of built-in types for OpenAPI: lines of a type, a field and a description, separated by tabs.
    /// `None` omits descriptions.
    pub descriptions: Option<fn() -> String>,
    /// Limit requests by FlowSchemas and PriorityLevelConfigurations: both limits are added, and priority levels share
    /// the sum. Otherwise the limits apply as they are.
    pub priority_and_fairness: bool,
    /// The audit policy.
    pub audit_policy_file: Option<PathBuf>,
    /// The audit log file; `-` is standard output. `None` disables the log.
    pub audit_log_path: Option<PathBuf>,
    /// The `AdmissionConfiguration`: credentials for webhooks, and static manifests.
    pub admission_control_config_file: Option<PathBuf>,
    /// The feature gates.
    pub feature_gates: FeatureGates,
    /// Plugins to enable.
    pub enable_plugins: Vec<String>,
    /// Plugins to disable.
    pub disable_plugins: Vec<String>,
    /// Plugins in addition to the built-in ones.
    pub plugins: Plugins,
    /// The tolerationSeconds of Pods on nodes that are not ready or unreachable.
    pub tolerations: DefaultTolerationSeconds,
    /// The timeout of a request, as in kube-apiserver.
    pub request_timeout: Duration,
    /// Service references to resolve to other addresses. The first match is used, exact names before patterns.
    pub services: Vec<ServiceMapping>,
    /// How Services without a mapping are resolved.
    pub service_routing: ServiceRouting,
    /// The range of cluster IPs.
    pub service_range: ServiceRange,
    /// The handling of redirects from webhooks. Refused by default: otherwise a webhook could choose the targets of the
    /// server's requests.
    pub webhook_redirects: Redirects,
    /// The controllers to run. kube-apiserver alone has none, and tests written for it may need none.
    pub controllers: Controllers,
    /// Workload controllers and a simulated node that runs Pods. `None` disables them.
    pub simulate_workloads: Option<lockgate_workloads::Settings>,
    /// The delay before the contents of a deleted namespace are deleted, so that clients can observe the phase
    /// Terminating.
    pub namespace_grace: Duration,
    /// Observes every admission run.
    pub observer: Option<Observer>,
    /// The endpoint address of the Service `kubernetes`. By default servers on a shared store use a reachable address,
    /// and others have none.
    pub advertise_address: Option<IpAddr>,
    /// The time to keep serving after a stop signal while `/readyz` fails, so that load balancers remove the server.
    ///
    /// UPSTREAM: apiserver pkg/server/options/server_run_options.go (ShutdownDelayDuration)
    pub shutdown_delay: Duration,
    /// The time for requests in progress at shutdown.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            secure_port: 6443,
            cert_dir: None,
            certificates: None,
            admission_consistency: AdmissionConsistency::default(),
            serving_files: None,
            connections: ConnectionLimits::default(),
            extra_hosts: Vec::new(),
            client_ca_file: None,
            request_headers: RequestHeaders::default(),
            proxy_client_files: None,
            token_auth_file: None,
            tokens: Vec::new(),
            service_accounts: ServiceAccounts::default(),
            flags: None,
            anonymous_auth: true,
            authorization_mode: AuthorizationMode::Rbac,
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            priority_and_fairness: true,
            descriptions: None,
            audit_policy_file: None,
            audit_log_path: None,
            admission_control_config_file: None,
            feature_gates: FeatureGates::default(),
            enable_plugins: Vec::new(),
            disable_plugins: Vec::new(),
            plugins: Plugins::default(),
            tolerations: DefaultTolerationSeconds::default(),
            request_timeout: Duration::from_secs(60),
            services: Vec::new(),
            service_routing: ServiceRouting::default(),
            service_range: ServiceRange::default(),
            webhook_redirects: Redirects::Refuse,
            controllers: Controllers::default(),
            simulate_workloads: None,
            namespace_grace: Duration::from_millis(500),
            observer: None,
            advertise_address: None,
            shutdown_delay: Duration::ZERO,
            drain: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_service_ranges() {
        let shown = |cidr| {
            ServiceRange::parse(cidr).map(|ServiceRange { first, last }| format!("{first} {last}"))
        };
        assert_eq!(shown("10.0.0.0/24").unwrap(), "10.0.0.1 10.0.0.254");
        assert_eq!(shown("10.0.0.77/29").unwrap(), "10.0.0.73 10.0.0.78");
        assert_eq!(
            ServiceRange::parse("10.96.0.0/12"),
            Some(ServiceRange::default())
        );
        for wrong in [
            "",
            "10.0.0.0",
            "10.0.0.0/31",
            "10.0.0.0/3",
            "fd00::/112",
            "x/24",
        ] {
            assert_eq!(ServiceRange::parse(wrong), None, "{wrong}");
        }
    }
}
