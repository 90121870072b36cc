//! Admission plugins: those of kube-apiserver v1.36, and further ones.
//!
//! Each plugin is a small type with its [`Rules`]. The engine of `lockgate-admission` runs them in
//! process, as Lockgate's API server does, or they are served as webhooks to any cluster:
//!
//! ```text
//!                      ┌─ InTree(…) ─────► a Plugin of lockgate-admission's engine
//!   Rules (a plugin) ──┤
//!                      └─ served(&[…]) ──► Webhooks ──► a server of lockgate-webhook
//! ```
//!
//! Objects are untyped: fields of newer API servers are preserved. Other objects that a decision depends on are read
//! through [`Lookup`]. [`in_tree`] creates all plugins of kube-apiserver from their configuration.
//!
//! ```
//! # #[cfg(feature = "webhook")] {
//! use lockgate_plugins::lookup::Memory;
//! use lockgate_plugins::{AlwaysPullImages, LimitRanger, served};
//!
//! let limits = LimitRanger::new(Memory::new());
//! let webhooks = served(&[&AlwaysPullImages, &limits], &["kube-system", "lockgate-plugins"]);
//! assert!(webhooks.at("/limit-ranger/mutate").is_some());
//! assert!(webhooks.at("/always-pull-images/validate").is_some());
//! # }
//! ```
//!
//! A plugin with the name of one in Kubernetes has its decisions and messages in v1.36, or in the last version that had
//! it. `docs/plugins.md` has the list, the configuration of each, and the differences.

#![warn(missing_docs)]

// The rules of a plugin.
pub mod rules;

// Helpers of plugins.
mod access;
mod amounts;
pub mod config;
mod fields;
pub mod lookup;
mod lru;
mod selector;
mod texts;
mod tolerations;

// Plugins for pods.
mod always_pull_images;
mod default_toleration_seconds;
mod deny_escalating_exec;
mod extended_resource_toleration;
pub mod image_policy;
mod limit_pod_hard_anti_affinity;
mod limit_ranger;
pub mod pod_node_selector;
mod pod_preset;
mod pod_resize;
pub mod pod_security;
pub mod pod_toleration_restriction;
mod priority;
pub mod run_once_duration;
mod runtime_class;
mod service_account;
pub mod sidecar_injector;

// Plugins composed of others.
pub mod cluster_resource_override;

// Plugins for other objects.
mod always;
mod certificates;
pub mod event_rate_limit;
pub mod external_ips;
mod ingress_class;
mod namespace_lifecycle;
pub mod namespace_protection;
mod namespaces;
mod node_restriction;
mod nodes;
mod owner_references;
mod pod_group;
pub mod quota;
mod storage;

// All plugins of kube-apiserver.
pub mod in_tree;

// Plugins as webhooks, and webhooks as plugins.
#[cfg(feature = "webhook")]
mod in_process;
#[cfg(feature = "webhook")]
mod webhooks;

// The plugins that are served as webhooks, by name.
#[cfg(feature = "webhook")]
pub mod catalogue;

pub use always::{AlwaysAdmit, AlwaysDeny};
pub use always_pull_images::AlwaysPullImages;
pub use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
};
pub use cluster_resource_override::ClusterResourceOverride;
pub use default_toleration_seconds::DefaultTolerationSeconds;
pub use deny_escalating_exec::DenyEscalatingExec;
pub use event_rate_limit::EventRateLimit;
pub use extended_resource_toleration::ExtendedResourceToleration;
pub use external_ips::{DenyServiceExternalIPs, ExternalIPRanger};
pub use image_policy::ImagePolicy;
#[cfg(feature = "webhook")]
pub use in_process::InProcess;
pub use ingress_class::DefaultIngressClass;
pub use limit_pod_hard_anti_affinity::LimitPodHardAntiAffinityTopology;
pub use limit_ranger::LimitRanger;
pub use lookup::Lookup;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use namespace_protection::NamespaceProtection;
pub use namespaces::{NamespaceAutoProvision, NamespaceExists};
pub use node_restriction::NodeRestriction;
pub use nodes::{PodTopologyLabels, TaintNodesByCondition};
pub use owner_references::{Mapper, Mapping, OwnerReferencesPermissionEnforcement};
pub use pod_group::{JobValidation, PodGroupProtection, PodGroupWorkloadExists};
pub use pod_node_selector::PodNodeSelector;
pub use pod_preset::PodPreset;
pub use pod_resize::{NodeDeclaredFeatureValidator, PodResizeValidator};
pub use pod_security::PodSecurity;
pub use pod_toleration_restriction::PodTolerationRestriction;
pub use priority::Priority;
pub use quota::ResourceQuota;
pub use rules::{InTree, Rules};
pub use run_once_duration::RunOnceDuration;
pub use runtime_class::RuntimeClass;
pub use selector::{Expression, Labels};
pub use service_account::ServiceAccount;
pub use sidecar_injector::SidecarInjector;
pub use storage::{DefaultStorageClass, PersistentVolumeClaimResize, StorageObjectInUseProtection};
#[cfg(feature = "webhook")]
pub use webhooks::{Hook, ReadyMade, served};
