//! Startup and shutdown of a server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_admission::configuration::{Configurations, ManifestGate, StaticManifests};
use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::https::credentials::{self, Credentials};
use lockgate_admission::https::{
    EndpointResolver, HttpsCaller, MappedResolver, PlainHttp, Proxies, ProxyResolver, ResolveError,
    ServiceResolver, Settings as CallerSettings,
};
use lockgate_admission::matching::ConditionsGate;
use lockgate_admission::order::{PluginError, Switches};
use lockgate_admission::trace::Step;
use lockgate_api::access::{Authorizer, FixedAuthorizer};
use lockgate_api::admission::UserInfo;
use lockgate_api::registration::ConfigurationKind;
use lockgate_api::registration::policy::PolicyKind;
use lockgate_go::quote::quote;
use lockgate_listener::{Phase, serve};
use lockgate_plugins::in_tree::{self, Parts as PluginParts};
use lockgate_plugins::quota::Ledger;
use lockgate_store::{Store, Unavailable};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::access::Access;
use crate::access_reviews::Reviewer;
use crate::aggregation::{Aggregator, ProxyIdentity};
use crate::allocate::Addresses;
use crate::apply::{Applied, ApplyError};
use crate::audit::{Audit, Policy, PolicyError};
use crate::authn::Authenticator;
use crate::authn::impersonation::Impersonator;
use crate::authn::keys::{SigningKey, verifying_keys};
use crate::authn::service_account::Signer;
use crate::authn::tokens::{TokenFileError, Tokens};
use crate::authz::node::NodeAuthorizer;
use crate::authz::rbac::Rbac;
use crate::bootstrap;
use crate::config::{
    AuthorizationMode, Controllers, FeatureGates, RequestHeaders, ServiceMapping, ServiceRouting,
    Settings,
};
use crate::controllers::{self, Replica, reachable};
use crate::conversion::Converter;
use crate::error::Failure;
use crate::flow_control::FlowControl;
use crate::heavy::{Heavy, Work};
use crate::host::ServedKinds;
use crate::http::in_flight::{InFlight, MEMORY_BUDGET, TREES};
use crate::http::listen::Secure;
use crate::http::tls::{self, FRONT_PROXY_CLIENT, FrontProxy, Identity, TlsError};
use crate::in_order::InOrder;
use crate::metrics::Requests;
use crate::namespaces::NamespaceCache;
use crate::non_resource::{Discovery, Maker, NonResource, Parts, Started};
use crate::persist::effects::Effects;
use crate::persist::{Shared, Storage};
use crate::pipeline::Pipeline;
use crate::plugins::Objects;
use crate::policies::StoredParams;
use crate::registry::Registry;
use crate::services::ServiceCache;
use crate::tasks::Tasks;
use crate::write::Writer;
use crate::write::admission::Admitter;

/// The maximum number of policies that are logged at startup.
const SHOWN_POLICIES: usize = 20;

