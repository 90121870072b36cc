//! What is registered for a webhook.

use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::registration::hub::{self, MatchCondition, Rule};

/// Whether a webhook may change objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It may.
    Mutating,
    /// It may not, and sees them as they will be stored.
    Validating,
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
    let verb = match role {
        Role::Mutating => "mutate",
        Role::Validating => "validate",
    };
    let (group, kind) = (group.replace('.', "-"), kind.to_lowercase());
    format!("/{verb}-{group}-{version}-{kind}")
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
