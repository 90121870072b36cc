//! Rules about `failurePolicy`. The availability and security profiles differ by design.

use super::{NOTE, OFF, WARNING, levels};
use crate::finding::Grade;
use crate::rule::Rule;

pub(super) static W013: Rule = Rule {
    id: "W013",
    title: "mutating webhook fails closed",
    summary: "Mutation is rarely worth an outage. A mutating webhook that fails open, with a validating webhook or policy that checks \
              the final object, gives the same guarantee and rejects only objects that lack the change.",
    advice: "Set `failurePolicy: Ignore` and verify the result with a validating webhook or a ValidatingAdmissionPolicy.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: labels}
webhooks:
- name: labels.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  failurePolicy: Fail
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: labels}
webhooks:
- name: labels.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  failurePolicy: Ignore
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(OFF, NOTE, OFF),
    check: |context, report| {
        for hook in &context.set.hooks {
            if hook.is_mutating() && hook.fails_closed() && hook.reaches_builtin_groups() {
                let message = String::from("an unavailable mutating webhook rejects the request");
                report.hook(hook, "failurePolicy", message);
            }
        }
    },
};

pub(super) static W014: Rule = Rule {
    id: "W014",
    title: "check fails open",
    summary: "With `failurePolicy: Ignore`, a user who can make a validating webhook slow or unreachable bypasses it. A policy with \
              `Ignore` allows every request for which its expressions fail.",
    advice: "Set `failurePolicy: Fail`, with rules and selectors narrow enough to limit an outage.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  failurePolicy: Ignore
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
  failurePolicy: Fail
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(NOTE, OFF, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            if !hook.is_mutating() && !hook.fails_closed() && hook.reaches_builtin_groups() {
                let message =
                    String::from("while it is unavailable, requests it would deny are allowed");
                report.hook(hook, "failurePolicy", message);
            }
        }
        for (object, policy) in &context.set.policies {
            let ignores = policy.failure_policy.as_deref() == Some("Ignore");
            if ignores
                && policy
                    .validations
                    .as_ref()
                    .is_some_and(|list| !list.is_empty())
            {
                let message = String::from("requests for which its expressions fail are allowed");
                report.object(Grade::Usual, *object, "spec.failurePolicy", message);
            }
        }
    },
};