/// A startup error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is in use, or not local.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The server's certificates are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file cannot be read.
    #[error("cannot read `{path}`: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The token file is invalid.
    #[error("cannot use `{path}`: {source}")]
    Tokens {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: TokenFileError,
    },
    /// The audit policy is invalid.
    #[error("cannot use `{path}`: {source}")]
    AuditPolicy {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: PolicyError,
    },
    /// An enabled or disabled plugin is unknown, or its configuration is invalid.
    #[error(transparent)]
    Plugins(#[from] PluginError),
    /// The admission configuration file, a static manifest, or the proxy settings are invalid.
    #[error("{0}")]
    Admission(String),
    /// The storage is unavailable.
    #[error(transparent)]
    Storage(#[from] Unavailable),
    /// Stored objects cannot be read or written at startup.
    #[error("cannot restore the stored objects: {0}")]
    Restore(String),
    /// A ServiceAccount token key is invalid.
    #[error("cannot use `{path}`: it contains no P-256, P-384 or RSA key")]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// The issuers or the JWKS URI are invalid.
    #[error("{0}")]
    ServiceAccounts(String),
    /// The signing key cannot be generated.
    #[error("{0}")]
    Other(&'static str),
}

/// A running server. Dropping it stops it immediately; [`Running::stop`] drains requests.
#[derive(Debug)]
pub struct Running {
    pipeline: Arc<Pipeline>,
    address: SocketAddr,
    took: Duration,
    ca_pem: String,
    admin: (String, String),
    phase: watch::Sender<Phase>,
    serving: JoinHandle<()>,
    /// The threads of the controllers.
    _controllers: Heavy,
    replica: Replica,
    shutdown_delay: Duration,
    tls: Arc<ServerConfig>,
}

impl Running {
    /// Starts a server on a store. It is ready when this returns.
    ///
    /// # Errors
    ///
    /// Fails if the settings are invalid, or the address is in use.
    pub async fn start(settings: Settings, store: Arc<dyn Store>) -> Result<Self, StartError> {
        let started = Instant::now();
        let address = SocketAddr::new(settings.bind_address, settings.secure_port);
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| StartError::Listen { address, source })?;
        let address = listener
            .local_addr()
            .map_err(|source| StartError::Listen { address, source })?;
        let mut hosts = settings.extra_hosts.clone();
        hosts.push(settings.bind_address.to_string());
        let identity = match (&settings.cert_dir, &settings.certificates) {
            (Some(folder), _) => Identity::load_or_make(folder, &hosts)?,
            (None, Some(certificates)) => Identity::shared(certificates, &hosts)?,
            (None, None) => Identity::make(&hosts)?,
        };
        let identity = match &settings.serving_files {
            Some(files) => identity.serving(files)?,
            None => identity,
        };
        let client_ca = settings.client_ca_file.as_deref();
        let front_proxy_ca = settings.request_headers.client_ca_file.as_deref();
        let (config, users) = identity.server_config(client_ca, front_proxy_ca)?;
        let front_proxy = match &settings.proxy_client_files {
            Some(files) => FrontProxy::from_files(files, front_proxy_ca)?,
            None => identity.front_proxy().clone(),
        };
        let published = bootstrap::Published {
            ca_pem: identity.trust_pem().to_owned(),
            authentication: authentication(&settings, &identity, &front_proxy)?,
        };
        let admin = identity.issue_to_user("admin", "system:masters")?;
        let (phase, watched) = watch::channel(Phase::Serving);
        let (connections, drain) = (settings.connections.clone(), settings.drain);
        let tasks = Tasks::new(watched.clone());
        let simulated = settings.simulate_workloads.clone();
        let (advertised, shutdown_delay) = (settings.advertise_address, settings.shutdown_delay);
        let controllers = controllers::Settings {
            enabled: settings.controllers,
            request_timeout: settings.request_timeout,
            namespace_grace: settings.namespace_grace,
            ca_pem: identity.trust_pem().into(),
        };
        let (pipeline, quotas) = build(settings, store, address, tasks.clone(), front_proxy)?;
        let pipeline = Arc::new(pipeline);
        let writer = pipeline.writer.for_controllers();
        bootstrap::load(&writer, controllers.enabled, &published)
            .await
            .map_err(|Failure(status)| StartError::Restore(status.message))?;
        let storage = &writer.storage;
        storage
            .follow(&pipeline.registry.snapshot())
            .await
            .map_err(|Failure(status)| StartError::Restore(status.message))?;
        let for_workloads = simulated.is_some().then(|| writer.clone());
        let context = controllers::Context::new(writer.clone(), controllers, quotas);
        // Controllers have separate threads, as the amount of their work is unbounded.
        let (handshakes, threads) = (threads(Work::Handshakes)?, threads(Work::Controllers)?);
        let replica = Replica::join(writer, address, advertised, &tasks, &threads);
        controllers::start(context, replica.leads(), &tasks, &threads);
        if let (Some(settings), Some(writer)) = (simulated, for_workloads) {
            let (authority, leads) = (identity.authority()?, replica.leads());
            let workloads = controllers::simulate(writer, authority, settings, leads);
            threads.spawn(tasks.until_stopped(workloads));
        }
        let tls = Arc::clone(&config);
        let secure = Arc::new(Secure {
            config,
            users,
            threads: handshakes,
        });
        let service = Arc::clone(&pipeline);
        let serving = serve(listener, service, secure, connections, watched, drain);
        let serving = tokio::spawn(serving);
        Ok(Self {
            pipeline,
            address,
            took: started.elapsed(),
            ca_pem: identity.trust_pem().to_owned(),
            admin,
            phase,
            serving,
            _controllers: threads,
            replica,
            shutdown_delay,
            tls,
        })
    }

    /// The listen address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients on this machine. A server that listens on all addresses is reached
    /// through loopback, for which its certificate is valid.
    #[must_use]
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("https://{address}")
    }

    /// The duration of the start.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The CA certificate of the server.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The admin client certificate and its key.
    #[must_use]
    pub fn admin(&self) -> (&str, &str) {
        (&self.admin.0, &self.admin.1)
    }

    /// An admin kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let encode = |text: &str| lockgate_go::base64::encode(text.as_bytes());
        let (certificate, key) = self.admin();
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: lockgate\n  \
               cluster:\n    \
                 server: {}\n    \
                 certificate-authority-data: {}\n\
             users:\n\
             - name: admin\n  \
               user:\n    \
                 client-certificate-data: {}\n    \
                 client-key-data: {}\n\
             contexts:\n\
             - name: lockgate\n  \
               context:\n    \
                 cluster: lockgate\n    \
                 user: admin\n\
             current-context: lockgate\n",
            self.url(),
            encode(&self.ca_pem),
            encode(certificate),
            encode(key),
        )
    }

    /// Applies the objects of a YAML or JSON stream through admission, in order; existing objects are merged. Returns
    /// the objects and the warnings.
    ///
    /// # Errors
    ///
    /// Fails with the first rejected object. Objects before it are kept.
    pub async fn apply(&self, manifests: &str) -> Result<Applied, ApplyError> {
        crate::apply::apply(&self.pipeline.writer, manifests).await
    }

    /// Access to authentication, authorization and objects, for an embedding program.
    #[must_use]
    pub fn access(&self) -> Access {
        Access {
            pipeline: Arc::clone(&self.pipeline),
        }
    }

    /// The server's TLS configuration, for additional listeners.
    #[must_use]
    pub fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls)
    }

    /// The enabled parts as text: plugins in the order they run, controllers, feature gates.
    #[must_use]
    pub fn parts(&self) -> Vec<String> {
        let parts = self.pipeline.non_resource.parts.iter();
        let lines = parts.map(|(title, names)| {
            let names = match names.as_slice() {
                [] => String::from("none"),
                names => names.join(","),
            };
            format!("{title}: {names}")
        });
        lines.collect()
    }

    /// The effective admission policies as text, by kind: their number, and the first of them.
    #[must_use]
    pub fn policies(&self) -> Vec<String> {
        let kinds = [
            ("mutating policies", PolicyKind::Mutating),
            ("validating policies", PolicyKind::Validating),
        ];
        let lines = kinds.into_iter().map(|(title, kind)| {
            let names = self.pipeline.non_resource.policies(kind);
            match names.get(..SHOWN_POLICIES) {
                None if names.is_empty() => format!("{title}: none"),
                None => format!("{title}: {}", names.join(",")),
                Some(first) => format!("{title}: {} of {}", first.join(","), names.len()),
            }
        });
        lines.collect()
    }

    /// Drains requests and stops. Load balancers are notified first.
    pub async fn stop(mut self) {
        let _ = self.phase.send(Phase::Draining);
        let delayed = tokio::time::sleep(self.shutdown_delay);
        self.replica.withdraw().await;
        delayed.await;
        let _ = self.phase.send(Phase::Closing);
        let _ = self.serving.await;
        self.pipeline.tasks.finish().await;
        self.replica.release().await;
    }
}

