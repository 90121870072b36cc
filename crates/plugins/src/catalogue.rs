//! The plugins that can be served as webhooks, by name.
//!
//! Plugins that only the API server can run are omitted: `ResourceQuota` and `NamespaceAutoProvision` write,
//! `NamespaceLifecycle` must see every request, `NodeRestriction`, `OwnerReferencesPermissionEnforcement` and the
//! certificate plugins use its authorizer.

use std::sync::Arc;

use lockgate_admission::host::SystemClock;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{self, ConfigError};
use crate::image_policy::{ImagePolicyConfiguration, ImageRules};
use crate::in_tree::{self, Configuration, InitError};
use crate::lookup::{
    CLAIMS, INGRESS_CLASSES, LIMIT_RANGES, Lookup, Memory, NAMESPACES, NODES, POD_PRESETS, PODS,
    PRIORITY_CLASSES, RUNTIME_CLASSES, Resource, SERVICE_ACCOUNTS, STORAGE_CLASSES,
};
use crate::webhooks::ReadyMade;
use crate::{
    AlwaysPullImages, CertificateSubjectRestriction, ClusterResourceOverride, DefaultIngressClass,
    DefaultStorageClass, DefaultTolerationSeconds, DenyEscalatingExec, DenyServiceExternalIPs,
    EventRateLimit, ExtendedResourceToleration, ExternalIPRanger, ImagePolicy,
    LimitPodHardAntiAffinityTopology, LimitRanger, NamespaceExists, NamespaceProtection,
    NodeDeclaredFeatureValidator, PersistentVolumeClaimResize, PodNodeSelector, PodPreset,
    PodResizeValidator, PodSecurity, PodTolerationRestriction, PodTopologyLabels, Priority,
    RunOnceDuration, RuntimeClass, ServiceAccount, SidecarInjector, StorageObjectInUseProtection,
    TaintNodesByCondition,
};

/// A plugin that can be served.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// The name; upstream's if it has the plugin.
    pub name: &'static str,
    /// A one-line summary.
    pub summary: &'static str,
    /// The resources it looks up in the cluster.
    pub reads: &'static [Resource],
    /// If it has a configuration.
    pub configuration: Use,
}

/// The configuration of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It has none.
    None,
    /// It has a default.
    Optional,
    /// It is required.
    Required,
}

const fn offer(name: &'static str, summary: &'static str, reads: &'static [Resource]) -> Offer {
    Offer {
        name,
        summary,
        reads,
        configuration: Use::None,
    }
}

const fn configured(offer: Offer, configuration: Use) -> Offer {
    Offer {
        configuration,
        ..offer
    }
}

