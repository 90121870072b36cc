//! What is registered for a webhook.

use std::collections::BTreeMap;

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::registration::hub::{self, MatchCondition, Rule, ServiceReference};

/// Whether a webhook may change objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It may.
    Mutating,
    /// It may not, and sees them as they will be stored.
    Validating,
}

impl Role {
    /// What it does, as paths say it.
    fn verb(self) -> &'static str {
        match self {
            Self::Mutating => "mutate",
            Self::Validating => "validate",
        }
    }
}

/// One webhook as it is registered, except for where it is served: the same webhook is reached
/// through a service in one place and through a URL in another.
///
/// ```
/// use lockgate_webhook::{Operation, Registration};
///
/// let registration = Registration::validating("pods.policy.example.com")
///     .path("/validate-pods")
///     .rule(&[Operation::Create], &[""], &["v1"], &["pods"])
///     .timeout_seconds(5);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// Whether it may change objects.
    pub role: Role,
    /// Where it is served.
    pub path: String,
    /// Where it is served besides.
    pub aliases: Vec<String>,
    /// Everything else. `client_config` is left empty but for what is true wherever the webhook runs.
    pub webhook: hub::Webhook,
}

impl Registration {
    /// A webhook that may change objects.
    #[must_use]
    pub fn mutating(name: impl Into<String>) -> Self {
        Self::new(Role::Mutating, name.into())
    }

    /// A webhook that may not change objects.
    #[must_use]
    pub fn validating(name: impl Into<String>) -> Self {
        Self::new(Role::Validating, name.into())
    }

    fn new(role: Role, name: String) -> Self {
        Self {
            role,
            path: String::from("/"),
            aliases: Vec::new(),
            webhook: hub::Webhook {
                name,
                failure_policy: Some(String::from("Fail")),
                side_effects: Some(String::from("None")),
                admission_review_versions: Some(vec![String::from("v1")]),
                ..hub::Webhook::default()
            },
        }
    }

    /// Where it is served.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Where it is served besides.
    #[must_use]
    pub fn alias(mut self, path: impl Into<String>) -> Self {
        self.aliases.push(path.into());
        self
    }

    /// A fixed URL, whatever the manifests are made for. It is served at the path of the URL.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        let url = url.into();
        let host = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        self.path = match host.split_once('/') {
            Some((_, path)) => format!("/{path}"),
            None => String::from("/"),
        };
        self.webhook.client_config.url = Some(url);
        self
    }

    /// The name of the service that reaches it, where it is not that of the other webhooks.
    #[must_use]
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service().name = name.into();
        self
    }

    /// The namespace of that service.
    #[must_use]
    pub fn service_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.service().namespace = namespace.into();
        self
    }

    /// The port of that service.
    #[must_use]
    pub fn service_port(mut self, port: i32) -> Self {
        self.service().port = Some(port);
        self
    }

    fn service(&mut self) -> &mut ServiceReference {
        self.webhook.client_config.service.get_or_insert_default()
    }

    /// One more rule: these operations on these resources.
    #[must_use]
    pub fn rule(
        mut self,
        operations: &[crate::Operation],
        groups: &[&str],
        versions: &[&str],
        resources: &[&str],
    ) -> Self {
        let owned = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
        let rule = Rule {
            operations: Some(operations.iter().map(ToString::to_string).collect()),
            api_groups: owned(groups),
            api_versions: owned(versions),
            resources: owned(resources),
            scope: None,
        };
        self.webhook.rules.get_or_insert_default().push(rule);
        self
    }

    /// `Cluster`, `Namespaced` or `*`, of every rule so far.
    #[must_use]
    pub fn scope(mut self, scope: &str) -> Self {
        for rule in self.webhook.rules.iter_mut().flatten() {
            rule.scope = Some(scope.to_owned());
        }
        self
    }

    /// `Fail` (the default here) or `Ignore`.
    #[must_use]
    pub fn failure_policy(mut self, policy: impl Into<String>) -> Self {
        self.webhook.failure_policy = Some(policy.into());
        self
    }

    /// `Equivalent` or `Exact`.
    #[must_use]
    pub fn match_policy(mut self, policy: impl Into<String>) -> Self {
        self.webhook.match_policy = Some(policy.into());
        self
    }

    /// `None` (the default here) or `NoneOnDryRun`.
    #[must_use]
    pub fn side_effects(mut self, class: impl Into<String>) -> Self {
        self.webhook.side_effects = Some(class.into());
        self
    }

    /// `Never` or `IfNeeded`, of a mutating webhook.
    #[must_use]
    pub fn reinvocation_policy(mut self, policy: impl Into<String>) -> Self {
        self.webhook.reinvocation_policy = Some(policy.into());
        self
    }

    /// How long the API server waits, from 1 to 30.
    #[must_use]
    pub fn timeout_seconds(mut self, seconds: i32) -> Self {
        self.webhook.timeout_seconds = Some(seconds);
        self
    }

    /// The versions of reviews it reads. This framework reads `v1` and `v1beta1`.
    #[must_use]
    pub fn admission_review_versions(mut self, versions: &[&str]) -> Self {
        let versions = versions.iter().map(|&version| version.to_owned());
        self.webhook.admission_review_versions = Some(versions.collect());
        self
    }

    /// Only objects in namespaces with such labels.
    #[must_use]
    pub fn namespace_selector(mut self, selector: LabelSelector) -> Self {
        self.webhook.namespace_selector = Some(selector);
        self
    }

    /// Only objects with such labels.
    #[must_use]
    pub fn object_selector(mut self, selector: LabelSelector) -> Self {
        self.webhook.object_selector = Some(selector);
        self
    }

    /// Only requests for which this CEL expression is true, as those before it.
    #[must_use]
    pub fn match_condition(
        mut self,
        name: impl Into<String>,
        expression: impl Into<String>,
    ) -> Self {
        let condition = MatchCondition {
            name: name.into(),
            expression: expression.into(),
        };
        let conditions = &mut self.webhook.match_conditions;
        conditions.get_or_insert_default().push(condition);
        self
    }

    /// The name, unique among the webhooks of a configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.webhook.name
    }
}

