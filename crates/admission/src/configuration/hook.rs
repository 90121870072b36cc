//! A compiled webhook.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lockgate_api::admission::{NoKnownVersion, ReviewVersion};
use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::selector::{Operator, Requirement, Selector};
use lockgate_api::registration::Webhook;
use lockgate_cel::Program;
use lockgate_go::quote::quote;
use lockgate_go::url::Url;

use super::{Criteria, Rule};
use crate::call::{Caller, Client, ClientError};
use crate::conditions::Conditions;
use crate::decision::FailurePolicy;
use crate::https::split_authority;
use crate::object::same_text;

/// The source of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The API.
    Api,
    /// A manifest file on the server.
    Manifest,
}

impl Source {
    pub(super) fn identity(self, configuration: &str, webhook: &str, nth: usize) -> String {
        match self {
            Self::Api => format!("{configuration}/{webhook}/{nth}"),
            Self::Manifest => format!("manifest/{configuration}/{webhook}/{nth}"),
        }
    }
}

/// `matchPolicy`: matching of other versions of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchPolicy {
    /// Other versions do not match.
    Exact,
    /// Other versions match; the object is converted.
    Equivalent,
}

/// `sideEffects`, as relevant to dry runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideEffects {
    /// Not specified.
    Unsaid,
    /// None in a dry run.
    NoneOnDryRun,
    /// Some, or unknown.
    Possible,
}

/// A label selector of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Labels {
    /// An empty selector.
    Everything,
    /// No selector at all.
    Nothing,
    /// Requirements.
    Selected(Selector),
    /// Invalid requirements, with the error.
    Broken(Box<str>),
}

impl Labels {
    pub(super) fn new(selector: Option<&LabelSelector>) -> Self {
        match selector {
            None => Self::Nothing,
            Some(selector) if selector.is_empty() => Self::Everything,
            Some(selector) => match selector.compile() {
                Ok(selector) => Self::Selected(selector),
                Err(error) => Self::Broken(error.to_string().into()),
            },
        }
    }
}

/// Returns `true` if labels match a selector. Most requirements compare a label with a few short strings, which is done
/// inline here.
#[inline]
pub(crate) fn selects<'l>(selector: &Selector, look_up: impl Fn(&str) -> Option<&'l str>) -> bool {
    let holds = |requirement: &Requirement| {
        let value = look_up(requirement.key());
        let is_listed = |value: &str| {
            let mut listed = requirement.values().iter();
            listed.any(|known| same_text(known, value))
        };
        match (requirement.operator(), value) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, Some(value)) => {
                is_listed(value)
            }
            (Operator::NotEquals | Operator::NotIn, Some(value)) => !is_listed(value),
            (_, value) => requirement.matches(value),
        }
    };
    selector.requirements().iter().all(holds)
}

/// A webhook, compiled.
pub struct CompiledHook {
    webhook: Webhook,
    configuration: Arc<str>,
    identity: String,
    source: Source,
    pub(crate) criteria: Criteria,
    failure_policy: FailurePolicy,
    pub(crate) side_effects: SideEffects,
    pub(crate) conditions: Conditions,
    client: OnceLock<Result<Arc<dyn Client>, ClientError>>,
}

impl CompiledHook {
    pub(super) fn new(
        webhook: &Webhook,
        configuration: &Arc<str>,
        identity: String,
        source: Source,
    ) -> Self {
        // UPSTREAM: apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go and
        // accessors.go define the meaning of absent fields; stored objects have none.
        let failure_policy = match webhook.failure_policy.as_deref() {
            Some("Ignore") => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        };
        let side_effects = match webhook.side_effects.as_deref() {
            None => SideEffects::Unsaid,
            Some("None" | "NoneOnDryRun") => SideEffects::NoneOnDryRun,
            Some(_) => SideEffects::Possible,
        };
        Self {
            configuration: Arc::clone(configuration),
            identity,
            source,
            criteria: Criteria::of_webhook(webhook),
            failure_policy,
            side_effects,
            conditions: Conditions::new(webhook.match_conditions.as_deref()),
            client: OnceLock::new(),
            webhook: webhook.clone(),
        }
    }

    /// The webhook's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.webhook.name
    }

    /// The name of its configuration.
    #[must_use]
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// `<configuration>/<webhook>/<n>`: names within one configuration may repeat.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The source of the configuration.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Its match conditions with their compiled programs.
    pub fn expressions(&self) -> impl Iterator<Item = (&str, Option<&Program>)> {
        self.conditions.expressions()
    }

    /// The webhook as registered.
    #[must_use]
    pub fn webhook(&self) -> &Webhook {
        &self.webhook
    }

    /// `failurePolicy`.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// `matchPolicy`: matching of other versions of a resource.
    #[must_use]
    pub fn match_policy(&self) -> MatchPolicy {
        self.criteria.match_policy
    }

    /// Returns `true` if `reinvocationPolicy` is `IfNeeded`.
    #[must_use]
    pub fn reinvocable(&self) -> bool {
        self.webhook.reinvocation_policy.as_deref() == Some("IfNeeded")
    }

    /// The timeout of a call.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.webhook.timeout_seconds?).unwrap_or_default();
        Some(Duration::from_secs(seconds))
    }

    /// The host it is called at, without the port.
    pub(crate) fn host_name(&self) -> String {
        let config = &self.webhook.client_config;
        if let Some(service) = &config.service {
            return format!("{}.{}.svc", service.name, service.namespace);
        }
        let url = Url::parse(config.url.as_deref().unwrap_or_default());
        let authority = url.map(|url| url.host()).unwrap_or_default();
        split_authority(&authority).0.to_owned()
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.criteria.rules
    }

    pub(crate) fn review_version(&self) -> Result<ReviewVersion, NoKnownVersion> {
        let offered = self.webhook.admission_review_versions.as_deref();
        ReviewVersion::choose(offered.unwrap_or_default())
    }

    /// The client, created on first use. A failure is cached until the configuration changes.
    pub(crate) fn client(&self, caller: &dyn Caller) -> Result<&Arc<dyn Client>, &ClientError> {
        self.client
            .get_or_init(|| self.make_client(caller))
            .as_ref()
    }

    fn make_client(&self, caller: &dyn Caller) -> Result<Arc<dyn Client>, ClientError> {
        let config = &self.webhook.client_config;
        let has_url = config.url.as_ref().is_some_and(|url| !url.is_empty());
        let client = if has_url || config.service.is_some() {
            caller.client(config)
        } else {
            Err(ClientError::NoAddress)
        };
        client.map_err(|error| match error {
            // UPSTREAM: k8s.io/apiserver pkg/util/webhook/client.go (hookClientConfig) names the
            // webhook once more in these two, which the caller does not include.
            ClientError::NoAddress | ClientError::UnparsableUrl(_) => {
                let name = quote(&self.webhook.name);
                ClientError::Other(format!("failed calling webhook {name}: {error}"))
            }
            other => other,
        })
    }

    pub(super) fn client_failed(&self) -> bool {
        matches!(self.client.get(), Some(Err(_)))
    }

    pub(super) fn is_of(&self, webhook: &Webhook) -> bool {
        self.webhook == *webhook
    }
}

impl fmt::Debug for CompiledHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompiledHook").field(&self.identity).finish()
    }
}
