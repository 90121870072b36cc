//! The registration of a webhook.

use std::collections::BTreeMap;

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::registration::hub::{self, MatchCondition, ServiceReference};

/// Mutating or validating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The webhook may change objects.
    Mutating,
    /// The webhook may only deny, and receives the final objects.
    Validating,
}

/// Declares a closed set of values of the registration API.
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }
    )+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$of])* $variant,)+
        }

        impl $name {
            /// The value in the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    )+};
}

words! {
    /// `failurePolicy`: the outcome of a request when the webhook fails.
    FailurePolicy {
        /// The request is denied. The default here.
        Fail = "Fail",
        /// The request continues as if the webhook had allowed it.
        Ignore = "Ignore",
    }

    /// `matchPolicy`: how rules match resources that are served in several versions.
    MatchPolicy {
        /// Only the groups and versions of the rules.
        Exact = "Exact",
        /// Other versions too; objects are converted. The API's default.
        Equivalent = "Equivalent",
    }

    /// `sideEffects`: the effects of a call besides its response.
    SideEffects {
        /// None. The default here.
        None = "None",
        /// Some, but not in a dry run.
        NoneOnDryRun = "NoneOnDryRun",
    }

    /// `reinvocationPolicy` of a mutating webhook.
    ReinvocationPolicy {
        /// Called once per request. The API's default.
        Never = "Never",
        /// Called again if a later plugin changed the object.
        IfNeeded = "IfNeeded",
    }

    /// `scope` of a rule.
    Scope {
        /// Only cluster-scoped resources, including Namespaces.
        Cluster = "Cluster",
        /// Namespaced resources only.
        Namespaced = "Namespaced",
        /// Both. The API's default.
        All = "*",
    }
}

/// One rule of a registration: operations on resources. By default, resources of the core group in version `v1`.
///
/// ```
/// use lockgate_webhook::{Operation, Rule, Scope};
///
/// let rule = Rule::resources(["deployments", "statefulsets"])
///     .groups(["apps"])
///     .operations([Operation::Create, Operation::Update])
///     .scope(Scope::Namespaced);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rule(hub::Rule);

impl Rule {
    /// Creates a rule for these resources; a subresource is written as `pods/status`.
    #[must_use]
    pub fn resources<T: Into<String>>(resources: impl IntoIterator<Item = T>) -> Self {
        Self(hub::Rule {
            operations: None,
            api_groups: Some(vec![String::new()]),
            api_versions: Some(vec![String::from("v1")]),
            resources: owned(resources),
            scope: None,
        })
    }

    /// Sets the API groups; the core group is empty, `*` means all.
    #[must_use]
    pub fn groups<T: Into<String>>(mut self, groups: impl IntoIterator<Item = T>) -> Self {
        self.0.api_groups = owned(groups);
        self
    }

    /// Sets the API versions; `*` means all.
    #[must_use]
    pub fn versions<T: Into<String>>(mut self, versions: impl IntoIterator<Item = T>) -> Self {
        self.0.api_versions = owned(versions);
        self
    }

    /// Sets the operations.
    #[must_use]
    pub fn operations(mut self, operations: impl IntoIterator<Item = crate::Operation>) -> Self {
        self.0.operations = owned(
            operations
                .into_iter()
                .map(|operation| operation.to_string()),
        );
        self
    }

    /// Sets all operations, including those of future API versions.
    #[must_use]
    pub fn all_operations(mut self) -> Self {
        self.0.operations = owned(["*"]);
        self
    }

    /// Sets the scope of the resources.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.0.scope = Some(scope.as_str().to_owned());
        self
    }
}

fn owned<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Option<Vec<String>> {
    Some(texts.into_iter().map(Into::into).collect())
}

impl Role {
    /// The verb in paths.
    fn verb(self) -> &'static str {
        match self {
            Self::Mutating => "mutate",
            Self::Validating => "validate",
        }
    }
}

/// The registration of one webhook, independent of its address: the same webhook may be called through a Service in one
/// cluster and through a URL in another.
///
/// ```
/// use lockgate_webhook::{FailurePolicy, Operation, Registration, Rule};
///
/// let registration = Registration::validating("pods.policy.example.com")
///     .path("/validate-pods")
///     .rule(Rule::resources(["pods"]).operations([Operation::Create]))
///     .failure_policy(FailurePolicy::Ignore)
///     .timeout_seconds(5);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// Mutating or validating.
    pub role: Role,
    /// The path.
    pub path: String,
    /// Additional paths.
    pub aliases: Vec<String>,
    /// All other fields. `client_config` contains only what is independent of the deployment.
    pub webhook: hub::Webhook,
}

impl Registration {
    /// Creates the registration of a mutating webhook.
    #[must_use]
    pub fn mutating(name: impl Into<String>) -> Self {
        Self::new(Role::Mutating, name.into())
    }

    /// Creates the registration of a validating webhook.
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

    /// Sets the path.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Adds an additional path.
    #[must_use]
    pub fn alias(mut self, path: impl Into<String>) -> Self {
        self.aliases.push(path.into());
        self
    }

    /// Sets a fixed URL, which overrides the manifest options. The webhook is served at the path of the URL.
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

