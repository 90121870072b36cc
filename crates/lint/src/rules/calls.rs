//! Rules about captured calls: their users and their outcomes.

use std::collections::{BTreeMap, BTreeSet};

use super::{NOTE, OFF, WARNING, levels, list};
use crate::finding::Grade;
use crate::resource::qualified;
use crate::rule::{Captured, Rule};
use crate::set::{Hook, Set};
use crate::traffic::{Call, Exchange, Outcome};

/// The minimum number of calls for a conclusion.
const ENOUGH_CALLS: usize = 20;
/// The percentage of calls without effect above which a match condition is suggested.
const IDLE_PERCENT: usize = 90;
/// The maximum number of distinct results that suggest a policy.
const FEW_MESSAGES: usize = 3;

pub(super) static W028: Rule = Rule {
    id: "W028",
    title: "most calls change nothing",
    summary: "Each request waits for the call of a mutating webhook, even if the webhook changes nothing. If nearly all captured calls \
              changed nothing, match conditions in the API server can avoid them.",
    advice: "Add `matchConditions`, an `objectSelector` or narrower rules to exclude requests that the webhook does not change.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  objectSelector: {matchLabels: {sidecar: enabled}}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}},"calls":[{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true}}]}"#,
        good: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"sidecar":"enabled"}}}},"calls":[{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/metadata/annotations","value":{"sidecar":"injected"}}]}}]}"#,
        times: ENOUGH_CALLS,
    }),
    fix: None,
    levels: levels(NOTE, WARNING, OFF),
    check: |context, report| {
        for (hook, calls) in context.set.calls() {
            if !hook.is_mutating() || !hook.conditions.is_empty() || calls.len() < ENOUGH_CALLS {
                continue;
            }
            let idle: Vec<&Exchange> = calls
                .iter()
                .filter(|(_, call)| call.did_nothing())
                .map(|(exchange, _)| *exchange)
                .collect();
            if idle.len() * 100 < calls.len() * IDLE_PERCENT {
                continue;
            }
            let mut by_request: BTreeMap<String, usize> = BTreeMap::new();
            for exchange in &idle {
                let of = qualified(&exchange.group, &exchange.resource);
                *by_request
                    .entry(format!("{} of {of}", exchange.operation))
                    .or_default() += 1;
            }
            let mut requests: Vec<(String, usize)> = by_request.into_iter().collect();
            requests.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let requests: Vec<String> = requests
                .into_iter()
                .map(|(request, count)| format!("{count} {request}"))
                .collect();
            let message = format!(
                "{} of {} captured calls changed nothing: {}",
                idle.len(),
                calls.len(),
                list(&requests, 3)
            );
            report.hook(hook, "", message);
        }
    },
};

pub(super) static W035: Rule = Rule {
    id: "W035",
    title: "webhook is called for its own writes",
    summary: "A webhook that writes objects while it handles a review, and is called for these writes, waits for itself: the request \
              can time out, or each write can cause the next.",
    advice: "Exclude the webhook's service account with a match condition on `request.userInfo.username`, or exclude the resources it writes.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: quotas}
webhooks:
- name: quotas.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]
  timeoutSeconds: 5
  sideEffects: NoneOnDryRun
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: quotas}
webhooks:
- name: quotas.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]
  matchConditions:
  - {name: not-itself, expression: \"request.userInfo.username != 'system:serviceaccount:hooks:webhook'\"}
  timeoutSeconds: 5
  sideEffects: NoneOnDryRun
  admissionReviewVersions: [v1]
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"UPDATE","kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},"namespace":"hooks","name":"usage","userInfo":{"username":"system:serviceaccount:hooks:webhook"}},"calls":[{"configuration":"quotas","webhook":"quotas.example.com","round":1,"response":{"allowed":true}}]}"#,
        good: r#"{"request":{"operation":"UPDATE","kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},"namespace":"hooks","name":"usage","userInfo":{"username":"system:serviceaccount:hooks:webhook"}}}"#,
        times: 1,
    }),
    fix: None,
    levels: levels(WARNING, WARNING, NOTE),
    check: |context, report| {
        for (hook, calls) in context.set.calls() {
            let Some((namespace, service)) = hook.service() else {
                continue;
            };
            let accounts = accounts(context.set, namespace, service);
            let own: Vec<&Exchange> = calls
                .iter()
                .map(|(exchange, _)| *exchange)
                .filter(|exchange| is_own(&exchange.username, namespace, accounts.as_ref()))
                .collect();
            let Some(first) = own.first() else {
                continue;
            };
            let (grade, doubt) = match accounts {
                Some(_) => (Grade::Usual, ""),
                None => (
                    Grade::Lower,
                    ", which may be its service account: the manifests do not contain its workload",
                ),
            };
            let message = format!(
                "was called for {} that `{}` sent ({}){doubt}",
                requests(own.len()),
                first.username,
                first.title(),
            );
            report.graded(grade, hook, "rules", message);
        }
    },
};

