//! The hub type for conversion between versions of the registration API.
//!
//! A hub object can hold any client input: enumerations are strings until validation, and absent lists differ from
//! empty ones, because the API distinguishes them.

use crate::decode::Bytes;
use crate::meta::label_selector::LabelSelector;
use crate::meta::object::ObjectMeta;

/// A version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// `v1`
    V1,
    /// `v1beta1`
    V1beta1,
}

impl Version {
    /// The version in `apiVersion`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// The `apiVersion` of the group in this version.
    #[must_use]
    pub fn api_version(self) -> String {
        format!("{}/{}", super::GROUP, self.name())
    }
}

/// The kind of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConfigurationKind {
    /// `ValidatingWebhookConfiguration`
    Validating,
    /// `MutatingWebhookConfiguration`
    Mutating,
}

impl ConfigurationKind {
    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The plural resource name.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Validating => "validatingwebhookconfigurations",
            Self::Mutating => "mutatingwebhookconfigurations",
        }
    }
}

/// A webhook configuration of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Validating or mutating.
    pub kind: ConfigurationKind,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The webhooks; mutating ones are called in this order.
    pub webhooks: Option<Vec<Webhook>>,
}

impl Configuration {
    /// The webhooks; empty if the list is absent.
    #[must_use]
    pub fn webhooks(&self) -> &[Webhook] {
        self.webhooks.as_deref().unwrap_or_default()
    }
}

/// A webhook: its client config and the requests to match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Webhook {
    /// A domain name with at least three segments.
    pub name: String,
    /// The URL or service.
    pub client_config: ClientConfig,
    /// The requests to match; none without rules.
    pub rules: Option<Vec<Rule>>,
    /// `Fail` or `Ignore`: how errors of calls are handled.
    pub failure_policy: Option<String>,
    /// `Exact` or `Equivalent`: whether equivalent resources in other versions match.
    pub match_policy: Option<String>,
    /// The namespaces to match.
    pub namespace_selector: Option<LabelSelector>,
    /// The objects to match.
    pub object_selector: Option<LabelSelector>,
    /// The side effects of a call.
    pub side_effects: Option<String>,
    /// The timeout of a call.
    pub timeout_seconds: Option<i32>,
    /// The supported `AdmissionReview` versions, in order of preference.
    pub admission_review_versions: Option<Vec<String>>,
    /// `Never` or `IfNeeded`; mutating webhooks only.
    pub reinvocation_policy: Option<String>,
    /// CEL conditions, all of which must be true.
    pub match_conditions: Option<Vec<MatchCondition>>,
}

/// The URL or service of a webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// A URL.
    pub url: Option<String>,
    /// A Service in the cluster.
    pub service: Option<ServiceReference>,
    /// The PEM-encoded CA bundle.
    pub ca_bundle: Option<Bytes>,
}

/// The Service of a webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceReference {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
    /// The URL path of requests.
    pub path: Option<String>,
    /// The port of the Service.
    pub port: Option<i32>,
}

/// The requests to match. All five fields must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `*`.
    pub operations: Option<Vec<String>>,
    /// API groups; the core group is the empty string.
    pub api_groups: Option<Vec<String>>,
    /// API versions.
    pub api_versions: Option<Vec<String>>,
    /// Resources, optionally with a subresource after a slash.
    pub resources: Option<Vec<String>>,
    /// `Cluster`, `Namespaced` or `*`.
    pub scope: Option<String>,
}

/// A CEL condition for calling the webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MatchCondition {
    /// The name, for messages and metrics.
    pub name: String,
    /// The CEL expression.
    pub expression: String,
}

