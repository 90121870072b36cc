//! The built-in order of plugins, and the lists that enable and disable them.
//!
//! UPSTREAM: kubernetes pkg/kubeapiserver/options/plugins.go

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use lockgate_go::quote::quote;

use crate::plugin::Plugin;

/// The plugins of an API server, in the order they run. A host may lack some of them; their names are valid
/// nevertheless.
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

/// Plugins that are not in the list run before this one: webhooks see their changes.
const FIRST_OF_THE_LAST: &str = "MutatingAdmissionPolicy";

/// Plugins that are disabled by default.
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

/// Invalid lists of plugins, with all errors.
///
/// UPSTREAM: apiserver pkg/server/options/admission.go (Validate); errors are aggregated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginError(Vec<ListError>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ListError {
    /// A plugin to be enabled is unknown.
    UnknownEnabled(String),
    /// A plugin to be disabled is unknown.
    UnknownDisabled(String),
    /// Plugins are both enabled and disabled.
    Overlap(Vec<String>),
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownEnabled(name) => {
                write!(
                    f,
                    "enable-admission-plugins plugin {} is unknown",
                    quote(name)
                )
            }
            Self::UnknownDisabled(name) => {
                write!(
                    f,
                    "disable-admission-plugins plugin {} is unknown",
                    quote(name)
                )
            }
            Self::Overlap(names) => write!(
                f,
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                names.join(" ")
            ),
        }
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => one.fmt(f),
            many => {
                let many: Vec<String> = many.iter().map(ListError::to_string).collect();
                write!(f, "[{}]", many.join(", "))
            }
        }
    }
}

impl std::error::Error for PluginError {}

/// The enabled plugins: the defaults, and the lists of enabled and disabled plugins.
#[derive(Debug, Clone, Default)]
pub struct Switches {
    enabled: Vec<String>,
    disabled: Vec<String>,
}

impl Switches {
    /// Enables and disables plugins by name.
    #[must_use]
    pub fn new(enabled: &[String], disabled: &[String]) -> Self {
        Self {
            enabled: enabled.to_vec(),
            disabled: disabled.to_vec(),
        }
    }

    /// Returns true if the plugin is enabled.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        let has = |list: &[String]| list.iter().any(|listed| listed == name);
        has(&self.enabled) || !has(&self.disabled) && !OFF_BY_DEFAULT.contains(&name)
    }

    /// Validates the lists.
    ///
    /// # Errors
    ///
    /// Fails if a name is unknown, or on both lists.
    pub fn check<'n>(&self, others: impl IntoIterator<Item = &'n str>) -> Result<(), PluginError> {
        let others: BTreeSet<&str> = others.into_iter().collect();
        let is_unknown = |name: &&String| {
            // Some programs pass an empty list as a list with one empty name.
            !name.is_empty() && !ORDER.contains(&name.as_str()) && !others.contains(name.as_str())
        };
        let on = self.enabled.iter().filter(is_unknown).cloned();
        let off = self.disabled.iter().filter(is_unknown).cloned();
        let mut mistakes: Vec<ListError> = on.map(ListError::UnknownEnabled).collect();
        mistakes.extend(off.map(ListError::UnknownDisabled));
        let enabled: BTreeSet<&String> = self.enabled.iter().collect();
        let disabled: BTreeSet<&String> = self.disabled.iter().collect();
        let both: Vec<String> = enabled
            .intersection(&disabled)
            .filter(|name| !name.is_empty())
            .map(|name| (*name).clone())
            .collect();
        if !both.is_empty() {
            mistakes.push(ListError::Overlap(both));
        }
        if mistakes.is_empty() {
            return Ok(());
        }
        Err(PluginError(mistakes))
    }
}

/// Returns true if the plugin is enabled unless it is disabled by name.
#[must_use]
pub fn is_on_by_default(name: &str) -> bool {
    !OFF_BY_DEFAULT.contains(&name)
}

/// The known plugins, and the lists that enable and disable them.
#[derive(Default)]
pub(crate) struct Plugins {
    known: Vec<Arc<dyn Plugin>>,
    switches: Switches,
}