fn requests(count: usize) -> String {
    match count {
        1 => String::from("a request"),
        count => format!("{count} requests"),
    }
}

/// The service accounts of the workloads behind a Service; `None` if the set has none.
fn accounts(set: &Set, namespace: &str, service: &str) -> Option<BTreeSet<String>> {
    let service = set.service(namespace, service)?;
    let backends = set.backends(service);
    let account = |pointer: &str, of: &crate::set::Manifest| {
        of.at(pointer).as_str().unwrap_or("default").to_owned()
    };
    let accounts: BTreeSet<String> = backends
        .iter()
        .map(|(workload, _)| match workload.kind.as_str() {
            "Pod" => account("/spec/serviceAccountName", workload),
            _ => account("/spec/template/spec/serviceAccountName", workload),
        })
        .collect();
    (!accounts.is_empty()).then_some(accounts)
}

/// Returns true if the user is one of these service accounts, or any of the namespace if they are unknown.
fn is_own(username: &str, namespace: &str, accounts: Option<&BTreeSet<String>>) -> bool {
    let Some(account) = username.strip_prefix("system:serviceaccount:") else {
        return false;
    };
    let Some((of, name)) = account.split_once(':') else {
        return false;
    };
    // Kubernetes' controllers run in kube-system too.
    let may_be_own = match accounts {
        Some(accounts) => accounts.contains(name),
        None => namespace != "kube-system",
    };
    of == namespace && may_be_own
}

pub(super) static W038: Rule = Rule {
    id: "W038",
    title: "webhook can be an admission policy",
    summary: "An admission policy can produce all captured responses of the webhook: always the same patch, or denials with \
              always the same message. A policy runs in the API server, without a call, a certificate or a Pod that can fail.",
    advice: "Check that the decision depends on the request alone; if so, write a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, \
             and compare both with `lockgate replay`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: tags}
webhooks:
- name: tags.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: tags}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  validations:
  - {expression: \"object.spec.containers.all(c, !c.image.endsWith(':latest'))\", message: images need a tag}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: tags}
spec: {policyName: tags, validationActions: [Deny]}
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web"},"calls":[{"configuration":"tags","webhook":"tags.example.com","round":1,"response":{"allowed":false,"status":{"message":"images need a tag"}}}]}"#,
        good: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web"}}"#,
        times: ENOUGH_CALLS,
    }),
    fix: None,
    levels: levels(NOTE, NOTE, OFF),
    check: |context, report| {
        for (hook, calls) in context.set.calls() {
            if calls.len() < ENOUGH_CALLS {
                continue;
            }
            if let Some(message) = simple(hook, &calls) {
                report.hook(hook, "", message);
            }
        }
    },
};

/// A summary of the webhook's responses, if all are simple and some had an effect.
fn simple(hook: &Hook, calls: &[(&Exchange, &Call)]) -> Option<String> {
    let mut denials: BTreeSet<&str> = BTreeSet::new();
    let mut patches: Vec<&Call> = Vec::new();
    let mut patched = 0;
    for (_, call) in calls {
        match &call.outcome {
            Outcome::Allowed => {}
            Outcome::Denied(message) => {
                denials.insert(message);
            }
            Outcome::Failed(_) => return None,
        }
        if !call.operations.is_empty() {
            patched += 1;
            if !patches
                .iter()
                .any(|known| known.operations == call.operations)
            {
                patches.push(call);
            }
        }
        if denials.len() > FEW_MESSAGES || patches.len() > 1 {
            return None;
        }
    }
    let of = calls.len();
    match (hook.is_mutating(), patches.first(), denials.len()) {
        (true, Some(patch), 0) => {
            let paths: Vec<String> = patch
                .operations
                .iter()
                .map(|operation| format!("`{}`", operation.path))
                .collect();
            Some(format!(
                "{patched} of {of} captured calls returned the same patch of {}, and the others none",
                list(&paths, 3)
            ))
        }
        (_, None, 1..) => {
            let messages: Vec<String> = denials
                .iter()
                .map(|message| format!("`{message}`"))
                .collect();
            Some(format!(
                "all denials among {of} captured calls have the message {}",
                list(&messages, FEW_MESSAGES)
            ))
        }
        _ => None,
    }
}
