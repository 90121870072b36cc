//! The plugins of kube-apiserver, created from their configuration.
//!
//! UPSTREAM: kubernetes pkg/kubeapiserver/options/plugins.go

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use lockgate_admission::host::{Clock, Host};
use lockgate_admission::https::credentials::plugin_part;
use lockgate_admission::order::Switches;
use lockgate_admission::plugin::Plugin;
use lockgate_go::quote::quote;

use crate::config::{self, ConfigError, Known};
use crate::image_policy::HttpsBackend;
use crate::lookup::{Lookup, Writes};
use crate::quota::Ledger;
use crate::rules::{InTree, Rules};
use crate::{
    AlwaysAdmit, AlwaysDeny, AlwaysPullImages, CertificateApproval, CertificateSigning,
    CertificateSubjectRestriction, ClusterTrustBundleAttest, DefaultIngressClass,
    DefaultStorageClass, DefaultTolerationSeconds, DenyServiceExternalIPs, EventRateLimit,
    ExtendedResourceToleration, ImagePolicy, JobValidation, LimitPodHardAntiAffinityTopology,
    LimitRanger, Mapper, NamespaceAutoProvision, NamespaceExists, NamespaceLifecycle,
    NodeDeclaredFeatureValidator, NodeRestriction, OwnerReferencesPermissionEnforcement,
    PersistentVolumeClaimResize, PodGroupProtection, PodGroupWorkloadExists, PodNodeSelector,
    PodResizeValidator, PodSecurity, PodTolerationRestriction, PodTopologyLabels, Priority,
    ResourceQuota, RuntimeClass, ServiceAccount, StorageObjectInUseProtection,
    TaintNodesByCondition, event_rate_limit, image_policy, pod_node_selector, pod_security,
    pod_toleration_restriction, quota,
};

/// The dependencies of in-tree plugins on the server.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Namespaces, the authorizer and the clock.
    pub host: Host,
    /// Access to stored objects.
    pub lookup: Arc<dyn Lookup>,
    /// Writes as the server itself.
    pub writes: Arc<dyn Writes>,
    /// The quota ledger, shared with the quota controller.
    pub quotas: Arc<Ledger>,
    /// Access to kinds.
    pub mapper: Arc<dyn Mapper>,
    /// Feature gates that plugins depend on.
    pub gates: Gates,
    /// The tolerationSeconds of Pods on unavailable nodes.
    pub tolerations: DefaultTolerationSeconds,
}

/// Feature gates that plugins depend on; all of them are off in v1.36.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gates {
    /// `ClusterTrustBundle`.
    pub cluster_trust_bundle: bool,
    /// `GangScheduling`: not used here, as there is no scheduler; it is known because other gates require it.
    pub gang_scheduling: bool,
    /// `GenericWorkload`.
    pub generic_workload: bool,
    /// `WorkloadWithJob`.
    pub workload_with_job: bool,
    /// `WorkloadAwarePreemption`.
    pub workload_aware_preemption: bool,
}

/// An error creating a plugin, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitError {
    plugin: &'static str,
    late: bool,
    why: ConfigError,
}

impl InitError {
    pub(crate) fn new(plugin: &'static str, why: ConfigError) -> Self {
        Self {
            plugin,
            // UPSTREAM: this plugin reads its configuration immediately and validates it later.
            late: why.0.starts_with("PodSecurity configuration error"),
            why,
        }
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.late {
            "failed to initialize"
        } else {
            "couldn't init"
        };
        let plugin = quote(self.plugin);
        write!(f, "{what} admission plugin {plugin}: {}", self.why)
    }
}

impl std::error::Error for InitError {}

/// The configuration of plugins: the file given by `--admission-control-config-file`, if any.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'f>(pub Option<&'f Path>);

impl Configuration<'_> {
    pub(crate) fn part(self, plugin: &str) -> Result<Option<String>, ConfigError> {
        let Some(file) = self.0 else {
            return Ok(None);
        };
        plugin_part(file, plugin).map_err(|error| ConfigError(error.to_string()))
    }
}