/// Implements the conversions between the hub and the wire types of the invoking module.
macro_rules! convert {
    ($version:ident) => {
        $crate::registration::hub::convert!(@both hub::MatchCondition, MatchCondition {
            name, expression
        });
        $crate::registration::hub::convert!(@both hub::ServiceReference, ServiceReference {
            namespace, name, path, port
        });
        $crate::registration::hub::convert!(@both hub::ClientConfig, WebhookClientConfig {
            url, ca_bundle; service
        });
        $crate::registration::hub::convert!(@webhook ValidatingWebhook {} {
            reinvocation_policy: None
        });
        $crate::registration::hub::convert!(@webhook MutatingWebhook { reinvocation_policy } {});
        $crate::registration::hub::convert!(
            @configuration $version, ValidatingWebhookConfiguration, Validating
        );
        $crate::registration::hub::convert!(
            @configuration $version, MutatingWebhookConfiguration, Mutating
        );
    };

    // Two structs with the same fields; those after the semicolon are converted recursively.
    (@both $hub:path, $wire:ident { $($same:ident),* $(; $($nested:ident),*)? }) => {
        impl From<$wire> for $hub {
            fn from(wire: $wire) -> Self {
                Self {
                    $($same: wire.$same,)*
                    $($($nested: wire.$nested.map(Into::into),)*)?
                }
            }
        }

        impl From<$hub> for $wire {
            fn from(hub: $hub) -> Self {
                Self {
                    $($same: hub.$same,)*
                    $($($nested: hub.$nested.map(Into::into),)*)?
                }
            }
        }
    };

    (@webhook $wire:ident { $($own:ident),* } { $($absent:ident: $value:expr),* }) => {
        impl From<$wire> for hub::Webhook {
            fn from(wire: $wire) -> Self {
                Self {
                    name: wire.name,
                    client_config: wire.client_config.into(),
                    rules: wire.rules.map(hub::convert_list),
                    failure_policy: wire.failure_policy,
                    match_policy: wire.match_policy,
                    namespace_selector: wire.namespace_selector,
                    object_selector: wire.object_selector,
                    side_effects: wire.side_effects,
                    timeout_seconds: wire.timeout_seconds,
                    admission_review_versions: wire.admission_review_versions,
                    match_conditions: wire.match_conditions.map(hub::convert_list),
                    $($own: wire.$own,)*
                    $($absent: $value,)*
                }
            }
        }

        impl From<hub::Webhook> for $wire {
            fn from(hub: hub::Webhook) -> Self {
                Self {
                    name: hub.name,
                    client_config: hub.client_config.into(),
                    rules: hub.rules.map(hub::convert_list),
                    failure_policy: hub.failure_policy,
                    match_policy: hub.match_policy,
                    namespace_selector: hub.namespace_selector,
                    object_selector: hub.object_selector,
                    side_effects: hub.side_effects,
                    timeout_seconds: hub.timeout_seconds,
                    admission_review_versions: hub.admission_review_versions,
                    match_conditions: hub.match_conditions.map(hub::convert_list),
                    $($own: hub.$own,)*
                }
            }
        }
    };

    (@configuration $version:ident, $wire:ident, $kind:ident) => {
        impl From<$wire> for hub::Configuration {
            fn from(wire: $wire) -> Self {
                Self {
                    kind: hub::ConfigurationKind::$kind,
                    metadata: wire.metadata,
                    webhooks: wire.webhooks.map(hub::convert_list),
                }
            }
        }

        impl From<hub::Configuration> for $wire {
            /// The caller must check the hub's kind: converting a configuration of the other kind only keeps the
            /// fields of this kind.
            fn from(hub: hub::Configuration) -> Self {
                Self {
                    kind: hub::ConfigurationKind::$kind.name().to_owned(),
                    api_version: concat!("admissionregistration.k8s.io/", stringify!($version))
                        .to_owned(),
                    metadata: hub.metadata,
                    webhooks: hub.webhooks.map(hub::convert_list),
                }
            }
        }
    };
}

pub(super) use convert;

pub(super) fn convert_list<T: Into<U>, U>(list: Vec<T>) -> Vec<U> {
    list.into_iter().map(Into::into).collect()
}
