//! Rules about the resources and versions in webhook rules.

use std::collections::BTreeMap;

use lockgate_api::meta::label_selector::LabelSelector;

use super::{NOTE, WARNING, levels, list};
use crate::finding::Grade;
use crate::matching::named;
use crate::resource::{self, BUILTIN, REMOVED_GROUPS};
use crate::rule::{Context, Reporter, Rule};
use crate::set::{Hook, Set};

pub(super) static W017: Rule = Rule {
    id: "W017",
    title: "does not match every version",
    summary: "With `matchPolicy: Exact`, a request for the same object in another version is not matched. A version that the cluster \
              does not serve never matches.",
    advice: "Set `matchPolicy: Equivalent`, and use a served version.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: scalers}
webhooks:
- name: scalers.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [autoscaling], apiVersions: [v2], resources: [horizontalpodautoscalers]}]
  matchPolicy: Exact
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: scalers}
webhooks:
- name: scalers.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [autoscaling], apiVersions: [v2], resources: [horizontalpodautoscalers]}]
  matchPolicy: Equivalent
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: Some("sets `matchPolicy` to `Equivalent`"),
    levels: levels(WARNING, NOTE, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            if !hook.is_equivalent()
                && let Some(message) = unmatched_versions(context.set, hook)
            {
                report
                    .fixing(hook.set("matchPolicy", "Equivalent"))
                    .hook(hook, "matchPolicy", message);
            }
            for (index, rule) in hook.rules().iter().enumerate() {
                let versions = rule.api_versions.as_deref().unwrap_or_default();
                let dead: Vec<String> = named(rule)
                    .filter_map(|(group, plural)| resource::find(group, plural))
                    .filter(|known| {
                        !versions.iter().any(|version| version == "*" || known.versions.contains(&version.as_str()))
                    })
                    .map(|known| format!("{} (served: {})", known.qualified(), known.versions.join(", ")))
                    .collect();
                if !dead.is_empty() && !versions.is_empty() {
                    let message = format!("`{}` is not a served version of {}", versions.join(", "), list(&dead, 3));
                    report.hook(hook, &format!("rules[{index}].apiVersions"), message);
                }
            }
        }
    },
};

/// The versions that a webhook with `Exact` does not match, unless another webhook does.
fn unmatched_versions(set: &Set, hook: &Hook) -> Option<String> {
    let mut missing = Vec::new();
    for rule in hook.rules() {
        let is_star = |list: &Option<Vec<String>>| list.iter().flatten().any(|one| one == "*");
        if is_star(&rule.api_versions) {
            continue;
        }
        let general = || {
            Some(String::from(
                "requests for other versions of these resources are not matched",
            ))
        };
        let mut resources = rule.resources.iter().flatten();
        if is_star(&rule.api_groups) || resources.any(|one| one.starts_with('*')) {
            return general();
        }
        for (group, plural) in named(rule) {
            let Some(served) = served_versions(set, group, plural) else {
                return general();
            };
            // Some projects have a webhook for each version.
            let beside = set.hooks.iter().filter(|other| other.object == hook.object);
            let listed: Vec<&String> = beside
                .flat_map(Hook::rules)
                .filter(|rule| named(rule).any(|one| one == (group, plural)))
                .flat_map(|rule| rule.api_versions.iter().flatten())
                .collect();
            let is_left =
                |version: &String| !listed.iter().any(|one| *one == version || *one == "*");
            let left = served.iter().filter(|version| is_left(version));
            missing.extend(left.map(|version| format!("{version} of {plural}")));
        }
    }
    missing.sort();
    missing.dedup();
    (!missing.is_empty()).then(|| format!("requests for {} are not matched", list(&missing, 4)))
}