fn threads(work: Work) -> Result<Heavy, StartError> {
    Heavy::start(work).map_err(|_| StartError::Other("cannot start threads"))
}

fn build(
    settings: Settings,
    store: Arc<dyn Store>,
    address: SocketAddr,
    tasks: Tasks,
    front_proxy: FrontProxy,
) -> Result<(Pipeline, Arc<Ledger>), StartError> {
    let registry = Arc::new(Registry::new(
        settings.feature_gates.kube_version,
        settings.descriptions,
    ));
    let order = Arc::new(InOrder::default());
    let namespaces = Arc::new(NamespaceCache::new(Arc::clone(&order), &store));
    let rbac = Arc::new(Rbac::default());
    let mut nodes = None;
    let authorizer: Arc<dyn Authorizer> = match settings.authorization_mode {
        AuthorizationMode::Rbac => Arc::clone(&rbac) as Arc<dyn Authorizer>,
        AuthorizationMode::NodeAndRbac => {
            let node = Arc::new(NodeAuthorizer::new(Arc::clone(&rbac)));
            nodes = Some(Arc::clone(&node));
            node
        }
        AuthorizationMode::AlwaysAllow => Arc::new(FixedAuthorizer::AllowAll),
    };
    let services = ServiceCache::default();
    let mut resolver = MappedResolver::new(match settings.service_routing {
        ServiceRouting::EndpointsOrClusterIp => Arc::new(ProxyResolver(services.clone())),
        ServiceRouting::Endpoints => Arc::new(EndpointResolver(services.clone())),
    });
    let mut mapped = MappedResolver::new(Arc::new(NoResolver));
    for ServiceMapping {
        namespace,
        name,
        port,
        address,
    } in &settings.services
    {
        resolver = resolver.map(namespace, name, *port, address);
        mapped = mapped.map(namespace, name, *port, address);
    }
    let resolver: Arc<dyn ServiceResolver> = Arc::new(resolver);
    let aggregator = Arc::new(Aggregator::new(
        (Arc::clone(&resolver), Arc::new(mapped)),
        services.clone(),
        ProxyIdentity {
            certificate_pem: front_proxy.certificate_pem,
            key_pem: front_proxy.key_pem,
        },
        settings.request_headers.clone(),
    ));
    let proxies = Proxies::from_values(environment()?)
        .map_err(|error| StartError::Admission(error.to_string()))?;
    let caller_with = |credentials: Credentials| {
        Arc::new(HttpsCaller::new(CallerSettings {
            resolver: Arc::clone(&resolver),
            credentials,
            proxies: proxies.clone(),
            redirects: settings.webhook_redirects,
            plain_http: match settings.feature_gates.http_on_loopback {
                true => PlainHttp::Loopback,
                false => PlainHttp::Refuse,
            },
        }))
    };
    let caller = caller_with(Credentials::default());
    let converter = Arc::new(Converter::new(Arc::clone(&registry), Arc::clone(&caller)));
    let kinds = Arc::new(ServedKinds {
        registry: Arc::clone(&registry),
        converter: Arc::clone(&converter),
    });
    let mut host = Host::new(Arc::clone(&caller) as _);
    host.namespaces = Arc::clone(&namespaces) as _;
    host.kinds = kinds;
    host.params = Arc::new(StoredParams::new(
        Arc::clone(&registry),
        Arc::clone(&store),
        Arc::clone(&converter),
    ));
    host.authorizer = Arc::clone(&authorizer);
    let quotas = Arc::new(Ledger::default());
    let objects = Arc::new(Objects::new(Arc::clone(&registry)));
    let conditions = if settings.feature_gates.match_conditions {
        ConditionsGate::Enabled
    } else {
        ConditionsGate::Disabled
    };
    let mut builder = Engine::builder(host.clone()).match_conditions(conditions);
    let mut manifests = Vec::new();
    if let Some(file) = &settings.admission_control_config_file {
        credentials::plugin_part(file, "").map_err(|why| {
            StartError::Admission(format!(
                "failed to apply admission: failed to read plugin config: {why}"
            ))
        })?;
        for kind in ConfigurationKind::ALL {
            let plugin = match kind {
                ConfigurationKind::Mutating => "MutatingAdmissionWebhook",
                ConfigurationKind::Validating => "ValidatingAdmissionWebhook",
            };
            let configuration = credentials::load(file, plugin).map_err(|why| {
                let plugin = quote(plugin);
                StartError::Admission(format!(
                    "failed to apply admission: couldn't init admission plugin {plugin}: {why}"
                ))
            })?;
            builder = builder.caller(kind, caller_with(configuration.credentials));
            if let Some(folder) = configuration.static_manifests_dir {
                let configurations = Arc::new(Configurations::new(kind));
                builder = builder.configurations(Arc::clone(&configurations));
                let gate = if settings.feature_gates.static_manifests {
                    ManifestGate::Enabled
                } else {
                    ManifestGate::Disabled
                };
                let folder = folder.display().to_string();
                let opened = StaticManifests::open(&folder, gate, configurations);
                let opened = opened.map_err(|error| StartError::Admission(error.to_string()))?;
                manifests.push(Arc::new(opened));
            }
        }
    }
    for plugin in &settings.plugins.0 {
        builder = builder.plugin(Arc::clone(plugin));
    }
    let switches = Switches::new(&settings.enable_plugins, &settings.disable_plugins);
    // Names are checked first: an unknown plugin has no configuration.
    switches.check(settings.plugins.0.iter().map(|plugin| plugin.name()))?;
    let plugin_parts = PluginParts {
        host,
        lookup: Arc::clone(&objects) as _,
        writes: Arc::clone(&objects) as _,
        mapper: Arc::clone(&objects) as _,
        quotas: Arc::clone(&quotas),
        gates: settings.feature_gates.plugins,
        tolerations: settings.tolerations,
    };
    let file = settings.admission_control_config_file.as_deref();
    let made = in_tree::plugins(&plugin_parts, &switches, in_tree::Configuration(file));
    let made =
        made.map_err(|error| StartError::Admission(format!("failed to apply admission: {error}")))?;
    for plugin in made {
        builder = builder.plugin(plugin);
    }
    let engine = builder
        .enable(settings.enable_plugins.iter().map(String::as_str))
        .disable(settings.disable_plugins.iter().map(String::as_str))
        .build()?;
    let signer = Arc::new(signer(&settings)?);
    let discovery = discovery(&settings, &signer, address);
    let mut anonymous = settings.anonymous_auth;
    // UPSTREAM: kubernetes pkg/kubeapiserver/options/authentication.go (ApplyAuthorization)
    if anonymous && settings.authorization_mode == AuthorizationMode::AlwaysAllow {
        tracing::warn!("anonymous requests disabled because AlwaysAllow would allow all of them");
        anonymous = false;
    }
    let authenticator = Arc::new(Authenticator {
        tokens: tokens(&settings)?,
        signer: Arc::clone(&signer),
        store: Arc::clone(&store),
        anonymous,
        request_headers: settings.request_headers.clone(),
    });
    let audit = audit(&settings)?;
    let addresses = Arc::new(Addresses::new(settings.service_range));
    let requests = Arc::new(Requests::new());
    let in_flight = settings
        .max_requests_inflight
        .saturating_add(settings.max_mutating_requests_inflight);
    let flow_control = Arc::new(FlowControl::new(in_flight, settings.request_timeout));
    let is_fair = settings.priority_and_fairness;
    let storage = Storage::new(Shared {
        store,
        converter,
        effects: Effects {
            engine: engine.clone(),
            registry: Arc::clone(&registry),
            namespaces: Arc::clone(&namespaces),
            rbac: Arc::clone(&rbac),
            addresses: Arc::clone(&addresses),
            services,
            aggregator: Arc::clone(&aggregator),
            flow_control: Arc::clone(&flow_control),
            nodes,
        },
        order,
        applying: Default::default(),
        namespaces_settle: settings.controllers.service_account || settings.controllers.root_ca,
        reconciled: Default::default(),
        tasks: tasks.clone(),
        followed: Default::default(),
    });
    for manifests in manifests {
        tasks.spawn(manifests.run(|error| {
            tracing::error!(%error, "cannot read static manifests, keeping the previous ones");
        }));
    }
    let parts = enabled_parts(&engine, &settings);
    let writer = Arc::new(Writer {
        storage: storage.clone(),
        admitter: Admitter {
            engine: engine.clone(),
            observer: settings.observer,
        },
        registry: Arc::clone(&registry),
        authorizer: Arc::clone(&authorizer),
        rbac: Arc::clone(&rbac),
        addresses,
        namespaces,
        gates: settings.feature_gates,
    });
    objects.use_writer(&writer);
    let pipeline = Pipeline {
        reviewer: Reviewer {
            authenticator: Arc::clone(&authenticator),
            authorizer: Arc::clone(&authorizer),
            rbac,
            mode: settings.authorization_mode,
        },
        non_resource: NonResource {
            aggregator: Arc::clone(&aggregator),
            registry: Arc::clone(&registry),
            storage,
            engine,
            requests: Arc::clone(&requests),
            flow_control: is_fair.then(|| Arc::clone(&flow_control)),
            address: address.to_string(),
            parts,
            maker: Maker::default(),
            discovery,
            health_checks: Default::default(),
            started: Started::now(),
            flags: settings.flags,
            tasks: tasks.clone(),
        },
        writer,
        aggregator,
        authenticator,
        impersonator: Impersonator::new(settings.feature_gates.constrained_impersonation),
        authorizer,
        registry,
        signer,
        audit: Arc::new(audit),
        requests,
        flow_control: is_fair.then_some(flow_control),
        reads_in_flight: InFlight::new(settings.max_requests_inflight),
        writes_in_flight: InFlight::new(settings.max_mutating_requests_inflight),
        memory: InFlight::new(MEMORY_BUDGET),
        trees: InFlight::new(TREES),
        heavy: Heavy::when_needed(Work::LargeWrites),
        tasks,
        request_timeout: settings.request_timeout,
        consistency: settings.admission_consistency,
    };
    Ok((pipeline, quotas))
}