/// Where kubebuilder serves the webhook of a kind.
///
/// ```
/// use lockgate_webhook::{Role, default_path};
///
/// let path = default_path(Role::Mutating, "batch.tutorial.kubebuilder.io", "v1", "CronJob");
/// assert_eq!(path, "/mutate-batch-tutorial-kubebuilder-io-v1-cronjob");
/// ```
#[must_use]
pub fn default_path(role: Role, group: &str, version: &str, kind: &str) -> String {
    let verb = role.verb();
    let (group, kind) = (group.replace('.', "-"), kind.to_lowercase());
    format!("/{verb}-{group}-{version}-{kind}")
}

/// Where a webhook is served for people: `/validate-pod`.
#[must_use]
pub fn logical_path(role: Role, kind: &str) -> String {
    format!("/{}-{}", role.verb(), kind.to_lowercase())
}

/// A type whose registration stands beside its code; the attribute `#[webhook(…)]` writes it.
/// `As` is [`Mutates<K>`] or [`Validates<K>`], so that one type can be several webhooks.
pub trait Marked<As> {
    /// What to register.
    fn registration() -> Registration;
}

/// Marks the mutating webhook of a kind.
#[derive(Debug)]
pub struct Mutates<K>(std::marker::PhantomData<K>);

/// Marks the validating webhook of a kind.
#[derive(Debug)]
pub struct Validates<K>(std::marker::PhantomData<K>);

/// A selector from its parts: labels and their values; keys, operators and values.
#[must_use]
pub fn selector(labels: &[(&str, &str)], expressions: &[(&str, &str, &[&str])]) -> LabelSelector {
    let owned = |texts: &[&str]| {
        texts
            .iter()
            .map(|&text| text.to_owned())
            .collect::<Vec<_>>()
    };
    let labels = labels
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()));
    let expressions = expressions
        .iter()
        .map(|&(key, operator, values)| LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then(|| owned(values)),
        });
    LabelSelector {
        match_labels: Some(labels.collect()).filter(|labels: &BTreeMap<_, _>| !labels.is_empty()),
        match_expressions: Some(expressions.collect()).filter(|all: &Vec<_>| !all.is_empty()),
    }
}

/// What the type of an object says of itself.
#[cfg(feature = "kube")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// The API group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The name of the kind.
    pub kind: String,
    /// The name of the resource.
    pub plural: String,
    /// `Cluster`, `Namespaced` or `*`.
    pub scope: &'static str,
}

#[cfg(feature = "kube")]
impl Kind {
    /// Where kubebuilder serves the webhook.
    #[must_use]
    pub fn path(&self, role: Role) -> String {
        default_path(role, &self.group, &self.version, &self.kind)
    }

    /// Where it is served for people.
    #[must_use]
    pub fn logical_path(&self, role: Role) -> String {
        logical_path(role, &self.kind)
    }
}

/// What a type says of itself.
#[cfg(feature = "kube")]
#[must_use]
pub fn kind_of<K>() -> Kind
where
    K: kube_core::Resource<DynamicType = (), Scope: Scoped>,
{
    Kind {
        group: K::group(&()).into_owned(),
        version: K::version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        plural: K::plural(&()).into_owned(),
        scope: K::Scope::NAME,
    }
}

/// The scope of a resource, as a rule names it.
#[cfg(feature = "kube")]
pub trait Scoped {
    /// The name.
    const NAME: &'static str;
}

#[cfg(feature = "kube")]
impl Scoped for kube_core::NamespaceResourceScope {
    const NAME: &'static str = "Namespaced";
}

#[cfg(feature = "kube")]
impl Scoped for kube_core::ClusterResourceScope {
    const NAME: &'static str = "Cluster";
}

#[cfg(feature = "kube")]
impl Scoped for kube_core::DynamicResourceScope {
    const NAME: &'static str = "*";
}
