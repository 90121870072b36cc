//! The order plugins run in, which is built in, and which of them run, which is not.
//!
//! UPSTREAM: kubernetes pkg/kubeapiserver/options/plugins.go

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::plugin::Plugin;

/// The plugins of an API server, in the order they run. Those nobody provides are passed over.
pub const ORDER: [&str; 41] = [
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceLifecycle",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodSecurity",
    "PodNodeSelector",
    "Priority",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "PodTopologyLabels",
    "PodGroupWorkloadExists",
    "NodeDeclaredFeatureValidator",
    "JobValidation",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
    "AlwaysDeny",
];

/// Plugins that are not in the list run before this one: webhooks see what they did.
const FIRST_OF_THE_LAST: &str = "MutatingAdmissionPolicy";

/// Plugins that run only when they are switched on.
const OFF_BY_DEFAULT: [&str; 14] = [
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "NodeRestriction",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "OwnerReferencesPermissionEnforcement",
    "DenyServiceExternalIPs",
    "AlwaysDeny",
];

/// A list of plugins that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// A plugin to be switched on is unknown.
    #[error("enable-admission-plugins plugin {0:?} is unknown")]
    UnknownEnabled(String),
    /// A plugin to be switched off is unknown.
    #[error("disable-admission-plugins plugin {0:?} is unknown")]
    UnknownDisabled(String),
    /// Plugins are to be switched on and off at once.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", .0.join(" "))]
    Overlap(Vec<String>),
}

/// The plugins there are, and the lists that switch them.
#[derive(Default)]
pub(crate) struct Plugins {
    known: Vec<Arc<dyn Plugin>>,
    enabled: BTreeSet<String>,
    disabled: BTreeSet<String>,
}

impl Plugins {
    pub(crate) fn add(&mut self, plugin: Arc<dyn Plugin>) {
        self.known.push(plugin);
    }

    pub(crate) fn enable<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.enabled.extend(names.into_iter().map(str::to_owned));
    }

    pub(crate) fn disable<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.disabled.extend(names.into_iter().map(str::to_owned));
    }

    /// The plugins that run, in order.
    pub(crate) fn ordered(self) -> Result<Vec<Arc<dyn Plugin>>, PluginError> {
        let is_known = |name: &String| self.known.iter().any(|plugin| plugin.name() == name);
        if let Some(name) = self.enabled.iter().find(|name| !is_known(name)) {
            return Err(PluginError::UnknownEnabled(name.clone()));
        }
        if let Some(name) = self.disabled.iter().find(|name| !is_known(name)) {
            return Err(PluginError::UnknownDisabled(name.clone()));
        }
        let both: Vec<String> = self.enabled.intersection(&self.disabled).cloned().collect();
        if !both.is_empty() {
            return Err(PluginError::Overlap(both));
        }
        let runs = |name: &str| {
            let is_on = !OFF_BY_DEFAULT.contains(&name) || self.enabled.contains(name);
            is_on && !self.disabled.contains(name)
        };
        let mut plugins = self.known;
        plugins.retain(|plugin| runs(plugin.name()));
        plugins.sort_by_key(|plugin| place(plugin.name()));
        Ok(plugins)
    }
}

/// Where a plugin stands. Those that are not in the list keep the order they were added in.
fn place(name: &str) -> (usize, bool) {
    let find = |name: &str| ORDER.iter().position(|known| *known == name);
    match find(name) {
        Some(place) => (place, true),
        None => (find(FIRST_OF_THE_LAST).unwrap_or(ORDER.len()), false),
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.known.iter().map(|plugin| plugin.name()))
            .finish()
    }
}
