//! Rules about reviews, names and static manifests.

use std::collections::BTreeMap;

use lockgate_api::registration::Version;
use lockgate_api::registration::strategy::STATIC_SUFFIX;

use super::{NOTE, WARNING, levels};
use crate::finding::Grade;
use crate::rule::Rule;

pub(super) static W020: Rule = Rule {
    id: "W020",
    title: "side effects break dry run",
    summary: "A dry run, as used by `kubectl diff` and most GitOps tools, is rejected if a matching webhook has side effects or does \
              not declare `sideEffects`. v1beta1 defaults to `Unknown`; v1 accepts `None` and `NoneOnDryRun` only.",
    advice: "Set `sideEffects` to `None`, or to `NoneOnDryRun` if the webhook honours `request.dryRun`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1beta1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            // Validation rejects these in v1.
            let effects = hook.webhook.side_effects.as_deref();
            if let Some(effects @ ("Unknown" | "Some")) = effects
                && hook.version == Version::V1beta1
            {
                let message = format!(
                    "sideEffects is `{effects}`: dry runs of matching requests are rejected"
                );
                report.hook(hook, "sideEffects", message);
            }
        }
    },
};

pub(super) static W021: Rule = Rule {
    id: "W021",
    title: "does not read AdmissionReview v1",
    summary: "API servers send the first version of `admissionReviewVersions` that they support. All of them support v1; v1beta1 is \
              deprecated.",
    advice: "Put `v1` first.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1beta1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1, v1beta1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            let versions = hook
                .webhook
                .admission_review_versions
                .as_deref()
                .unwrap_or_default();
            let (grade, message) = match versions {
                [] => continue,
                [first, ..] if first == "v1" => continue,
                versions if versions.iter().any(|version| version == "v1") => {
                    (Grade::Lower, "v1 is not the preferred version")
                }
                _ => (Grade::Usual, "v1 is not in admissionReviewVersions"),
            };
            report.graded(grade, hook, "admissionReviewVersions", message.to_owned());
        }
    },
};

pub(super) static W036: Rule = Rule {
    id: "W036",
    title: "webhook name used twice",
    summary: "Metrics, audit annotations and error messages name the webhook, not its configuration. Two webhooks with the same name cannot be distinguished in them.",
    advice: "Give each webhook a unique name.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: validate.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: gadgets}
webhooks:
- name: validate.example.com
  clientConfig: {service: {namespace: gadgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [gadgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: gadgets}
webhooks:
- name: gadgets.example.com
  clientConfig: {service: {namespace: gadgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [gadgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(NOTE, NOTE, NOTE),
    check: |context, report| {
        let mut first: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for hook in &context.set.hooks {
            let name = hook.webhook.name.as_str();
            let owner = *first
                .entry((hook.is_mutating(), name))
                .or_insert(hook.object);
            // Validation rejects duplicate names within one configuration.
            if owner != hook.object && !name.is_empty() {
                let message = format!("`{name}` is also a webhook of {}", context.set.title(owner));
                report.hook(hook, "name", message);
            }
        }
    },
};

pub(super) static W044: Rule = Rule {
    id: "W044",
    title: "static manifest that needs the API",
    summary: "Names that end in `.static.k8s.io` are reserved for configurations that an API server loads from files at startup. These \
              cannot reference stored objects: no Services and no parameters.",
    advice: "Use `clientConfig.url` and no parameters, or use another name for an object created through the API.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets.static.k8s.io}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets.static.k8s.io}
webhooks:
- name: widgets.example.com
  clientConfig: {url: 'https://hooks.example.com/widgets'}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        let set = context.set;
        let is_static = |object: usize| {
            set.info(object)
                .is_some_and(|info| info.name.ends_with(STATIC_SUFFIX))
        };
        for hook in set.hooks.iter().filter(|hook| is_static(hook.object)) {
            if hook.service().is_some() {
                let message = String::from("a static configuration cannot call a Service");
                report.hook(hook, "clientConfig.service", message);
            }
        }
        for (object, policy) in set.policies.iter().filter(|(object, _)| is_static(*object)) {
            if policy.param_kind.is_some() {
                let message = String::from("a static policy cannot have parameters");
                report.object(Grade::Usual, *object, "spec.paramKind", message);
            }
        }
        for (object, binding) in set.bindings.iter().filter(|(object, _)| is_static(*object)) {
            if binding.param_ref.is_some() {
                let message = String::from("a static binding cannot reference parameters");
                report.object(Grade::Usual, *object, "spec.paramRef", message);
            }
        }
    },
};