/// The versions of a built-in resource, or of a CustomResourceDefinition in the set.
fn served_versions(set: &Set, group: &str, plural: &str) -> Option<Vec<String>> {
    if let Some(known) = resource::find(group, plural) {
        return Some(
            known
                .versions
                .iter()
                .map(|version| (*version).to_owned())
                .collect(),
        );
    }
    let mut definitions = set.of_kind("apiextensions.k8s.io", "CustomResourceDefinition");
    let definition = definitions.find(|definition| {
        definition.at("/spec/group") == group && definition.at("/spec/names/plural") == plural
    })?;
    let versions = definition.at("/spec/versions").as_array()?.iter();
    let served = versions.filter(|version| version["served"] != false);
    Some(
        served
            .filter_map(|version| version["name"].as_str().map(str::to_owned))
            .collect(),
    )
}

pub(super) static W019: Rule = Rule {
    id: "W019",
    title: "unknown resource",
    summary: "Rules name resources by their lower-case plural. The API accepts a kind (`Pod`), a singular (`pod`) or a typo, which match nothing.",
    advice: "Use the plural that `kubectl api-resources` prints.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [Pod]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: unknown_resources,
};

fn unknown_resources(context: &Context<'_>, report: &mut Reporter<'_>) {
    // The plurals of custom resources by group.
    let mut custom: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for definition in context
        .set
        .of_kind("apiextensions.k8s.io", "CustomResourceDefinition")
    {
        let text = |pointer: &str| definition.at(pointer).as_str();
        if let (Some(group), Some(plural)) = (text("/spec/group"), text("/spec/names/plural")) {
            custom.entry(group).or_default().push(plural);
        }
    }
    for hook in &context.set.hooks {
        for (index, rule) in hook.rules().iter().enumerate() {
            let groups = rule.api_groups.as_deref().unwrap_or_default();
            for (group, moved) in REMOVED_GROUPS {
                if groups.iter().any(|given| given == group) && groups.len() == 1 {
                    let message = format!(
                        "the group `{group}` is no longer served: its resources are in {moved}"
                    );
                    report.hook(hook, &format!("rules[{index}].apiGroups"), message);
                }
            }
            for (at, entry) in rule.resources.iter().flatten().enumerate() {
                let plural = entry.split('/').next().unwrap_or_default();
                let is_known = |group: &String| {
                    let definitions = custom.get(group.as_str());
                    let builtin = resource::is_builtin_group(group);
                    // An unknown group may serve any resource.
                    (!builtin && definitions.is_none())
                        || resource::find(group, plural).is_some()
                        || definitions.is_some_and(|plurals| plurals.contains(&plural))
                };
                let is_kind = plural.chars().any(|c| c.is_ascii_uppercase());
                if plural == "*"
                    || (!is_kind && groups.iter().any(|group| group == "*" || is_known(group)))
                {
                    continue;
                }
                let lower = plural.to_ascii_lowercase();
                let builtin = BUILTIN.iter().filter(|known| {
                    groups
                        .iter()
                        .any(|group| group == known.group || group == "*")
                });
                let custom = groups
                    .iter()
                    .filter_map(|group| custom.get(group.as_str()))
                    .flatten();
                let nearest = builtin
                    .map(|known| known.plural)
                    .chain(custom.copied())
                    .map(|known| (strsim::jaro_winkler(&lower, known), known))
                    .filter(|(likeness, _)| *likeness >= 0.8)
                    .max_by(|(a, _), (b, _)| a.total_cmp(b));
                let hint = nearest
                    .map(|(_, known)| format!("; did you mean `{known}`?"))
                    .unwrap_or_default();
                let shown: Vec<String> = groups
                    .iter()
                    .map(|group| {
                        if group.is_empty() {
                            String::from("the core group")
                        } else {
                            format!("`{group}`")
                        }
                    })
                    .collect();
                let message = format!("no resource `{plural}` in {}{hint}", list(&shown, 4));
                report.hook(hook, &format!("rules[{index}].resources[{at}]"), message);
            }
        }
    }
}