    /// Sets a Service name, which overrides the manifest options.
    #[must_use]
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service().name = name.into();
        self
    }

    /// Sets the namespace of that Service.
    #[must_use]
    pub fn service_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.service().namespace = namespace.into();
        self
    }

    /// Sets the port of that Service.
    #[must_use]
    pub fn service_port(mut self, port: i32) -> Self {
        self.service().port = Some(port);
        self
    }

    fn service(&mut self) -> &mut ServiceReference {
        self.webhook.client_config.service.get_or_insert_default()
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.webhook.rules.get_or_insert_default().push(rule.0);
        self
    }

    /// Sets `failurePolicy`.
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.webhook.failure_policy = Some(policy.as_str().to_owned());
        self
    }

    /// Sets `matchPolicy`.
    #[must_use]
    pub fn match_policy(mut self, policy: MatchPolicy) -> Self {
        self.webhook.match_policy = Some(policy.as_str().to_owned());
        self
    }

    /// Sets `sideEffects`.
    #[must_use]
    pub fn side_effects(mut self, class: SideEffects) -> Self {
        self.webhook.side_effects = Some(class.as_str().to_owned());
        self
    }

    /// Sets `reinvocationPolicy` of a mutating webhook.
    #[must_use]
    pub fn reinvocation_policy(mut self, policy: ReinvocationPolicy) -> Self {
        self.webhook.reinvocation_policy = Some(policy.as_str().to_owned());
        self
    }

    /// Sets the timeout of a call, from 1 to 30 seconds.
    #[must_use]
    pub fn timeout_seconds(mut self, seconds: i32) -> Self {
        self.webhook.timeout_seconds = Some(seconds);
        self
    }

    /// Sets the supported review versions. This framework supports `v1` and `v1beta1`.
    #[must_use]
    pub fn admission_review_versions(mut self, versions: &[&str]) -> Self {
        let versions = versions.iter().map(|&version| version.to_owned());
        self.webhook.admission_review_versions = Some(versions.collect());
        self
    }

    /// Restricts the webhook to objects in namespaces with matching labels.
    #[must_use]
    pub fn namespace_selector(mut self, selector: LabelSelector) -> Self {
        self.webhook.namespace_selector = Some(selector);
        self
    }

    /// Restricts the webhook to objects with matching labels.
    #[must_use]
    pub fn object_selector(mut self, selector: LabelSelector) -> Self {
        self.webhook.object_selector = Some(selector);
        self
    }

    /// Adds a match condition: a CEL expression that must be true.
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

/// The path at which kubebuilder serves the webhook of a kind.
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

/// The short path of a webhook: `/validate-pod`.
#[must_use]
pub fn logical_path(role: Role, kind: &str) -> String {
    format!("/{}-{}", role.verb(), kind.to_lowercase())
}

/// A type with a registration; implemented by the attribute `#[webhook(…)]`. `As` is [`Mutates<K>`] or
/// [`Validates<K>`], so that one type can implement several webhooks.
pub trait Marked<As> {
    /// Returns the registration.
    fn registration() -> Registration;
}

/// Marks the mutating webhook of a kind.
#[derive(Debug)]
pub struct Mutates<K>(std::marker::PhantomData<K>);

/// Marks the validating webhook of a kind.
#[derive(Debug)]
pub struct Validates<K>(std::marker::PhantomData<K>);

/// Creates a selector from labels with values, and from expressions with key, operator and values.
#[must_use]
pub fn selector(labels: &[(&str, &str)], expressions: &[(&str, &str, &[&str])]) -> LabelSelector {
    let labels = labels
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()));
    let expressions = expressions
        .iter()
        .map(|&(key, operator, values)| LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: owned(values.iter().copied()).filter(|values| !values.is_empty()),
        });
    LabelSelector {
        match_labels: Some(labels.collect()).filter(|labels: &BTreeMap<_, _>| !labels.is_empty()),
        match_expressions: Some(expressions.collect()).filter(|all: &Vec<_>| !all.is_empty()),
    }
}

/// The metadata of an object's type.
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
    /// The scope of the resource.
    pub scope: Scope,
}

#[cfg(feature = "kube")]
impl Kind {
    /// The path at which kubebuilder serves the webhook.
    #[must_use]
    pub fn path(&self, role: Role) -> String {
        default_path(role, &self.group, &self.version, &self.kind)
    }

    /// The short path, such as `/validate-pod`.
    #[must_use]
    pub fn logical_path(&self, role: Role) -> String {
        logical_path(role, &self.kind)
    }
}

/// Returns the metadata of a type.
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
        scope: K::Scope::SCOPE,
    }
}

/// The scope of a resource, as in rules.
#[cfg(feature = "kube")]
pub trait Scoped {
    /// The scope.
    const SCOPE: Scope;
}

#[cfg(feature = "kube")]
impl Scoped for kube_core::NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}

#[cfg(feature = "kube")]
impl Scoped for kube_core::ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

#[cfg(feature = "kube")]
impl Scoped for kube_core::DynamicResourceScope {
    const SCOPE: Scope = Scope::All;
}