/// The data of the ConfigMap with which aggregated servers authenticate clients.
///
/// UPSTREAM: kubernetes pkg/controlplane/controller/clusterauthenticationtrust
fn authentication(
    settings: &Settings,
    identity: &Identity,
    front_proxy: &FrontProxy,
) -> Result<BTreeMap<&'static str, String>, StartError> {
    let RequestHeaders {
        client_ca_file,
        allowed_names,
        username,
        uid,
        group,
        extra_prefix,
    } = &settings.request_headers;
    let list = |names: &[String]| lockgate_go::json::to_string(&names);
    let client_ca = settings.client_ca_file.as_deref();
    let mut data = BTreeMap::new();
    data.insert("client-ca-file", identity.client_ca_pem(client_ca)?);
    // Without a CA for the proxy certificate there is nothing to publish.
    if !front_proxy.ca_pem.is_empty() {
        let mut ca_pem = front_proxy.ca_pem.clone();
        let mut names = allowed_names.clone();
        if let (Some(file), None) = (client_ca_file, &settings.proxy_client_files) {
            // The CAs of authenticating proxies, and of this server.
            ca_pem.push_str(&read(file)?);
            if !names.is_empty() {
                names.push(String::from(FRONT_PROXY_CLIENT));
            }
        } else if client_ca_file.is_none() {
            names.push(String::from(FRONT_PROXY_CLIENT));
        }
        data.insert("requestheader-client-ca-file", ca_pem);
        data.insert("requestheader-allowed-names", list(&names));
        data.insert("requestheader-username-headers", list(username));
        data.insert("requestheader-uid-headers", list(uid));
        data.insert("requestheader-group-headers", list(group));
        data.insert("requestheader-extra-headers-prefix", list(extra_prefix));
    }
    Ok(data)
}