pub(super) static W047: Rule = Rule {
    id: "W047",
    title: "matches nothing",
    summary: "A webhook without rules, a policy without resource rules, a scope that excludes the named resources, or a contradictory \
              selector never matches, and so protects nothing.",
    advice: "Remove it, or correct its rules or selector.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: Cluster}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: Namespaced}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            if hook.rules().is_empty() {
                // Some webhooks write their own rules together with their caBundle.
                let client = &hook.webhook.client_config;
                let is_completed = client.service.is_some() && client.ca_bundle.is_none();
                let (grade, message) = match is_completed {
                    true => (Grade::Lower, "has no rules: it is not called until rules are added"),
                    false => (Grade::Usual, "has no rules and is never called"),
                };
                report.graded(grade, hook, "rules", String::from(message));
            }
            for (index, rule) in hook.rules().iter().enumerate() {
                let Some(scope) = rule.scope.as_deref().filter(|scope| *scope != "*") else {
                    continue;
                };
                let known: Vec<_> = named(rule).map(|(group, plural)| resource::find(group, plural)).collect();
                let wildcard = rule.resources.iter().flatten().any(|entry| entry.starts_with('*'));
                let misses = known.iter().all(|known| {
                    known.is_some_and(|known| known.namespaced != (scope == "Namespaced"))
                });
                if !wildcard && !known.is_empty() && misses {
                    let message = format!("scope `{scope}` excludes every resource of the rule");
                    report.hook(hook, &format!("rules[{index}].scope"), message);
                }
            }
            for (field, selector) in [
                ("namespaceSelector", &hook.webhook.namespace_selector),
                ("objectSelector", &hook.webhook.object_selector),
            ] {
                if let Some(key) = selector.as_ref().and_then(contradiction) {
                    let message = format!("the requirements for label `{key}` contradict each other");
                    report.hook(hook, field, message);
                }
            }
        }
        for (object, policy) in &context.set.policies {
            let constraints = policy.match_constraints.as_ref();
            let rules = constraints.and_then(|constraints| constraints.resource_rules.as_ref());
            if rules.is_none_or(Vec::is_empty) {
                let message = String::from("has no resource rules and applies to nothing");
                report.object(Grade::Usual, *object, "spec.matchConstraints", message);
            }
            for selector in constraints.into_iter().flat_map(|constraints| [&constraints.namespace_selector, &constraints.object_selector]) {
                if let Some(key) = selector.as_ref().and_then(contradiction) {
                    let message = format!("the requirements for label `{key}` contradict each other");
                    report.object(Grade::Usual, *object, "spec.matchConstraints", message);
                }
            }
        }
    },
};

/// A label key for which no value satisfies the selector.
fn contradiction(selector: &LabelSelector) -> Option<String> {
    let mut candidates: BTreeMap<&str, Vec<Option<&str>>> = BTreeMap::new();
    let labels = selector.match_labels.iter().flatten();
    for (key, value) in labels {
        candidates.entry(key).or_default().push(Some(value));
    }
    for requirement in selector.match_expressions.iter().flatten() {
        let values = candidates.entry(&requirement.key).or_default();
        // No value, another value, and each listed value.
        values.extend([None, Some("\u{1}")]);
        values.extend(
            requirement
                .values
                .iter()
                .flatten()
                .map(|value| Some(value.as_str())),
        );
    }
    candidates.into_iter().find_map(|(key, values)| {
        let holds = |value: &Option<&str>| {
            let label = selector
                .match_labels
                .as_ref()
                .and_then(|labels| labels.get(key));
            let expressions = selector.match_expressions.iter().flatten();
            label.is_none_or(|label| *value == Some(label))
                && expressions
                    .filter(|requirement| requirement.key == key)
                    .all(|requirement| {
                        let listed = value.is_some_and(|value| {
                            requirement.values.iter().flatten().any(|one| one == value)
                        });
                        match requirement.operator.as_str() {
                            "In" => listed,
                            "NotIn" => !listed,
                            "Exists" => value.is_some(),
                            "DoesNotExist" => value.is_none(),
                            _ => true,
                        }
                    })
        };
        (!values.iter().any(holds)).then(|| key.to_owned())
    })
}
