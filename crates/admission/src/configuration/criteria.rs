//! Match criteria of a webhook, a policy or a binding, compiled for matching.

use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::registration::policy::{MatchResources, NamedRule};
use lockgate_api::registration::{Webhook, hub};

use super::hook::{Labels, MatchPolicy};
use super::rule::Rule;

/// Selectors and rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Criteria {
    pub(crate) namespace_selector: Labels,
    pub(crate) object_selector: Labels,
    pub(crate) match_policy: MatchPolicy,
    pub(crate) rules: Box<[Rule]>,
    /// Rules whose requests never match, whatever the other rules say.
    pub(crate) exclusions: Box<[Rule]>,
    pub(crate) without_rules: WithoutRules,
}

/// The meaning of an absent list of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithoutRules {
    /// No request.
    Nothing,
    /// Every request.
    Everything,
}

impl Criteria {
    fn new(
        namespaces: Option<&LabelSelector>,
        objects: Option<&LabelSelector>,
        match_policy: Option<&str>,
    ) -> Self {
        // UPSTREAM: apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go and
        // accessors.go define the meaning of absent fields; stored objects have none.
        let match_policy = match match_policy {
            Some("Equivalent") => MatchPolicy::Equivalent,
            _ => MatchPolicy::Exact,
        };
        Self {
            namespace_selector: Labels::new(namespaces),
            object_selector: Labels::new(objects),
            match_policy,
            rules: Box::default(),
            exclusions: Box::default(),
            without_rules: WithoutRules::Everything,
        }
    }

    pub(crate) fn of_webhook(webhook: &Webhook) -> Self {
        let rules = webhook.rules.iter().flatten();
        Self {
            rules: rules.map(Rule::new).collect(),
            without_rules: WithoutRules::Nothing,
            ..Self::new(
                webhook.namespace_selector.as_ref(),
                webhook.object_selector.as_ref(),
                webhook.match_policy.as_deref(),
            )
        }
    }

    pub(crate) fn of_policy(resources: &MatchResources) -> Self {
        let rules = |list: &Option<Vec<NamedRule>>| {
            let rules = list.iter().flatten();
            rules.map(Rule::named).collect()
        };
        Self {
            rules: rules(&resources.resource_rules),
            exclusions: rules(&resources.exclude_resource_rules),
            ..Self::new(
                resources.namespace_selector.as_ref(),
                resources.object_selector.as_ref(),
                resources.match_policy.as_deref(),
            )
        }
    }

    /// Criteria that match every request.
    pub(crate) fn everything() -> Self {
        let all = |text: &str| Some(vec![String::from(text)]);
        let rule = hub::Rule {
            operations: all("*"),
            api_groups: all("*"),
            api_versions: all("*"),
            resources: all("*/*"),
            scope: None,
        };
        let selector = LabelSelector::default();
        Self {
            rules: Box::from([Rule::new(&rule)]),
            ..Self::new(Some(&selector), Some(&selector), Some("Exact"))
        }
    }
}