/// A resolver without Services.
#[derive(Debug)]
struct NoResolver;

impl ServiceResolver for NoResolver {
    fn resolve(&self, _: &str, name: &str, _: i32) -> Result<String, ResolveError> {
        Err(ResolveError::NotFound(name.to_owned()))
    }
}

/// The enabled parts: plugins in the order they run, controllers, feature gates.
fn enabled_parts(engine: &Engine, settings: &Settings) -> Parts {
    let controllers = Controllers::NAMES.into_iter();
    let gates = FeatureGates::NAMES.into_iter();
    [
        ("mutating plugins", engine.plugins_in(Step::Admit).collect()),
        (
            "validating plugins",
            engine.plugins_in(Step::Validate).collect(),
        ),
        (
            "controllers",
            controllers
                .filter(|name| settings.controllers.is_on(name))
                .collect(),
        ),
        (
            "feature gates",
            gates
                .filter(|name| settings.feature_gates.is_on(name))
                .collect(),
        ),
    ]
}

fn read(path: &std::path::Path) -> Result<String, StartError> {
    std::fs::read_to_string(path).map_err(|source| StartError::File {
        path: path.to_owned(),
        source,
    })
}

/// The signer of tokens, and the keys that verify them.
fn signer(settings: &Settings) -> Result<Signer, StartError> {
    let accounts = &settings.service_accounts;
    accounts.check().map_err(StartError::ServiceAccounts)?;
    let unusable = |path: &std::path::Path| StartError::Key {
        path: path.to_owned(),
    };
    let shared = settings.certificates.as_ref();
    let shared = shared.and_then(|certificates| SigningKey::from_pem(&certificates.token_key));
    let key = match (&accounts.signing_key_file, &settings.cert_dir) {
        (Some(file), _) => SigningKey::from_pem(&read(file)?).ok_or_else(|| unusable(file))?,
        (None, Some(folder)) => SigningKey::from_pem(&tls::token_key(folder)?)
            .ok_or_else(|| unusable(&folder.join("sa.key")))?,
        (None, None) if settings.certificates.is_some() => shared.ok_or(StartError::Other(
            "the shared token signing key is unusable",
        ))?,
        (None, None) => SigningKey::generate().ok_or(StartError::Other(
            "cannot generate the token signing key: no entropy source",
        ))?,
    };
    let mut others = Vec::new();
    for file in &accounts.key_files {
        let keys = verifying_keys(&read(file)?);
        if keys.is_empty() {
            return Err(unusable(file));
        }
        others.extend(keys);
    }
    let (issuers, audiences) = (accounts.issuers.clone(), accounts.api_audiences.clone());
    Ok(Signer::new(key, others, issuers, audiences))
}