/// All of them, by name.
pub const OFFERS: &[Offer] = &[
    offer(
        "AlwaysPullImages",
        "Sets imagePullPolicy Always on every container and image volume",
        &[],
    ),
    offer(
        "CertificateSubjectRestriction",
        "Denies client certificates for the group system:masters",
        &[],
    ),
    configured(
        offer(
            "ClusterResourceOverride",
            "Derives requests and CPU limits from memory limits, in percent",
            &[NAMESPACES, LIMIT_RANGES, CLAIMS],
        ),
        Use::Required,
    ),
    offer(
        "DefaultIngressClass",
        "Gives Ingresses without a class the default IngressClass",
        &[INGRESS_CLASSES],
    ),
    offer(
        "DefaultStorageClass",
        "Gives PersistentVolumeClaims without a class the default StorageClass",
        &[STORAGE_CLASSES],
    ),
    offer(
        "DefaultTolerationSeconds",
        "Tolerates not-ready and unreachable nodes for 300 seconds",
        &[],
    ),
    offer(
        "DenyEscalatingExec",
        "Denies exec and attach to pods that are privileged or share host namespaces",
        &[PODS],
    ),
    offer(
        "DenyExecOnPrivileged",
        "Denies exec and attach to privileged pods",
        &[PODS],
    ),
    offer(
        "DenyServiceExternalIPs",
        "Denies new externalIPs of Services",
        &[],
    ),
    configured(
        offer(
            "EventRateLimit",
            "Limits the rate of core Events; each replica has buckets of its own",
            &[],
        ),
        Use::Required,
    ),
    offer(
        "ExtendedResourceToleration",
        "Tolerates the taint of each extended resource that a pod requests",
        &[],
    ),
    configured(
        offer(
            "ExternalIPRanger",
            "Allows externalIPs of Services in the configured networks only",
            &[],
        ),
        Use::Optional,
    ),
    configured(
        offer(
            "ImagePolicyWebhook",
            "Asks an ImageReview backend, or a list of rules, about images",
            &[],
        ),
        Use::Required,
    ),
    offer(
        "LimitPodHardAntiAffinityTopology",
        "Allows required pod anti-affinity by kubernetes.io/hostname only",
        &[],
    ),
    offer(
        "LimitRanger",
        "Defaults and limits resources by the LimitRanges of the namespace",
        &[LIMIT_RANGES, CLAIMS],
    ),
    offer(
        "NamespaceExists",
        "Denies requests in namespaces that do not exist",
        &[NAMESPACES],
    ),
    configured(
        offer(
            "NamespaceProtection",
            "Denies the deletion of the configured namespaces",
            &[],
        ),
        Use::Optional,
    ),
    offer(
        "NodeDeclaredFeatureValidator",
        "Denies pod updates that the pod's node does not support",
        &[NODES],
    ),
    offer(
        "PersistentVolumeClaimResize",
        "Allows claims to grow where their StorageClass allows expansion",
        &[STORAGE_CLASSES],
    ),
    configured(
        offer(
            "PodNodeSelector",
            "Sets and restricts node selectors by namespace",
            &[NAMESPACES],
        ),
        Use::Optional,
    ),
    offer(
        "PodPreset",
        "Adds environment, volumes and mounts by label, from the custom resource PodPreset",
        &[POD_PRESETS],
    ),
    offer(
        "PodResizeValidator",
        "Denies resizing pods on nodes that do not support it",
        &[NODES],
    ),
    configured(
        offer(
            "PodSecurity",
            "Enforces the Pod Security Standards by namespace labels",
            &[NAMESPACES, PODS],
        ),
        Use::Optional,
    ),
    configured(
        offer(
            "PodTolerationRestriction",
            "Sets and restricts tolerations by namespace",
            &[NAMESPACES],
        ),
        Use::Optional,
    ),
    offer(
        "PodTopologyLabels",
        "Copies the topology labels of the node to pods when they are bound",
        &[NODES],
    ),
    offer(
        "Priority",
        "Resolves the PriorityClass of pods",
        &[PRIORITY_CLASSES],
    ),
    configured(
        offer(
            "RunOnceDuration",
            "Limits activeDeadlineSeconds of pods that are not restarted",
            &[NAMESPACES],
        ),
        Use::Optional,
    ),
    offer(
        "RuntimeClass",
        "Applies overhead, node selector and tolerations of the RuntimeClass",
        &[RUNTIME_CLASSES],
    ),
    offer(
        "ServiceAccount",
        "Sets the service account of pods and mounts its token",
        &[SERVICE_ACCOUNTS],
    ),
    configured(
        offer("SidecarInjector", "Merges templates into pods", &[]),
        Use::Required,
    ),
    offer(
        "StorageObjectInUseProtection",
        "Adds protection finalizers to claims, volumes and VolumeAttributesClasses",
        &[],
    ),
    offer(
        "TaintNodesByCondition",
        "Taints new nodes as not ready",
        &[],
    ),
];

