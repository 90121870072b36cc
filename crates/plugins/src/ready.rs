//! What every ready-made plugin is: a name, and one or two webhooks.

use std::sync::Arc;

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_webhook::{
    Handler, Mutator, Operation, Registration, ReinvocationPolicy, Rule, Validator, Webhooks,
    mutating, validating,
};
use serde_json::Value;

/// What is registered, and what answers.
pub type Hook = (Registration, Arc<dyn Handler>);

/// A plugin that is ready to be served or to be run in process.
pub trait ReadyMade: Send + Sync {
    /// The name it is switched on and off by in process: upstream's, where there is one.
    fn name(&self) -> &'static str;

    /// Its webhooks.
    fn webhooks(&self) -> Vec<Hook>;
}

/// The webhooks of several plugins, to be served.
///
/// They are not called for what happens in the exempt namespaces, which should be `kube-system` and
/// the one the webhooks run in: a server that is down must not keep its own pods from starting.
#[must_use]
pub fn served(plugins: &[&dyn ReadyMade], exempt_namespaces: &[&str]) -> Webhooks {
    let mut webhooks = Webhooks::new();
    for (mut registration, handler) in plugins.iter().flat_map(|plugin| plugin.webhooks()) {
        if !exempt_namespaces.is_empty() && registration.webhook.namespace_selector.is_none() {
            registration = registration.namespace_selector(not_in(exempt_namespaces));
        }
        webhooks = webhooks.with(registration, handler);
    }
    webhooks
}

fn not_in(namespaces: &[&str]) -> LabelSelector {
    LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: String::from("kubernetes.io/metadata.name"),
            operator: String::from("NotIn"),
            values: Some(namespaces.iter().map(|&name| name.to_owned()).collect()),
        }]),
    }
}

/// What a webhook is called for: operations, the group, resources of version `v1`.
pub(crate) type About<'a> = (&'a [Operation], &'a str, &'a [&'a str]);

/// New pods.
pub(crate) const NEW_PODS: About<'static> = (&[Operation::Create], "", &["pods"]);

/// New and changed pods.
pub(crate) const PODS: About<'static> = (&[Operation::Create, Operation::Update], "", &["pods"]);

/// The webhook of a mutator. It sees its own result again when others changed the object after it.
pub(crate) fn mutates(word: &str, plugin: impl Mutator<Value>, about: &[About<'_>]) -> Hook {
    let registration = Registration::mutating(format!("{word}.plugins.lockgate.io"))
        .path(format!("/{word}/mutate"))
        .reinvocation_policy(ReinvocationPolicy::IfNeeded);
    let handler = mutating::<Value, _>(plugin);
    (with_rules(registration, about), Arc::new(handler))
}

/// The webhook of a validator.
pub(crate) fn validates(word: &str, plugin: impl Validator<Value>, about: &[About<'_>]) -> Hook {
    let registration = Registration::validating(format!("{word}.plugins.lockgate.io"))
        .path(format!("/{word}/validate"));
    let handler = validating::<Value, _>(plugin);
    (with_rules(registration, about), Arc::new(handler))
}

fn with_rules(registration: Registration, about: &[About<'_>]) -> Registration {
    let registration = registration.admission_review_versions(&["v1", "v1beta1"]);
    let add = |registration: Registration, (operations, group, resources): &About<'_>| {
        let rule = Rule::resources(resources.iter().copied()).groups([*group]);
        registration.rule(rule.operations(operations.iter().cloned()))
    };
    about.iter().fold(registration, add)
}