/// Creates the enabled plugins, except webhooks and policies, which are part of the engine.
///
/// # Errors
///
/// Fails if the configuration of a plugin is invalid.
pub fn plugins(
    parts: &Parts,
    switches: &Switches,
    configuration: Configuration<'_>,
) -> Result<Vec<Arc<dyn Plugin>>, InitError> {
    let mut made = Made {
        switches,
        plugins: Vec::new(),
    };
    let lookup = || Arc::clone(&parts.lookup);
    let authorizer = || Arc::clone(&parts.host.authorizer);
    let gates = parts.gates;
    made.add(AlwaysAdmit);
    made.add(NamespaceAutoProvision::new(
        lookup(),
        Arc::clone(&parts.writes),
    ));
    made.add(NamespaceLifecycle::new(parts.host.clone()));
    made.add(NamespaceExists::new(lookup()));
    made.add(LimitPodHardAntiAffinityTopology);
    made.add(LimitRanger::new(lookup()));
    made.add(ServiceAccount::new(lookup()));
    made.add(NodeRestriction::new(lookup(), authorizer()));
    made.add(TaintNodesByCondition);
    made.add(AlwaysPullImages);
    made.try_add("ImagePolicyWebhook", || image_policy(configuration))?;
    made.try_add("PodSecurity", || pod_security(configuration, lookup()))?;
    made.try_add("PodNodeSelector", || {
        pod_node_selector(configuration, lookup())
    })?;
    let priority = Priority::new(lookup());
    made.add(priority.with_pod_groups(gates.generic_workload && gates.workload_aware_preemption));
    made.add(parts.tolerations);
    made.try_add("PodTolerationRestriction", || {
        pod_toleration_restriction(configuration, lookup())
    })?;
    made.try_add("EventRateLimit", || {
        event_rate_limit(configuration, Arc::clone(&parts.host.clock))
    })?;
    made.add(ExtendedResourceToleration);
    made.add(DefaultStorageClass::new(lookup()));
    made.add(StorageObjectInUseProtection);
    made.add(PodGroupProtection {
        on: gates.generic_workload,
    });
    let mapper = Arc::clone(&parts.mapper);
    made.add(OwnerReferencesPermissionEnforcement::new(
        authorizer(),
        mapper,
    ));
    made.add(PersistentVolumeClaimResize::new(lookup()));
    made.add(RuntimeClass::new(lookup()));
    made.add(CertificateApproval::new(authorizer()));
    made.add(CertificateSigning::new(authorizer()));
    made.add(ClusterTrustBundleAttest::new(
        authorizer(),
        gates.cluster_trust_bundle,
    ));
    made.add(CertificateSubjectRestriction);
    made.add(DefaultIngressClass::new(lookup()));
    made.add(DenyServiceExternalIPs);
    made.add(PodTopologyLabels::new(lookup()));
    made.add(PodGroupWorkloadExists::new(
        lookup(),
        gates.generic_workload,
    ));
    made.add(NodeDeclaredFeatureValidator::new(lookup()));
    made.add(JobValidation::new(
        lookup(),
        gates.generic_workload && gates.workload_with_job,
    ));
    made.add(PodResizeValidator::new(lookup()));
    made.try_add("ResourceQuota", || {
        let config = match configuration.part("ResourceQuota")? {
            Some(text) => quota::Configuration::read(&text)?,
            None => quota::Configuration::default(),
        };
        let (writes, ledger) = (Arc::clone(&parts.writes), Arc::clone(&parts.quotas));
        Ok(ResourceQuota::new(config, lookup(), writes, ledger))
    })?;
    made.add(AlwaysDeny);
    Ok(made.plugins)
}

struct Made<'s> {
    switches: &'s Switches,
    plugins: Vec<Arc<dyn Plugin>>,
}

impl Made<'_> {
    fn add(&mut self, rules: impl Rules) {
        if self.switches.is_on(rules.name()) {
            self.plugins.push(Arc::new(InTree(rules)));
        }
    }

    /// Adds a plugin whose configuration is validated only if it is enabled.
    fn try_add<R: Rules>(
        &mut self,
        plugin: &'static str,
        make: impl FnOnce() -> Result<R, ConfigError>,
    ) -> Result<(), InitError> {
        if self.switches.is_on(plugin) {
            self.add(make().map_err(|why| InitError::new(plugin, why))?);
        }
        Ok(())
    }
}

pub(crate) fn pod_security(
    configuration: Configuration<'_>,
    lookup: Arc<dyn Lookup>,
) -> Result<PodSecurity, ConfigError> {
    let config = match configuration.part("PodSecurity")? {
        Some(text) => pod_security::Configuration::read(&text)?,
        None => pod_security::Configuration::default(),
    };
    PodSecurity::new(config, lookup)
}

pub(crate) fn pod_node_selector(
    configuration: Configuration<'_>,
    lookup: Arc<dyn Lookup>,
) -> Result<PodNodeSelector, ConfigError> {
    let config = match configuration.part("PodNodeSelector")? {
        Some(text) => config::read(&text)?,
        None => pod_node_selector::Configuration::default(),
    };
    Ok(PodNodeSelector::new(config, lookup))
}

pub(crate) fn pod_toleration_restriction(
    configuration: Configuration<'_>,
    lookup: Arc<dyn Lookup>,
) -> Result<PodTolerationRestriction, ConfigError> {
    let config = match configuration.part("PodTolerationRestriction")? {
        Some(text) => config::read_strict(
            &text,
            &["podtolerationrestriction.admission.k8s.io/v1alpha1"],
            "Configuration",
            &Known(&[("default", None), ("whitelist", None)]),
        )?,
        None => pod_toleration_restriction::Configuration::default(),
    };
    Ok(PodTolerationRestriction::new(config, lookup))
}

pub(crate) fn image_policy(configuration: Configuration<'_>) -> Result<ImagePolicy, ConfigError> {
    let part = configuration.part("ImagePolicyWebhook")?;
    let text = part.ok_or_else(|| ConfigError(String::from("no config specified")))?;
    let config: image_policy::Configuration = config::read(&text)?;
    let config = config.image_policy;
    // Durations are validated first, then the kubeconfig of the backend.
    ImagePolicy::check(&config)?;
    let backend = HttpsBackend::from_kubeconfig(Path::new(&config.kube_config_file))?;
    ImagePolicy::new(&config, backend)
}

pub(crate) fn event_rate_limit(
    configuration: Configuration<'_>,
    clock: Arc<dyn Clock>,
) -> Result<EventRateLimit, ConfigError> {
    const LIMIT: Known = Known(&[
        ("type", None),
        ("qps", None),
        ("burst", None),
        ("cacheSize", None),
    ]);
    let config = match configuration.part("EventRateLimit")? {
        Some(text) => config::read_strict(
            &text,
            &["eventratelimit.admission.k8s.io/v1alpha1"],
            "Configuration",
            &Known(&[("limits", Some(&LIMIT))]),
        )?,
        None => event_rate_limit::Configuration { limits: Vec::new() },
    };
    EventRateLimit::with_clock(config, clock)
}