impl Plugins {
    pub(crate) fn add(&mut self, plugin: Arc<dyn Plugin>) {
        self.known.push(plugin);
    }

    pub(crate) fn enable<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        let names = names.into_iter().map(str::to_owned);
        self.switches.enabled.extend(names);
    }

    pub(crate) fn disable<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        let names = names.into_iter().map(str::to_owned);
        self.switches.disabled.extend(names);
    }

    /// The enabled plugins, in order.
    pub(crate) fn ordered(self) -> Result<Vec<Arc<dyn Plugin>>, PluginError> {
        self.switches
            .check(self.known.iter().map(|plugin| plugin.name()))?;
        let mut plugins = self.known;
        plugins.retain(|plugin| self.switches.is_on(plugin.name()));
        plugins.sort_by_key(|plugin| place(plugin.name()));
        Ok(plugins)
    }
}

/// The position of a plugin. Plugins that are not in the list keep their insertion order.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::host::Host;
    use crate::request::Operation;
    use crate::testing::NoCaller;

    struct Named(&'static str);

    impl Plugin for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn handles(&self, _: Operation) -> bool {
            true
        }
    }

    fn engine(enable: &[&str], disable: &[&str]) -> Result<Vec<&'static str>, PluginError> {
        let mut builder = Engine::builder(Host::new(Arc::new(NoCaller)));
        for name in [
            "OfMyOwn",
            "DefaultTolerationSeconds",
            "AlwaysPullImages",
            "NamespaceLifecycle",
            "ResourceQuota",
        ] {
            builder = builder.plugin(Named(name));
        }
        let engine = builder
            .enable(enable.iter().copied())
            .disable(disable.iter().copied())
            .build();
        Ok(engine?.plugins().collect())
    }

    #[test]
    fn plugins_run_in_the_built_in_order() {
        let of_the_engine = [
            "MutatingAdmissionPolicy",
            "MutatingAdmissionWebhook",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionWebhook",
        ];
        let with = |first: &[&'static str], last: &[&'static str]| {
            let mut names = first.to_vec();
            names.extend(of_the_engine);
            names.extend(last);
            Ok(names)
        };
        let (lifecycle, pull, tolerations, own, quota) = (
            "NamespaceLifecycle",
            "AlwaysPullImages",
            "DefaultTolerationSeconds",
            "OfMyOwn",
            "ResourceQuota",
        );
        let by_default = with(&[lifecycle, tolerations, own], &[quota]);
        assert_eq!(engine(&[], &[]), by_default);
        assert_eq!(engine(&[""], &[""]), by_default);
        assert_eq!(
            engine(&[pull, pull], &[]),
            with(&[lifecycle, pull, tolerations, own], &[quota])
        );
        assert_eq!(
            engine(&[tolerations], &[lifecycle, own]),
            with(&[tolerations], &[quota])
        );
        // A known plugin without an implementation here.
        assert_eq!(engine(&["NodeRestriction"], &["PodSecurity"]), by_default);
    }

    #[test]
    fn says_everything_that_is_wrong_with_the_lists() {
        for (enable, disable, want) in [
            (
                &["Odd"][..],
                &[][..],
                "enable-admission-plugins plugin \"Odd\" is unknown",
            ),
            (
                &[],
                &["Odd"],
                "disable-admission-plugins plugin \"Odd\" is unknown",
            ),
            (
                &["Nope", "priority"],
                &["Never"],
                "[enable-admission-plugins plugin \"Nope\" is unknown, enable-admission-plugins \
                 plugin \"priority\" is unknown, disable-admission-plugins plugin \"Never\" is \
                 unknown]",
            ),
            (
                &["Priority", "AlwaysPullImages"],
                &["AlwaysPullImages", "Priority"],
                "[AlwaysPullImages Priority] in enable-admission-plugins and \
                 disable-admission-plugins overlapped",
            ),
        ] {
            assert_eq!(engine(enable, disable).unwrap_err().to_string(), want);
        }
    }
}
