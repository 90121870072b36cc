//! Rules about bypasses of a check.

use std::collections::BTreeSet;

use lockgate_api::meta::label_selector::LabelSelector;

use super::{NOTE, OFF, WARNING, levels, list};
use crate::finding::Grade;
use crate::matching::{NAME_LABEL, Operation};
use crate::resource;
use crate::rule::{Context, Reporter, Rule};
use crate::set::Hook;

/// The keys of a selector, in order.
fn keys(selector: Option<&LabelSelector>) -> Vec<String> {
    let selector = selector.cloned().unwrap_or_default();
    let labels = selector.match_labels.unwrap_or_default().into_keys();
    let expressions = selector.match_expressions.unwrap_or_default();
    let mut keys: Vec<String> = labels
        .chain(expressions.into_iter().map(|one| one.key))
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Webhooks that check objects of built-in kinds.
fn checks<'c>(context: &'c Context<'_>) -> impl Iterator<Item = &'c Hook> {
    context
        .set
        .hooks
        .iter()
        .filter(|hook| !hook.is_mutating() && hook.reaches_builtin_groups())
}

pub(super) static W015: Rule = Rule {
    id: "W015",
    title: "object label bypasses the check",
    summary: "The author of an object sets its labels. Anyone can skip a check with an `objectSelector` by setting or omitting \
              the label.",
    advice: "Select by namespace or with match conditions on the user, and use `objectSelector` only for opt-in webhooks.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  objectSelector:
    matchExpressions: [{key: images.example.com/skip, operator: DoesNotExist}]
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
    levels: levels(NOTE, OFF, WARNING),
    check: |context, report| {
        let message = |keys: &[String]| {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            format!(
                "the author of an object can skip the check with the label {}",
                list(&keys, 3)
            )
        };
        for hook in checks(context) {
            let keys = keys(hook.webhook.object_selector.as_ref());
            if !keys.is_empty() {
                report.hook(hook, "objectSelector", message(&keys));
            }
        }
        for (object, policy) in &context.set.policies {
            let constraints = policy.match_constraints.as_ref();
            let keys =
                keys(constraints.and_then(|constraints| constraints.object_selector.as_ref()));
            if !keys.is_empty() && policy.validations.is_some() {
                report.object(
                    Grade::Usual,
                    *object,
                    "spec.matchConstraints.objectSelector",
                    message(&keys),
                );
            }
        }
    },
};

pub(super) static W016: Rule = Rule {
    id: "W016",
    title: "namespace label bypasses the check",
    summary: "A user who can update a namespace can label it. A check that selects namespaces by any label other than \
              `kubernetes.io/metadata.name`, which the server sets, can be skipped by labelling the namespace.",
    advice: "Select by `kubernetes.io/metadata.name`, or protect the label with a webhook or policy on namespaces.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions: [{key: images.example.com/skip, operator: DoesNotExist}]
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
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [hooks, kube-system]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(NOTE, OFF, WARNING),
    check: |context, report| {
        let Some(namespaces) = resource::find("", "namespaces") else {
            return;
        };
        // A configuration that also checks namespaces is assumed to protect its label.
        let guarding: BTreeSet<usize> = context
            .set
            .hooks
            .iter()
            .filter(|hook| hook.builtin_operations(namespaces).has(Operation::Update))
            .map(|hook| hook.object)
            .collect();
        for hook in checks(context).filter(|hook| !guarding.contains(&hook.object)) {
            let mut keys = keys(hook.webhook.namespace_selector.as_ref());
            keys.retain(|key| key != NAME_LABEL);
            if !keys.is_empty() {
                let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
                let message = format!("users who can label a namespace can skip the check with {}", list(&keys, 3));
                report.hook(hook, "namespaceSelector", message);
            }
        }
    },
};

pub(super) static W018: Rule = Rule {
    id: "W018",
    title: "check with gaps",
    summary: "A rule for `pods` does not cover their subresources: ephemeral containers are added through `pods/ephemeralcontainers`, \
              resources changed through `pods/resize`, replicas through `deployments/scale`. A check on CREATE alone is bypassed by creating a valid object and updating it.",
    advice: "Add the subresources and UPDATE to the rules, and make sure that the webhook handles them.",
    bad: "
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
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers, pods/resize]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(NOTE, OFF, WARNING),
    check: holes,
};

/// Resources that can also be changed through subresources.
const SPLIT: &[(&str, &str, &[&str])] = &[
    ("", "pods", &["", "ephemeralcontainers", "resize"]),
    ("apps", "deployments", &["", "scale"]),
    ("apps", "statefulsets", &["", "scale"]),
];

fn holes(context: &Context<'_>, report: &mut Reporter<'_>) {
    // Another webhook of the same configuration may close the gap.
    let mut updated: BTreeSet<(usize, &str, &str)> = BTreeSet::new();
    for hook in checks(context) {
        for (group, plural, subs) in SPLIT {
            let covered = subs
                .iter()
                .filter(|sub| hook.operations(group, plural, sub).has(Operation::Update));
            updated.extend(covered.map(|sub| (hook.object, *plural, *sub)));
        }
    }
    for hook in checks(context) {
        let mut holes = Vec::new();
        for (group, plural, subs) in SPLIT {
            let own = hook.operations(group, plural, "");
            if !own.has(Operation::Create) && !own.has(Operation::Update) {
                continue;
            }
            let open = subs
                .iter()
                .filter(|sub| !updated.contains(&(hook.object, plural, sub)));
            holes.extend(open.map(|sub| match *sub {
                "" => format!("UPDATE of {plural}"),
                sub => format!("{plural}/{sub}"),
            }));
        }
        if !holes.is_empty() {
            let message = format!("is not called for {}", list(&holes, 6));
            report.hook(hook, "rules", message);
        }
    }
}

pub(super) static W045: Rule = Rule {
    id: "W045",
    title: "exclusion by a label that namespaces do not have",
    summary: "A `NotIn` requirement also matches namespaces without the label. A selector that excludes kube-system by \
              `name: kube-system` excludes nothing: the server labels namespaces with `kubernetes.io/metadata.name`.",
    advice: "Use the key `kubernetes.io/metadata.name`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions: [{key: name, operator: NotIn, values: [kube-system, hooks]}]
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
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, hooks]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: Some("sets the key to `kubernetes.io/metadata.name`"),
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            let selector = hook.webhook.namespace_selector.as_ref();
            let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
            let own = hook.service().map(|(namespace, _)| namespace);
            for (index, requirement) in expressions.into_iter().flatten().enumerate() {
                if requirement.operator != "NotIn" || requirement.key == NAME_LABEL {
                    continue;
                }
                let named = requirement.values.iter().flatten().find(|value| {
                    value.starts_with("kube-") || Some(value.as_str()) == own
                });
                // The namespace's manifest may have the label.
                let Some(named) = named.filter(|name| {
                    context.set.namespace_labels(name).get(&requirement.key) != Some(name)
                }) else {
                    continue;
                };
                let message = format!(
                    "`{named}` is not excluded: the namespace has no label `{}`",
                    requirement.key
                );
                let field = format!("namespaceSelector.matchExpressions[{index}].key");
                report
                    .fixing(hook.set(&field, NAME_LABEL))
                    .hook(hook, &field, message);
            }
        }
    },
};