/// An error creating a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// The plugin does not exist or cannot be served.
    #[error("plugin `{0}` is unknown or cannot be served as a webhook")]
    Unknown(String),
    /// The plugin looks up objects, and no cluster is set.
    #[error("plugin `{0}` reads objects from the cluster")]
    NoCluster(&'static str),
    /// Its configuration is invalid.
    #[error("{0}")]
    Configuration(#[from] InitError),
}

/// Creates the plugins of these names.
///
/// # Errors
///
/// A name is unknown, a plugin needs a cluster and none is set, or a configuration is invalid.
///
/// ```
/// use lockgate_plugins::catalogue;
/// use lockgate_plugins::in_tree::Configuration;
///
/// let made = catalogue::make(&["AlwaysPullImages"], None, Configuration(None))?;
/// assert_eq!(made[0].name(), "AlwaysPullImages");
/// assert!(catalogue::make(&["LimitRanger"], None, Configuration(None)).is_err());
/// # Ok::<(), catalogue::MakeError>(())
/// ```
pub fn make(
    names: &[&str],
    lookup: Option<&Arc<dyn Lookup>>,
    configuration: Configuration<'_>,
) -> Result<Vec<Box<dyn ReadyMade>>, MakeError> {
    let one = |name: &&str| {
        let offer = OFFERS.iter().find(|offer| offer.name == *name);
        let offer = offer.ok_or_else(|| MakeError::Unknown((*name).to_owned()))?;
        if !offer.reads.is_empty() && lookup.is_none() {
            return Err(MakeError::NoCluster(offer.name));
        }
        let made = make_one(offer.name, lookup, configuration);
        let made = made.map_err(|why| InitError::new(offer.name, why))?;
        made.ok_or_else(|| MakeError::Unknown((*name).to_owned()))
    };
    names.iter().map(one).collect()
}

/// Creates a plugin with a sample configuration, for listing its webhooks.
///
/// # Errors
///
/// Fails if the name is unknown.
pub fn sample(name: &str) -> Result<Box<dyn ReadyMade>, MakeError> {
    let unknown = || MakeError::Unknown(name.to_owned());
    let offer = OFFERS.iter().find(|offer| offer.name == name);
    let offer = offer.ok_or_else(unknown)?;
    let nothing: Arc<dyn Lookup> = Arc::new(Memory::new());
    let made = match offer.configuration {
        Use::Required => sample_configured(offer.name, &nothing),
        Use::None | Use::Optional => make_one(offer.name, Some(&nothing), Configuration(None)),
    };
    let made = made.map_err(|why| InitError::new(offer.name, why))?;
    made.ok_or_else(unknown)
}

fn sample_configured(
    name: &str,
    lookup: &Arc<dyn Lookup>,
) -> Result<Option<Box<dyn ReadyMade>>, ConfigError> {
    Ok(Some(match name {
        "ClusterResourceOverride" => Box::new(ClusterResourceOverride::new(
            config::read("{cpuRequestToLimitPercent: 100}")?,
            Arc::clone(lookup),
        )?),
        "EventRateLimit" => Box::new(EventRateLimit::new(config::read(
            "{limits: [{type: Server, qps: 1, burst: 1}]}",
        )?)?),
        "ImagePolicyWebhook" => Box::new(image_rules("{}")?),
        "SidecarInjector" => Box::new(SidecarInjector::new(config::read("{templates: []}")?)?),
        _ => return Ok(None),
    }))
}

fn make_one(
    name: &str,
    lookup: Option<&Arc<dyn Lookup>>,
    configuration: Configuration<'_>,
) -> Result<Option<Box<dyn ReadyMade>>, ConfigError> {
    // Plugins that look up objects were given a cluster; the others never use this.
    let lookup = || -> Arc<dyn Lookup> {
        match lookup {
            Some(lookup) => Arc::clone(lookup),
            None => Arc::new(Memory::new()),
        }
    };
    Ok(Some(match name {
        "AlwaysPullImages" => Box::new(AlwaysPullImages),
        "CertificateSubjectRestriction" => Box::new(CertificateSubjectRestriction),
        "ClusterResourceOverride" => Box::new(ClusterResourceOverride::new(
            required(configuration, name)?,
            lookup(),
        )?),
        "DefaultIngressClass" => Box::new(DefaultIngressClass::new(lookup())),
        "DefaultStorageClass" => Box::new(DefaultStorageClass::new(lookup())),
        "DefaultTolerationSeconds" => Box::new(DefaultTolerationSeconds::default()),
        "DenyEscalatingExec" => Box::new(DenyEscalatingExec::new(lookup())),
        "DenyExecOnPrivileged" => Box::new(DenyEscalatingExec::on_privileged(lookup())),
        "DenyServiceExternalIPs" => Box::new(DenyServiceExternalIPs),
        "EventRateLimit" => {
            let limit: EventRateLimit =
                in_tree::event_rate_limit(configuration, Arc::new(SystemClock))?;
            Box::new(limit)
        }
        "ExtendedResourceToleration" => Box::new(ExtendedResourceToleration),
        "ExternalIPRanger" => {
            let config = optional(configuration, name)?.unwrap_or_default();
            Box::new(ExternalIPRanger::new(&config)?)
        }
        "ImagePolicyWebhook" => Box::new(image_policy(configuration)?),
        "LimitPodHardAntiAffinityTopology" => Box::new(LimitPodHardAntiAffinityTopology),
        "LimitRanger" => Box::new(LimitRanger::new(lookup())),
        "NamespaceExists" => Box::new(NamespaceExists::new(lookup())),
        "NamespaceProtection" => Box::new(match optional(configuration, name)? {
            Some(config) => NamespaceProtection::new(config),
            None => NamespaceProtection::default(),
        }),
        "NodeDeclaredFeatureValidator" => Box::new(NodeDeclaredFeatureValidator::new(lookup())),
        "PersistentVolumeClaimResize" => Box::new(PersistentVolumeClaimResize::new(lookup())),
        "PodNodeSelector" => {
            let selector: PodNodeSelector = in_tree::pod_node_selector(configuration, lookup())?;
            Box::new(selector)
        }
        "PodPreset" => Box::new(PodPreset::new(lookup())),
        "PodResizeValidator" => Box::new(PodResizeValidator::new(lookup())),
        "PodSecurity" => {
            let security: PodSecurity = in_tree::pod_security(configuration, lookup())?;
            Box::new(security)
        }
        "PodTolerationRestriction" => {
            let restriction: PodTolerationRestriction =
                in_tree::pod_toleration_restriction(configuration, lookup())?;
            Box::new(restriction)
        }
        "PodTopologyLabels" => Box::new(PodTopologyLabels::new(lookup())),
        "Priority" => Box::new(Priority::new(lookup())),
        "RunOnceDuration" => Box::new(RunOnceDuration::new(
            optional(configuration, name)?.unwrap_or_default(),
            lookup(),
        )),
        "RuntimeClass" => Box::new(RuntimeClass::new(lookup())),
        "ServiceAccount" => Box::new(ServiceAccount::new(lookup())),
        "SidecarInjector" => Box::new(SidecarInjector::new(required(configuration, name)?)?),
        "StorageObjectInUseProtection" => Box::new(StorageObjectInUseProtection),
        "TaintNodesByCondition" => Box::new(TaintNodesByCondition),
        _ => return Ok(None),
    }))
}

fn optional<T: DeserializeOwned>(
    configuration: Configuration<'_>,
    name: &str,
) -> Result<Option<T>, ConfigError> {
    let part = configuration.part(name)?;
    part.map(|text| config::read(&text)).transpose()
}

fn required<T: DeserializeOwned>(
    configuration: Configuration<'_>,
    name: &str,
) -> Result<T, ConfigError> {
    let found = optional(configuration, name)?;
    found.ok_or_else(|| ConfigError(String::from("no config specified")))
}

/// The backend is that of upstream's configuration, or a list of rules.
fn image_policy(configuration: Configuration<'_>) -> Result<ImagePolicy, ConfigError> {
    let part = configuration.part("ImagePolicyWebhook")?;
    let text = part.ok_or_else(|| ConfigError(String::from("no config specified")))?;
    let value: Value = config::read(&text)?;
    match value.get("imagePolicy") {
        Some(_) => in_tree::image_policy(configuration),
        None => image_rules(&text),
    }
}

fn image_rules(text: &str) -> Result<ImagePolicy, ConfigError> {
    let rules = ImageRules::new(config::read(text)?);
    ImagePolicy::new(&ImagePolicyConfiguration::default(), rules)
}
