//! Ready-made admission plugins.
//!
//! Each plugin is a small type with its rules, written on the framework of `lockgate-webhook`. It is
//! served as a webhook, or run in process by the engine of `lockgate-admission`:
//!
//! ```text
//!                          ┌─ served(&[…]) ──► Webhooks ──► a server of lockgate-webhook
//!   ReadyMade (a plugin) ──┤
//!                          └─ in_process(…) ─► a Plugin of lockgate-admission's engine
//! ```
//!
//! Objects are untyped: nothing that a newer API server knows is lost on the way. What a decision
//! depends on besides the object is looked up through [`Lookup`].
//!
//! ```
//! use lockgate_plugins::lookup::Memory;
//! use lockgate_plugins::{AlwaysPullImages, LimitRanger, served};
//!
//! let limits = LimitRanger::new(Memory::new());
//! let webhooks = served(&[&AlwaysPullImages, &limits], &["kube-system", "lockgate-plugins"]);
//! assert!(webhooks.at("/limit-ranger/mutate").is_some());
//! assert!(webhooks.at("/always-pull-images/validate").is_some());
//! ```
//!
//! A plugin that bears the name of one in Kubernetes decides as that one does in v1.36, or in the last
//! version that had it, and says it in the same words. `docs/plugins.md` has the list, the
//! configuration of each, and where they differ.

#![warn(missing_docs)]

// What a plugin is, and how it is run.
mod in_process;
mod ready;

// What plugins need.
mod amounts;
pub mod config;
mod fields;
pub mod lookup;
mod lru;
mod selector;
mod texts;

// Plugins for pods.
mod always_pull_images;
pub mod cluster_resource_override;
mod default_toleration_seconds;
mod deny_escalating_exec;
pub mod image_policy;
mod limit_pod_hard_anti_affinity;
mod limit_ranger;
pub mod pod_node_selector;
mod pod_preset;
pub mod pod_toleration_restriction;
pub mod run_once_duration;
mod service_account;
pub mod sidecar_injector;

// Plugins for other objects.
pub mod event_rate_limit;
pub mod external_ips;
pub mod namespace_protection;
mod storage;

pub use always_pull_images::AlwaysPullImages;
pub use cluster_resource_override::ClusterResourceOverride;
pub use default_toleration_seconds::DefaultTolerationSeconds;
pub use deny_escalating_exec::DenyEscalatingExec;
pub use event_rate_limit::EventRateLimit;
pub use external_ips::{DenyServiceExternalIPs, ExternalIPRanger};
pub use image_policy::ImagePolicy;
pub use in_process::{InProcess, in_process};
pub use limit_pod_hard_anti_affinity::LimitPodHardAntiAffinityTopology;
pub use limit_ranger::LimitRanger;
pub use lookup::Lookup;
pub use namespace_protection::NamespaceProtection;
pub use pod_node_selector::PodNodeSelector;
pub use pod_preset::PodPreset;
pub use pod_toleration_restriction::PodTolerationRestriction;
pub use ready::{Hook, ReadyMade, served};
pub use run_once_duration::RunOnceDuration;
pub use selector::{Expression, Labels};
pub use service_account::ServiceAccount;
pub use sidecar_injector::SidecarInjector;
pub use storage::{DefaultStorageClass, PersistentVolumeClaimResize};
