//! Rules about `failurePolicy`. The two profiles disagree about it by design.

use super::{NOTE, OFF, WARNING, levels};
use crate::finding::Grade;
use crate::rule::Rule;

pub(super) static W013: Rule = Rule {
    id: "W013",
    title: "mutating webhook fails closed",
    summary: "Mutation is rarely worth an outage. A mutating webhook that fails open, with a validating webhook or policy that checks \
              the final object, gives the same guarantee and rejects only what really lacks the change.",
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
                let message = String::from("a mutation that cannot be made rejects the request");
                report.hook(hook, "failurePolicy", message);
            }
        }
    },
};

pub(super) static W014: Rule = Rule {
    id: "W014",
    title: "check that fails open",
    summary: "With `failurePolicy: Ignore`, whoever can make a validating webhook slow or unreachable gets anything past it. A policy \
              with `Ignore` lets through every request its expressions fail on.",
    advice: "Set `failurePolicy: Fail`, with rules and selectors narrow enough to afford it.",
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
                let message = String::from("what it would deny passes while it is unavailable");
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
                let message = String::from("requests its expressions fail on pass");
                report.object(Grade::Usual, *object, "spec.failurePolicy", message);
            }
        }
    },
};