/// The OpenID discovery documents. `None` for an issuer that is not a URL.
fn discovery(settings: &Settings, signer: &Signer, bound: SocketAddr) -> Option<Discovery> {
    let advertised = settings.advertise_address;
    let external = advertised.unwrap_or_else(|| match bound.ip() {
        own if own.is_unspecified() => reachable(own).unwrap_or(own),
        own => own,
    });
    let external = SocketAddr::new(external, bound.port()).to_string();
    let jwks_uri = settings.service_accounts.jwks_uri.as_deref();
    let discovery = Discovery::new(signer, jwks_uri, &external);
    discovery
        .inspect_err(|error| {
            tracing::error!(%error, "OpenID discovery of service account tokens disabled");
        })
        .ok()
}

fn tokens(settings: &Settings) -> Result<Tokens, StartError> {
    let mut tokens = match &settings.token_auth_file {
        None => Tokens::default(),
        Some(path) => Tokens::parse(&read(path)?).map_err(|source| StartError::Tokens {
            path: path.clone(),
            source,
        })?,
    };
    for (token, user) in &settings.tokens {
        tokens.add(token, UserInfo::clone(user));
    }
    Ok(tokens)
}

fn audit(settings: &Settings) -> Result<Audit, StartError> {
    let policy = match &settings.audit_policy_file {
        Some(path) => Policy::parse(&read(path)?).map_err(|source| StartError::AuditPolicy {
            path: path.clone(),
            source,
        })?,
        None => Policy::metadata(),
    };
    let path = settings.audit_log_path.as_deref();
    Audit::open(policy, path).map_err(|source| StartError::File {
        path: path.map(ToOwned::to_owned).unwrap_or_default(),
        source,
    })
}

/// The environment variables, which must be valid strings: proxies are among them, and an ignored one would mean no
/// proxy.
fn environment() -> Result<Vec<(String, String)>, StartError> {
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else {
            continue;
        };
        match value.into_string() {
            Ok(value) => variables.push((name, value)),
            Err(_) if name.to_ascii_uppercase().ends_with("_PROXY") => {
                let why = format!("cannot use the environment variable `{name}`: it is not UTF-8");
                return Err(StartError::Admission(why));
            }
            Err(_) => {}
        }
    }
    Ok(variables)
}
